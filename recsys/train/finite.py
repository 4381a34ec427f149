"""Notice a loss that is NaN or infinite, and name where it came from."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from recsys.errors import NonFiniteError


class FiniteGuard:
    """Watches every part's loss without waiting for the device in each step.

    Flags gather on the device; ``check`` reads them. On a CPU, and every ``every`` steps elsewhere,
    ``update`` checks by itself.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._steps = 0
        self._names: list[str] = []
        self._first: torch.Tensor | None = None

    def update(self, losses: Mapping[str, torch.Tensor]) -> None:
        """Look at the losses of one step.

        Raises:
            NonFiniteError: as ``check``.
        """
        names = list(losses)
        stacked = torch.stack([losses[n].float() for n in names])
        if self._first is None:
            self._names = names
            self._first = torch.full(stacked.shape, -1, dtype=torch.int64, device=stacked.device)
        fresh = ~torch.isfinite(stacked) & (self._first < 0)
        self._first = torch.where(fresh, self._steps, self._first)
        self._steps += 1
        if self._steps % self._every == 0:
            self.check()

    def check(self) -> None:
        """Read the flags.

        Raises:
            NonFiniteError: some loss was not finite; names the part and the step in which it began.
        """
        if self._first is None:
            return
        bad = [(step, name) for name, step in zip(self._names, self._first.tolist(), strict=True) if step >= 0]
        if bad:
            # Of equal steps the earliest in model order is the source, for later parts read its output.
            step = min(s for s, _ in bad)
            part, *others = (n for s, n in bad if s == step)
            also = f" (and with it that of {', '.join(map(repr, others))})" if others else ""
            raise NonFiniteError(
                f"the loss of part {part!r}{also} became NaN or infinite in step {step}, counted from 0; lower "
                "optim.lr or sparse.lr, use optim.lr_schedule.warmup_steps, or look for extreme values among the "
                "dense features"
            )
