"""Sweeps from the command line to the tables, on runs as small as they can be."""

from __future__ import annotations

import csv
import gc
import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import recsys.run
import train
from recsys.config.cli import main
from recsys.report import RunRecord
from recsys.sweep.job import JobEnd
from scripts import sweep_results
from tests.reference.tiny_run import TINY


def sweep(monkeypatch: pytest.MonkeyPatch, folder: Path, *arguments: str) -> int:
    """The exit status of ``train.py -m`` with these arguments on tiny data."""
    monkeypatch.chdir(folder.parent)
    given = ["-m", "+experiment=dcnv2", *TINY, "trainer.cache_dir=cache", *arguments, f"hydra.sweep.dir={folder}"]
    monkeypatch.setattr(sys, "argv", ["train.py", *given])
    try:
        main(train.task, train.open_sweep)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def count_runs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    made: list[Any] = []
    run = recsys.run.run

    def counting(cfg: dict[str, Any], *rest: Any) -> Any:
        made.append(cfg["model"]["detach"])
        return run(cfg, *rest)

    monkeypatch.setattr(recsys.run, "run", counting)
    return made


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "results.csv").open() as file:
        return list(csv.DictReader(file))


def test_a_sweep_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = count_runs(monkeypatch)
    first = tmp_path / "first"
    # The loss of the second and the fourth job becomes infinite: they are listed, the others go on.
    status = sweep(monkeypatch, first, "model.detach=[],[mlp]", "optim.lr=1e-3,1e30")
    out, err = capsys.readouterr()
    assert status == 1 and "error: 2 of 4 jobs did not finish" in err
    assert [row["status"] for row in rows(first)] == ["finished", "failed"] * 2
    assert "NaN or infinite" in rows(first)[1]["error"]
    assert "## Failed jobs" in out and "- job 3, model.detach=[mlp] optim.lr=1e+30: " in out
    end = JobEnd.read(first / "1")
    assert end is not None and end.traceback is not None and "NonFiniteError" in end.traceback
    report = RunRecord(first / "2").report
    assert float(rows(first)[2]["gap_percent"]) == report.ne_gap_percent
    assert report.speedup is not None and float(rows(first)[2]["speedup"]) == report.speedup.median
    for name in ("results.md", "pareto.png", "jobs.png"):
        assert (first / name).stat().st_size > 500, name
    assert len(made) == 4

    # The same command in the same folder tries only what failed; in another one, too, and the finished are there.
    kept = (first / "0" / "report.json").read_bytes()
    assert sweep(monkeypatch, first, "model.detach=[],[mlp]", "optim.lr=1e-3,1e30") == 1
    assert len(made) == 6 and (first / "0" / "report.json").read_bytes() == kept
    second = tmp_path / "second"
    capsys.readouterr()
    assert sweep(monkeypatch, second, "model.detach=[mlp],[]", "optim.lr=1e-3") == 0
    assert len(made) == 6
    assert (second / "1" / "report.json").read_bytes() == kept
    assert [row["reused"] for row in rows(second)] == ["True", "True"]
    assert "(2 of them taken from an earlier sweep)" in capsys.readouterr().out

    # Another sweep's folder is not mixed up; what was deleted or damaged is run again.
    assert sweep(monkeypatch, second, "seed=0,1") == 1
    assert "holds a sweep of other jobs" in capsys.readouterr().err
    shutil.rmtree(second)
    (first / "0" / "report.json").write_text("{}")
    assert sweep(monkeypatch, tmp_path / "third", "model.detach=[],[mlp]", "optim.lr=1e-3") == 0
    assert made[6:] == [[]]

    # What the runs say, at any time.
    sweep_results.main([str(tmp_path / "third"), "--max-gap", "50"])
    assert "NE may rise by 50 %" in capsys.readouterr().out
    assert "- fastest measured set within the budget: " in (tmp_path / "third" / "results.md").read_text()


def test_a_wrong_job_ends_it_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep(monkeypatch, tmp_path / "x", "model.detach=[],[mlp],[mpl]") == 1
    err = capsys.readouterr().err
    assert err.startswith("error: job 2 of 3 (model.detach=[mpl]): model.detach: there is no part 'mpl'")
    assert len(err.splitlines()) == 1 and not (tmp_path / "x").exists()


def test_a_sweep_without_m_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from recsys.config.cli import check_overrides
    from recsys.errors import ConfigError

    with pytest.raises(ConfigError, match=r"\+sweep=seeds: add -m"):
        check_overrides(["+experiment=erase6", "+sweep=seeds"])


def test_chains_are_swept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ["chain.train_rows=64", "chain.test_rows=64", "trainer.batch_size=32", "trainer.epochs=1"]
    timing = ["trainer.timing.rounds=2", "trainer.timing.steps=1", "trainer.device=cpu"]
    folder = tmp_path / "chains"
    monkeypatch.chdir(tmp_path)
    given = ["-m", "+experiment=mlp30", *small, *timing, f"hydra.sweep.dir={folder}", "seed=0,1"]
    monkeypatch.setattr(sys, "argv", ["train.py", *given])
    main(train.task, train.open_sweep)
    first, second = rows(folder)
    chain = json.loads((folder / "1" / "chain.json").read_text())
    assert float(second["speedup"]) == chain["speedup"]["median"] and first["ne"] == ""
    assert float(second["loss"]) == list(chain["erase"]["heads"].values())[-1]["loss"]
    assert "| baseline loss |" in (folder / "results.md").read_text()


class Noting:
    """A sweep whose jobs note where and with how many threads they run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

        def job(cfg: dict[str, Any], folder: Path) -> None:
            import os

            facts = {"pid": os.getpid(), "threads": os.environ.get("OMP_NUM_THREADS"), "seed": cfg["seed"]}
            (folder / "note.json").write_text(json.dumps(facts))

        self.job = job

    def finish(self) -> int:
        return 0


@pytest.mark.parametrize(
    "launcher",
    [
        ["+launcher=joblib", "hydra.launcher.n_jobs=2"],
        ["hydra/launcher=submitit_local", "hydra.launcher.timeout_min=2"],
    ],
    ids=["joblib", "submitit"],
)
def test_launchers_run_jobs_in_other_processes(
    launcher: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py", "-m", "+experiment=dlrm", "seed=4,5", *launcher])
    monkeypatch.setenv("PYTHONPATH", "")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # submitit does not wait for its own helper process
        main(train.task, lambda arguments: Noting(tmp_path / "sweep of jobs"))
        gc.collect()
    notes = [json.loads((tmp_path / "sweep of jobs" / str(n) / "note.json").read_text()) for n in range(2)]
    assert [note["seed"] for note in notes] == [4, 5]
    assert os.getpid() not in {note["pid"] for note in notes}
    if "joblib" in launcher[0]:
        cores = len(os.sched_getaffinity(0))
        assert all(2 * int(note["threads"]) <= max(2, cores) for note in notes), "two jobs, no more threads than cores"


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (MemoryError("killed"), 1)])
def test_what_ends_a_sweep_still_leaves_the_tables(
    error: BaseException, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []

    class Ending:
        folder = tmp_path / "sweep"

        def job(self, cfg: dict[str, Any], folder: Path) -> None:
            raise error

        def finish(self) -> int:
            told.append(True)
            return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "argv", ["train.py", "-m", "+experiment=dlrm", "seed=4,5"])
    with pytest.raises(SystemExit) as end:
        main(train.task, lambda arguments: Ending())
    assert (end.value.code, told) == (status, [True])
