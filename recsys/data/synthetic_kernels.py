"""Compiled inner loops of the synthetic data: one pass over the rows makes every column and the label.

Everything compiled stands in this one file, because numba's cache only notices changes of the file
that holds the cached function, not of files it calls into.

A value is drawn by hashing (row, stream of the column): no state goes from one row to the next. Up
to the label's sigmoid and the logarithm of large counts there are only integer operations, IEEE
additions, multiplications, divisions and square roots, so the same machine kind gives the same bits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
UInt64 = NDArray[np.uint64]

NUM_DENSE = 13
NUM_SPARSE = 26
NUM_LATENTS = 5  # coordinates of an id: first order, two for pairs, one for triples, first order after drift
NUM_PARTS = 4  # teacher parts: first order, pair, triple, dense
MISSING = np.float32(-1.0)  # a dense value that is absent; log1p of a count is never negative

# Streams: what a hash is drawn for. Sparse columns take STREAM_SPARSE + column, and so on.
STREAM_LABEL, STREAM_USER, STREAM_ITEM = 0, 1, 2
STREAM_DENSE = 16
STREAM_SPARSE = 32
STREAM_LENGTH = 64
STREAM_LATENT = 96
NUM_STREAMS = 128

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S11, _S12, _S27, _S30, _S31 = (np.uint64(s) for s in (11, 12, 27, 30, 31))
_LOW12 = np.uint64(0xFFF)
_UNIT = 2.0**-53
_LATENT_SCALE = math.sqrt(12.0) / 4096.0  # a uniform 12-bit number to unit variance
_MAX_COUNT = 2.0**24


class Columns(NamedTuple):
    """Distributions of the columns (one entry or row per column).

    Attributes:
        keys: hash key of each stream, ``(NUM_STREAMS,)``.
        dense_group, sparse_group: latent the column follows: 0 none, 1 user type, 2 item type.
        dense_shift, sparse_shift: where on the circle of the latent the column's quantiles begin.
        dense_width, sparse_width: share of the circle that is the column's own noise, in (0, 1].
        dense_scale: scale of the count distribution.
        dense_tail: tail index of the counts (0: 1/2, 1: 1, 2: 2).
        dense_missing: probability that the value is missing.
        log1p: ``log(1 + count)`` of the small counts.
        quantiles: inverse distribution of (rank + 1), linear between knots, ``(NUM_SPARSE, knots)``.
        cardinality: ids per column.
    """

    keys: UInt64
    dense_group: Int64
    dense_shift: Float64
    dense_width: Float64
    dense_scale: Float64
    dense_tail: Int64
    dense_missing: Float64
    log1p: Float64
    quantiles: Float64
    cardinality: Int64
    sparse_group: Int64
    sparse_shift: Float64
    sparse_width: Float64


class Teacher(NamedTuple):
    """The true model of the click.

    Attributes:
        head: ids up to about this popularity rank carry the full effect; it fades as 1/rank beyond.
        centre, inverse_sd: standardise the latents of a column, ``(NUM_SPARSE, NUM_LATENTS)``.
        dense_mean, dense_inverse_sd: standardise the present dense values.
        sparse_weight, dense_weight: first-order weight of each column.
        pairs, triples: interacting columns, ``(P, 2)`` and ``(Q, 3)``.
        part_scale: logit = bias + sum over parts of scale * part, ``(NUM_PARTS,)``.
        bias: see above.
        drift: how far the first-order effects turn per million rows (0: never).
    """

    head: float
    centre: Float64
    inverse_sd: Float64
    dense_mean: Float64
    dense_inverse_sd: Float64
    sparse_weight: Float64
    dense_weight: Float64
    pairs: Int64
    triples: Int64
    part_scale: Float64
    bias: float
    drift: float


@numba.njit(cache=True, nogil=True, inline="always")
def mix(x):  # type: ignore[no-untyped-def]
    """Finaliser of splitmix64 (Steele, Lea and Flood 2014; constants of Stafford's variant 13)."""
    x = (x ^ (x >> _S30)) * _M1
    x = (x ^ (x >> _S27)) * _M2
    return x ^ (x >> _S31)


@numba.njit(cache=True, nogil=True, inline="always")
def _uniform(row, key):  # type: ignore[no-untyped-def]
    """A number in [0, 1) for this row and stream."""
    return np.float64(mix(key + row * GOLDEN) >> _S11) * _UNIT


@numba.njit(cache=True, nogil=True, inline="always")
def _turn(latent, shift, width, noise):  # type: ignore[no-untyped-def]
    """Quantile of a column that follows a latent: uniform for every width, dependent for small ones."""
    u = latent + shift + width * noise
    return u - math.floor(u)


@numba.njit(cache=True, nogil=True, inline="always")
def _wave(x):  # type: ignore[no-untyped-def]
    """Triangle wave of period 2 between -1 and 1: a sine without the transcendental."""
    half = 0.5 * x
    return 4.0 * abs(half - math.floor(half + 0.5)) - 1.0


@numba.njit(cache=True, nogil=True, inline="always")
def _count(u, scale, tail):  # type: ignore[no-untyped-def]
    """Lomax (shifted Pareto) quantile, floored to a count: tail index 1/2, 1 or 2."""
    rest = 1.0 / (1.0 - u)
    if tail == 0:
        rest *= rest
    elif tail == 2:
        rest = math.sqrt(rest)
    return min(math.floor(scale * (rest - 1.0)), _MAX_COUNT)


@numba.njit(cache=True, nogil=True)
def fill_lengths(start, columns, max_length, lengths):  # type: ignore[no-untyped-def]
    """Ids per row: one where ``max_length`` is 1, else none with .1, then one more with .6 each up to the most.

    Args:
        start: index of the first row.
        columns: see ``Columns``.
        max_length: per column, ``(NUM_SPARSE,)``; 1 is one-hot.
        lengths: int32 ``(NUM_SPARSE, B)``, written.
    """
    for c in range(NUM_SPARSE):
        key = columns.keys[STREAM_LENGTH + c]
        for i in range(lengths.shape[1]):
            length = 1
            if max_length[c] > 1:
                u = _uniform(np.uint64(start + i), key)
                length = 0
                edge = 0.1  # a tenth of the rows has no id at all
                while length < max_length[c] and u >= edge:
                    length += 1
                    edge += (1.0 - edge) * 0.4
            lengths[c, i] = length


@numba.njit(cache=True, nogil=True, inline="always")
def _dense_row(row, user, item, columns, teacher, dense, t):  # type: ignore[no-untyped-def]
    """Fill one row of dense values; ``t`` gets them standardised and clipped, 0 where missing."""
    for j in range(NUM_DENSE):
        bits = mix(columns.keys[STREAM_DENSE + j] + row * GOLDEN)
        u = np.float64(bits >> _S11) * _UNIT
        if np.float64(bits & np.uint64(0x7FF)) < columns.dense_missing[j] * 2048.0:
            dense[j] = MISSING
            t[j] = 0.0
            continue
        group = columns.dense_group[j]
        latent = user if group == 1 else item
        if group > 0:
            u = _turn(latent, columns.dense_shift[j], columns.dense_width[j], u)
        count = _count(u, columns.dense_scale[j], columns.dense_tail[j])
        value = columns.log1p[int(count)] if count < columns.log1p.shape[0] else math.log1p(count)
        dense[j] = value
        t[j] = max(-2.5, min(2.5, (value - teacher.dense_mean[j]) * teacher.dense_inverse_sd[j]))


@numba.njit(cache=True, nogil=True, inline="always")
def _sparse_row(i, row, user, item, columns, teacher, offsets, values, z):  # type: ignore[no-untyped-def]
    """Fill one row of ids; ``z`` gets the sum of the ids' latents per column, ``(NUM_SPARSE, NUM_LATENTS)``."""
    num_rows = (offsets.shape[0] - 1) // NUM_SPARSE
    num_cells = columns.quantiles.shape[1] - 1
    for c in range(NUM_SPARSE):
        group = columns.sparse_group[c]
        latent = user if group == 1 else item
        base = columns.keys[STREAM_SPARSE + c] + row * GOLDEN
        for k in range(NUM_LATENTS):
            z[c, k] = 0.0
        first = offsets[c * num_rows + i]
        for at in range(first, offsets[c * num_rows + i + 1]):
            bits = mix(base)
            if at > first:
                bits = mix(bits + np.uint64(at - first) * GOLDEN)
            u = np.float64(bits >> _S11) * _UNIT
            if group > 0:
                u = _turn(latent, columns.sparse_shift[c], columns.sparse_width[c], u)
            position = u * num_cells
            cell = int(position)
            low = columns.quantiles[c, cell]
            rank = int(low + (position - cell) * (columns.quantiles[c, cell + 1] - low)) - 1
            rank = min(rank, columns.cardinality[c] - 1)
            values[at] = rank
            fade = teacher.head / (teacher.head + rank)
            latents = mix(columns.keys[STREAM_LATENT + c] + np.uint64(rank) * GOLDEN)
            for k in range(NUM_LATENTS):
                raw = (np.float64(latents & _LOW12) - 2047.5) * _LATENT_SCALE
                z[c, k] += (raw * fade - teacher.centre[c, k]) * teacher.inverse_sd[c, k]
                latents >>= _S12


def id_latents(ids: Int64, key: np.uint64, head: float) -> Float64:
    """Latents of ids as the kernel computes them, before they are standardised, ``(n, NUM_LATENTS)``."""
    bits = mix.py_func(key + ids.astype(np.uint64) * GOLDEN)
    raw = [(bits >> (_S12 * np.uint64(k)) & _LOW12).astype(np.float64) - 2047.5 for k in range(NUM_LATENTS)]
    fade = head / (head + ids)
    return np.stack(raw, axis=1) * (_LATENT_SCALE * fade[:, None])


@numba.njit(cache=True, nogil=True, inline="always")
def _teacher_row(row, teacher, dense, t, z, parts):  # type: ignore[no-untyped-def]
    """Parts of the logit of one row: first order, pair, triple, dense."""
    moved = teacher.drift * np.float64(row) * 1e-6
    stay = 1.0
    if moved > 0.0:
        swing = 0.5 * (1.0 + _wave(moved))  # 0 at row 0, 1 when fully turned
        scale = 1.0 / math.sqrt(swing * swing + (1.0 - swing) * (1.0 - swing))
        moved = swing * scale
        stay = (1.0 - swing) * scale
    first = 0.0
    for c in range(NUM_SPARSE):
        first += teacher.sparse_weight[c] * (stay * z[c, 0] + moved * z[c, 4])
    for j in range(NUM_DENSE):
        first += teacher.dense_weight[j] * t[j]
    pair = 0.0
    for p in range(teacher.pairs.shape[0]):
        a, b = teacher.pairs[p, 0], teacher.pairs[p, 1]
        pair += z[a, 1] * z[b, 1] + z[a, 2] * z[b, 2]
    triple = 0.0
    for q in range(teacher.triples.shape[0]):
        a, b, c = teacher.triples[q, 0], teacher.triples[q, 1], teacher.triples[q, 2]
        triple += z[a, 3] * z[b, 3] * z[c, 3]
    curve = _wave(1.5 * t[6]) + _wave(t[4] + 0.5)
    curve += 1.0 if t[8] > 0.4 else -1.0
    curve += t[3] * t[10] + abs(t[7]) - abs(t[5])
    curve += 1.0 if (dense[0] < 0.0) != (dense[9] < 0.0) else 0.0
    parts[0], parts[1], parts[2], parts[3] = first, pair, triple, curve


@numba.njit(cache=True, nogil=True)
def fill_rows(start, columns, teacher, offsets, values, dense, labels, probability, parts):  # type: ignore[no-untyped-def]
    """Make rows ``start .. start + B``.

    Args:
        start: index of the first row.
        columns, teacher: see ``Columns`` and ``Teacher``.
        offsets: int64 ``(NUM_SPARSE * B + 1,)``, where each row's ids begin, feature-major.
        values: int64 ids, feature-major, written.
        dense: float32 ``(B, NUM_DENSE)``, written.
        labels: float32 ``(B,)``, written.
        probability: float64 ``(B,)`` true click probability, written.
        parts: float64 ``(B, NUM_PARTS)`` unscaled parts of the logit, written.
    """
    t = np.empty(NUM_DENSE)
    z = np.empty((NUM_SPARSE, NUM_LATENTS))
    for i in range(labels.shape[0]):
        row = np.uint64(start + i)
        user = _uniform(row, columns.keys[STREAM_USER])
        item = _uniform(row, columns.keys[STREAM_ITEM])
        _dense_row(row, user, item, columns, teacher, dense[i], t)
        _sparse_row(i, row, user, item, columns, teacher, offsets, values, z)
        _teacher_row(row, teacher, dense[i], t, z, parts[i])
        logit = teacher.bias
        for k in range(NUM_PARTS):
            logit += teacher.part_scale[k] * parts[i, k]
        # Kept strictly inside (0, 1), so that entropies are finite.
        probability[i] = 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, logit))))
        labels[i] = 1.0 if _uniform(row, columns.keys[STREAM_LABEL]) < probability[i] else 0.0
