"""Several optimizers' steps in one fused kernel."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch


class JointUpdate:
    """Steps optimizers of one kind and one set of hyperparameters as if they were one.

    Every optimizer keeps its own parameters and state, so checkpoints do not depend on the schedule;
    a view over all of them shares their state and steps them in one pass. Element-wise optimizers
    (SGD, Adam, AdamW, Adagrad) give the same numbers as one after the other. Unlike optimizers are
    stepped one by one.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._optimizers = list(optimizers)
        self._view: torch.optim.Optimizer | None = None

    def step(self) -> None:
        """Update every parameter and drop its gradient."""
        if not self._alike():
            for optimizer in self._optimizers:
                optimizer.step()
        else:
            view = self._view = self._refreshed_view()
            view.step()
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)

    def _alike(self) -> bool:
        first = self._optimizers[0]
        options = _options(first.param_groups[0])
        return all(
            type(o) is type(first) and all(_same(_options(g), options) for g in o.param_groups)
            for o in self._optimizers
        )

    def _refreshed_view(self) -> torch.optim.Optimizer:
        first = self._optimizers[0]
        view = self._view
        if view is None:
            view = copy.copy(first)
            # A copy does not say that the steps before a capture run eagerly on purpose.
            view._warned_capturable_if_run_uncaptured = True
        params = [p for o in self._optimizers for g in o.param_groups for p in g["params"]]
        view.param_groups = [{**first.param_groups[0], "params": params}]
        # The very dictionaries of the owners: what the view's first step puts in, they hold, too.
        view.state = defaultdict(
            dict, {p: o.state[p] for o in self._optimizers for g in o.param_groups for p in g["params"]}
        )
        return view


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in group.items() if k != "params"}


def _same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    if a.keys() != b.keys():
        return False
    # Tensors (learning rates on a device) are alike if they are one tensor: reading them would wait for the device.
    return all(v is b[k] if isinstance(v, torch.Tensor) else v == b[k] for k, v in a.items())
