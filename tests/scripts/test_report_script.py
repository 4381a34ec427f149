"""``scripts/report.py`` and ``scripts/trace_ops.py`` as commands, on a run that train.py's own code made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recsys.report import RunRecord
from recsys.run import train_model
from recsys.schedule.op import Kind
from scripts import report, trace_ops
from tests.reference.tiny_run import tiny_config

TWO = tuple(f"~model.archs.{name}" for name in ("mlp", "wukong", "attention", "masknet"))  # leaves cross and dot


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "one"
    train_model(tiny_config("+experiment=erase6", *TWO), folder)
    return folder


def test_a_step_is_timed_by_operation_and_shown(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace_ops.main([str(run_folder), "--steps", "3"])
    assert "critical path" in capsys.readouterr().out
    figures = json.loads((run_folder / "overlap.json").read_text())
    ((schedule, spans),) = figures["timeline"].items()
    assert schedule == RunRecord(run_folder).config["schedule"]["name"]
    operations = {op.split("@")[0] for op, *_ in spans}
    assert {
        f"{kind.value}:{part}" for kind in (Kind.FORWARD, Kind.BACKWARD, Kind.UPDATE) for part in ("cross", "dot")
    } <= (operations)
    ends = [start + duration for _, start, duration, _ in spans]
    assert ends == sorted(ends) and figures["median_ms"][schedule] == pytest.approx(ends[-1] / 1e3)
    # One after the other: nothing overlaps, and no chain of operations is longer than all of them.
    assert figures["overlap"]["concurrency"] == pytest.approx(1.0) and figures["overlap"]["r_fb"] == 0
    assert 0 < figures["critical_path_us"] <= sum(duration for _, _, duration, _ in spans)
    report.main([str(run_folder.parent), "--out", str(run_folder.parent / "out")])
    text = (run_folder.parent / "out" / "report.md").read_text()
    assert "charts/timeline-0-0.svg" in text and "charts/head-curves.svg" in text
    assert (run_folder.parent / "out" / "report.html").is_file()


def test_gpu_runs_are_sent_to_the_other_script(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (run_folder / "config.yaml").read_text().replace("device: cpu", "device: cuda")
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(SystemExit):
        trace_ops.main([str(tmp_path)])
    assert "on a GPU use python -m scripts.trace_schedule" in capsys.readouterr().err


def test_mistakes_are_told_in_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([str(tmp_path / "absent")], [str(tmp_path)]):
        with pytest.raises(SystemExit) as ended:
            report.main([*arguments, "--out", str(tmp_path / "out")])
        assert ended.value.code == 1
        assert capsys.readouterr().err.startswith(f"error: {tmp_path}")
    assert not (tmp_path / "out").exists()
