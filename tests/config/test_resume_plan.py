"""What +resume means."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recsys.config.resume import ResumePlan, note_latest, plan_resume, resumed_folder
from recsys.errors import ConfigError


def config(resume: str | None = None, folder: str | None = None, auto: bool = False) -> dict[str, Any]:
    return {"resume": resume, "checkpoint": {"folder": folder, "auto_resume": auto}}


def test_a_plain_run_starts_and_a_restarted_one_resumes() -> None:
    run = Path("runs/a")
    assert plan_resume(config(), run, {}) == ResumePlan(run / "checkpoints")
    assert plan_resume(config(auto=True), run, {}).resumes
    assert plan_resume(config(), run, {"TORCHELASTIC_RESTART_COUNT": "1"}).resumes
    assert not plan_resume(config(), run, {"TORCHELASTIC_RESTART_COUNT": "0"}).resumes
    assert plan_resume(config("latest", "elsewhere"), run, {}) == ResumePlan(Path("elsewhere"), resumes=True, must=True)


def test_a_run_its_checkpoints_and_one_checkpoint(tmp_path: Path) -> None:
    step = tmp_path / "run" / "checkpoints" / "experiment" / "step_00000012"
    step.mkdir(parents=True)
    for path in (step.parent, step.parent.parent, step.parents[2]):
        plan = plan_resume(config(str(path)), Path("new"), {})
        assert plan == ResumePlan(tmp_path / "run" / "checkpoints", resumes=True, must=True)
        assert resumed_folder(str(path)) == tmp_path / "run"
    assert plan_resume(config(str(step)), Path("new"), {}) == ResumePlan(Path("new/checkpoints"), source=step)
    assert resumed_folder(str(step)) is None
    with pytest.raises(ConfigError, match=r"^resume=nowhere: there is no such folder"):
        plan_resume(config("nowhere"), Path("new"), {})


def test_latest_is_what_was_noted_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"resume=latest: no run in runs/ has made a checkpoint yet"):
        resumed_folder("latest")
    for name in ("2026-01-02/b", "2026-01-01/a"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        note_latest(tmp_path / "runs" / name)
    note_latest(tmp_path / "elsewhere")
    assert resumed_folder("latest") == Path("runs/2026-01-01/a")
    (tmp_path / "runs" / "2026-01-01" / "a").rmdir()
    with pytest.raises(ConfigError, match=r"the latest run was runs/2026-01-01/a, which is gone"):
        resumed_folder("latest")
