"""The experiments over chains, from the command line's configuration to the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from recsys.chains.pictures import CLASSES, SIDE, draw_pictures
from recsys.chains.run import run_chain
from recsys.chains.sentences import ALPHABET, draw_windows
from recsys.config.cli import check_overrides, compose, to_plain
from recsys.errors import ConfigError

TINY = {
    "mlp30": ["chain.layers=3", "chain.width=64", "chain.train_rows=2560", "trainer.batch_size=128", "optim.lr=3e-3"],
    "transformer": ["chain.width=16", "chain.context=8", "chain.blocks=1", "chain.train_rows=1280", "optim.lr=1e-2"],
}


@pytest.mark.parametrize(("experiment", "guess"), [("mlp30", 1 / CLASSES), ("transformer", 0.18)])
def test_it_learns_and_reports(
    experiment: str, guess: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = ["trainer.timing.rounds=2", "trainer.timing.steps=1", "chain.test_rows=300"]
    cfg = to_plain(compose([f"+experiment={experiment}", *TINY[experiment], *quick]))
    report = run_chain(cfg, tmp_path)
    for side in (report.baseline, report.erase):
        assert side.score.accuracy > 1.5 * guess
        assert side.score.perplexity < len(ALPHABET)
    assert len(report.baseline.heads) == 1
    assert list(report.erase.heads) == ["stage1_head", "stage2_head", "stage3_head"]
    written = json.loads((tmp_path / "chain.json").read_text())
    assert written["erase"]["heads"]["stage3_head"]["accuracy"] == report.erase.score.accuracy
    assert f"# {experiment} against {experiment} end to end" in (tmp_path / "chain.md").read_text()
    assert f"{report.erase.score.accuracy:.2%}" in capsys.readouterr().out
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    (told,) = events.Scalars("erase/test_accuracy_stage3_head")
    assert (
        told.value == pytest.approx(report.erase.score.accuracy)
        and told.step == cfg["chain"]["train_rows"] * (cfg["trainer"]["epochs"])
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.detach=[]", r"no config key 'model\.detach'|model"),
        ("chain.cut_evry=2", r"no config key 'chain\.cut_evry'; nearest valid: chain\.cut_every"),
        ("trainer.patience=1", r"'trainer\.patience'"),
    ],
)
def test_keys_of_a_recommender_are_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_overrides(["+experiment=mlp30", override])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["chain.width=0"], r"chain\.width=0: must be at least 1"),
        (["chain.train_rows=100"], r"chain\.train_rows=100: must be at least 256"),
        (["chain.cut_every=0"], r"chain\.cut_every=0: .* use schedule=sequential"),
        (["trainer.timing.steps=0"], r"trainer\.timing\.steps=0: must be at least 1"),
        (["chain=gpt", "chain.heads=3"], r"chain\.heads=3: does not divide chain\.width=64"),
        (["trainer.precision=fp8"], r"trainer\.precision=fp8"),
    ],
)
def test_values_that_no_run_could_use_are_refused(overrides: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        run_chain(to_plain(compose(["+experiment=mlp30", "trackers=[]", *overrides])), tmp_path)


def test_made_up_pictures() -> None:
    a, b, other = draw_pictures(50, 3), draw_pictures(50, 3), draw_pictures(50, 4)
    assert torch.equal(a.inputs, b.inputs) and torch.equal(a.targets, b.targets)
    assert not torch.equal(a.inputs, other.inputs)
    assert a.inputs.shape == (50, SIDE * SIDE)
    assert set(draw_pictures(500, 0).targets.tolist()) == set(range(CLASSES))


def test_made_up_windows_hold_the_next_character() -> None:
    windows = draw_windows(20, 30, 5)
    assert torch.equal(windows.inputs[:, 1:], windows.targets[:, :-1])
    text = "".join(ALPHABET[i] for i in windows.inputs.flatten().tolist())
    assert "the" in text
    assert torch.equal(windows.inputs, draw_windows(20, 30, 5).inputs)
