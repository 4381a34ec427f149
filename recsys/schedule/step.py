"""One training step's tensors, and the four operations on them."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import nn

from recsys.schedule.graph import PartGraph
from recsys.schedule.updates import OptimizerUpdates, Updates
from recsys.schedule.weights import CastWeights


class PartOutput(NamedTuple):
    """What a part's forward gives.

    Attributes:
        out: the tensor that later parts read.
        loss: scalar; the part's own loss with its weight, or None.
        logits: ``(B,)``; the part's own prediction, or None.
    """

    out: torch.Tensor
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None


@dataclass
class StepResult:
    """What is left of a step: detached scalars and logits by part name.

    Executors that replay a captured graph overwrite these tensors in the next step: clone what is kept longer.

    Attributes:
        fault: what was not finite, such as "the loss of part 'over'", where an executor gave the step up for it.
    """

    losses: dict[str, torch.Tensor] = field(default_factory=dict)
    logits: dict[str, torch.Tensor] = field(default_factory=dict)
    fault: str | None = None


class StepParts(Protocol):
    """What an executor drives. It holds every tensor of a step until ``end``."""

    graph: PartGraph

    def begin(self, batch: Any) -> None:
        """Start a step."""

    def forward(self, part: str) -> None:
        """Run the part's forward."""

    def backward(self, part: str) -> None:
        """Run the part's backward."""

    def reduce(self, part: str) -> None:
        """Reduce the part's gradients over ranks."""

    def update(self, part: str) -> None:
        """Let the part's optimizer step, and drop its gradients."""

    def end(self) -> StepResult:
        """Let go of the step's tensors."""


@runtime_checkable
class CapturableParts(StepParts, Protocol):
    """Parts whose step can be captured into a CUDA graph and run again."""

    def update_many(self, parts: Sequence[str]) -> None:
        """Update several parts at once; the same numbers as one after the other."""

    def hold_gradients(self, part: str) -> None:
        """Keep the part's gradients until the step ends, for an update on another stream than they were made on."""

    def refresh_weights(self) -> None:
        """Bring copies of weights up to date if somebody else wrote the weights."""

    def suspend(self, differentiable: Collection[str]) -> Any:
        """Take the running step's tensors out, to be put back by ``resume``.

        Only the outputs of ``differentiable`` parts stay connected to their autograd graphs.
        """

    def resume(self, frame: Any) -> None:
        """Put back what ``suspend`` took out."""

    def refresh(self, part: str, batch: Any) -> None:
        """Run the part's forward on ``batch`` and write its output to where the suspended step's readers read it."""

    def forward_on_copies(self, part: str, batch: Any) -> None:
        """Run the part's forward on ``batch`` and on copies of its sources' outputs."""

    def persistent(self) -> Iterator[torch.Tensor]:
        """Tensors that live from step to step and whose addresses a capture holds."""

    def generators(self) -> Iterator[torch.Generator]:
        """Generators that the forwards draw from."""

    def frozen_values(self, outside: Collection[str]) -> tuple[float, ...]:
        """Host numbers that kernels take by value, and a capture of all but ``outside`` therefore freezes."""


class Reduction(Protocol):
    """Sums parts' gradients over ranks; every rank launches in the same order."""

    def launch(self, part: str, gradients: Sequence[torch.Tensor]) -> None:
        """Begin to sum ``gradients`` in place; they belong to the reduction until ``settle``."""

    def settle(self, parts: Sequence[str]) -> None:
        """Wait for the sums of ``parts``, on the current stream where there is one."""


Clip = Callable[[Sequence[torch.Tensor]], None]
Add = Callable[[Sequence[torch.Tensor]], torch.Tensor]


@dataclass
class Frame:
    """The tensors of one step.

    Attributes:
        buffers: where the readers of a refreshed part's output read it.
        held: gradients that another stream still reads.
        is_clipped: whether this step's gradients have been clipped.
    """

    batch: Any
    outputs: dict[str, PartOutput] = field(default_factory=dict)
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    held: list[torch.Tensor] = field(default_factory=list)
    leaves: dict[tuple[str, str], torch.Tensor] = field(default_factory=dict)
    result: StepResult = field(default_factory=StepResult)
    is_clipped: bool = False


def add_in_order(grads: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum from the first to the last."""
    return functools.reduce(operator.add, grads)


class ModuleParts:
    """:class:`StepParts` over one ``nn.Module`` a part.

    A module's ``forward(batch, *inputs)`` gives a :class:`PartOutput`. Each consumer reads a leaf of its
    own, so that no two backwards meet in one leaf; their gradients are summed in model order. That
    makes the gradients independent of the order in which the backwards run.
    """

    def __init__(
        self,
        graph: PartGraph,
        modules: Mapping[str, nn.Module],
        optimizers: Mapping[str, torch.optim.Optimizer],
        *,
        reduction: Reduction | None = None,
        clip: Clip | None = None,
        autocast: Callable[[], Any] | None = None,
        add: Add = add_in_order,
        weights: CastWeights | None = None,
        updates: Updates | None = None,
    ) -> None:
        self.graph = graph
        self._modules = dict(modules)
        self._optimizers = dict(optimizers)
        self._reduction = reduction
        self._clip = clip
        self._autocast = autocast
        self._add = add
        self._consumers = {n: graph.grad_consumers(n) for n in graph.names}
        self._has_backward = {n: graph.has_backward(n) for n in graph.names}
        self._has_loss = {p.name: p.has_loss for p in graph.parts}
        self._inputs = {p.name: p.inputs for p in graph.parts}
        self._weights = weights
        self._updates = updates or OptimizerUpdates(optimizers)
        self._unit: dict[str, torch.Tensor] = {}
        self._held = [t for m in self._modules.values() for t in (*m.parameters(), *m.buffers())]
        self._frame: Frame | None = None

    @property
    def optimizers(self) -> Mapping[str, torch.optim.Optimizer]:
        """Optimizers by part name."""
        return self._optimizers

    @property
    def _step(self) -> Frame:
        assert self._frame is not None, "no step was begun"
        return self._frame

    def begin(self, batch: Any) -> None:
        """Start a step on ``batch``, which is handed to every part as it is."""
        assert self._frame is None, "the step before was not ended"
        self.refresh_weights()
        self._frame = Frame(batch)

    def forward(self, part: str) -> None:
        """Run ``part`` on leaves of its sources' outputs."""
        step = self._step
        inputs = [self._leaf(edge.source, part, edge.grad) for edge in self._inputs[part]]
        self._finish_forward(part, self._call(part, step.batch, inputs))

    def forward_on_copies(self, part: str, batch: Any) -> None:
        """Run the part's forward on ``batch`` and on copies of its sources' outputs, which take no gradient."""
        assert not any(edge.grad for edge in self._inputs[part]), f"{part} sends gradient"
        inputs = [self._step.outputs[edge.source].out.detach().clone() for edge in self._inputs[part]]
        self._finish_forward(part, self._call(part, batch, inputs))

    def _finish_forward(self, part: str, output: PartOutput) -> None:
        step = self._step
        step.outputs[part] = output
        if output.loss is not None:
            step.result.losses[part] = output.loss.detach()
        if output.logits is not None:
            step.result.logits[part] = output.logits.detach()

    def _call(self, part: str, batch: Any, inputs: Sequence[torch.Tensor]) -> PartOutput:
        module = self._modules[part]
        if self._autocast is None:
            output: PartOutput = module(batch, *inputs)
        else:
            with self._autocast():
                output = module(batch, *inputs)
        return output

    def _leaf(self, source: str, part: str, grad: bool) -> torch.Tensor:
        leaf = self._step.outputs[source].out.detach()
        if grad and self._has_backward[part]:
            leaf.requires_grad_()
            self._step.leaves[source, part] = leaf
        return leaf

    def backward(self, part: str) -> None:
        """Differentiate the part's loss and the gradient that its consumers left, in one pass."""
        output = self._step.outputs[part]
        roots: list[torch.Tensor] = []
        grads: list[torch.Tensor] = []
        if output.loss is not None and self._has_loss[part]:
            roots.append(output.loss)
            grads.append(self._one(part, output.loss))
        if self._consumers[part]:
            roots.append(output.out)
            grads.append(self._output_gradient(part))
        torch.autograd.backward(roots, grads)

    def _one(self, part: str, loss: torch.Tensor) -> torch.Tensor:
        # Kept: left to autograd, every backward of every step starts with a kernel that writes a 1. One for
        # each part: made on one stream, it must not be read on another without a wait.
        if part not in self._unit:
            self._unit[part] = torch.ones_like(loss)
        return self._unit[part]

    def _output_gradient(self, part: str) -> torch.Tensor:
        grads: list[torch.Tensor] = []
        for consumer in self._consumers[part]:
            grad = self._step.leaves[part, consumer].grad
            assert grad is not None, f"no gradient came from {consumer} to {part}"
            grads.append(grad)
        return grads[0] if len(grads) == 1 else self._add(grads)

    def reduce(self, part: str) -> None:
        """Begin the reduction of the part's gradients."""
        if self._reduction is not None:
            self._reduction.launch(part, list(self._updates.gradients(part)))

    def update(self, part: str) -> None:
        """Step the part's optimizer and drop its gradients."""
        self.update_many([part])

    def update_many(self, parts: Sequence[str]) -> None:
        """Step several parts' optimizers at once and drop their gradients."""
        if self._clip is not None:
            self._clip_all(self._clip)
        elif self._reduction is not None:
            self._reduction.settle(parts)
        self._updates.step(parts)

    def _clip_all(self, clip: Clip) -> None:
        # Before the first update of a step, when every gradient is there: the norm is that of all of them.
        if self._step.is_clipped:
            return
        parts = [p for p in self.graph.names if p in self._optimizers and self._has_backward[p]]
        if self._reduction is not None:
            self._reduction.settle(parts)
        clip([gradient for part in parts for gradient in self._updates.gradients(part)])
        self._step.is_clipped = True

    def hold_gradients(self, part: str) -> None:
        """Keep the part's gradients until the step ends."""
        self._step.held.extend(self._updates.gradients(part))

    def refresh_weights(self) -> None:
        """Bring copies of weights up to date if somebody else wrote the weights."""
        if self._weights is not None:
            self._weights.refresh()

    def end(self) -> StepResult:
        """Let go of every tensor of the step and give losses and logits."""
        result = self._in_model_order(self._step.result)
        self._frame = None
        return result

    def running_losses(self) -> dict[str, torch.Tensor]:
        """Losses of the running step so far, in model order."""
        return self._in_model_order(self._step.result).losses

    def running_gradients(self, part: str) -> list[torch.Tensor]:
        """What the next update of ``part`` will read."""
        return list(self._updates.gradients(part))

    def gradient_into(self, part: str) -> torch.Tensor:
        """The sum of the gradients that the consumers of ``part`` left."""
        return self._output_gradient(part)

    def abandon(self) -> StepResult:
        """Drop the running step and every gradient."""
        for optimizer in self._optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        return self.end()

    def _in_model_order(self, result: StepResult) -> StepResult:
        # Threads finish parts in any order; whoever stacks the losses needs one.
        names = self.graph.names
        return StepResult(
            {n: result.losses[n] for n in names if n in result.losses},
            {n: result.logits[n] for n in names if n in result.logits},
        )

    def suspend(self, differentiable: Collection[str]) -> Frame:
        """Take the running step's tensors out; see :class:`CapturableParts`.

        An autograd graph that lived on would keep the parameters' gradient accumulators, and with them
        the streams that they belong to.
        """
        frame, self._frame = self._step, None
        frame.result = self._in_model_order(frame.result)
        frame.held.clear()
        for part, output in frame.outputs.items():
            if part not in differentiable:
                frame.outputs[part] = PartOutput(output.out.detach())
        return frame

    def resume(self, frame: Frame) -> None:
        """Put back what ``suspend`` took out."""
        assert self._frame is None, "the step before was not ended"
        self._frame = frame

    def refresh(self, part: str, batch: Any) -> None:
        """Run the forward of ``part``, which reads only the batch, and write its output where its readers read it."""
        assert not self._inputs[part], f"{part} reads other parts"
        fresh = self._call(part, batch, [])
        step = self._step
        if part in step.buffers:
            step.buffers[part].copy_(fresh.out.detach())
        else:
            step.buffers[part] = fresh.out.detach()
        step.outputs[part] = fresh

    def persistent(self) -> Iterator[torch.Tensor]:
        """Parameters, buffers and optimizer state, learning-rate tensors included."""
        # Asked before every replay: one list, and no isinstance of tensors, which takes ten times as long.
        found = [*self._held, *(() if self._weights is None else self._weights.copies())]
        for optimizer in self._optimizers.values():
            found += [v for state in optimizer.state.values() for v in state.values() if hasattr(v, "data_ptr")]
            found += [g["lr"] for g in optimizer.param_groups if hasattr(g["lr"], "data_ptr")]
        return iter(found)

    def generators(self) -> Iterator[torch.Generator]:
        """Generators of the modules' own dropouts."""
        seen: set[int] = set()
        for module in self._modules.values():
            for child in module.modules():
                generator = getattr(child, "generator", None)
                if isinstance(generator, torch.Generator) and id(generator) not in seen:
                    seen.add(id(generator))
                    yield generator

    def frozen_values(self, outside: Collection[str]) -> tuple[float, ...]:
        """Learning rates that are plain numbers, and what modules name in ``frozen_values()``."""
        values = [
            group["lr"]
            for part, optimizer in self._optimizers.items()
            for group in optimizer.param_groups
            if part not in outside and not isinstance(group["lr"], torch.Tensor)
        ]
        for part, module in self._modules.items():
            own = getattr(module, "frozen_values", None)
            if own is not None and part not in outside:
                values += own()
        return tuple(values)
