from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import recsys.run
from recsys.compare import runner
from recsys.compare.plan import Cell, Experiment, Plan, make_plan
from recsys.compare.runner import Finished, run_all, run_plan, train_once
from recsys.config.cli import compose, to_plain
from recsys.errors import DataError, UserError
from recsys.report import RunRecord
from recsys.report.predictions import PREDICTIONS_NPZ, Predictions

from .conftest import MakeRun, config_of

TINY = [
    "+experiment=dlrm",
    "data.train_rows=256",
    "data.valid_rows=64",
    "data.test_rows=128",
    "data.max_cardinality=20",
    "trainer.batch_size=128",
    "trainer.evals_per_epoch=1",
    "trainer.quiet=true",
    "trainer.device=cpu",
]
THREADS = torch.get_num_threads()


def tiny(tmp_path: Path, *overrides: str) -> dict[str, Any]:
    return to_plain(compose([*TINY, f"trainer.cache_dir={tmp_path}", *overrides]))


def small_plan(*names: str, folds: int = 1, seeds: int = 1) -> Plan:
    experiments = [Experiment.parse(name) for name in names]
    return make_plan(experiments, [], num_seeds=seeds, num_folds=folds, compose_config=config_of)


@pytest.mark.parametrize("jobs", [1, 2])
def test_every_item_comes_back_with_its_number(jobs: int) -> None:
    assert sorted(run_all(math.sqrt, [9.0, 4.0, 1.0, 16.0], jobs)) == [(0, 3.0), (1, 2.0), (2, 1.0), (3, 4.0)]


def test_the_error_of_a_process_arrives() -> None:
    with pytest.raises(ValueError, match="invalid literal for int"):
        list(run_all(int, ["1", "x"], 2))


def test_a_killed_process_is_told() -> None:
    with pytest.raises(UserError, match="a training process was killed .* run the same command again, with --jobs 1"):
        list(run_all(os._exit, [9], 2))


def test_processes_end_with_a_killed_parent(tmp_path: Path) -> None:
    """SIGKILL leaves no time to tidy up; the workers must notice by themselves."""
    code = "\n".join(
        [
            "import os, subprocess, sys",
            "from recsys.compare.runner import run_all",
            "if __name__ == '__main__':",
            f"    command = 'echo $PPID > {tmp_path}/worker; exec sleep 60'",
            "    list(run_all(subprocess.call, [['sh', '-c', command]], 2))",
        ]
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    parent = subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": os.getcwd()})
    while not (tmp_path / "worker").exists() or not (tmp_path / "worker").read_text().strip():
        assert parent.poll() is None
        time.sleep(0.05)
    worker = int((tmp_path / "worker").read_text())
    parent.kill()
    parent.wait()
    for _ in range(200):
        if not _is_alive(worker):
            return
        time.sleep(0.05)
    pytest.fail("the worker outlived its parent")


def _is_alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_run_is_made_once_and_is_an_ordinary_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = tiny(tmp_path)
    first = train_once(cfg, tmp_path / "store", THREADS)
    assert not first.from_cache
    record = RunRecord(first.folder)
    assert record.fingerprint == first.folder.name == record.report.baseline.config_hash
    assert record.config["data"]["train_rows"] == 256
    assert record.curve.erase[-1].rows == 256
    rows = Predictions.read(first.folder / PREDICTIONS_NPZ)
    assert len(rows.logits) == record.report.erase.rows == 128
    assert rows.labels.mean() == pytest.approx(record.report.erase.base_rate)

    monkeypatch.setattr(recsys.run, "train_model", None)
    again = train_once({**cfg, "name": "other"}, tmp_path / "store", THREADS)
    assert again.from_cache
    assert again.folder == first.folder


def test_what_is_not_whole_is_made_again(tmp_path: Path) -> None:
    cfg = tiny(tmp_path)
    first = train_once(cfg, tmp_path / "store", THREADS)
    path = first.folder / PREDICTIONS_NPZ
    before = Predictions.read(path)
    path.write_bytes(b"PK")
    again = train_once(cfg, tmp_path / "store", THREADS)
    assert not again.from_cache
    assert np.array_equal(before.logits, Predictions.read(path).logits), "the same run, bit for bit"
    # As a kill leaves it: report.json is the last file of a run.
    (first.folder / "report.json").unlink()
    assert not runner._is_whole(first.folder, first.folder.name)


def test_equal_runs_are_made_once(monkeypatch: pytest.MonkeyPatch, make_run: MakeRun) -> None:
    asked: Counter[str] = Counter()

    def work(cfg: dict[str, Any], store: Path, threads: int) -> Finished:
        asked[cfg["name"]] += 1
        return Finished(make_run(cfg["name"], np.zeros(4), np.arange(4) % 2), False, 0.0)

    monkeypatch.setattr(runner, "train_once", work)
    told: list[Cell] = []
    # late6 with erase6's schedule is erase6.
    plan = small_plan("late6:schedule=erase", "erase6", "heads6")
    finished = run_plan(
        plan, Path("unused"), jobs=1, threads=1, exact=True, on_done=lambda cell, done: told.append(cell)
    )
    assert asked == {"late6": 1, "heads6": 1}
    assert finished["erase6", 0, 0] == finished["late6:schedule=erase", 0, 0]
    assert len(told) == len(finished) == 3


@pytest.mark.parametrize("exact", [True, False])
def test_schedules_that_disagree_end_the_comparison_at_once(
    monkeypatch: pytest.MonkeyPatch, make_run: MakeRun, exact: bool
) -> None:
    def work(cfg: dict[str, Any], store: Path, threads: int) -> Finished:
        logits = np.full(4, 1e-6 if cfg["name"] == "erase6" else 0.0)
        return Finished(make_run(f"{cfg['name']}-{cfg['seed']}", logits, np.arange(4) % 2), False, 0.0)

    monkeypatch.setattr(runner, "train_once", work)
    told: list[Cell] = []
    plan = small_plan("late6", "erase6", seeds=3)

    def compare() -> dict[Any, Finished]:
        return run_plan(plan, Path("x"), jobs=1, threads=1, exact=exact, on_done=lambda cell, _: told.append(cell))

    if not exact:
        assert len(compare()) == 6
        return
    message = r"late6 and erase6 differ in their schedule only .* fold 0 with seed 0 their logits differ by up to 1e-06"
    with pytest.raises(DataError, match=message):
        compare()
    assert len(told) == 2
