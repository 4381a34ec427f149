"""How the configuration of a resumed run differs from that of its checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recsys.errors import ConfigError

_ABSENT = "(absent)"


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Dotted key -> value before and now, where they differ."""
    old, new = _flat(before), _flat(now)
    keys = [*new, *(k for k in old if k not in new)]
    return {k: (old.get(k, _ABSENT), new.get(k, _ABSENT)) for k in keys if old.get(k, _ABSENT) != new.get(k, _ABSENT)}


def check_changes(
    before: Mapping[str, Any], now: Mapping[str, Any], allowed: Sequence[str] | str, place: str
) -> list[str]:
    """Compare the configuration of a checkpoint with the one that shall go on from it.

    Args:
        before: of the checkpoint.
        now: of this run.
        allowed: keys, or beginnings of keys, that may differ; ``all`` for every one.
        place: the checkpoint, for messages.

    Returns:
        The differences that are allowed, a line each.

    Raises:
        ConfigError: others, each with its value then and now.
    """
    found = differences(before, now)
    words = [allowed] if isinstance(allowed, str) else list(allowed)
    refused = {k: v for k, v in found.items() if "all" not in words and not any(_covers(w, k) for w in words)}
    if refused:
        lines = "\n".join(f"  {_line(key, values)}" for key, values in refused.items())
        keys = ",".join(refused)
        raise ConfigError(
            f"{place}: was made with another configuration:\n{lines}\nuse its values, or allow the change with "
            f"checkpoint.allow_changes=[{keys}]; the run is then no longer the one that was interrupted"
        )
    return [_line(key, values) for key, values in found.items()]


def _covers(word: str, key: str) -> bool:
    return key == word or key.startswith(f"{word}.")


def _line(key: str, values: tuple[Any, Any]) -> str:
    return f"{key}: {values[0]} in the checkpoint, {values[1]} now"


def _flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in node.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = list(value) if isinstance(value, tuple) else value
    return flat
