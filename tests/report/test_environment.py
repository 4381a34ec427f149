"""Versions, device and commit."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest
import torch

from recsys.report.environment import describe_environment, git_commit


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("one\n")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-q", "--no-verify", "-m", "first")
    return tmp_path


def test_commit_and_whether_files_differ_from_it(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert git_commit(repository) == commit
    (repository / "file").write_text("two\n")
    assert git_commit(repository) == f"{commit}-dirty"


def test_no_commit_of_somebody_elses_repository(repository: Path) -> None:
    inside = repository / "site-packages"
    inside.mkdir()
    assert git_commit(inside) is None


def test_no_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_commit(tmp_path) is None
    monkeypatch.setenv("PATH", "")
    assert git_commit(tmp_path) is None


def test_versions() -> None:
    environment = describe_environment(torch.device("cpu"))
    assert environment["python"] == platform.python_version()
    assert str(environment["torch"]).split("+")[0] == torch.__version__.split("+")[0]
    assert environment["torchrec"]
    assert environment.get("fbgemm-gpu") or environment.get("fbgemm-gpu-cpu")
    assert environment["device"]
    assert int(environment["cpus"] or 0) >= 1
