"""Every command and every piece of Python on docs/serving.md, in its order, with a smaller model."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from recsys.config.cli import compose, to_plain
from recsys.run import run
from scripts import bench_service, evaluate, export, score, serve

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/serving.md").read_text(encoding="utf-8")
SMALLER = (
    *(f"~model.archs.{name}" for name in ("mlp", "cross", "wukong", "attention", "masknet")),
    "arch@model.interaction=mlp",
    *("trainer.device=cpu", "trainer.quiet=true", "trainer.timing.rounds=1", "trainer.timing.steps=1"),
)


def blocks(language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return [body for its_language, body in found if its_language == language]


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Run the commands in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    (tmp_path / "data").mkdir()
    shutil.copytree(ROOT / "data/fixtures", tmp_path / "data/fixtures")
    commands = [shlex.split(line) for block in blocks("") for line in block.splitlines()]
    scripts: dict[str, Callable[[Sequence[str]], int]] = {
        "score": score.main,
        "evaluate": evaluate.main,
        "export": export.main,
        "bench_service": _quick(bench_service.main),
    }
    for python, script, *words in commands:
        assert python == "python"
        name = Path(script).stem
        if name == "train":
            folder = Path(next(w for w in words if w.startswith("hydra.run.dir=")).partition("=")[2])
            run(to_plain(compose([*words, *SMALLER])), folder)
        elif name == "serve":
            flags = serve._parse(words)
            assert flags.package.is_dir() and flags.port == 8000
        else:
            assert scripts[name]([*words, *(["--calls", "4"] if "--bench" in words else [])]) == 0
    return commands


def _quick(main: Callable[[Sequence[str]], int]) -> Callable[[Sequence[str]], int]:
    return lambda words: main([*words, "--seconds", "0.1"])


def test_the_page_works(
    ran: list[list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(ran) == 12
    scores = pq.read_table("scores.parquet")
    assert scores.num_rows == 500 and scores.column_names == ["row", "C1", "probability", "probability_dot"]
    assert pq.read_table("baseline.parquet").num_rows == 500
    assert list(json.loads(Path("evaluation.json").read_text())["slices"]) == ["C17", ":file"]
    compiled = json.loads(Path("exported_compiled/package.json").read_text())
    assert 0 < compiled["agreement"]["compiled"] < 1e-5 and "dense_compiled.pt2" in compiled["files"]

    loading, asking = blocks("python")
    monkeypatch.setattr(sys, "path", list(sys.path))
    capsys.readouterr()
    exec(compile(loading, "docs/serving.md", "exec"), {})
    found = np.array(capsys.readouterr().out.strip("[]\n").split(), float)
    assert found.shape == (2,) and found[0] == found[1]
    sys.modules.pop("load", None)
    importlib.invalidate_caches()
    with bench_service.serving(Path("exported_compiled")) as port:
        exec(compile(asking.replace(":8000", f":{port}"), "docs/serving.md", "exec"), {})
    (probability,) = json.loads(capsys.readouterr().out.replace("'", '"'))["probabilities"]
    assert 0 < probability < 1


def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    none, out = str(tmp_path / "none"), str(tmp_path / "out")
    for main, words in (
        (score.main, [none, "rows.tsv", "--out", out]),
        (evaluate.main, [none, "rows.tsv"]),
        (evaluate.main, [none, "rows.tsv", "--by", "at:week"]),
        (export.main, [none, "--out", out]),
        (serve.main, [none, "--threads", "0"]),
    ):
        assert main(words) == 1
        err = capsys.readouterr().err
        assert err.startswith("error: ") and "Traceback" not in err
    assert not list(tmp_path.iterdir())
