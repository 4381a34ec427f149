"""What a cached baseline may stand for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from recsys.config import fingerprint as module
from recsys.config.fingerprint import fingerprint
from recsys.report import describe_environment
from tests.reference.tiny_run import changed, tiny_config

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def base() -> dict[str, Any]:
    return tiny_config("+experiment=erase6")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seed", 7),
        ("model.detach", ["cross"]),
        ("model.local_losses", ["cross"]),
        ("model.loss_weights", {"cross": 2.0}),
        ("model.embedding_grad_from", "all"),
        ("model.skip_tokens", True),
        ("model.archs.cross.rank", 3),
        ("model.interaction.num_layers", 1),
        ("model.over_arch.dropout", 0.5),
        ("sparse.lr", 0.5),
        ("optim.lr_schedule.warmup_steps", 5),
        ("schedule.early_update", False),
        ("trainer.epochs", 2),
        ("trainer.batch_size", 65),
        ("trainer.accumulate_steps", 2),
        ("trainer.evals_per_epoch", 9),
        ("trainer.keep_best", False),
        ("trainer.patience", 3),
        ("trainer.precision", "bf16"),
        ("trainer.on_nonfinite", "skip"),
        ("trainer.max_skipped_steps", 11),
        ("trainer.blend", "mean"),
        ("trainer.calibrate", True),
        ("sparse.l2", 0.1),
        ("model.dense_arch.tokens", 2),
    ],
)
def test_what_can_change_the_result_changes_it(key: str, value: object, base: dict[str, Any]) -> None:
    other = changed(base, key, value)
    assert other != base
    assert fingerprint(other, "rows", CPU) != fingerprint(base, "rows", CPU)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "another"),
        ("trackers", ["mlflow"]),
        ("data.cache_dir", "elsewhere"),  # the rows' own fingerprint stands for the group
        ("metrics.window_rows", None),
        ("trainer.quiet", False),
        ("trainer.cache_dir", "elsewhere"),
        ("trainer.reuse_baseline", False),
        ("trainer.save_model", False),
        ("trainer.reuse_jobs", False),
        ("trainer.timing.rounds", 50),
        ("trainer.device", "auto"),
        ("checkpoint.every_steps", 7),
        ("resume", "latest"),
        ("trainer.processes", 2),
        ("trainer.timeout_s", 9.0),
        ("trainer.overlap_input", False),
    ],
)
def test_what_cannot_change_the_result_does_not(key: str, value: object, base: dict[str, Any]) -> None:
    other = changed(base, key, value)
    assert other != base
    assert fingerprint(other, "rows", CPU) == fingerprint(base, "rows", CPU)


def test_one_model_in_other_words_keeps_it(base: dict[str, Any]) -> None:
    parts = list(base["model"]["archs"])
    listed = changed(changed(base, "model.detach", parts[::-1]), "model.local_losses", "all")
    listed = changed(listed, "model.loss_weights", {"cross": 1.0})
    assert fingerprint(listed, "rows", CPU) == fingerprint(base, "rows", CPU)


def test_every_key_of_the_trainer_is_looked_at(base: dict[str, Any]) -> None:
    """A key that is new must be put on one of the two sides above."""
    assert set(base["trainer"]) == {
        *("quiet", "cache_dir", "reuse_baseline", "save_model", "reuse_jobs", "timing", "device"),
        *(
            "epochs",
            "batch_size",
            "accumulate_steps",
            "evals_per_epoch",
            "keep_best",
            "patience",
            "precision",
            "blend",
            "calibrate",
        ),
        *("on_nonfinite", "max_skipped_steps"),
        *("processes", "timeout_s", "overlap_input"),
    }


def test_rows_code_versions_and_threads_are_part_of_it(base: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found = {fingerprint(base, "rows", CPU), fingerprint(base, "other rows", CPU)}
    others: list[tuple[object, str, Callable[..., object]]] = [
        (module, "_code_hash", lambda: "other code"),
        (module, "describe_environment", lambda device: {"torch": "9.9"}),
        (torch, "get_num_threads", lambda: 77),
    ]
    for owner, name, stand_in in others:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, stand_in)
            found.add(fingerprint(base, "rows", CPU))
    assert len(found) == 5


def test_the_commit_is_not_part_of_it(base: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that changes only documents leaves the figures as they are; the source's own hash is finer."""
    before = fingerprint(base, "rows", CPU)
    there = describe_environment(CPU)
    monkeypatch.setattr(module, "describe_environment", lambda device: {**there, "git_commit": "c0ffee"})
    assert fingerprint(base, "rows", CPU) == before


def test_it_leaves_the_configuration_as_it_is(base: dict[str, Any]) -> None:
    keys = set(base), set(base["trainer"])
    fingerprint(base, "rows", CPU)
    assert (set(base), set(base["trainer"])) == keys
