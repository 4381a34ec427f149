"""Finding and installing a browser, without installing one."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import browser
from scripts.browser import NoBrowserError, find_browser


@pytest.fixture
def nothing_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty PATH; gives its only folder."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("RECSYS_CHROMIUM", raising=False)
    return tmp_path


def make(path: Path) -> Path:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_browser_on_path_or_named(nothing_there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoBrowserError, match="no Chromium found.*sudo apt-get install chromium"):
        find_browser()
    chrome = make(nothing_there / "google-chrome")
    assert find_browser() == str(chrome)
    monkeypatch.setenv("RECSYS_CHROMIUM", str(nothing_there / "absent"))
    with pytest.raises(NoBrowserError):  # a wrong name is not passed over
        find_browser()


def test_where_nothing_can_be_installed_it_says_what_to_do(
    nothing_there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    browser.main()
    assert "note: no Chromium found" in capsys.readouterr().err


@pytest.mark.parametrize(("user", "prefix"), [(0, []), (1000, ["sudo", "-n"])])
def test_debian_installs_as_root_or_with_sudo(
    nothing_there: Path, monkeypatch: pytest.MonkeyPatch, user: int, prefix: list[str]
) -> None:
    make(nothing_there / "apt-get")
    make(nothing_there / "sudo")
    asked: list[list[str]] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        asked.append(command)
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("os.geteuid", lambda: user)
    browser.main()
    asked = [command for command in asked if command[-1] != "true"]
    assert [command[: len(prefix) + 2] for command in asked] == [[*prefix, "apt-get", w] for w in ("update", "install")]
    assert "chromium" in asked[1]
