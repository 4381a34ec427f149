"""The recommender: a graph of parts and their modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import nn

from recsys.archs.base import SubArch, TokenShape
from recsys.archs.dropout import bind_generator
from recsys.errors import ConfigError
from recsys.features import FeatureSpec
from recsys.models.dense_arch import DenseArch
from recsys.models.first_order import FirstOrder
from recsys.models.local_head import LocalHead
from recsys.models.over_arch import OverArch
from recsys.models.parts import (
    DensePart,
    FirstOrderPart,
    InteractionPart,
    OverPart,
    SparsePart,
    SubArchPart,
    TokensPart,
)
from recsys.schedule.graph import Edge, PartGraph, PartSpec
from recsys.seeding import keyed_generator, keyed_init
from recsys.sparse.arch import TableArch
from recsys.sparse.sparse_arch import SparseArch, SparseConfig

ArchFactory = Callable[[TokenShape], SubArch]
HeadFactory = Callable[[int], LocalHead]
DenseFactory = Callable[[int, int], DenseArch]


class TableFactory(Protocol):
    """Makes the embedding tables."""

    def __call__(self, spec: FeatureSpec, config: SparseConfig, /, *, seed: int, device: torch.device) -> TableArch:
        """Tables for ``spec``, initialised from ``seed``."""


SPARSE, DENSE, TOKENS, INTERACTION, OVER = "sparse", "dense", "tokens", "interaction", "over"
FIRST_ORDER = "first_order"
MAIN_PATH = frozenset({SPARSE, DENSE, FIRST_ORDER, TOKENS, INTERACTION, OVER})


@dataclass(frozen=True)
class Cuts:
    """Where gradients stop, and which sub-architectures learn from a loss of their own.

    Attributes:
        detach: sub-architectures whose output the over-arch reads detached.
        local_losses: sub-architectures with a local head.
        embedding_grad_from: parts that send gradient into the tokens (embeddings and dense arch).
        skip_tokens: whether the over-arch also reads the tokens themselves.
        loss_weights: weight of a local loss, by sub-architecture; 1 where not named.
    """

    detach: frozenset[str] = frozenset()
    local_losses: frozenset[str] = frozenset()
    embedding_grad_from: frozenset[str] = frozenset({INTERACTION})
    skip_tokens: bool = False
    loss_weights: Mapping[str, float] = field(default_factory=dict)


def build_graph(
    archs: Sequence[str], cuts: Cuts, *, has_dense: bool, first_order: bool = False, dense_tables: bool = False
) -> PartGraph:
    """The part graph of a recommender with sub-architectures ``archs``.

    Args:
        archs: their names, in model order.
        cuts: where gradients stop.
        has_dense: whether there are dense features.
        first_order: whether there is a first-order term: the over-arch trains it, local heads read it detached.
        dense_tables: whether some table has an optimizer outside the backward.

    Raises:
        ConfigError: a detached part without a local loss, or embeddings that nothing trains.
    """
    _check_cuts(archs, cuts)

    def reads_tokens(name: str) -> Edge:
        return Edge(TOKENS, grad=name in cuts.embedding_grad_from)

    features = (SPARSE, DENSE) if has_dense else (SPARSE,)
    over_inputs = [Edge(INTERACTION), *(Edge(a, grad=a not in cuts.detach) for a in archs)]
    if cuts.skip_tokens:
        over_inputs.append(reads_tokens(OVER))
    wide: tuple[PartSpec, ...] = ()
    offset: tuple[Edge, ...] = ()
    if first_order:
        over_inputs.append(Edge(FIRST_ORDER))
        wide = (PartSpec(FIRST_ORDER, (Edge(SPARSE),), trainable=has_dense),)
        offset = (Edge(FIRST_ORDER, grad=False),)

    def arch_inputs(name: str) -> tuple[Edge, ...]:
        return (reads_tokens(name), *(offset if name in cuts.local_losses else ()))

    return PartGraph(
        (
            *(PartSpec(name, trainable=name != SPARSE or dense_tables) for name in features),
            *wide,
            PartSpec(TOKENS, tuple(Edge(f) for f in features), trainable=False),
            PartSpec(INTERACTION, (reads_tokens(INTERACTION),)),
            *(PartSpec(a, arch_inputs(a), has_loss=a in cuts.local_losses) for a in archs),
            PartSpec(OVER, tuple(over_inputs), has_loss=True),
        )
    )


def _check_cuts(archs: Sequence[str], cuts: Cuts) -> None:
    if reserved := sorted(set(archs) & MAIN_PATH):
        raise ConfigError(f"model.archs.{reserved[0]}: this name is a part of the main path; choose another key")
    # A part's name becomes an attribute of a torch module.
    if unfit := [a for a in archs if not a.isidentifier() or hasattr(nn.ModuleDict, a)]:
        raise ConfigError(
            f"model.archs.{unfit[0]}: choose a key of letters, digits and _ that is no word of torch's modules"
        )
    if mute := sorted(cuts.detach - cuts.local_losses):
        raise ConfigError(
            f"model.detach: {', '.join(mute)} would never be trained, for a detached part learns from its local loss "
            f"alone; add it to model.local_losses"
        )
    if not cuts.embedding_grad_from:
        raise ConfigError(
            "model.embedding_grad_from=[]: nothing would train the embeddings; use 'main' or 'undetached'"
        )


class Recommender(nn.Module):
    """Sparse and dense arch, tokens, interaction arch, sub-architectures and over-arch.

    The modules know nothing of schedules or of each other; ``graph`` says who reads whom. Every part
    is initialised and draws its dropout from numbers keyed by (seed, part name): a head added, a part
    detached or moved changes no other part's numbers.

    Args:
        spec: the columns of the data.
        sparse: embedding tables and their optimizer.
        archs: sub-architectures by part name, in model order.
        interaction: the interaction arch of the main path.
        head: makes the local head of a sub-architecture from its output width.
        cuts: where gradients stop.
        dense: makes the bottom MLP from N and D.
        over_hidden: widths of the top MLP before the logit.
        over_dropout: dropout of the top MLP.
        seed: of initialisation and dropout.
        device: where the parameters live.
        tables: makes the embedding tables; by default those of one process, optimizer fused.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        sparse: SparseConfig,
        archs: Mapping[str, ArchFactory],
        interaction: ArchFactory,
        head: HeadFactory,
        cuts: Cuts,
        *,
        dense: DenseFactory,
        over_hidden: Sequence[int],
        over_dropout: float = 0.0,
        seed: int,
        device: torch.device,
        tables: TableFactory = SparseArch,
    ) -> None:
        super().__init__()
        if not spec.sparse:
            raise ConfigError("data: the model needs at least one categorical feature, but the feature spec has none")
        has_dense = bool(spec.dense)
        self.spec = spec
        self.seed = seed
        table_arch = tables(spec, sparse, seed=seed, device=device)
        self.graph = build_graph(
            list(archs),
            cuts,
            has_dense=has_dense,
            first_order=sparse.first_order,
            dense_tables=bool(table_arch.dense_parameters()),
        )
        lookup = SparsePart(table_arch, l2=sparse.l2, first_order_l2=sparse.first_order_l2)
        parts: dict[str, nn.Module] = {SPARSE: lookup}
        num_dense_tokens = 0
        if has_dense:
            with keyed_init(seed, DENSE):
                bottom = dense(len(spec.dense), sparse.embedding_dim)
            parts[DENSE] = DensePart(bottom)
            num_dense_tokens = bottom.num_tokens
        shape = TokenShape(len(spec.sparse) + num_dense_tokens, sparse.embedding_dim)
        if sparse.first_order:
            parts[FIRST_ORDER] = FirstOrderPart(FirstOrder(len(spec.dense), sparse.embedding_dim))
        parts[TOKENS] = TokensPart(sparse.embedding_dim)
        with keyed_init(seed, INTERACTION):
            main = interaction(shape)
        parts[INTERACTION] = InteractionPart(main)
        over_in = main.out_features + (shape.flat if cuts.skip_tokens else 0)
        for name, factory in archs.items():
            part = _sub_arch_part(name, factory, head, cuts, shape, seed)
            parts[name] = part
            over_in += part.arch.out_features
        with keyed_init(seed, OVER):
            over = OverArch(over_in, hidden=over_hidden, dropout=over_dropout)
        parts[OVER] = OverPart(over, has_first_order=sparse.first_order)
        self.parts = nn.ModuleDict(parts)
        self.to(device)
        for name, module in self.parts.items():
            bind_generator(module, keyed_generator(seed, f"dropout/{name}", device))

    @property
    def heads(self) -> tuple[str, ...]:
        """Parts with a local head, in model order."""
        return tuple(n for n, p in self.parts.items() if isinstance(p, SubArchPart) and p.head is not None)

    @property
    def sparse_arch(self) -> TableArch:
        """The embedding tables."""
        part = self.parts[SPARSE]
        assert isinstance(part, SparsePart)
        return part.arch

    def dense_parameters(self, part: str) -> list[nn.Parameter]:
        """Parameters of ``part`` that an optimizer outside the backward updates."""
        return self.sparse_arch.dense_parameters() if part == SPARSE else list(self.parts[part].parameters())


def _sub_arch_part(
    name: str, factory: ArchFactory, head: HeadFactory, cuts: Cuts, shape: TokenShape, seed: int
) -> SubArchPart:
    with keyed_init(seed, name):
        arch = factory(shape)
    if name not in cuts.local_losses:
        return SubArchPart(arch, None, 0.0)
    with keyed_init(seed, f"{name}/head"):
        return SubArchPart(arch, head(arch.out_features), cuts.loss_weights.get(name, 1.0))
