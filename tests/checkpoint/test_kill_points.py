"""SIGKILL in the middle of writing checkpoints; scripts/kill_points.py without --points takes every operation."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.kill_points import check_points


# The child has one thread that matters, and never returns to pytest.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_killed_at_any_file_operation_and_resumed_the_numbers_are_the_same(tmp_path: Path) -> None:
    killed = check_points(20, tmp_path)
    assert killed.total() == 20
    assert {"write", "fsync", "rename"} <= killed.keys()
