"""What a chain is: stages one after the other, gradients cut between some of them, a head and loss at every cut."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from recsys.errors import ConfigError
from recsys.schedule.graph import Edge, PartGraph, PartSpec


@dataclass
class ChainBatch:
    """A batch of examples.

    Attributes:
        inputs: ``(B, ...)``.
        targets: int64 ``(B,)`` or ``(B, T)``: the classes to predict.
    """

    inputs: torch.Tensor
    targets: torch.Tensor

    def to(self, device: torch.device) -> ChainBatch:
        """Copy to ``device``."""
        return ChainBatch(self.inputs.to(device), self.targets.to(device))


class StaticChainBatches:
    """Copies batches to where a captured step reads them; see :class:`recsys.schedule.executors.cuda_graph`."""

    def signature(self, batch: ChainBatch) -> Hashable:
        """Shapes and types of a batch."""
        return batch.inputs.shape, batch.inputs.dtype, batch.targets.shape, batch.inputs.device

    def allocate(self, batch: ChainBatch) -> ChainBatch:
        """A batch like ``batch`` with tensors of its own."""
        return ChainBatch(torch.empty_like(batch.inputs), torch.empty_like(batch.targets))

    def load(self, static: ChainBatch, batch: ChainBatch) -> None:
        """Copy inputs and targets."""
        static.inputs.copy_(batch.inputs)
        static.targets.copy_(batch.targets)

    def copy_labels(self, static: ChainBatch) -> ChainBatch:
        """``static`` with targets of its own."""
        return ChainBatch(static.inputs, static.targets.clone())


@dataclass(frozen=True)
class ChainData:
    """Rows in memory.

    Attributes:
        train: trained on, in an order drawn for each epoch.
        test: scored once, at the end.
        classes: number of classes.
    """

    train: ChainBatch
    test: ChainBatch
    classes: int

    def batches(self, size: int, seed: int, epoch: int) -> Iterator[ChainBatch]:
        """Whole training batches of one epoch; rows that fill no batch are left out of this epoch's order."""
        num = len(self.train.targets)
        draw = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
        order = torch.randperm(num, generator=draw)
        for start in range(0, num - size + 1, size):
            rows = order[start : start + size]
            yield ChainBatch(self.train.inputs[rows], self.train.targets[rows])


@dataclass(frozen=True)
class ChainModel:
    """Parts of a chain and their order.

    Attributes:
        graph: ``stage1``, ``stage1_head``, ``stage2``, ... where a stage has a head.
        modules: by part name.
        lanes: lane >= 1 of every part off the main lane: the pieces between cuts take lanes in turn.
        main: parts on the main lane.
    """

    graph: PartGraph
    modules: nn.ModuleDict
    lanes: dict[str, int]
    main: frozenset[str] = frozenset()

    @property
    def heads(self) -> tuple[str, ...]:
        """Parts with a loss, in model order; the last one makes the model's prediction."""
        return tuple(p.name for p in self.graph.parts if p.has_loss)


class Chain(ABC):
    """A system to train, as the config group ``chain`` describes it.

    Args:
        cut_every: stages between two cuts; 0 cuts nothing.
        num_lanes: lanes that the pieces between cuts take in turn.
        train_rows: rows to train on.
        test_rows: rows to report on.

    Raises:
        ConfigError: a size that no run could use.
    """

    def __init__(self, *, cut_every: int, num_lanes: int, train_rows: int, test_rows: int) -> None:
        check_at_least(1, num_lanes=num_lanes, train_rows=train_rows, test_rows=test_rows)
        check_at_least(0, cut_every=cut_every)
        self.cut_every, self.num_lanes = cut_every, num_lanes
        self.train_rows, self.test_rows = train_rows, test_rows

    @abstractmethod
    def make_data(self, seed: int) -> ChainData:
        """Made-up rows, the same for the same seed."""

    @abstractmethod
    def build(self, data: ChainData, seed: int, *, cut: bool) -> ChainModel:
        """The model on the CPU; without ``cut`` the same stages end to end, with the last head only."""

    def assemble(self, stages: Sequence[nn.Module], heads: Sequence[nn.Module], *, cut: bool) -> ChainModel:
        """Join stages; ``heads[i]`` belongs to ``stages[i]`` and is used where a cut or the end follows it."""
        every = self.cut_every if cut else 0
        parts: list[PartSpec] = []
        modules: dict[str, nn.Module] = {}
        lanes: dict[str, int] = {}
        piece = 0
        before: Edge | None = None
        for number, (stage, head) in enumerate(zip(stages, heads, strict=True), start=1):
            name = f"stage{number}"
            ends = number == len(stages) or (every > 0 and number % every == 0)
            parts.append(PartSpec(name, () if before is None else (before,)))
            modules[name] = stage
            lanes[name] = 1 + piece % self.num_lanes
            if ends:
                parts.append(PartSpec(f"{name}_head", (Edge(name),), has_loss=True))
                modules[f"{name}_head"] = head
                lanes[f"{name}_head"] = lanes[name]
                piece += 1
            before = Edge(name, grad=not ends)
        return ChainModel(PartGraph(tuple(parts)), nn.ModuleDict(modules), lanes)


def check_at_least(least: int, **sizes: int) -> None:
    """Refuse sizes below ``least``.

    Raises:
        ConfigError: names the key.
    """
    for name, size in sizes.items():
        if size < least:
            raise ConfigError(f"chain.{name}={size}: must be at least {least}")
