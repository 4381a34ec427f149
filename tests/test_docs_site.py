"""The documentation site builds without a warning; the shell gets its completion."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_the_site_builds_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", "-d", str(tmp_path / "trees"), "docs"]
    done = subprocess.run([*command, str(tmp_path / "html")], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reference = (tmp_path / "html" / "api.html").read_text()
    assert "recsys.schedule.builders.erase" in reference
    for page in (ROOT / "docs").glob("*.md"):
        assert (tmp_path / "html" / f"{page.stem}.html").exists(), page


def test_completion_is_installed_by_the_line_of_the_quick_start() -> None:
    command = [sys.executable, "train.py", "-sc", "install=bash"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "complete" in done.stdout, done.stderr
