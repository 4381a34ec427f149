"""Updates that read low-precision gradients and write low-precision copies of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from recsys.schedule.updates import OptimizerUpdates
from recsys.schedule.weights import CastWeights


@dataclass
class _Columns:
    lr: torch.Tensor
    params: list[torch.Tensor] = field(default_factory=list)
    grads: list[torch.Tensor] = field(default_factory=list)
    exp_avgs: list[torch.Tensor] = field(default_factory=list)
    exp_avg_sqs: list[torch.Tensor] = field(default_factory=list)
    steps: list[torch.Tensor] = field(default_factory=list)
    copies: list[torch.Tensor | None] = field(default_factory=list)


class FusedUpdates:
    """Adam and AdamW in one pass over gradients, state, parameters and copies; other optimizers as they are.

    State lives in the optimizers in torch's own form, so checkpoints do not depend on who made the step.

    Args:
        optimizers: part name -> optimizer.
        weights: the copies, or None.
    """

    def __init__(self, optimizers: Mapping[str, torch.optim.Optimizer], weights: CastWeights | None = None) -> None:
        self._optimizers = dict(optimizers)
        self._weights = weights
        self._plain = OptimizerUpdates(optimizers)
        self._rates: dict[float, torch.Tensor] = {}
        self._is_adam = {n: _is_plain_adam(o) for n, o in self._optimizers.items()}

    def step(self, parts: Sequence[str]) -> None:
        """See :class:`recsys.schedule.updates.Updates`."""
        fused = [p for p in parts if self._is_adam[p]]
        others = [p for p in parts if not self._is_adam[p]]
        if fused:
            self._adam(fused)
        if others:
            self._by_optimizer(others)
        if self._weights is not None:
            self._weights.written()

    def gradients(self, part: str) -> Iterator[torch.Tensor]:
        """See :class:`recsys.schedule.updates.Updates`."""
        for group in self._optimizers[part].param_groups:
            for parameter in group["params"]:
                grad = self._source(parameter).grad
                if grad is not None:
                    yield grad

    def _source(self, parameter: torch.Tensor) -> torch.Tensor:
        copy = None if self._weights is None else self._weights.of(parameter)
        return parameter if copy is None else copy

    @torch.no_grad()
    def _adam(self, parts: Sequence[str]) -> None:
        from recsys.optim.triton_adam import adam_step

        by_options: dict[tuple[Any, ...], _Columns] = {}
        for part in parts:
            optimizer = self._optimizers[part]
            for group in optimizer.param_groups:
                rate = self._rate(group["lr"], group["params"][0].device)
                key = (id(rate), group["betas"], group["eps"], group["weight_decay"], _is_decoupled(optimizer))
                columns = by_options.setdefault(key, _Columns(rate))
                for parameter in group["params"]:
                    self._add(columns, optimizer, parameter)
        for (_, betas, eps, decay, decoupled), c in by_options.items():
            adam_step(
                c.params, c.grads, c.exp_avgs, c.exp_avg_sqs, c.steps, c.copies, c.lr,
                betas=betas, eps=eps, weight_decay=decay, decoupled=decoupled,
            )  # fmt: skip

    def _rate(self, lr: float | torch.Tensor, device: torch.device) -> torch.Tensor:
        if isinstance(lr, torch.Tensor):
            return lr
        if lr not in self._rates:
            self._rates = {lr: torch.tensor(lr, device=device)}
        return self._rates[lr]

    def _add(self, columns: _Columns, optimizer: torch.optim.Optimizer, parameter: torch.Tensor) -> None:
        source = self._source(parameter)
        if source.grad is None:
            return
        state = optimizer.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        columns.params.append(parameter)
        columns.grads.append(source.grad)
        columns.exp_avgs.append(state["exp_avg"])
        columns.exp_avg_sqs.append(state["exp_avg_sq"])
        columns.steps.append(state["step"])
        columns.copies.append(None if source is parameter else source)
        source.grad = None

    @torch.no_grad()
    def _by_optimizer(self, parts: Sequence[str]) -> None:
        pairs = [(p, self._source(p)) for n in parts for g in self._optimizers[n].param_groups for p in g["params"]]
        copied = [(p, c) for p, c in pairs if c is not p and c.grad is not None]
        for parameter, copy in copied:
            assert copy.grad is not None
            parameter.grad = copy.grad.to(parameter.dtype)
            copy.grad = None
        self._plain.step(parts)
        if copied:
            torch._foreach_copy_([c for _, c in copied], [p for p, _ in copied])


def _is_plain_adam(optimizer: torch.optim.Optimizer) -> bool:
    if not isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW):
        return False
    return not any(g["amsgrad"] or g["maximize"] or g["differentiable"] for g in optimizer.param_groups)


def _is_decoupled(optimizer: torch.optim.Optimizer) -> bool:
    return isinstance(optimizer, torch.optim.AdamW)
