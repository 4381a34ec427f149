"""Configurations of a run that takes a moment, composed as train.py composes them."""

from __future__ import annotations

from typing import Any

from recsys.config.cli import compose, to_plain

TINY = (
    "data.train_rows=192",
    "data.valid_rows=64",
    "data.test_rows=80",
    "data.max_cardinality=40",
    "trainer.device=cpu",
    "trainer.batch_size=64",
    "trainer.evals_per_epoch=2",
    "trainer.quiet=true",
    "trainer.timing.rounds=2",
    "trainer.timing.steps=2",
    "trackers=[]",
)


def tiny_config(*overrides: str) -> dict[str, Any]:
    """The resolved configuration of ``overrides`` on a few synthetic rows; later overrides win."""
    return to_plain(compose([*TINY, *overrides]))


def changed(cfg: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    """A copy of ``cfg`` with another value at the dotted ``key``; ``cfg`` stays as it is."""
    first, _, rest = key.partition(".")
    return {**cfg, first: changed(cfg[first], rest, value) if rest else value}
