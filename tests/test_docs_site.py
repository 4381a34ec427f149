"""The documentation site builds without a warning and holds every page; the shell gets its completion."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path.stem for path in (ROOT / "docs").glob("*.md"))


def make_docs(out: Path, source: str = "docs") -> list[str]:
    """The recipe of ``make docs`` with this interpreter, another source and another place."""
    (recipe,) = re.findall(r"^docs:.*\n\t(.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    words = recipe.replace("$(PY)", sys.executable).split()
    assert words[-2:] == ["docs", "docs/_build/html"] and "-W" in words
    return [*words[:-2], "-d", str(out / "trees"), source, str(out / "html")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(make_docs(out), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out / "html"


def test_every_page_is_there_and_leads_to_the_others(site: Path) -> None:
    start = (site / "index.html").read_text()
    missing = [page for page in PAGES if not (site / f"{page}.html").exists() or f'"{page}.html"' not in start]
    assert "quickstart" in PAGES and missing == ["index"]  # which calls itself "#"


def test_links_of_pages_stay_in_the_site(site: Path) -> None:
    for page in PAGES:
        html = (site / f"{page}.html").read_text()
        for link in re.findall(r'(?:href|src)="([^"]+)"', html):
            name = link.partition("#")[0].partition("?")[0]
            if name and not re.match(r"[a-z]+:", link):
                assert (site / name).exists(), f"{page}: {link}"
    assert '"criteo.html"' in re.sub(r"<aside.*?</aside>", "", (site / "data.html").read_text(), flags=re.DOTALL)


def test_pages_that_lie_elsewhere_are_in_full(site: Path) -> None:
    assert "data.test_path" in (site / "criteo.html").read_text()
    assert "Add a sub-architecture" in (site / "contributing.html").read_text()


def test_the_reference_has_signatures_and_docstrings(site: Path) -> None:
    reference = (site / "api.html").read_text()
    for name in ("recsys.schedule.builders.erase", "recsys.archs.cross.CrossArch", "recsys.serve.loader.Model"):
        assert f'id="{name}"' in reference
    assert "best constant" in reference


@pytest.mark.parametrize("line", ["[there](nowhere.md)", "[there](../nowhere.md)", "![there](images/nowhere.png)"])
def test_a_dead_link_fails_the_build(line: str, tmp_path: Path) -> None:
    source = tmp_path / "docs"
    source.mkdir()
    shutil.copy(ROOT / "docs" / "conf.py", source)
    (source / "index.md").write_text(f"# Title\n\n{line}\n")
    done = subprocess.run(make_docs(tmp_path, str(source)), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "nowhere" in done.stderr


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("python train.py +experiment=er", ["+experiment=erase6"]),
        ("python train.py schedule=seq", ["schedule=sequential", "schedule=sequential_graph"]),
        ("python train.py trainer.batch", ["trainer.batch_size="]),
    ],
)
def test_bash_completes_after_the_line_of_the_quick_start(typed: str, offered: list[str]) -> None:
    (line,) = re.findall(r"^(eval .*install=bash.*)$", (ROOT / "docs" / "quickstart.md").read_text(), re.MULTILINE)
    ask = "COMP_LINE=$1 COMP_POINT=${#1} COMP_CWORD=2; hydra_bash_completion; complete -p python; echo ${COMPREPLY[@]}"
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", "-c", f"{line}\n{ask}", "bash", typed]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    hook, answer = done.stdout.strip().splitlines()
    assert "hydra_bash_completion" in hook and answer.split() == offered, done.stderr
