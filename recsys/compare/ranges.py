"""Written ranges, and settings drawn from them: what a random search tries."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recsys.errors import ConfigError

Choice = dict[str, Any]
"""Config keys and their values; ``*`` in a key stands for every part at that place."""
Ranges = dict[str, tuple[Choice, ...]]
"""A name in the tables to its choices, all of which set the same keys."""
Setting = dict[str, Choice]


def read_ranges(path: Path) -> Ranges:
    """Read a YAML mapping: a config key to its values, or any name to choices of several keys that go together.

    Raises:
        ConfigError: the file cannot be read, or an entry is no list of different choices; names file and entry.
    """
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError  # type: ignore[import-untyped, unused-ignore]

    try:
        raw = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"{path}: the ranges cannot be read ({' '.join(str(error).split())})") from error
    if not isinstance(raw, dict) or not raw:
        raise ConfigError(f"{path}: holds no ranges; write one 'config.key: [value, value]' a line")
    return {str(name): _choices(path, str(name), values) for name, values in raw.items()}


def _choices(path: Path, name: str, values: object) -> tuple[Choice, ...]:
    if not isinstance(values, list) or not values:
        raise ConfigError(f"{path}: {name} must be a list of values, such as [0.1, 0.2], not {values!r}")
    choices = tuple(
        {str(k): v for k, v in value.items()} if isinstance(value, dict) else {name: value} for value in values
    )
    keys = {tuple(sorted(choice)) for choice in choices}
    if len(keys) > 1 or () in keys:
        raise ConfigError(f"{path}: every choice of {name} must set the same keys, not {sorted(keys)}")
    if len({show(choice) for choice in choices}) < len(choices):
        raise ConfigError(f"{path}: {name} lists a value twice: {', '.join(map(show, choices))}")
    return choices


def draw_settings(ranges: Ranges, number: int, seed: int) -> list[Setting]:
    """``number`` different settings, each choice as likely as any other.

    Every draw has a generator of its own, keyed by (seed, name, draw): more trials leave the first ones as they are,
    and one more range leaves the draws of the others.

    Raises:
        ConfigError: there are not so many different settings.
    """
    combinations = math.prod(len(choices) for choices in ranges.values())
    if not 1 <= number <= combinations:
        raise ConfigError(f"--trials {number}: must lie from 1 to {combinations}, the number of different settings")
    drawn: dict[tuple[int, ...], None] = {}  # in the order of the draws
    draw = 0
    while len(drawn) < number:
        places = (random.Random(f"{seed}/{name}/{draw}").randrange(len(choices)) for name, choices in ranges.items())
        drawn[tuple(places)] = None
        draw += 1
    names = list(ranges)
    return [{name: ranges[name][place] for name, place in zip(names, places, strict=True)} for places in drawn]


def overrides_of(setting: Setting, cfg: Mapping[str, Any]) -> tuple[str, ...]:
    """The setting as arguments of ``train.py``.

    Args:
        setting: what was drawn.
        cfg: a configuration of the experiment, which tells what ``*`` stands for.

    Raises:
        ConfigError: a ``*`` stands for nothing though there are parts at that place; names the key.
    """
    pairs = ((key, value) for choice in setting.values() for key, value in choice.items())
    return tuple(f"{full}={_text(value)}" for key, value in pairs for full in _expand(key, cfg))


def _expand(key: str, cfg: Mapping[str, Any]) -> list[str]:
    if "*" not in key:
        return [key]
    found = list(_matches(key.split("."), cfg))
    parent = _look_up(key.partition(".*")[0].split("."), cfg)
    if not found and parent != {}:  # a model without such parts has nothing to set
        raise ConfigError(f"{key}: nothing in the experiment's configuration has such a key")
    return found


def _matches(names: Sequence[str], node: object, prefix: str = "") -> Iterator[str]:
    if not names:
        yield prefix
    elif isinstance(node, Mapping):
        for name in list(node) if names[0] == "*" else [names[0]]:
            if name in node:
                yield from _matches(names[1:], node[name], f"{prefix}.{name}".lstrip("."))


def _look_up(names: Sequence[str], node: object) -> object:
    for name in names:
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def show(choice: Choice) -> str:
    """The values of a choice for a table."""
    return ", ".join(_text(value) for value in choice.values())


def _text(value: object) -> str:
    """A value as Hydra's command line reads it."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return str(value)
