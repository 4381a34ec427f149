"""Learning rates that a captured step reads from the device."""

from __future__ import annotations

from collections.abc import Mapping

import torch

_CAPTURABLE = (torch.optim.Adam, torch.optim.AdamW)
# Plain SGD keeps no step counter, so it can be captured as it is.
_STATELESS = (torch.optim.SGD,)


def make_capturable(optimizers: Mapping[str, torch.optim.Optimizer], device: torch.device) -> list[str]:
    """Let optimizers on a GPU keep step counters and learning rates on the device.

    Groups of one rate share one tensor, so that a schedule writes one number a step. The update's
    numbers do not change.

    Returns:
        Names of the parts whose optimizer cannot be captured (Adagrad counts its steps on the host).
    """
    rates: dict[float, torch.Tensor] = {}
    refused: list[str] = []
    for name, optimizer in optimizers.items():
        if not isinstance(optimizer, _CAPTURABLE + _STATELESS):
            refused.append(name)
            continue
        for group in optimizer.param_groups:
            lr = float(group["lr"])
            group["lr"] = rates.setdefault(lr, torch.tensor(lr, device=device, dtype=torch.float32))
            if isinstance(optimizer, _CAPTURABLE):
                group["capturable"] = True
        # The steps before a capture run eagerly on purpose, which torch would warn about.
        optimizer._warned_capturable_if_run_uncaptured = True
    return refused


class LearningRates:
    """The configured rates of several optimizers, and a factor on all of them.

    Rates that are tensors are written in place: a captured step reads them there.
    """

    def __init__(self, optimizers: Mapping[str, torch.optim.Optimizer]) -> None:
        self._optimizers = dict(optimizers)
        self._groups = [g for o in optimizers.values() for g in o.param_groups]
        self._base = [float(g["lr"]) for g in self._groups]

    def current(self) -> dict[str, float]:
        """The rate of every part's first group by part name; waits for the device."""
        return {name: float(o.param_groups[0]["lr"]) for name, o in self._optimizers.items()}

    def set_factor(self, factor: float) -> None:
        """Set every rate to ``factor`` times the configured one."""
        written: set[int] = set()
        for group, base in zip(self._groups, self._base, strict=True):
            lr = group["lr"]
            if not isinstance(lr, torch.Tensor):
                group["lr"] = base * factor
            elif id(lr) not in written:
                lr.fill_(base * factor)
                written.add(id(lr))
