"""Compiled loops over bytes and rows: Criteo's lines, text hashes, exact sums, a keyed permutation."""

from __future__ import annotations

import numba
import numpy as np

NUM_INTEGERS = 13
NUM_TOKENS = 26

_NEWLINE, _TAB, _MINUS, _ZERO, _NINE = 10, 9, 45, 48, 57
# 2^63 - 1 = 922337203685477580 * 10 + 7
_TENTH = np.uint64(922337203685477580)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_U1, _U10, _U27, _U30, _U31, _U32 = (np.uint64(n) for n in (1, 10, 27, 30, 31, 32))
_MASK32 = np.uint64(0xFFFFFFFF)


@numba.njit(cache=True, nogil=True)
def parse_criteo(text, ends, labels, integers, no_integer, tokens, no_token, bad):  # type: ignore[no-untyped-def]
    """Parse whole lines of Criteo's TSV; a line that is anything but clean is flagged and left to the slow path.

    Args:
        text: uint8, the bytes.
        ends: int64 ``(L,)``, where each line's newline stands.
        labels: uint8 ``(L,)``, written.
        integers, no_integer: int64 and bool ``(13, L)``, written; 0 and True where missing.
        tokens, no_token: uint32 and bool ``(26, L)``, written likewise.
        bad: bool ``(L,)``, written.
    """
    begin = 0
    for i in range(ends.shape[0]):
        end = ends[i]
        at = begin
        begin = end + 1
        bad[i] = True
        if at + 2 > end or (text[at] != 48 and text[at] != 49) or text[at + 1] != _TAB:
            continue
        labels[i] = text[at] - _ZERO
        at += 2
        good = True
        for c in range(NUM_INTEGERS):
            negative = text[at] == _MINUS
            first = at + 1 if negative else at
            at = first
            value = np.uint64(0)
            while _ZERO <= text[at] <= _NINE:
                digit = np.uint64(text[at] - _ZERO)
                if value > _TENTH or (value == _TENTH and digit > np.uint64(8 if negative else 7)):
                    good = False
                    break
                value = value * _U10 + digit
                at += 1
            # Every line ends with a newline, which is no digit, so no loop runs past it.
            if not good or text[at] != _TAB or (at == first and negative):
                good = False
                break
            no_integer[c, i] = at == first
            integers[c, i] = np.int64(~value + _U1) if negative else np.int64(value)
            at += 1
        if not good:
            continue
        for c in range(NUM_TOKENS):
            first = at
            token = np.uint32(0)
            while at - first < 8:
                char = text[at]
                if _ZERO <= char <= _NINE:
                    nibble = char - _ZERO
                elif 97 <= char <= 102:
                    nibble = char - 87
                elif 65 <= char <= 70:
                    nibble = char - 55
                else:
                    break
                token = (token << np.uint32(4)) | np.uint32(nibble)
                at += 1
            if text[at] != (_TAB if c + 1 < NUM_TOKENS else _NEWLINE):
                good = False
                break
            no_token[c, i] = at == first
            tokens[c, i] = token
            at += 1
        bad[i] = not good


@numba.njit(cache=True, nogil=True, inline="always")
def mix(x):  # type: ignore[no-untyped-def]
    """SplitMix64's finalizer (Steele, Lea, Flood, 2014): a bijection of uint64."""
    x = (x ^ (x >> _U30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> _U27)) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> _U31)


@numba.njit(cache=True, nogil=True)
def hash_numbers(values, hashes):  # type: ignore[no-untyped-def]
    """Hash int64 ``(V,)`` to uint64 ``(V,)``."""
    for i in range(values.shape[0]):
        hashes[i] = mix(np.uint64(values[i]) + _GOLDEN)


@numba.njit(cache=True, nogil=True)
def hash_texts(offsets, text, hashes):  # type: ignore[no-untyped-def]
    """Hash the byte strings ``text[offsets[i]:offsets[i + 1]]`` to uint64 ``(V,)``: FNV-1a, then mixed."""
    for i in range(hashes.shape[0]):
        h = np.uint64(0xCBF29CE484222325)
        for k in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(text[k])) * np.uint64(0x100000001B3)
        hashes[i] = mix(h)


@numba.njit(cache=True, nogil=True)
def permute(ordinals, num_rows, key, places):  # type: ignore[no-untyped-def]
    """Send each of ``0 .. num_rows - 1`` to a place of its own in the same range, at random by ``key``.

    A four-round Feistel network on the next larger even number of bits; what falls outside the range is sent on
    until it falls inside (cycle walking: Black and Rogaway, 2002). So exact shares need no list of all rows.
    """
    half = np.uint64(1)
    while (_U1 << (half + half)) < num_rows:
        half += _U1
    mask = (_U1 << half) - _U1
    for i in range(ordinals.shape[0]):
        x = np.uint64(ordinals[i])
        while True:
            left, right = x >> half, x & mask
            for r in range(4):
                turn = mix(right + mix(key + np.uint64(r + 1) * _GOLDEN))
                left, right = right, left ^ (turn & mask)
            x = (left << half) | right
            if x < num_rows:
                break
        places[i] = np.int64(x)


@numba.njit(cache=True, nogil=True)
def exact_sums(values, bits, limbs):  # type: ignore[no-untyped-def]
    """Add finite float64 values and their squares without rounding; see ``recsys.prepare.moments``.

    Args:
        values: float64 ``(V,)``.
        bits: the same memory as uint64.
        limbs: int64 ``(2048, 8)``, added to: a row for each exponent, in it the low and high 32 bits of the sums of
            mantissas and of the three products of their halves.
    """
    for i in range(values.shape[0]):
        exponent = np.int64((bits[i] >> np.uint64(52)) & np.uint64(0x7FF))
        mantissa = bits[i] & np.uint64(0xFFFFFFFFFFFFF)
        if exponent:
            mantissa |= _U1 << np.uint64(52)
        else:
            exponent = np.int64(1)
        sign = np.int64(-1) if values[i] < 0 else np.int64(1)
        row = limbs[exponent]
        row[0] += sign * np.int64(mantissa & _MASK32)
        row[1] += sign * np.int64(mantissa >> _U32)
        high, low = mantissa >> _U27, mantissa & np.uint64((1 << 27) - 1)
        square = high * high
        row[2] += np.int64(square & _MASK32)
        row[3] += np.int64(square >> _U32)
        square = high * low
        row[4] += np.int64(square & _MASK32)
        row[5] += np.int64(square >> _U32)
        square = low * low
        row[6] += np.int64(square & _MASK32)
        row[7] += np.int64(square >> _U32)
