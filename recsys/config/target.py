"""Instantiate a ``_target_`` of the configuration, with errors that name the config key."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable
from typing import Any

from hydra.utils import get_object, instantiate

from recsys.errors import ConfigError, UserError

_HYDRAS_OWN = frozenset({"_target_", "_partial_", "_convert_", "_recursive_"})


def check_target(node: Any, key: str) -> None:
    """Compare the keys of ``node`` with what its ``_target_`` takes.

    Args:
        node: the part of the resolved configuration.
        key: where it stands in the configuration.

    Raises:
        ConfigError: no ``_target_``, one that cannot be imported, a key that it does not take, with
            the nearest ones that it does, or one that it needs.
    """
    if not isinstance(node, dict) or not isinstance(node.get("_target_"), str):
        raise ConfigError(f"{key}: choose an option of a group, for it holds no _target_ that could be built")
    parameters = inspect.signature(_target(node["_target_"], f"{key}._target_")).parameters.values()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    # What a factory is called with comes first, by position.
    given = names[:1] if node.get("_partial_") else []
    valid = [n for n in names if n not in given]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown = sorted(set(node) - set(valid) - _HYDRAS_OWN)
    if unknown and not takes_any:
        near = difflib.get_close_matches(unknown[0], valid, n=3, cutoff=0.4) or valid
        raise ConfigError(f"there is no config key '{key}.{unknown[0]}'; nearest valid: {', '.join(near)}")
    needed = {p.name for p in parameters if p.default is p.empty}
    if lacking := [n for n in valid if n in needed and n not in node]:
        raise ConfigError(f"{key}.{lacking[0]}: a value is needed; add +{key}.{lacking[0]}=<value>")


def build_target(node: Any, key: str) -> Any:
    """Instantiate ``node``.

    Raises:
        ConfigError: as :func:`check_target`, or what the constructor objects to.
    """
    check_target(node, key)
    try:
        return instantiate(node, _convert_="all")
    except Exception as error:
        cause = error.__cause__ or error
        if isinstance(cause, UserError):
            raise cause from error
        raise ConfigError(f"{key}: {cause}") from error


def build_factory(node: Any, key: str) -> Callable[..., Any]:
    """A factory (``_partial_``) whose :class:`ConfigError` names ``key``.

    Raises:
        ConfigError: as :func:`build_target`.
    """
    target = build_target(node, key)

    def make(*args: Any) -> Any:
        try:
            return target(*args)
        except ConfigError as error:
            raise ConfigError(f"{key}: {error}") from error

    return make


def _target(path: str, key: str) -> Any:
    try:
        target = get_object(path)
    except Exception as error:
        raise ConfigError(f"{key}={path}: cannot be imported ({' '.join(str(error).split())})") from error
    if not callable(target):
        raise ConfigError(f"{key}={path}: is nothing that could be called")
    return target
