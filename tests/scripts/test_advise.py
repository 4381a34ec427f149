"""The advisor as a whole, on models whose best answer is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import advise
from tests.reference.tiny_run import TINY

SPINNING = "_target_: tests.reference.spinning.SpinningArch, _partial_: true"
FLAGS = ["--rounds", "8", "--steps", "1", "--op-steps", "3"]


def advice(tmp_path: Path, *overrides: str) -> dict[str, Any]:
    out = tmp_path / "advice.json"
    advise.main([*TINY, "+experiment=dlrm", *overrides, *FLAGS, "--out", str(out)])
    raw: dict[str, Any] = json.loads(out.read_text())
    return raw


def test_the_part_whose_backward_is_dear_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Detached, ``dear`` saves 60 ms of work; ``cheap`` saves nothing and gets a head."""
    raw = advice(
        tmp_path,
        f"+model.archs.dear={{{SPINNING}, backward_ms: 60.0}}",
        f"+model.archs.cheap={{{SPINNING}, backward_ms: 0.0}}",
    )
    assert raw["parts"] == ["dear", "cheap"] and raw["serial"] is True
    assert raw["attached"]["us"]["B:dear"] > 60_000 > raw["detached"]["us"]["B:dear"]
    assert raw["recommendation"]["detach"] == ["dear"]
    assert raw["recommendation"]["measured"]["low"] > 1 and raw["recommendation"]["predicted"] > 1
    by_set = {tuple(c["detach"]): c for c in raw["candidates"]}
    assert set(by_set) == {("dear",), ("cheap",), ("cheap", "dear")}
    assert by_set["dear",]["predicted_gain"] > 1.5 > by_set["cheap",]["predicted_gain"]
    # The saved work is what the backward takes.
    saved = raw["baseline"]["step_us"] - by_set["dear",]["prediction"]["step_us"]
    assert saved == pytest.approx(60_000, rel=0.3)
    out = capsys.readouterr().out
    assert "detach [dear]: " in out and "what can be gained is work removed" in out


def test_where_nothing_is_to_be_gained_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The part trains the embeddings even when it is detached, so all its work stays and a head comes on top."""
    raw = advice(tmp_path, f"+model.archs.stays={{{SPINNING}, backward_ms: 30.0}}", "model.embedding_grad_from=all")
    assert raw["recommendation"]["detach"] == [] and raw["recommendation"]["measured"] is None
    assert "nothing is to be gained here" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["+experiment=dlrm", *TINY], "error: model.archs: no sub-architecture that could be detached"),
        (["+experiment=erase7"], "error: experiment=erase7: there is no such option"),
        (["+experiment=erase6", "--trace", "nowhere.json"], "error: --trace nowhere.json: not overlap.json"),
    ],
)
def test_mistakes_are_one_message(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        advise.main(arguments)
    assert end.value.code == 1 and capsys.readouterr().err.startswith(message)
