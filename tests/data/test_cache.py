from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from recsys.data.cache import Prepared, fetch
from recsys.features import FeatureSpec, SparseFeature


def build() -> Prepared:
    spec = FeatureSpec(("d",), (SparseFeature("s", 4),))
    return Prepared(spec, {"x": np.arange(1000), "y": np.ones((2, 3), np.float32)}, {"rows": 1000})


def no_build() -> Prepared:
    return pytest.fail("built again")


def assert_same(left: Prepared, right: Prepared) -> None:
    assert left.spec == right.spec
    assert left.notes == right.notes
    assert left.arrays.keys() == right.arrays.keys()
    for name, array in left.arrays.items():
        np.testing.assert_array_equal(array, right.arrays[name], strict=True)


def test_round_trip(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "cache" / "key"
    assert_same(fetch(folder, build), build())
    assert_same(fetch(folder, no_build), build())
    assert os.listdir(folder.parent) == ["key"]


def _flip_a_bit(folder: Path) -> None:
    content = bytearray((folder / "x.npy").read_bytes())
    content[700] ^= 1
    (folder / "x.npy").write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "bit": _flip_a_bit,
    "short": lambda folder: os.truncate(folder / "x.npy", 500),
    "file gone": lambda folder: (folder / "y.npy").unlink(),
    "file more": lambda folder: (folder / "z.npy").write_text(""),
    "notes": lambda folder: (folder / "notes.json").write_text('{"rows": 1001}'),
    "features": lambda folder: (folder / "features.json").write_text("{}"),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "broken manifest": lambda folder: (folder / "manifest.json").write_text("{"),
    "other manifest": lambda folder: (folder / "manifest.json").write_text("[]"),
    "empty manifest": lambda folder: (folder / "manifest.json").write_text(json.dumps({"sha256": {}})),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_said_and_mended(tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str) -> None:
    folder = tmp_path / "key"
    fetch(folder, build)
    DAMAGE[damage](folder)
    with caplog.at_level(logging.WARNING):
        assert_same(fetch(folder, build), build())
    assert f"{folder}: the cache is damaged" in caplog.text
    assert_same(fetch(folder, no_build), build())
    assert os.listdir(tmp_path) == ["key"]


def test_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> Prepared:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        fetch(tmp_path / "key", fail)
    assert os.listdir(tmp_path) == []


def test_second_of_two_runs_keeps_the_first_ones_folder(tmp_path: Path) -> None:
    folder = tmp_path / "key"

    def build_while_another_finishes() -> Prepared:
        fetch(folder, build)
        return build()

    assert_same(fetch(folder, build_while_another_finishes), build())
    assert_same(fetch(folder, no_build), build())
    assert os.listdir(tmp_path) == ["key"]
