"""The guided search from the command line, on runs as small as they can be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts import tune
from tests.reference.tiny_run import TINY


def test_a_guided_search_is_stopped_gone_on_with_and_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ranges.yaml").write_text("model.over_arch.hidden: [[4], [8]]\nseed: [0, 1, -1]\n")
    places = ["--runs", "runs", "--out", "out", "--study", "s.db", "--ranges", "ranges.yaml"]
    places = [place if place.startswith("--") else str(tmp_path / place) for place in places]
    call = ["dlrm", *TINY, *places, "--sampler", "tpe", "--pareto", "--jobs", "1", "--threads", "1", "--trials"]
    tune.main([*call, "1"])
    assert "0 trials are there, 1 to come" in capsys.readouterr().out
    tune.main([*call, "4"])
    out = capsys.readouterr().out
    assert "1 trials are there, 3 to come" in out and "## Pareto front of valid NE and step time" in out
    raw = json.loads((tmp_path / "out" / "search.json").read_text())
    (searched,) = raw["experiments"]
    assert (raw["sampler"], len(searched["outcomes"])) == ("tpe", 4)
    finished = [outcome for outcome in searched["outcomes"] if outcome["error"] is None]
    assert finished and all(outcome["step_ms"] > 0 for outcome in finished)
    assert searched["chosen"]["valid_ne"] == min(outcome["valid_ne"] for outcome in finished)
    before = (tmp_path / "s.db").read_bytes()
    tune.main([*call, "9", "--show"])
    assert "## Chosen by valid NE" in capsys.readouterr().out and (tmp_path / "s.db").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dlrm", "dcnv2", "--sampler", "tpe"], "--sampler tpe: name one experiment"),
        (["dlrm", "--sampler", "tpe", "--trials", "0"], "--trials 0: must be at least 1"),
        (["dlrm", "--sampler", "tpe", "--show", "--study", "/nowhere/s.db"], "--study /nowhere/s.db: no such file"),
    ],
)
def test_mistakes_are_told_in_one_message(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.yaml").write_text("seed: [0, 1]\n")
    with pytest.raises(SystemExit) as end:
        tune.main([*arguments, "--ranges", str(tmp_path / "r.yaml")])
    assert end.value.code == 1 and capsys.readouterr().err.startswith(f"error: {message}")
