"""``train.py`` stopped from outside: SIGTERM, SIGKILL under torchrun, and runs that go on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from recsys.train.stop_signal import EXIT_STATUS
from tests.reference.tiny_run import TINY

ROOT = Path(__file__).parents[2]
LONG = (
    *("+experiment=dlrm", *TINY, "trainer.cache_dir=cache", "trainer.epochs=3000", "trainer.evals_per_epoch=1"),
    "checkpoint.every_seconds=0.5",
)
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@contextmanager
def started(folder: Path, *command: str) -> Iterator[subprocess.Popen[str]]:
    with (folder / "output").open("w") as output:
        job = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, text=True, env=ENVIRONMENT)
        try:
            yield job
        finally:
            job.kill()
            job.wait()


def wait_for(found: object, folder: Path) -> None:
    deadline = time.monotonic() + 100
    while not found():  # type: ignore[operator]
        assert time.monotonic() < deadline, (folder / "output").read_text()
        time.sleep(0.05)


def run(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "train.py"), *overrides]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=ENVIRONMENT)


def saved(folder: Path) -> list[Path]:
    return sorted(folder.glob("**/checkpoints/*/step_*"))


def test_sigterm_saves_and_a_resumed_run_goes_on_in_its_folder(tmp_path: Path) -> None:
    with started(tmp_path, sys.executable, str(ROOT / "train.py"), *LONG) as job:
        wait_for(lambda: saved(tmp_path), tmp_path)
        (folder,) = {p.parents[2] for p in saved(tmp_path)}
        second = run(tmp_path, *LONG, f"hydra.run.dir={folder}")
        assert second.returncode == 1 and "another job is at work in this folder" in second.stderr
        job.send_signal(signal.SIGTERM)
        assert job.wait(60) == EXIT_STATUS, (tmp_path / "output").read_text()
    newest = saved(tmp_path)[-1]
    step = json.loads((newest / "state.json").read_text())["fit"]["step"]
    changed = run(tmp_path, *LONG, "+resume=latest", "optim.lr=0.5")
    assert changed.returncode == 1 and "Traceback" not in changed.stderr
    assert re.search(r"optim\.lr: [\d.]+ in the checkpoint, 0\.5 now", changed.stderr), changed.stderr
    assert "checkpoint.allow_changes=[optim.lr]" in changed.stderr
    rest = run(tmp_path, *LONG, "+resume=latest", f"trainer.epochs={step // 3 + 2}", "checkpoint.allow_changes=all")
    assert rest.returncode == 0, rest.stderr
    assert f"resumed from {newest}" in rest.stdout and "changed since the checkpoint: trainer.epochs" in rest.stdout
    assert (folder / "report.json").exists() and len(list(tmp_path.glob("runs/*/*/"))) == 1
    assert not (folder / ".lock").exists()


def test_a_worker_that_torchrun_starts_again_goes_on_by_itself(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--max_restarts=1",
        str(ROOT / "train.py"),
    ]
    short = ("trainer.epochs=40", "checkpoint.every_seconds=0", "checkpoint.every_steps=10", "hydra.run.dir=run")
    with started(tmp_path, *command, *LONG, *short) as job:
        wait_for(lambda: saved(tmp_path), tmp_path)
        (worker,) = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        os.kill(int(worker), signal.SIGKILL)
        assert job.wait(200) == 0, (tmp_path / "output").read_text()
    text = (tmp_path / "output").read_text()
    assert "resumed from run/checkpoints/baseline/step_" in text.replace(str(tmp_path) + "/", "")
    assert (tmp_path / "run" / "report.json").exists()
