"""Hostile and damaged checkpoints; scripts/damage_checkpoints.py without an argument makes 500 of the latter."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys.checkpoint import read
from recsys.checkpoint.peers import Alone
from recsys.checkpoint.store import Store
from recsys.errors import CheckpointError
from scripts.damage_checkpoints import check_damaged, check_hostile
from scripts.fault_job import Job


def test_hostile_and_damaged_checkpoints_are_refused_with_a_message(tmp_path: Path) -> None:
    assert check_hostile(tmp_path) >= 25
    refused = check_damaged(40, tmp_path)
    assert refused.total() == 40 and {"flip", "cut", "swapped", "missing"} <= refused.keys()


def test_the_one_before_a_damaged_one_is_used_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = Job(tmp_path).run()
    older, newest = Store(tmp_path).checkpoints()
    file = newest / "rank_00000.safetensors"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    capsys.readouterr()
    job = Job(tmp_path)
    told = capsys.readouterr().out
    assert str(file) in told and "SHA-256" in told and f"using {older.name}, the one before it" in told
    assert job.run() == whole
    assert sorted(p.name for p in tmp_path.iterdir()) == [older.name, newest.name, f"{newest.name}.damaged"]


def test_a_folder_of_damaged_ones_alone_is_refused(tmp_path: Path) -> None:
    Job(tmp_path).run()
    for path in Store(tmp_path).checkpoints():
        (path / "state.json").unlink()
    with pytest.raises(
        CheckpointError, match=r"every checkpoint is damaged; the last one: .*step_00000005/state\.json"
    ):
        Store(tmp_path).newest_sound(Alone())


def test_without_the_checksum_a_flipped_bit_goes_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the tests above can fail at all."""
    monkeypatch.setattr(read, "check_content", lambda *_: None)
    with pytest.raises(AssertionError, match=r"damaged \d+ \(.*\): was taken"):
        check_damaged(40, tmp_path)
