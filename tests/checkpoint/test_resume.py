"""Stopped at any step and resumed, a run ends with every bit of the uninterrupted one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from recsys.checkpoint.saver import CheckpointConfig
from recsys.data.parquet_source import PreparedData
from recsys.data.source import DataSplits
from recsys.train.fit_state import FitState
from scripts.fault_job import Job, job_config, job_data
from tests.reference.prepared_folder import MULTI_HOT, numbered_rows, write_prepared
from tests.reference.tiny_run import changed

STEPS = 6  # two epochs of three batches


class Interrupted(Exception):
    """Stands for whatever ended the process."""


@contextmanager
def interrupted_in(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let training end after the weights of step ``step`` were written, before anything was saved."""
    advance = FitState.advance

    def advance_or_end(state: FitState, rows: int, batches: int) -> None:
        if state.step == step:
            raise Interrupted
        advance(state, rows, batches)

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(FitState, "advance", advance_or_end)
        yield


def prepared(folder: Path) -> DataSplits:
    tables = [numbered_rows(MULTI_HOT, at, 44, weight=True) for at in (0, 44, 88, 132)]
    splits = {"train": tables, "valid": [numbered_rows(MULTI_HOT, 176, 64, weight=True)]}
    write_prepared(folder, MULTI_HOT, {**splits, "test": splits["valid"]}, group_rows=10)
    return PreparedData(str(folder), mix_groups=2).splits(64, 5)


VARIANTS: dict[str, tuple[dict[str, Any], CheckpointConfig]] = {
    "adam": ({}, CheckpointConfig(every_steps=1, every_seconds=0, async_save=False)),
    "momentum": (
        {"optim.name": "sgd", "optim.momentum": 0.9, "trainer.patience": 1, "optim.lr": 0.3},
        CheckpointConfig(every_steps=2, every_seconds=0),
    ),
    "adagrad": (
        {"optim.name": "adagrad", "trainer.keep_best": False, "sparse.optimizer": "sgd"},
        CheckpointConfig(every_steps=0, every_seconds=1e-9, keep_last=1),
    ),
}


@pytest.mark.parametrize("name", [*VARIANTS, "prepared"])
def test_stopped_at_any_step_the_rest_is_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, checkpoint = VARIANTS.get(name, VARIANTS["adam"])
    cfg = job_config()
    for key, value in changes.items():
        cfg = changed(cfg, key, value)
    data = prepared(tmp_path / "rows") if name == "prepared" else job_data()
    job = Job(tmp_path / "whole", cfg, data, checkpoint)
    whole = job.run()
    assert len(job.fit._state.curve) == (3 if name == "momentum" else 4), "this variant ends by patience"
    every = range(job.fit._state.step)
    for step in every if name == "adam" else every[1::2]:
        folder = tmp_path / f"stopped-{step}"
        with interrupted_in(step, monkeypatch):
            Job(folder, cfg, data, checkpoint).run()
        resumed = Job(folder, cfg, data, checkpoint)
        assert (resumed.checkpointing.resume is None) == (step < (checkpoint.every_steps or 1))
        assert resumed.run() == whole, f"stopped in step {step}"
