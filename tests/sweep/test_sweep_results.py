"""What the jobs of a sweep say together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recsys.compare.detach_search import measured_sets
from recsys.errors import DataError
from recsys.report import ModelReport, RunRecord, RunReport, Speedup
from recsys.sweep.detach import find_detach_set, sentences
from recsys.sweep.job import JobEnd
from recsys.sweep.plan import SweepPlan
from recsys.sweep.results import Job, pareto_front, read_sweep
from recsys.sweep.tables import detach_lines, markdown, results_csv


def run(folder: Path, detached: list[str], ne: float, speed: float, slowed: float = 1.0) -> RunRecord:
    """A run whose baseline has NE 0.8 and 100 ms a step, on a machine that is ``slowed`` while it is timed."""

    def model(ne: float, rows_per_s: float) -> ModelReport:
        return ModelReport(
            ne=ne, logloss=0.5, auc=0.7, calibration=1.0, base_rate=0.3, entropy=0.6, rows=10, coverage=1.0,
            rows_per_s=rows_per_s / slowed, peak_memory_bytes=2**20, seed=0, config_hash=f"{detached}{ne}",
        )  # fmt: skip

    report = RunReport(
        model(0.8, 1000),
        model(ne, 1000 * speed),
        detached=detached,
        speedup=Speedup(speed, speed - 0.1, speed + 0.1, 3),
    )
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(report.to_dict()))
    config = {"seed": 0, "name": "x", "model": {"detach": detached}, "trainer": {"batch_size": 100}}
    (folder / "config.yaml").write_text(json.dumps(config))
    JobEnd("finished", 60.0, "f").write(folder)
    return RunRecord(folder)


def test_no_job_of_the_front_is_beaten() -> None:
    figures = [(1.0, 0.0), (1.2, 0.1), (1.1, 0.2), (1.2, 0.3), (0.9, -0.5), (None, 0.0), (1.3, None), (0.8, -0.5)]
    jobs = [Job(i, "", {}, "finished", speedup=s, gap_percent=g) for i, (s, g) in enumerate(figures)]
    assert pareto_front(jobs) == [1, 0, 4]
    assert pareto_front([]) == []


def test_a_busy_machine_cancels(tmp_path: Path) -> None:
    """The second run was timed while the machine was five times slower: its ratio to the baseline is what counts."""
    records = [run(tmp_path / "0", [], 0.8, 1.0), run(tmp_path / "1", ["a"], 0.8, 1.25, slowed=5.0)]
    found = measured_sets([*records, run(tmp_path / "2", ["b"], 0.8, 0.5)])
    assert {tuple(d): m.step_ms for d, m in found.items()} == pytest.approx({(): 100, ("a",): 80, ("b",): 200})


def test_what_to_detach(tmp_path: Path) -> None:
    records = [
        run(tmp_path / "0", [], 0.8, 1.0),
        run(tmp_path / "1", ["a"], 0.8, 1.25),
        run(tmp_path / "2", ["b"], 0.9, 2.0),
        run(tmp_path / "3", ["a", "b"], 0.8, 4.0),
    ]
    lines = sentences(find_detach_set(records, 0.02))
    assert "+ a: NE +0.000 %, 80.00 ms a step" in lines and "+ b: NE +0.000 %, 25.00 ms a step" in lines
    assert "greedy search: model.detach=[a,b]" in lines
    assert any(line.startswith("fastest measured set within the budget: model.detach=[a,b]") for line in lines)
    assert lines[-1].startswith("so few seeds")
    assert "greedy search: no single part" in " ".join(sentences(find_detach_set([*records[:1], *records[2:3],
        run(tmp_path / "4", ["a"], 0.8, 0.9)], 0.02)))  # fmt: skip
    assert any(line.startswith("no greedy search: there is no measured run") for line in
               sentences(find_detach_set([records[0], records[3]], 0.02)))  # fmt: skip
    assert "no run has model.detach=[]" in " ".join(sentences(find_detach_set(records[1:], 0.02)))
    with pytest.raises(DataError, match="there is no finished run"):
        find_detach_set([], 0.02)


def test_a_sweep_that_is_not_at_its_end(tmp_path: Path) -> None:
    plan = SweepPlan(["model.detach=[],[a],[b]"], [{"model.detach": d} for d in ("[]", "[a]", "[b]")])
    plan.write(tmp_path)
    run(tmp_path / "0", [], 0.8, 1.0)
    (tmp_path / "1").mkdir()
    JobEnd("failed", 3.0, error="a | went wrong").write(tmp_path / "1")
    result = read_sweep(tmp_path)
    assert [job.status for job in result.jobs] == ["finished", "failed", "not run"]
    assert result.jobs[0].step_ms == pytest.approx(100) and result.front == [0]
    text = markdown(result)
    assert "1 of 3 jobs finished (0 of them taken from an earlier sweep), 1 failed, 1 not run; 1.1 min" in text
    assert "- job 1, model.detach=[a]: a | went wrong" in text
    assert results_csv(result).splitlines()[3].startswith("2,[b],not run,,,")
    assert detach_lines(result)[1].startswith("nothing detached: NE 0.80000")
    (tmp_path / "1" / "job.json").write_text("{")
    with pytest.raises(DataError, match=r"1/job\.json: damaged"):
        read_sweep(tmp_path)
