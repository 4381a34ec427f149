"""What YAML gives for a schema: each key once, and each value of its kind."""

from __future__ import annotations

from typing import Any

import yaml

from recsys.errors import ConfigError

# What YAML must give for keys whose values are not checked one by one, and how a message says it.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "column": ((str, type(None)), "the name of a column, in quotes if it looks like a number"),
    "weight": ((str, type(None)), "the name of a column, in quotes if it looks like a number"),
    "group": ((str, type(None)), "the name of a column, in quotes if it looks like a number"),
    "time": ((str, type(None)), "the name of a column, in quotes if it looks like a number"),
    "separator": ((str, type(None)), "a text, in quotes"),
    "indicator": ((bool,), "true or false"),
    "header": ((bool,), "true or false"),
    "quote": ((bool,), "true or false"),
    "columns": ((list,), "a list of names, in quotes if they look like numbers"),
    "null_values": ((list,), "a list of texts, in quotes if they look like numbers"),
}


class UniqueKeys(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping; YAML alone would take the last one."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key.value, str) and key.value in seen:
                raise yaml.YAMLError(f"line {key.start_mark.line + 1}: the key {key.value!r} stands twice; keep one")
            seen.update([key.value] if isinstance(key.value, str) else [])
        return super().construct_mapping(node, deep)


def check_kinds(options: dict[str, Any], prefix: str) -> None:
    """Refuse a value of a wrong kind.

    Raises:
        ConfigError: begins with ``prefix`` and the key.
    """
    for key, value in options.items():
        kinds, words = _KINDS.get(key, ((object,), ""))
        texts = value if isinstance(value, list) and kinds == (list,) else []
        if not isinstance(value, kinds) or value == "" or not all(isinstance(text, str) for text in texts):
            raise ConfigError(f"{prefix}{key}: {value!r} must be {words}")
