"""JSON of unknown origin: no repeated keys, no NaN, no depth that ends the interpreter; and typed access."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from recsys.errors import CheckpointError

T = TypeVar("T")


def dump(value: Any) -> bytes:
    """Canonical UTF-8 JSON: sorted keys, no spaces; NaN and infinite numbers are a mistake of the caller."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def parse(data: bytes, place: str) -> dict[str, Any]:
    """The object in ``data``.

    Raises:
        CheckpointError: names ``place``.
    """
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError, MemoryError) as error:
        raise CheckpointError(f"{place}: is not the JSON that was written ({error})") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{place}: holds no JSON object")
    return value


def take(raw: Mapping[str, Any], key: str, kind: type[T], place: str) -> T:
    """``raw[key]``, which must be a ``kind``; a bool is no int.

    Raises:
        CheckpointError: it is missing or something else.
    """
    value = raw.get(key)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise CheckpointError(f"{place}: {key} is {_shown(value)}, but must be of type {kind.__name__}")
    return value


def take_count(raw: Mapping[str, Any], key: str, place: str) -> int:
    """``raw[key]``, a whole number from 0 to 2**63 - 1.

    Raises:
        CheckpointError: it is missing or something else.
    """
    value = take(raw, key, int, place)
    if not 0 <= value < 1 << 63:
        raise CheckpointError(f"{place}: {key} is {_shown(value)}, but must be a count")
    return value


def take_counts(raw: Mapping[str, Any], key: str, place: str) -> tuple[int, ...]:
    """``raw[key]``, a list of whole numbers from 0 to 2**63 - 1.

    Raises:
        CheckpointError: it is missing or something else.
    """
    values = take(raw, key, list, place)
    if not all(type(v) is int and 0 <= v < 1 << 63 for v in values):
        raise CheckpointError(f"{place}: {key} is {_shown(values)}, but must be a list of counts")
    return tuple(values)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:40] + "..."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a key stands twice")
    return result


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")
