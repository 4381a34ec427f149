"""The command line as a whole, on runs as small as they can be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import recsys.run
from scripts import compare

TINY = [
    "data.train_rows=256",
    "data.valid_rows=64",
    "data.test_rows=256",
    "data.max_cardinality=20",
    "trainer.batch_size=128",
    "trainer.evals_per_epoch=1",
    "trainer.device=cpu",
    "trainer.timing.rounds=1",
    "trainer.timing.steps=1",
]


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    places = ["--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]
    return [*TINY, *places, "--jobs", "1", "--threads", str(torch.get_num_threads()), "--margin", "5"]


def test_erase6_stands_beside_its_controls(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compare.main(["erase6", "--seeds", "1", *arguments])
    raw = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [q["label"] for q in raw["qualities"]] == ["baseline6", "heads6", "late6", "erase6"]
    assert raw["twins"] == [["late6", "erase6", 0.0]], "real models agree bit for bit"
    assert all(q["rows_per_s"] > 0 for q in raw["qualities"])
    assert raw["qualities"][0]["speedup"] == 1
    out = capsys.readouterr().out
    assert "4/4 erase6, fold 0, seed 0: " in out
    assert "late6 and erase6 differ in their schedule only and agree bit for bit" in out
    assert "erase6: not resolved: one run a side" in out

    # The second time nothing is trained, and the same figures come out.
    monkeypatch.setattr(recsys.run, "train_model", None)
    compare.main(["late6", "erase6", "--no-speed", "--seeds", "1", *arguments])
    again = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert again["gaps"] == raw["gaps"]
    assert all(run["from_cache"] for run in again["runs"])
    assert "4/4 erase6, fold 0, seed 0: from an earlier run" in capsys.readouterr().out


def test_folds_and_overrides_of_one_experiment(arguments: list[str], tmp_path: Path) -> None:
    experiments = ["dlrm", "dlrm:optim.lr=0.01,model.over_arch.hidden=[8,4]"]
    compare.main([*experiments, "--seeds", "1", "--folds", "2", "--no-speed", *arguments])
    raw = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert [(run["fold"], run["seed"]) for run in raw["runs"][::2]] == [(0, 0), (1, 1000)]
    assert raw["runs"][0]["arguments"][-2:] == ["seed=0", "data.row_offset=0"]
    assert raw["runs"][3]["arguments"][-2:] == ["seed=1000", "data.row_offset=576"]
    gap = raw["gaps"][0]
    assert gap["label"] == experiments[1]
    assert (gap["df"], len(gap["values"]), gap["wide_interval"]) == (1, 2, None)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["dlrm"], "error: a comparison needs two experiments or more, got dlrm"),
        (["dlrm", "dlmr"], "error: experiment=dlmr: there is no such option in the group 'experiment'; nearest"),
        (["dlrm", "dcnv2:optim.rl=1"], "error: there is no config key 'optim.rl'"),
        (["dlrm", "dcnv2", "--reference", "x"], "error: --reference x: is none of the experiments compared"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_message(wrong: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        compare.main(wrong)
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith(message)


@pytest.mark.parametrize("wrong", [["--jobs", "0"], ["--threads", "0"], ["--margin", "0"]])
def test_impossible_numbers_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        compare.main(["dlrm", "dcnv2", *wrong])
    assert "--jobs and --threads must be at least 1, --margin above 0" in capsys.readouterr().err
