"""What a shard may hold, and what happens when it does not or changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from recsys.data.parquet_source import ParquetSource, PreparedData
from recsys.errors import DataError
from recsys.features import FeatureSpec, SparseFeature
from recsys.types import Batch
from tests.reference.prepared_folder import MULTI_HOT, ONE_HOT, numbered_rows, write_prepared

BAD_ROW = 17  # the third row of its row group, of 5 rows each


def folder_with(tmp_path: Path, train: pa.Table, spec: FeatureSpec) -> Path:
    good = numbered_rows(spec, 100, 5, weight="weight" in train.column_names)
    return write_prepared(tmp_path / "p", spec, {"train": [train], "valid": [good], "test": [good]}, group_rows=5)


def source(folder: Path, verify: str = "full") -> ParquetSource:
    train = PreparedData(str(folder), verify=verify, workers=1).splits(4, 0).train
    assert isinstance(train, ParquetSource)
    return train


def replaced(table: pa.Table, name: str, values: object) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def with_bad_value(name: str, value: object) -> pa.Table:
    table = numbered_rows(MULTI_HOT, 0, 30, weight=True)
    values = table.column(name).to_pylist()
    values[BAD_ROW] = value
    return replaced(table, name, pa.array(values, table.schema.field(name).type))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("s0", 5000, r"feature 's0': id 5000 is outside its table of 5000 rows; features\.json is of other data"),
        ("s0", -1, "feature 's0': id -1 is outside"),
        ("s0", None, "column 's0' is null"),
        ("m0", [1, 13], "feature 'm0': id 13 is outside its table of 13 rows"),
        ("m0", [-2], "feature 'm0': id -2 is outside"),
        ("m0", [1, 2, 3, 4, 5], "column 'm0': 5 ids in a row are more than its max_length 4"),
        ("m0", None, "column 'm0' is null"),
        ("d0", float("nan"), "column 'd0': nan is not finite"),
        ("d0", float("-inf"), "column 'd0': -inf is not finite"),
        ("d0", None, "column 'd0' is null"),
        ("label", 0.5, "column 'label': 0.5 is neither 0 nor 1"),
        ("label", float("nan"), "column 'label': nan is neither 0 nor 1"),
        ("label", None, "column 'label' is null"),
        ("weight", 0.0, "column 'weight': 0.0 is not a positive number"),
        ("weight", float("inf"), "column 'weight': inf is not a positive number"),
    ],
)
def test_a_bad_value_is_found_with_its_place(tmp_path: Path, name: str, value: object, message: str) -> None:
    train = source(folder_with(tmp_path, with_bad_value(name, value), MULTI_HOT))
    with pytest.raises(DataError, match=rf"train/part-00000\.parquet, row group 3, row 2: {message}"):
        list(train)


def test_a_null_inside_a_list(tmp_path: Path) -> None:
    train = source(folder_with(tmp_path, with_bad_value("m0", [1, None]), MULTI_HOT))
    with pytest.raises(DataError, match=r"row group 3: column 'm0': a list holds a null"):
        list(train)


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (numbered_rows(ONE_HOT, 0, 9).drop_columns(["s1"]), r"has the columns .*, but features\.json needs"),
        (numbered_rows(ONE_HOT, 0, 9).drop_columns(["row"]), r"has the columns .*, but features\.json needs"),
        (
            replaced(numbered_rows(ONE_HOT, 0, 9), "d1", pa.array(np.zeros(9))),
            "column 'd1' is double, which does not fit",
        ),
        (
            replaced(numbered_rows(ONE_HOT, 0, 9), "s1", pa.array(np.zeros(9, np.int64))),
            "column 's1' is int64, which does",
        ),
        (
            replaced(numbered_rows(ONE_HOT, 0, 9), "s1", numbered_rows(MULTI_HOT, 0, 9).column("m0")),
            "column 's1' is list",
        ),
        (numbered_rows(ONE_HOT, 0, 9).append_column("old", pa.array(np.zeros(9, np.int32))), "column 'old' is int32"),
    ],
)
def test_columns_must_fit_the_features(tmp_path: Path, train: pa.Table, message: str) -> None:
    with pytest.raises(DataError, match=rf"train/part-00000\.parquet: {message}.*prepare"):
        source(folder_with(tmp_path, train, ONE_HOT))


def test_a_group_column_is_left_alone(tmp_path: Path) -> None:
    table = numbered_rows(ONE_HOT, 0, 9).append_column("time", pa.array(np.arange(9)))
    assert sum(batch.num_rows for batch in source(folder_with(tmp_path, table, ONE_HOT))) == 9


def test_weights_in_some_files_only(tmp_path: Path) -> None:
    tables = [numbered_rows(ONE_HOT, 0, 5, weight=True), numbered_rows(ONE_HOT, 5, 5)]
    folder = write_prepared(tmp_path / "p", ONE_HOT, {"train": tables, "valid": tables[:1], "test": tables[:1]})
    with pytest.raises(DataError, match=r"part-00001\.parquet: has no column 'weight' but other files of train do"):
        source(folder)


def test_no_dense_and_no_categorical_columns(tmp_path: Path) -> None:
    for number, spec in enumerate((FeatureSpec((), (SparseFeature("s0", 50),)), FeatureSpec(("d0",), ()))):
        table = numbered_rows(spec, 0, 9)
        folder = write_prepared(tmp_path / str(number), spec, {"train": [table], "valid": [table], "test": [table]})
        batch = next(iter(source(folder)))
        assert batch.dense_features.shape == (4, len(spec.dense))
        assert batch.sparse_features.values().shape == (4 * len(spec.sparse),)
        assert batch.sparse_features.stride() == 4


@pytest.fixture(params=["full", "size"])
def train(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[ParquetSource, Path]]:
    folder = folder_with(tmp_path, numbered_rows(ONE_HOT, 0, 30), ONE_HOT)
    yield source(folder, request.param), folder / "train" / "part-00000.parquet"


def test_a_file_that_goes_away_between_epochs(train: tuple[ParquetSource, Path]) -> None:
    batches, path = train
    list(batches)
    path.unlink()
    with pytest.raises(DataError, match=r"train/part-00000\.parquet: cannot be read \(No such file or directory\)"):
        list(batches)
    assert batches.state_dict() == {"epoch": 1, "batch": 0}, "a batch that did not come can be asked for again"


def test_a_file_that_changes_between_epochs(train: tuple[ParquetSource, Path]) -> None:
    batches, path = train
    list(batches)
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content[::-1])
    with pytest.raises(DataError, match=r"train/part-00000\.parquet: changed while it was in use; leave prepared"):
        list(batches)


def test_an_error_ends_the_epoch_and_not_the_workers(train: tuple[ParquetSource, Path]) -> None:
    batches, path = train
    content = path.read_bytes()
    hidden = path.with_suffix(".hidden")
    whole: list[Batch] = list(batches)
    path.rename(hidden)
    batches.load_state_dict({"epoch": 0, "batch": 0})
    with pytest.raises(DataError), closing(iter(batches)) as iterator:  # type: ignore[type-var]
        list(iterator)
    hidden.rename(path)
    assert path.read_bytes() == content
    assert len(list(batches)) == len(whole)
