"""Sums of dense gradients over ranks: one all-reduce a part, or one for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist


@dataclass
class _Open:
    """A reduction under way."""

    work: Any
    flat: torch.Tensor
    gradients: list[torch.Tensor]


class PartReduction:
    """One asynchronous all-reduce for each part, launched by the part's REDUCE operation.

    A part's gradients travel as one float32 buffer, which lives on: a captured step finds it at its address, and
    no stream frees it under another. No hook and no DDP: ranks launch in the order of the program.

    Args:
        group: the ranks; one that nobody else uses, or reductions queue behind exchanges of ids.
    """

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group
        self._buffers: dict[str, torch.Tensor] = {}
        self._open: dict[str, _Open] = {}

    def launch(self, part: str, gradients: Sequence[torch.Tensor]) -> None:
        """See :class:`recsys.schedule.step.Reduction`."""
        if gradients:
            self._open[part] = self._reduce(part, list(gradients))

    def settle(self, parts: Sequence[str]) -> None:
        """See :class:`recsys.schedule.step.Reduction`."""
        for part in parts:
            if part in self._open:
                self._take_back(self._open.pop(part))

    @torch.no_grad()
    def _reduce(self, key: str, gradients: list[torch.Tensor]) -> _Open:
        size = sum(g.numel() for g in gradients)
        flat = self._buffers.get(key)
        if flat is None or flat.numel() != size:
            flat = self._buffers[key] = torch.empty(size, dtype=torch.float32, device=gradients[0].device)
        torch._foreach_copy_(_views(flat, gradients), gradients)
        return _Open(dist.all_reduce(flat, group=self._group, async_op=True), flat, gradients)

    @torch.no_grad()
    def _take_back(self, reduction: _Open) -> None:
        reduction.work.wait()
        torch._foreach_copy_(reduction.gradients, _views(reduction.flat, reduction.gradients))


class JointReduction(PartReduction):
    """All parts in one all-reduce after the last backward: what ERASE's early reductions are compared with."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__(group)
        self._collected: list[torch.Tensor] = []

    def launch(self, part: str, gradients: Sequence[torch.Tensor]) -> None:
        """Only collect: the reduction starts when the first part is settled."""
        self._collected.extend(gradients)

    def settle(self, parts: Sequence[str]) -> None:
        """Reduce all that was collected."""
        if self._collected:
            collected, self._collected = self._collected, []
            self._take_back(self._reduce("", collected))


def make_reduction(kind: str, group: dist.ProcessGroup) -> PartReduction:
    """The reduction that ``schedule.reduce`` asks for."""
    return JointReduction(group) if kind == "joint" else PartReduction(group)


def _views(flat: torch.Tensor, gradients: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    parts = flat.split([g.numel() for g in gradients])
    return [part.view(gradient.shape) for part, gradient in zip(parts, gradients, strict=True)]
