"""A deep multilayer perceptron over made-up pictures: one layer a stage."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from recsys.chains.base import Chain, ChainBatch, ChainData, ChainModel, check_at_least
from recsys.chains.layers import learn_layer, linear_relu
from recsys.chains.pictures import CLASSES, SIDE, draw_pictures
from recsys.schedule.graph import Edge, PartGraph, PartSpec
from recsys.schedule.step import PartOutput
from recsys.seeding import keyed_init


class LayerStage(nn.Module):
    """Linear and ReLU: ``(B, W)``."""

    # Its GPU kernels are written by hand (``triton_layers``): nothing is left for the compiler.
    compiles = False

    def __init__(self, in_features: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, width)
        nn.init.kaiming_normal_(self.linear.weight, nonlinearity="relu")
        nn.init.zeros_(self.linear.bias)

    def forward(self, batch: ChainBatch, *before: torch.Tensor) -> PartOutput:
        """The layer over the stage before it, or over the pictures."""
        return self.compute(before[0] if before else batch.inputs)

    def compute(self, x_BI: torch.Tensor) -> PartOutput:
        """The stage on tensors alone."""
        return PartOutput(linear_relu(x_BI, self.linear.weight, self.linear.bias))


class ForwardStage(nn.Module):
    """The forward of a layer that another part trains, so that no backward stands in its lane: ``(B, W)``."""

    compiles = False

    def __init__(self, layer: LayerStage) -> None:
        super().__init__()
        self.linear = layer.linear

    def forward(self, batch: ChainBatch, *before: torch.Tensor) -> PartOutput:
        """The layer over the stage before it, or over the pictures; takes no gradient."""
        return self.compute(before[0] if before else batch.inputs)

    def compute(self, x_BI: torch.Tensor) -> PartOutput:
        """The stage on tensors alone."""
        with torch.no_grad():
            return PartOutput(linear_relu(x_BI, self.linear.weight, self.linear.bias))


class ClassHead(nn.Module):
    """Linear head with its loss, the mean cross-entropy in nats."""

    compiles = False

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, classes)

    def forward(self, batch: ChainBatch, x_BW: torch.Tensor) -> PartOutput:
        """Logits ``(B, classes)`` and loss."""
        return self.compute(x_BW, batch.targets)

    def compute(self, x_BW: torch.Tensor, targets_B: torch.Tensor) -> PartOutput:
        """The head on tensors alone."""
        logits = functional.linear(x_BW, self.linear.weight, self.linear.bias).float()
        return PartOutput(logits, functional.cross_entropy(logits, targets_B), logits)


class LearnStage(nn.Module):
    """Head, loss and gradients of a layer that is cut off on both sides."""

    compiles = False

    def __init__(self, layer: LayerStage, head: ClassHead) -> None:
        super().__init__()
        self.layer, self.head = layer, head

    def forward(self, batch: ChainBatch, *inputs: torch.Tensor) -> PartOutput:
        """Logits ``(B, classes)`` and loss, from what the layer read (the pictures, where nothing) and what it gave."""
        x_BI, h_BW = inputs if len(inputs) == 2 else (batch.inputs, inputs[0])
        return self.compute(x_BI, h_BW, batch.targets)

    def compute(self, x_BI: torch.Tensor, h_BW: torch.Tensor, targets_B: torch.Tensor) -> PartOutput:
        """The part on tensors alone."""
        if not torch.is_grad_enabled():
            return self.head.compute(h_BW, targets_B)
        layer, head = self.layer.linear, self.head.linear
        loss, logits = learn_layer(x_BI, h_BW, layer.weight, layer.bias, head.weight, head.bias, targets_B)
        return PartOutput(logits, loss, logits)


class MlpChain(Chain):
    """``layers`` stages of one layer.

    Args:
        layers: number of layers.
        width: of each layer.
        cut_every, num_lanes, train_rows, test_rows: see :class:`Chain`.
    """

    def __init__(
        self, *, layers: int, width: int, cut_every: int, num_lanes: int, train_rows: int, test_rows: int
    ) -> None:
        super().__init__(cut_every=cut_every, num_lanes=num_lanes, train_rows=train_rows, test_rows=test_rows)
        check_at_least(1, layers=layers, width=width)
        self.layers, self.width = layers, width

    def make_data(self, seed: int) -> ChainData:
        """Pictures of ten signs."""
        return ChainData(draw_pictures(self.train_rows, seed), draw_pictures(self.test_rows, seed + 1), CLASSES)

    def build(self, data: ChainData, seed: int, *, cut: bool) -> ChainModel:
        """See :class:`Chain`."""
        stages, heads = [], []
        for i in range(self.layers):
            with keyed_init(seed, f"stage{i + 1}"):
                stages.append(LayerStage(SIDE * SIDE if i == 0 else self.width, self.width))
            with keyed_init(seed, f"stage{i + 1}_head"):
                heads.append(ClassHead(self.width, data.classes))
        if cut and self.cut_every == 1:
            return self._learn_apart(stages, heads)
        return self.assemble(stages, heads, cut=cut)

    def _learn_apart(self, layers: Sequence[LayerStage], heads: Sequence[ClassHead]) -> ChainModel:
        """Forwards on the main lane, one after the other; heads and gradients of the layers on lanes beside it."""
        parts: list[PartSpec] = []
        modules: dict[str, nn.Module] = {}
        lanes: dict[str, int] = {}
        reads: tuple[Edge, ...] = ()
        for i, (layer, head) in enumerate(zip(layers, heads, strict=True)):
            name, learn = f"stage{i + 1}", f"stage{i + 1}_head"
            parts.append(PartSpec(name, reads, trainable=False))
            parts.append(PartSpec(learn, (*reads, Edge(name, grad=False)), has_loss=True))
            modules |= {name: ForwardStage(layer), learn: LearnStage(layer, head)}
            lanes[learn] = 1 + i % self.num_lanes
            reads = (Edge(name, grad=False),)
        main = frozenset(p.name for p in parts if not p.trainable)
        return ChainModel(PartGraph(tuple(parts)), nn.ModuleDict(modules), lanes, main)
