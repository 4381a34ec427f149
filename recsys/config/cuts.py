"""The words of ``model.detach``, ``model.local_losses`` and ``model.embedding_grad_from`` as sets of parts."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from typing import Any

from recsys.errors import ConfigError
from recsys.models.recommender import INTERACTION, OVER, Cuts

_WORDS = frozenset({"all", "main", "detached", "undetached"})


def resolve_cuts(model: dict[str, Any]) -> Cuts:
    """Read the cuts out of the config group ``model``.

    Raises:
        ConfigError: a name that is no sub-architecture, with the nearest valid ones.
    """
    archs = list(model["archs"])
    if reserved := sorted(set(archs) & _WORDS):
        raise ConfigError(f"model.archs.{reserved[0]}: this name has a meaning of its own; choose another key")
    detach = _parts("detach", model["detach"], archs, {"all": archs})
    local = _parts("local_losses", model["local_losses"], archs, {"all": archs, "detached": detach})
    main = [INTERACTION] + ([OVER] if model["skip_tokens"] else [])
    words = {"main": main, "all": main + archs, "undetached": main + [a for a in archs if a not in detach]}
    grad_from = _parts("embedding_grad_from", model["embedding_grad_from"], main + archs, words)
    weights = {str(k): float(v) for k, v in model["loss_weights"].items()}
    _parts("loss_weights", list(weights), archs, {})
    if bad := sorted(name for name, weight in weights.items() if not 0 < weight < math.inf):
        raise ConfigError(
            f"model.loss_weights.{bad[0]}={weights[bad[0]]}: must be above 0 and finite; leave a part out of "
            "local_losses instead"
        )
    return Cuts(frozenset(detach), frozenset(local), frozenset(grad_from), bool(model["skip_tokens"]), weights)


def _parts(key: str, value: Any, valid: Sequence[str], words: dict[str, list[str]]) -> list[str]:
    if isinstance(value, str) and value in words:
        return words[value]
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list):
        raise ConfigError(
            f"model.{key}={value!r}: give one of {', '.join(words)} or a list such as [{', '.join(valid[:2])}]"
        )
    for name in names:
        if name in words:
            raise ConfigError(f"model.{key}=[{name}]: {name} is a word, not a part; write model.{key}={name}")
        if name not in valid:
            choices = [*words, *valid]
            near = difflib.get_close_matches(str(name), choices, n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise ConfigError(f"model.{key}: there is no part {name!r}; {hint}Valid: {', '.join(choices)}")
    return [n for n in valid if n in names]
