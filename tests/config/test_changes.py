"""Differences between a run and its checkpoint."""

from __future__ import annotations

import pytest

from recsys.config.changes import check_changes, differences
from recsys.errors import ConfigError

BEFORE = {"optim": {"lr": 0.1, "name": "adam"}, "model": {"archs": {"dot": {"k": 1}}}, "seed": 1, "lanes": {}}
NOW = {"optim": {"lr": 0.2, "name": "adam"}, "model": {"archs": {"cross": {"k": 1}}}, "seed": 1, "lanes": {}}


def test_what_changed_came_and_went() -> None:
    assert differences(BEFORE, NOW) == {
        "optim.lr": (0.1, 0.2),
        "model.archs.cross.k": ("(absent)", 1),
        "model.archs.dot.k": (1, "(absent)"),
    }
    assert differences({"a": [1, 2]}, {"a": (1, 2)}) == {}


def test_differences_are_refused_with_a_line_each() -> None:
    with pytest.raises(ConfigError) as told:
        check_changes(BEFORE, NOW, ["model"], "step_00000001")
    assert str(told.value).splitlines() == [
        "step_00000001: was made with another configuration:",
        "  optim.lr: 0.1 in the checkpoint, 0.2 now",
        "use its values, or allow the change with checkpoint.allow_changes=[optim.lr]; the run is then no longer the "
        "one that was interrupted",
    ]


@pytest.mark.parametrize("allowed", ["all", ["all"], ["optim.lr", "model.archs"], ["optim", "model"]])
def test_allowed_ones_are_told(allowed: list[str] | str) -> None:
    lines = check_changes(BEFORE, NOW, allowed, "here")
    assert "optim.lr: 0.1 in the checkpoint, 0.2 now" in lines and len(lines) == 3
    with pytest.raises(ConfigError):
        check_changes(BEFORE, NOW, ["opti", "model"], "here")
