from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recsys.data.parquet_manifest import SPLITS, read_manifest
from recsys.errors import DataError
from recsys.features import FeatureSpec, SparseFeature
from tests.reference.prepared_folder import ONE_HOT, numbered_rows, write_prepared, write_shard

Edit = Callable[[dict[str, Any]], Any]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tables = [numbered_rows(ONE_HOT, 0, 6), numbered_rows(ONE_HOT, 6, 4)]
    splits = {"train": tables, "valid": tables[:1], "test": tables[1:]}
    return write_prepared(tmp_path / "p", ONE_HOT, splits, notes={"unseen ids": 3})


def edit(folder: Path, change: Edit) -> None:
    path = folder / "manifest.json"
    raw = json.loads(path.read_text())
    change(raw)
    path.write_text(json.dumps(raw))


def test_content(folder: Path) -> None:
    manifest = read_manifest(folder)
    assert {name: [shard.rows for shard in manifest.shards[name]] for name in SPLITS} == {
        "train": [6, 4],
        "valid": [6],
        "test": [4],
    }
    first = manifest.shards["train"][0]
    assert first.path == folder / "train" / "part-00000.parquet"
    assert first.path.stat().st_size == first.num_bytes
    assert manifest.notes == {"unseen ids": 3}
    assert manifest.spec == ONE_HOT
    assert len(manifest.fingerprint) == 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.update(version=2), "is of version 2, and this recsys reads version 1"),
        (lambda m: m.update(version=True), "'version' should be there and be int, but is True"),
        (lambda m: m.pop("splits"), "'splits' should be there and be dict, but is None"),
        (lambda m: m["splits"].pop("test"), r"has the splits \['train', 'valid'\] instead of train, valid, test"),
        (lambda m: m["splits"].update(extra={}), "has the splits .*'extra'"),
        (lambda m: m["splits"]["train"].update(rows=11), "train has 11 rows and its files 10"),
        (lambda m: m["splits"]["train"]["files"][0].update(rows=-6), "'rows' is -6"),
        (lambda m: m["splits"]["train"]["files"][0].update(sha256="ab"), "sha256 of train/part-00000.parquet is 'ab'"),
        (lambda m: m["splits"]["train"]["files"].reverse(), "files of train are not in order"),
        (lambda m: m["splits"]["train"]["files"].append(m["splits"]["train"]["files"][1]), "or one stands twice"),
        (lambda m: m["splits"].update(train=m["splits"]["test"]), "'test/part-00000.parquet' is no file of .* train"),
        (lambda m: m["splits"]["test"]["files"][0].update(name="test/../x.parquet"), "is no file of the split test"),
        (lambda m: m.update(fingerprint="?"), r"the fingerprint '\?' is not hexadecimal"),
        (lambda m: m.pop("files"), "'files' should be there and be list"),
        (lambda m: m["files"].clear(), r"does not list features\.json"),
        (lambda m: m.update(notes=[]), r"'notes' should be there and be dict, but is \[\]"),
    ],
)
def test_an_edited_manifest_is_refused(folder: Path, change: Edit, message: str) -> None:
    edit(folder, change)
    with pytest.raises(DataError, match=rf"manifest\.json: .*{message}.*; prepare the data again"):
        read_manifest(folder)


def test_a_shard_struck_from_the_manifest_is_noticed(folder: Path) -> None:
    def strike(raw: dict[str, Any]) -> None:
        raw["splits"]["train"]["files"].pop()
        raw["splits"]["train"]["rows"] = 6

    edit(folder, strike)
    with pytest.raises(DataError, match=r"train/part-00001\.parquet: not listed in manifest\.json; remove it"):
        read_manifest(folder)


def test_missing_and_unknown_files(folder: Path) -> None:
    write_shard(folder / "valid" / "part-00001.parquet", numbered_rows(ONE_HOT, 0, 2))
    with pytest.raises(DataError, match=r"valid/part-00001\.parquet: not listed"):
        read_manifest(folder)
    (folder / "train" / "part-00000.parquet").unlink()
    with pytest.raises(DataError, match=r"train/part-00000\.parquet: listed in manifest\.json but not there"):
        read_manifest(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version": 1, "version": 1}', "\ud7ff{}"])
def test_not_a_manifest(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"manifest\.json: .*prepare the data again"):
        read_manifest(folder)


def test_no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    with pytest.raises(DataError, match=r"holds no manifest\.json, which is written last; run prepare\.py to its end"):
        read_manifest(folder)
    with pytest.raises(DataError, match=r"nowhere: no such folder; set data\.path to a folder"):
        read_manifest(folder / "nowhere")


def test_other_features_are_refused(folder: Path) -> None:
    FeatureSpec(ONE_HOT.dense, (*ONE_HOT.sparse[:-1], SparseFeature("s2", 8))).write(folder / "features.json")
    with pytest.raises(DataError, match=r"features\.json: the content is not the one that was written"):
        read_manifest(folder)
    (folder / "features.json").unlink()
    with pytest.raises(DataError, match=r"features\.json: cannot be read as a feature spec"):
        read_manifest(folder)
