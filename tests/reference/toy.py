"""A small recommender and random batches, for tests of the engine and the model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.archs.attention import AttentionArch
from recsys.archs.cross import CrossArch
from recsys.archs.dot import DotArch
from recsys.archs.masknet import MaskNetArch
from recsys.archs.mlp import MLPArch
from recsys.archs.wukong import WukongArch
from recsys.features import FeatureSpec, SparseFeature
from recsys.models.dense_arch import DenseArch
from recsys.models.local_head import LocalHead
from recsys.models.recommender import ArchFactory, Cuts, Recommender
from recsys.optim.dense import DenseOptimConfig
from recsys.schedule.step import ModuleParts
from recsys.sparse.sparse_arch import SparseConfig
from recsys.types import Batch

CPU = torch.device("cpu")
SPEC = FeatureSpec(("I1", "I2", "I3"), tuple(SparseFeature(f"C{i}", 20 + i) for i in range(5)))
SIX = ("mlp", "cross", "dot", "wukong", "attention", "masknet")


def arch_factories(names: Sequence[str] = SIX, dropout: float = 0.1) -> dict[str, ArchFactory]:
    """Small sub-architectures by name."""
    classes = (MLPArch, CrossArch, DotArch, WukongArch, AttentionArch, MaskNetArch)
    known = dict(zip(SIX, classes, strict=True))
    return {n: partial(known[n], out_features=6, dropout=dropout) for n in names}


def make_model(cuts: Cuts, names: Sequence[str] = SIX, *, dropout: float = 0.1, seed: int = 3) -> Recommender:
    """A recommender over ``SPEC``."""
    return Recommender(
        SPEC,
        SparseConfig(embedding_dim=8, lr=0.1),
        arch_factories(names, dropout),
        partial(CrossArch, out_features=7),
        LocalHead,
        cuts,
        dense=partial(DenseArch, hidden=[9]),
        over_hidden=[16],
        over_dropout=dropout,
        seed=seed,
        device=CPU,
    ).train()


def make_batch(rows: int = 24, seed: int = 0, spec: FeatureSpec = SPEC) -> Batch:
    """Random rows with one id a feature."""
    draw = torch.Generator().manual_seed(seed)
    ids = [torch.randint(0, f.cardinality, (rows,), generator=draw, dtype=torch.int32) for f in spec.sparse]
    num_ids = rows * len(spec.sparse)
    return Batch(
        torch.randn(rows, len(spec.dense), generator=draw),
        KeyedJaggedTensor(
            keys=spec.sparse_names,
            values=torch.cat(ids),
            lengths=torch.ones(num_ids, dtype=torch.int32),
            offsets=torch.arange(num_ids + 1, dtype=torch.int32),
            stride=rows,
        ),
        torch.randint(0, 2, (rows,), generator=draw).float(),
        torch.ones(rows),
    )


def make_parts(model: Recommender, optim: DenseOptimConfig | None = None) -> ModuleParts:
    """The engine's view of ``model``."""
    config = optim or DenseOptimConfig(lr=0.01)
    optimizers = {n: config.build(p) for n in model.graph.names if (p := model.dense_parameters(n))}
    return ModuleParts(model.graph, dict(model.parts.items()), optimizers)


def cuts_for(
    detached: Sequence[str], names: Sequence[str] = SIX, *, heads: str = "detached", grad: str = "undetached"
) -> Cuts:
    """Cuts in the words of the configuration."""
    from recsys.config.cuts import resolve_cuts

    return resolve_cuts(
        {
            "archs": dict.fromkeys(names),
            "detach": list(detached),
            "local_losses": heads,
            "embedding_grad_from": grad,
            "skip_tokens": False,
            "loss_weights": {},
        }
    )
