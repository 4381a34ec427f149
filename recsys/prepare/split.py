"""Which split a row belongs to: a pure function of the row's place, never of how the input is cut to chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys.prepare.inputs import InputFile
from recsys.prepare.kernels import mix, permute
from recsys.prepare.settings import Settings, shares_of
from recsys.prepare.stage import Chunk, open_rows

BINS = 1 << 16
_GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True)
class Rule:
    """How rows are shared out.

    Attributes:
        kind: as ``Split.kind``.
        num_rows: rows to share out (those of files whose split is not given).
        cuts: places at which train and valid end; times, where ``kind`` is ``time``.
        turn: rows by which the order is turned before it is cut (for folds).
        key: of the random order.
        half_file: the file that ``days`` halves.
    """

    kind: str
    num_rows: int
    cuts: tuple[int, int] = (0, 0)
    turn: int = 0
    key: int = 0
    half_file: int = -1


@dataclass(frozen=True)
class Place:
    """Where a chunk's rows stand among the good rows.

    Attributes:
        file: index of its file.
        first_input: row number in the input of its first row.
        ordinal: among the rows to share out, of its first good row.
        file_ordinal: likewise among the good rows of its file.
        file_rows: good rows of its file.
        split: of the whole file, if the input says so.
    """

    file: int
    first_input: int
    ordinal: int
    file_ordinal: int
    file_rows: int
    split: int | None


def places_of(chunks: list[Chunk], files: list[InputFile]) -> tuple[list[Place], int]:
    """The place of each chunk, and how many rows there are to share out."""
    file_rows = [0] * len(files)
    for chunk in chunks:
        file_rows[chunk.file] += chunk.num_rows
    places, before = [], [0] * len(files)
    first_input = ordinal = 0
    for chunk in chunks:
        given = files[chunk.file].split
        places.append(Place(chunk.file, first_input, ordinal, before[chunk.file], file_rows[chunk.file], given))
        first_input += chunk.num_input
        before[chunk.file] += chunk.num_rows
        ordinal += chunk.num_rows if given is None else 0
    return places, ordinal


def make_rule(settings: Settings, num_rows: int, last_file: int, time_cut: Callable[[int], int]) -> Rule:
    """The rule for so many rows; ``time_cut(n)`` is the least time that at least n rows are not later than."""
    split = settings.split
    if split.kind == "days":
        return Rule("days", num_rows, half_file=last_file)
    shares = np.cumsum(shares_of(settings))
    rest, turn = num_rows, 0
    if split.folds is not None:
        begin, end = (num_rows * i // split.folds for i in (split.fold, split.fold + 1))
        rest, turn = num_rows - (end - begin), end
    cuts = [round(rest * share) for share in shares[:2].tolist()]
    if split.kind == "time":
        return Rule("time", num_rows, (time_cut(cuts[0]), time_cut(cuts[1])))
    key = int(mix(np.uint64((split.seed * _GOLDEN + 1) % 2**64)))
    return Rule(split.kind, num_rows, (cuts[0], cuts[1]), turn, key)


def assign(rule: Rule, place: Place, num_rows: int, times: Any) -> NDArray[np.uint8]:
    """The split (index in ``SPLITS``) of each of a chunk's rows, uint8 ``(num_rows,)``."""
    if place.split is not None:
        return np.full(num_rows, place.split, np.uint8)
    cuts = np.array(rule.cuts, np.int64)
    if rule.kind == "time":
        return np.searchsorted(cuts, times, side="left").astype(np.uint8)
    if rule.kind == "days":
        if place.file != rule.half_file:
            return np.zeros(num_rows, np.uint8)
        in_file = place.file_ordinal + np.arange(num_rows)
        return np.where(in_file < (place.file_rows + 1) // 2, 1, 2).astype(np.uint8)
    positions = place.ordinal + np.arange(num_rows, dtype=np.int64)
    if rule.kind == "random":
        ordinals, positions = positions, np.empty(num_rows, np.int64)
        permute(ordinals, np.uint64(rule.num_rows), np.uint64(rule.key), positions)
    if rule.turn:
        positions = (positions - rule.turn) % rule.num_rows
    return np.searchsorted(cuts, positions, side="right").astype(np.uint8)


def histogram(folder: str, chunk: Chunk, low: int, width: int) -> NDArray[np.int64]:
    """How many of a chunk's rows have a time in each of :data:`BINS` bins of ``width`` from ``low``; and earlier."""
    times = open_rows(folder, chunk).column("time").to_numpy(zero_copy_only=False)
    late = times[times >= low]
    bins = (late.astype(np.uint64) - np.uint64(low % 2**64)) // np.uint64(width)
    return np.bincount(np.minimum(bins, BINS).astype(np.int64), minlength=BINS + 1)
