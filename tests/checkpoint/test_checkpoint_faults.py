"""A full disk, two jobs, a clock that is set back, and files of the data that go away, each in a process of its own."""

from __future__ import annotations

import os
import resource
import shutil
import time
from pathlib import Path

import pytest

from recsys.checkpoint.lock import FolderLock
from recsys.checkpoint.saver import CheckpointConfig
from recsys.checkpoint.store import Store, problem_of
from recsys.config.cli import _check_run_folder
from recsys.data.parquet_source import PreparedData
from recsys.errors import CheckpointError, ConfigError, DataError
from recsys.train.fit_state import FitState
from scripts.fault_job import Job, job_config
from scripts.kill_points import forked
from tests.reference.prepared_folder import ONE_HOT, numbered_rows, write_prepared

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def steps(folder: Path) -> list[str]:
    return [p.name for p in Store(folder).checkpoints() if not problem_of(p)]


@pytest.mark.parametrize("in_background", [False, True])
def test_a_full_disk_stops_training_or_does_not_and_older_checkpoints_stay(in_background: bool, tmp_path: Path) -> None:
    def fill(on_error: str) -> tuple[int, str]:
        config = CheckpointConfig(every_steps=2, every_seconds=0, async_save=in_background, on_error=on_error)
        folder = tmp_path / on_error
        advance = FitState.advance

        def work() -> str:
            def advance_and_fill(state: FitState, rows: int, batches: int) -> None:
                advance(state, rows, batches)
                if state.step == 4:  # from here on no file gets larger than a few kilobytes
                    deadline = time.monotonic() + 30
                    while not steps(folder) and time.monotonic() < deadline:
                        time.sleep(0.01)
                    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

            pytest.MonkeyPatch().setattr(FitState, "advance", advance_and_fill)
            try:
                return "done " + Job(folder, checkpoint=config).run()
            except CheckpointError as error:
                return f"stopped {error}"

        return forked(work)

    status, text = fill("stop")
    assert status == 0 and text.startswith("stopped ") and "File too large" in text
    assert "older ones are as they were" in text and "checkpoint.on_error=continue would have trained on" in text
    assert steps(tmp_path / "stop") == ["step_00000002"]
    assert [p.name for p in (tmp_path / "stop").iterdir()] == ["step_00000002"], "nothing half written is left"
    status, text = fill("continue")
    assert (status, text) == (0, "done " + Job(tmp_path / "whole").run())
    assert steps(tmp_path / "continue") == ["step_00000002"]


def test_two_jobs_on_one_folder(tmp_path: Path) -> None:
    def refused() -> str:
        try:
            FolderLock(tmp_path)
        except ConfigError as error:
            return str(error)
        return "got it"

    with FolderLock(tmp_path):
        status, text = forked(refused)
        assert status == 0 and f"{tmp_path}: another job is at work in this folder (process {os.getpid()} on" in text
    assert forked(refused) == (0, "got it"), "that process ended without letting go"
    with FolderLock(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/run: cannot be written \(Not a directory\); choose another folder"):
        FolderLock(tmp_path / "file" / "run")


def test_a_folder_that_may_not_be_written_is_one_message(tmp_path: Path) -> None:
    def work() -> str:
        os.chdir(tmp_path)
        if os.geteuid() == 0:
            os.setuid(65534)
        told = []
        for attempt in (lambda: FolderLock(Path("run")), lambda: _check_run_folder([])):
            try:
                attempt()
            except ConfigError as error:
                told.append(str(error))
        return "\n".join(told)

    tmp_path.chmod(0o555)
    status, text = forked(work)
    tmp_path.chmod(0o755)
    assert status == 0 and text.splitlines() == [
        "run: cannot be written (Permission denied); choose another folder with hydra.run.dir=FOLDER",
        "runs: cannot be made here (Permission denied); name a folder that can be written with hydra.run.dir=FOLDER",
    ]


def test_a_clock_that_is_set_back_keeps_no_checkpoint_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hours = iter(range(10**6, 0, -1))
    monkeypatch.setattr(time, "time", lambda: next(hours) * 3600.0)
    Job(tmp_path, checkpoint=CheckpointConfig(every_seconds=1e-9, keep_last=9)).run()
    assert steps(tmp_path) == [f"step_{n:08}" for n in range(1, 7)]


def test_a_data_file_that_goes_away_between_epochs_is_named_and_the_run_can_go_on(tmp_path: Path) -> None:
    rows = tmp_path / "rows"
    tables = [numbered_rows(ONE_HOT, at, 44) for at in (0, 44, 88, 132)]
    valid = [numbered_rows(ONE_HOT, 176, 64)]
    write_prepared(rows, ONE_HOT, {"train": tables, "valid": valid, "test": valid}, group_rows=10)
    data = PreparedData(str(rows)).splits(64, 5)
    cfg, file = job_config(), rows / "train" / "part-00002.parquet"
    whole = Job(tmp_path / "whole", cfg, data).run()
    advance = FitState.advance

    def advance_and_lose(state: FitState, rows: int, batches: int) -> None:
        advance(state, rows, batches)
        if state.epoch == 1 and file.exists():
            shutil.move(file, tmp_path / "gone")

    def work() -> str:
        pytest.MonkeyPatch().setattr(FitState, "advance", advance_and_lose)
        try:
            return Job(tmp_path / "lost", cfg, PreparedData(str(rows)).splits(64, 5)).run()
        except DataError as error:
            return f"told {error}"

    status, text = forked(work)
    assert status == 0 and text.startswith(f"told {file}")
    shutil.move(tmp_path / "gone", file)
    assert steps(tmp_path / "lost")[-1] == "step_00000003"
    assert Job(tmp_path / "lost", cfg, data).run() == whole
