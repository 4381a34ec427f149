"""One call, one step; learning rates of dense parts and tables move together."""

from __future__ import annotations

import pytest
import torch

from recsys.models.recommender import MAIN_PATH, OVER, SPARSE, Recommender
from recsys.optim.dense import DenseOptimConfig
from recsys.optim.device_lr import LearningRates
from recsys.optim.lr_schedule import LrSchedule
from recsys.schedule import builders
from recsys.schedule.executors.serial import SerialExecutor
from recsys.schedule.step import ModuleParts
from recsys.train.stepper import Stepper
from tests.reference.toy import cuts_for, make_batch, make_model


def make_stepper(schedule: LrSchedule, total_steps: int = 4) -> tuple[Recommender, Stepper]:
    model = make_model(cuts_for(("cross",)), dropout=0.0)
    config = DenseOptimConfig("sgd", lr=0.5)
    optimizers = {n: config.build(p) for n in model.graph.names if (p := model.dense_parameters(n))}
    return model, Stepper(
        parts=ModuleParts(model.graph, dict(model.parts.items()), optimizers),
        program=builders.erase(model.graph, builders.lane_per_part(model.graph, MAIN_PATH)),
        executor=SerialExecutor(),
        rates=LearningRates(optimizers),
        set_sparse_lr_factor=model.sparse_arch.set_lr_factor,
        lr_schedule=schedule,
        total_steps=total_steps,
    )


def moves(model: Recommender, stepper: Stepper) -> tuple[float, float]:
    """Largest change of the over-arch and of the tables in one step."""
    before = {n: [p.detach().clone() for p in model.parts[n].parameters()] for n in (OVER, SPARSE)}
    stepper(make_batch())
    over, sparse = (
        max((p - b).abs().max().item() for p, b in zip(model.parts[n].parameters(), before[n], strict=True))
        for n in (OVER, SPARSE)
    )
    return over, sparse


def test_a_step_gives_losses_and_logits_by_part_and_is_counted() -> None:
    model, stepper = make_stepper(LrSchedule())
    result = stepper(make_batch(rows=24))
    assert set(result.losses) == set(result.logits) == {OVER, "cross"} == {OVER, *model.heads}
    assert result.logits[OVER].shape == (24,)
    stepper(make_batch())
    assert stepper.step == 2


def test_training_lowers_the_loss() -> None:
    _, stepper = make_stepper(LrSchedule())
    batch = make_batch()
    first, *_, last = (stepper(batch).losses[OVER].item() for _ in range(30))
    assert last < 0.5 * first


def test_the_schedule_moves_dense_parts_and_tables() -> None:
    # Factors of the three steps: 1/2 and 1 while warming up, then half of the way down.
    schedule = LrSchedule(warmup_steps=2, decay="linear", min_factor=0.0)
    _, stepper = make_stepper(schedule, total_steps=4)
    model = make_stepper(schedule)[0]
    rates = []
    for _ in range(4):
        stepper(make_batch())
        rates.append(stepper.rates.current()[OVER])
    assert rates == pytest.approx([0.25, 0.5, 0.5, 0.25])
    half, full = make_stepper(LrSchedule(warmup_steps=2)), make_stepper(LrSchedule())
    over_half, sparse_half = moves(*half)
    over_full, sparse_full = moves(*full)
    assert over_half == pytest.approx(0.5 * over_full, rel=1e-4)
    # Rowwise Adagrad's first step has the size of its learning rate, so the factor shows in full.
    assert sparse_half == pytest.approx(0.5 * sparse_full, rel=1e-3)
    assert model.sparse_arch.base_lr == 0.1


def test_a_constant_schedule_leaves_the_rates_alone() -> None:
    model, stepper = make_stepper(LrSchedule())
    touched: list[float] = []
    stepper.set_sparse_lr_factor = touched.append
    stepper(make_batch())
    assert touched == [] and stepper.rates.current()[OVER] == 0.5
    assert all(p.isfinite().all() for p in model.parameters() if isinstance(p, torch.Tensor))
