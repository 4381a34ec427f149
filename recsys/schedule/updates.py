"""What an update operation does: step the optimizers of some parts and drop their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import torch

from recsys.schedule.joint_update import JointUpdate


class Updates(Protocol):
    """Steps parts' optimizers."""

    def step(self, parts: Sequence[str]) -> None:
        """Step the optimizers of ``parts`` and drop the gradients; the same numbers in any grouping."""

    def gradients(self, part: str) -> Iterator[torch.Tensor]:
        """The gradients that the next step of ``part`` will read."""


class OptimizerUpdates:
    """``optimizer.step()``, several alike at once.

    Args:
        optimizers: part name -> optimizer.
    """

    def __init__(self, optimizers: Mapping[str, torch.optim.Optimizer]) -> None:
        self._optimizers = dict(optimizers)
        self._joint: dict[tuple[str, ...], JointUpdate] = {}

    def step(self, parts: Sequence[str]) -> None:
        """See :class:`Updates`."""
        if len(parts) == 1:
            optimizer = self._optimizers[parts[0]]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return
        key = tuple(parts)
        if key not in self._joint:
            self._joint[key] = JointUpdate([self._optimizers[p] for p in parts])
        self._joint[key].step()

    def gradients(self, part: str) -> Iterator[torch.Tensor]:
        """See :class:`Updates`."""
        for group in self._optimizers[part].param_groups:
            yield from (p.grad for p in group["params"] if p.grad is not None)
