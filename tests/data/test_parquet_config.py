"""``data=prepared`` on the command line."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from recsys.config.cli import compose, to_plain
from recsys.config.wire import build_data
from recsys.data.parquet_source import PreparedData
from recsys.errors import ConfigError
from recsys.run import train_model
from tests.reference.prepared_folder import MULTI_HOT, numbered_rows, write_prepared

TINY = ("trainer.device=cpu", "trainer.batch_size=16", "trainer.evals_per_epoch=1", "trainer.quiet=true")


def test_the_file_has_the_settings_and_defaults_of_the_class() -> None:
    node = to_plain(compose(["data=prepared"]))["data"]
    parameters = inspect.signature(PreparedData).parameters
    assert node.pop("_target_") == "recsys.data.parquet_source.PreparedData"
    assert node.pop("path") is None
    assert node == {name: p.default for name, p in parameters.items() if name != "path"}


def test_without_a_path() -> None:
    with pytest.raises(ConfigError, match=r"data\.path is not set; give the folder that prepare\.py wrote"):
        build_data(to_plain(compose(["data=prepared"])))


def test_a_model_trains_on_multi_hot_weighted_rows(tmp_path: Path) -> None:
    splits = {name: [numbered_rows(MULTI_HOT, at, 50, weight=True)] for name, at in (("train", 0), ("valid", 50))}
    splits["test"] = [numbered_rows(MULTI_HOT, 100, 37, weight=True)]
    folder = write_prepared(
        tmp_path / "p",
        MULTI_HOT,
        splits,
        group_rows=20,
        notes={"unseen ids": {"valid": {"s0": 2, "s1": 1}, "test": {"s0": 0}}, "quarantined": 4},
    )
    cfg = to_plain(compose(["+experiment=erase6", "data=prepared", f"data.path={folder}", *TINY]))
    report = train_model(cfg, tmp_path / "run")
    assert report.data_notes["unseen ids"] == {"valid": 3, "test": 0}, "summed over the columns"
    assert report.data_notes["quarantined"] == 4
    assert report.data_notes["last train batch"] == "kept, 2 of 16 rows"
    assert report.erase.ne is not None
