"""``torch.compile`` of a graph's parts, one by one, so that a schedule can still order them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from recsys.schedule.graph import PartGraph
from recsys.schedule.step import Add, PartOutput, add_in_order
from recsys.schedule.weights import CastWeights

# A batch size other than the first is compiled when it comes the third time: an epoch's short last
# batch is not worth half a minute of compilation.
_COMPILE_FROM = 3
_MANY = 1024


def compile_parts(
    graph: PartGraph,
    modules: Mapping[str, nn.Module],
    *,
    weights: CastWeights | None = None,
    options: Mapping[str, Any] | None = None,
) -> Add:
    """Compile ``compute`` of every part that has one; evaluation stays eager.

    CUDA graphs are left to the executors: Inductor's own do not mix with side streams. Outputs that
    no later part sends gradient into leave the compiled function detached; otherwise its backward
    would be fed zeros for them.

    Args:
        graph: the parts.
        modules: part name -> module; its ``compute`` is replaced. With ``compiles = False`` it only gets the copies
            of its weights: its kernels are its own.
        weights: copies of weights to compute with instead of the parameters.
        options: of Inductor.

    Returns:
        The compiled sum of gradients, for :class:`~recsys.schedule.step.ModuleParts`.
    """
    # One function serves all parts of a class and all batch sizes; each is a compilation of its own.
    torch._dynamo.config.recompile_limit = _MANY
    torch._dynamo.config.accumulated_recompile_limit = 8 * _MANY
    for name in graph.names:
        compute = getattr(modules[name], "compute", None)
        if compute is not None:
            detached = not graph.grad_consumers(name)
            copies = {} if weights is None else weights.by_part.get(name, {})
            call = _with_weights(modules[name], compute, copies) if copies else compute
            modules[name].compute = _dispatcher(  # type: ignore[assignment]
                compute, call, detached, dict(options or {}), compiles=getattr(modules[name], "compiles", True)
            )
    return _compiled_add(dict(options or {}))


class _Shim(nn.Module):
    """Gives ``functional_call`` a ``forward`` to call."""

    def __init__(self, inner: nn.Module, compute: Callable[..., PartOutput]) -> None:
        super().__init__()
        self.inner = inner
        self._compute = compute

    def forward(self, *args: torch.Tensor) -> PartOutput:
        return self._compute(*args)


def _with_weights(
    module: nn.Module, compute: Callable[..., PartOutput], copies: Mapping[str, torch.Tensor]
) -> Callable[..., PartOutput]:
    shim = _Shim(module, compute)
    named = {f"inner.{name}": copy for name, copy in copies.items()}

    def call(*args: torch.Tensor) -> PartOutput:
        result: PartOutput = functional_call(shim, named, args)
        return result

    return call


def _dispatcher(
    eager: Callable[..., PartOutput],
    call: Callable[..., PartOutput],
    detached: bool,
    options: dict[str, Any],
    *,
    compiles: bool,
) -> Callable[..., PartOutput]:
    def part(*args: torch.Tensor) -> PartOutput:
        output = call(*args)
        out = output.out.detach() if detached else output.out
        return PartOutput(out, output.loss, None if output.logits is None else output.logits.detach())

    compiled = torch.compile(part, dynamic=False, options=options) if compiles else part
    seen: Counter[int] = Counter()
    first: list[int] = []

    def compute(*args: torch.Tensor) -> PartOutput:
        if not torch.is_grad_enabled():
            return eager(*args)
        size = args[0].shape[0]
        if not first:
            first.append(size)
        seen[size] += 1
        chosen = compiled if size in first or seen[size] >= _COMPILE_FROM else part
        result: PartOutput = chosen(*args)
        return result

    return compute


def _compiled_add(options: dict[str, Any]) -> Add:
    compiled = torch.compile(lambda *grads: add_in_order(grads), dynamic=False, options=options)

    def add(grads: Sequence[torch.Tensor]) -> torch.Tensor:
        with torch.no_grad():
            total: torch.Tensor = compiled(*grads)
        return total

    return add
