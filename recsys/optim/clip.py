"""Clipping by the global norm of all gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from recsys.errors import ConfigError

# torch.nn.utils.clip_grad_norm_ has the same: a norm of 0 must not divide.
_EPS = 1e-6


@dataclass(frozen=True)
class ClipByGlobalNorm:
    """Scale gradients so that the norm of all together is at most ``max_norm`` (Pascanu et al., 2013).

    On several processes the gradients are the sums over ranks, so every rank finds the same norm. Nothing is read on
    the host. Tables whose optimizer is fused into their backward have no gradient that could be counted.
    """

    max_norm: float

    @torch.no_grad()
    def __call__(self, gradients: Sequence[torch.Tensor]) -> None:
        """Scale in place."""
        grads = list(gradients)
        if not grads:
            return
        norms = torch._foreach_norm(grads, 2, dtype=torch.float32)
        total = torch.linalg.vector_norm(torch.stack(norms))
        torch._foreach_mul_(grads, (self.max_norm / (total + _EPS)).clamp(max=1.0))


def make_clip(max_norm: float | None, *, early_update: bool) -> ClipByGlobalNorm | None:
    """What ``optim.clip_norm`` asks for.

    Raises:
        ConfigError: parts are updated before the norm is known.
    """
    if max_norm is None:
        return None
    if early_update:
        raise ConfigError(
            f"optim.clip_norm={max_norm}: the global norm is known after the last backward, but "
            "schedule.early_update=true updates parts before; add schedule.early_update=false"
        )
    return ClipByGlobalNorm(max_norm)
