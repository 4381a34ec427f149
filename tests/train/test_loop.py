"""The loop: curve, early stopping, the best state, and losses that are not finite."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recsys.data.source import DataSplits
from recsys.errors import NonFiniteError
from recsys.metrics import RunningNE
from recsys.models.recommender import MAIN_PATH, OVER, SPARSE, Recommender
from recsys.optim.device_lr import LearningRates
from recsys.optim.lr_schedule import LrSchedule
from recsys.schedule import builders
from recsys.schedule.executors.serial import SerialExecutor
from recsys.train import loop
from recsys.train.evaluator import evaluate
from recsys.train.loop import Fit, LoopConfig
from recsys.train.stepper import Stepper
from tests.reference.toy import CPU, cuts_for, make_model, make_parts
from tests.reference.toy_data import toy_splits

State = dict[str, torch.Tensor]
CONFIG = {"epochs": 1, "evals_per_epoch": 3, "keep_best": True, "patience": 0, "quiet": True}


def make_fit(data: DataSplits, **changes: Any) -> tuple[Recommender, Fit]:
    model = make_model(cuts_for(("cross", "dot")))
    parts = make_parts(model)
    stepper = Stepper(
        parts=parts,
        program=builders.erase(model.graph, builders.lane_per_part(model.graph, MAIN_PATH)),
        executor=SerialExecutor(),
        rates=LearningRates({}),
        set_sparse_lr_factor=model.sparse_arch.set_lr_factor,
        lr_schedule=LrSchedule(),
        total_steps=len(data.train),
    )
    return model, Fit(model, stepper, data, CPU, LoopConfig(**{**CONFIG, **changes}))


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the evaluations give these NE in turn; gives the states that were evaluated."""

    def play(*nes: float | None) -> list[State]:
        states: list[State] = []
        left: Iterator[float | None] = iter(nes)

        def stand_in(model: Recommender, *_: Any) -> Any:
            states.append({k: v.clone() for k, v in model.state_dict().items()})
            ne = next(left)
            return SimpleNamespace(compute=lambda: SimpleNamespace(ne=ne), heads_ne=dict)

        monkeypatch.setattr(loop, "evaluate", stand_in)
        return states

    return play


def test_the_curve_has_the_valid_ne_at_even_distances() -> None:
    data = toy_splits(train_rows=90)  # five whole batches and one of ten rows
    model, fit = make_fit(data, epochs=2, keep_best=False)
    result = fit.run("toy")
    assert [p.rows for p in result.curve] == [32, 64, 90, 122, 154, 180]
    assert result.rows == result.best_rows == 180
    assert result.curve[-1].ne == evaluate(model, data.valid, CPU).compute().ne
    assert model.training


def test_more_evaluations_than_batches_give_one_a_batch() -> None:
    result = make_fit(toy_splits(train_rows=40), evals_per_epoch=50)[1].run("toy")
    assert [p.rows for p in result.curve] == [16, 32, 40]


def test_fewer_rows_than_a_batch_train_one_step() -> None:
    result = make_fit(toy_splits(train_rows=7))[1].run("toy")
    assert [p.rows for p in result.curve] == [7]


def test_training_starts_at_the_first_row_whatever_was_read_before() -> None:
    data = toy_splits()
    next(iter(data.train))
    assert make_fit(data)[1].run("toy").rows == 96


def test_the_best_state_is_put_back_tables_and_dense(script: Any) -> None:
    states = script(0.9, 0.7, 0.8)
    model, fit = make_fit(toy_splits())
    result = fit.run("toy")
    assert result.best_rows == 64 and result.rows == 96
    for name, value in model.state_dict().items():
        assert torch.equal(value, states[1][name]), name
        assert not torch.equal(value, states[2][name]), f"{name} did not train on, so the test shows nothing"
    assert any(name.startswith(f"parts.{SPARSE}") for name in model.state_dict())


def test_the_first_of_equal_states_and_a_later_best_are_kept(script: Any) -> None:
    states = script(0.9, 0.9, 0.8)
    model, fit = make_fit(toy_splits())
    assert fit.run("toy").best_rows == 96
    assert all(torch.equal(v, states[2][k]) for k, v in model.state_dict().items())
    states = script(0.8, 0.9, 0.8)
    model, fit = make_fit(toy_splits())
    assert fit.run("toy").best_rows == 32
    assert all(torch.equal(v, states[0][k]) for k, v in model.state_dict().items())


def test_without_keep_best_the_last_state_stays(script: Any) -> None:
    states = script(0.7, 0.8, 0.9)
    model, fit = make_fit(toy_splits(), keep_best=False)
    assert fit.run("toy").best_rows == 96
    assert all(torch.equal(v, states[2][k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize("keep_best", [True, False])
def test_patience_counts_evaluations_without_a_better_one(keep_best: bool, script: Any) -> None:
    script(0.9, 0.95, 0.8, 0.85, 0.84, 0.1)
    result = make_fit(toy_splits(), epochs=2, patience=2, keep_best=keep_best)[1].run("toy")
    assert [p.ne for p in result.curve] == [0.9, 0.95, 0.8, 0.85, 0.84]
    assert result.rows == 160 and result.best_rows == (96 if keep_best else 160)


def test_patience_0_never_stops(script: Any) -> None:
    script(0.1, 0.2, 0.3)
    assert make_fit(toy_splits())[1].run("toy").rows == 96


def test_an_undefined_ne_neither_wins_nor_stops(script: Any) -> None:
    script(None, None, None)
    result = make_fit(toy_splits(), patience=1)[1].run("toy")
    assert result.rows == result.best_rows == 96 and [p.ne for p in result.curve] == [None] * 3


@pytest.mark.parametrize("part", ["cross", OVER])
def test_a_loss_that_is_not_finite_names_its_part(part: str) -> None:
    model, fit = make_fit(toy_splits())
    head = model.parts[part].head if part != OVER else model.parts[part].arch
    assert isinstance(head, torch.nn.Module)
    with torch.no_grad():
        list(head.parameters())[-1].fill_(torch.nan)
    with pytest.raises(NonFiniteError, match=rf"the loss of part '{part}' became NaN or infinite in step 0"):
        fit.run("toy")


def test_dense_features_that_are_not_finite_name_the_first_part_that_saw_them() -> None:
    data = toy_splits()
    data.train._dense_RN[0, 0] = float("inf")  # type: ignore[attr-defined]
    with pytest.raises(NonFiniteError, match=r"of part 'cross' \(and with it that of 'dot', 'over'\).*dense features"):
        make_fit(data)[1].run("toy")


def test_the_window_of_the_progress_display_comes_from_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    windows: list[int | None] = []

    class Spy(RunningNE):
        def __init__(self, window_rows: int | None = None) -> None:
            windows.append(window_rows)
            super().__init__(window_rows)

    monkeypatch.setattr(loop, "RunningNE", Spy)
    for rows in (17, None):
        make_fit(toy_splits(train_rows=16), window_rows=rows)[1].run("toy")
    assert windows == [17, None]


def test_training_on_many_passes_learns_and_the_best_state_says_so() -> None:
    data = toy_splits(train_rows=640, valid_rows=200, batch_size=64)
    model, fit = make_fit(data, epochs=6, evals_per_epoch=1)
    result = fit.run("toy")
    best = min(p.ne for p in result.curve if p.ne is not None)
    assert best < 0.95 and best == evaluate(model, data.valid, CPU).compute().ne
    assert result.best_rows == next(p.rows for p in result.curve if p.ne == best)
