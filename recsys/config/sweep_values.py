"""Values that sweeps go through, made from the sub-architectures of a model; resolvers of ``configs/sweep``."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from recsys.errors import ConfigError


def detach_sets(kind: str, archs: Iterable[str]) -> str:
    """Values of ``model.detach``, smallest sets first, as the command line writes them: ``[],[mlp],[cross],...``.

    Args:
        kind: ``subsets``: all 2^n. ``pairs``: those of at most two. ``sizes``: the first 0, 1, ... n in model order.
        archs: names of the sub-architectures in model order.

    Raises:
        ConfigError: another kind, or a model without sub-architectures.
    """
    names = list(archs)
    if not names:
        raise ConfigError("model.archs: the model has no sub-architectures to detach; use +experiment=erase6, say")
    if kind == "sizes":
        sets: list[tuple[str, ...]] = [tuple(names[:size]) for size in range(len(names) + 1)]
    elif kind in ("subsets", "pairs"):
        largest = len(names) if kind == "subsets" else min(2, len(names))
        sets = [chosen for size in range(largest + 1) for chosen in itertools.combinations(names, size)]
    else:
        raise ConfigError(f"detach_sets:{kind}: valid are subsets, pairs, sizes")
    return ",".join(f"[{','.join(chosen)}]" for chosen in sets)


def loss_weights(weights: str, archs: Iterable[str]) -> str:
    """Values of ``model.loss_weights``, one weight for all: ``{mlp:0.1,cross:0.1},{mlp:1,cross:1}``."""
    names = list(archs)
    return ",".join(f"{{{','.join(f'{name}:{weight}' for name in names)}}}" for weight in weights.split(","))
