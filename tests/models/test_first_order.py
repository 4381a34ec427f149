"""The first-order weights in the logit, and the L2 penalty of the looked-up vectors."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from recsys.archs.cross import CrossArch
from recsys.features import FeatureSpec
from recsys.models.dense_arch import DenseArch
from recsys.models.first_order import FirstOrder
from recsys.models.local_head import LocalHead
from recsys.models.recommender import FIRST_ORDER, MAIN_PATH, OVER, SPARSE, Recommender
from recsys.schedule.executors.serial import SerialExecutor
from recsys.schedule.factory import ScheduleConfig, build_program
from recsys.schedule.infer import infer
from recsys.sparse.sparse_arch import SparseConfig
from tests.reference.toy import CPU, SPEC, arch_factories, cuts_for, make_batch, make_parts

TABLES = SparseConfig(embedding_dim=8, optimizer="sgd", lr=1.0)
NAMES = ("mlp", "dot")


def make(sparse: SparseConfig, spec: FeatureSpec = SPEC, device: torch.device = CPU) -> Recommender:
    model = Recommender(
        spec,
        sparse,
        arch_factories(NAMES, dropout=0.0),
        partial(CrossArch, out_features=7),
        LocalHead,
        cuts_for(NAMES, NAMES),
        dense=partial(DenseArch, hidden=[9]),
        over_hidden=[16],
        seed=3,
        device=device,
    )
    return model.train()


def step(model: Recommender, schedule: str = "sequential") -> None:
    program = build_program(ScheduleConfig(schedule), model.graph, MAIN_PATH)
    batch = make_batch(spec=model.spec).to(next(model.parameters()).device)
    SerialExecutor().run(program, make_parts(model), batch)


def tables(model: Recommender) -> torch.Tensor:
    return torch.cat([piece.weight for piece in model.sparse_arch.pieces()]).cpu()


def logits(model: Recommender) -> torch.Tensor:
    return infer(model.graph, dict(model.parts.items()), make_batch()).logits[OVER]


def test_weights_start_at_zero_and_change_no_other_number() -> None:
    plain, wide = make(TABLES), make(replace(TABLES, first_order=True))
    assert torch.equal(logits(plain), logits(wide))
    assert torch.equal(tables(plain), tables(wide)[:, :8])


def test_every_looked_up_id_and_dense_feature_adds_its_weight() -> None:
    model = make(replace(TABLES, first_order=True))
    before, batch = logits(model), make_batch()
    for piece in model.sparse_arch.pieces():
        piece.weight[:, 8:] = torch.arange(piece.num_rows)[:, None] * torch.tensor([1.0, 2.0, 3.0, -1.0])
    first_order = model.parts[FIRST_ORDER].module
    assert isinstance(first_order, FirstOrder) and first_order.dense is not None
    first_order.dense.data.copy_(torch.tensor([1.0, 10.0, 100.0]))
    ids_BF = batch.sparse_features.values().view(len(SPEC.sparse), -1).T
    expected = 1.25 * ids_BF.sum(dim=1) + batch.dense_features @ torch.tensor([1.0, 10.0, 100.0])
    torch.testing.assert_close(logits(model) - before, expected, rtol=1e-5, atol=1e-4)


def test_the_weights_learn_from_the_main_loss_alone() -> None:
    model = make(replace(TABLES, first_order=True))
    batch = make_batch()
    residual = torch.sigmoid(logits(model)) - batch.labels
    step(model)
    ids = batch.sparse_features.values().view(len(SPEC.sparse), -1)[0].long()
    moved = torch.zeros(SPEC.sparse[0].cardinality).index_add_(0, ids, -residual / batch.num_rows / 4)
    name = SPEC.sparse[0].name
    (weight,) = (piece.weight[:, 8:] for piece in model.sparse_arch.pieces() if piece.table == name)
    torch.testing.assert_close(weight, moved[:, None].expand(-1, 4), rtol=1e-4, atol=1e-7)


def test_local_heads_start_from_the_first_order_logit_and_do_not_train_it() -> None:
    model = make(replace(TABLES, first_order=True))
    batch = make_batch()
    without = infer(model.graph, dict(model.parts.items()), batch).logits
    first_order = model.parts[FIRST_ORDER].module
    assert isinstance(first_order, FirstOrder) and first_order.dense is not None
    first_order.dense.data.fill_(2.0)
    with_it = infer(model.graph, dict(model.parts.items()), batch).logits
    for name in NAMES:
        torch.testing.assert_close(with_it[name] - without[name], 2 * batch.dense_features.sum(dim=1))
    assert model.graph.grad_consumers(FIRST_ORDER) == (OVER,)


def test_early_backward_changes_no_bit() -> None:
    models = [make(replace(TABLES, first_order=True, l2=0.1, first_order_l2=0.2)) for _ in range(2)]
    for model, schedule in zip(models, ("sequential", "erase"), strict=True):
        step(model, schedule)
        step(model, schedule)
    left, right = (model.state_dict() for model in models)
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_works_without_dense_features() -> None:
    model = make(replace(TABLES, first_order=True), FeatureSpec((), SPEC.sparse))
    first_order = model.parts[FIRST_ORDER].module
    assert isinstance(first_order, FirstOrder) and first_order.dense is None
    step(model)


@pytest.mark.parametrize("device", [CPU, pytest.param(torch.device("cuda"), marks=pytest.mark.gpu)], ids=str)
def test_l2_is_a_step_down_its_gradient_once_however_many_parts_read(device: torch.device) -> None:
    plain = make(replace(TABLES, first_order=True), device=device)
    penalised = make(replace(TABLES, first_order=True, l2=0.5, first_order_l2=3.0), device=device)
    for model in (plain, penalised):
        for piece in model.sparse_arch.pieces():
            piece.weight[:, 8:] = 0.25
    before = tables(plain)
    step(plain)
    step(penalised)
    batch = make_batch()
    ids = batch.sparse_features.values().view(len(SPEC.sparse), -1).long()
    starts = torch.tensor([sum(f.cardinality for f in SPEC.sparse[:i]) for i in range(len(SPEC.sparse))])
    share = torch.bincount((ids + starts[:, None]).flatten(), minlength=len(before)) / batch.num_rows
    pull = torch.cat([torch.full((8,), 2 * 0.5), torch.full((4,), 2 * 3.0 / 4)])
    expected = -share[:, None] * pull * before
    torch.testing.assert_close(tables(penalised) - tables(plain), expected, rtol=1e-3, atol=1e-6)


def test_padding_rows_are_not_penalised() -> None:
    model = make(replace(TABLES, l2=1.0))
    batch = make_batch()
    batch.weights[5:] = 0.0
    pooled = model.parts[SPARSE](batch).out
    pooled.retain_grad()
    before = tables(model)
    pooled.backward(torch.zeros_like(pooled))
    ids = batch.sparse_features.values().view(len(SPEC.sparse), -1)[0].long()
    moved = (tables(model) != before).any(dim=1)[: SPEC.sparse[0].cardinality].nonzero().flatten()
    assert set(moved.tolist()) == set(ids[:5].tolist())
