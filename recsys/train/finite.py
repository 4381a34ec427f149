"""Notice a loss that is NaN or infinite, and name where it came from."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from recsys.errors import NonFiniteError


class FiniteGuard:
    """Watches every part's loss without waiting for the device in each step.

    Losses gather on the device, one small kernel a step; ``check`` reads them. Every ``every`` steps ``update``
    checks by itself. Steps are counted from ``first_step``.
    """

    def __init__(self, every: int, first_step: int = 0) -> None:
        self._every = every
        self._steps = first_step
        self._names: list[str] = []
        self._pending: list[torch.Tensor] = []

    def update(self, losses: Mapping[str, torch.Tensor]) -> None:
        """Look at the losses of one step.

        Raises:
            NonFiniteError: as ``check``.
        """
        self._names = list(losses)
        self._pending.append(torch.stack([loss.float() for loss in losses.values()]))
        self._steps += 1
        if self._steps % self._every == 0:
            self.check()

    def check(self) -> None:
        """Read the losses since the last check.

        Raises:
            NonFiniteError: some loss was not finite; names the part and the step in which it began.
        """
        if not self._pending:
            return
        first = self._steps - len(self._pending)
        finite_SK = torch.isfinite(torch.stack(self._pending)).cpu()
        self._pending = []
        if bool(finite_SK.all()):
            return
        steps = [first + int(column.logical_not().nonzero()[0]) if not column.all() else -1 for column in finite_SK.t()]
        bad = [(step, name) for name, step in zip(self._names, steps, strict=True) if step >= 0]
        # Of equal steps the earliest in model order is the source, for later parts read its output.
        step = min(s for s, _ in bad)
        part, *others = (n for s, n in bad if s == step)
        also = f" (and with it that of {', '.join(map(repr, others))})" if others else ""
        raise NonFiniteError(nonfinite_message(f"the loss of part {part!r}{also}", step))


def nonfinite_message(what: str, step: int) -> str:
    """What a person reads who has to do something about it."""
    return (
        f"{what} became NaN or infinite in step {step}, counted from 0; lower optim.lr or sparse.lr, use "
        "optim.lr_schedule.warmup_steps, or look for extreme values among the dense features"
    )
