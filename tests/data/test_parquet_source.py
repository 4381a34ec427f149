from __future__ import annotations

import itertools
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.data.parquet_shard import read_group
from recsys.data.parquet_source import ParquetSource, PreparedData
from recsys.data.source import DataSplits
from recsys.errors import ConfigError, DataError
from recsys.features import FeatureSpec
from recsys.types import Batch
from tests.reference.prepared_folder import MULTI_HOT, ONE_HOT, numbered_rows, write_prepared

Row = tuple[Any, ...]


def write(
    folder: Path, sizes: tuple[int, ...] = (40, 25, 8), spec: FeatureSpec = ONE_HOT, group_rows: int = 7, **kwargs: Any
) -> Path:
    """Train files of ``sizes`` rows, one file of 11 valid and one of 9 test rows, all numbered on."""
    starts = np.cumsum([0, *sizes])
    train = [numbered_rows(spec, int(at), size, **kwargs) for at, size in zip(starts, sizes, strict=False)]
    total = int(starts[-1])
    valid, test = numbered_rows(spec, total, 11, **kwargs), numbered_rows(spec, total + 11, 9, **kwargs)
    return write_prepared(folder, spec, {"train": train, "valid": [valid], "test": [test]}, group_rows=group_rows)


@contextmanager
def temporary(sizes: tuple[int, ...], spec: FeatureSpec, group_rows: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield write(Path(name) / "prepared", sizes, spec, group_rows)


def splits(folder: Path, batch_size: int = 10, seed: int = 5, **settings: Any) -> DataSplits:
    return PreparedData(str(folder), **settings).splits(batch_size, seed)


def rows_of(batch: Batch) -> list[Row]:
    """Every row with all its values, padding left out."""
    features = [feature.to_dense() for feature in batch.sparse_features.to_dict().values()]
    return [
        (
            float(batch.labels[b]),
            float(batch.weights[b]),
            *batch.dense_features[b].tolist(),
            *(tuple(ids[b].tolist()) for ids in features),
        )
        for b in range(batch.num_rows)
        if batch.weights[b] != 0
    ]


def expected_rows(table: pa.Table, spec: FeatureSpec) -> list[Row]:
    return [
        (
            row["label"],
            row.get("weight", 1.0),
            *(row[name] for name in spec.dense),
            *(tuple(v) if isinstance(v := row[f.name], list) else (v,) for f in spec.sparse),
        )
        for row in table.to_pylist()
    ]


def numbers(batches: list[Batch]) -> list[int]:
    return [int(row[2]) for batch in batches for row in rows_of(batch)]


def assert_same(left: list[Batch], right: list[Batch]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert torch.equal(a.dense_features, b.dense_features)
        assert torch.equal(a.labels, b.labels)
        assert torch.equal(a.weights, b.weights)
        assert torch.equal(a.sparse_features.values(), b.sparse_features.values())
        assert torch.equal(a.sparse_features.lengths(), b.sparse_features.lengths())
        assert torch.equal(a.sparse_features.offsets(), b.sparse_features.offsets())


@pytest.mark.parametrize("spec", [ONE_HOT, MULTI_HOT], ids=["one-hot", "multi-hot"])
@pytest.mark.parametrize("weight", [False, True])
def test_batches_hold_the_rows_of_the_files(tmp_path: Path, spec: FeatureSpec, weight: bool) -> None:
    data = splits(write(tmp_path / "p", spec=spec, weight=weight))
    first = 0
    for source, size in ((data.train, 73), (data.valid, 11), (data.test, 9)):
        batches = list(source)
        rows = [row for batch in batches for row in rows_of(batch)]
        expected = expected_rows(numbered_rows(spec, first, size, weight=weight), spec)
        assert (sorted(rows, key=itemgetter(2)) if source is data.train else rows) == expected
        assert source.num_rows == size
        first += size
    assert data.spec == spec


@pytest.mark.parametrize("spec", [ONE_HOT, MULTI_HOT], ids=["one-hot", "multi-hot"])
def test_types_and_layout(tmp_path: Path, spec: FeatureSpec) -> None:
    for batch in splits(write(tmp_path / "p", spec=spec)).train:
        sparse = batch.sparse_features
        assert batch.dense_features.dtype == batch.labels.dtype == batch.weights.dtype == torch.float32
        assert sparse.values().dtype == sparse.offsets().dtype == sparse.lengths().dtype == torch.int32
        assert sparse.keys() == spec.sparse_names
        assert sparse.stride() == batch.num_rows
        rebuilt = KeyedJaggedTensor.from_lengths_sync(sparse.keys(), sparse.values(), sparse.lengths())
        assert torch.equal(rebuilt.offsets(), sparse.offsets())
        assert all(t.is_contiguous() for t in (batch.dense_features, sparse.values()))
        if spec.is_one_hot:
            assert torch.equal(sparse.lengths(), torch.ones_like(sparse.lengths()))


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=3).map(tuple).filter(any),
    group_rows=st.integers(1, 12),
    batch_size=st.integers(1, 20),
    world_size=st.integers(1, 4),
    workers=st.integers(1, 3),
    mix_groups=st.integers(1, 4),
    depth=st.integers(1, 5),
    spec=st.sampled_from([ONE_HOT, MULTI_HOT]),
)
def test_every_row_once_in_equal_steps_in_one_order(
    sizes: tuple[int, ...],
    group_rows: int,
    batch_size: int,
    world_size: int,
    workers: int,
    mix_groups: int,
    depth: int,
    spec: FeatureSpec,
) -> None:
    with temporary(sizes, spec, group_rows) as folder:
        expected = Counter(expected_rows(numbered_rows(spec, 0, sum(sizes)), spec))
        ranks: list[list[list[Batch]]] = []
        for rank in range(world_size):
            own: dict[str, Any] = {
                "rank": rank,
                "world_size": world_size,
                "mix_groups": mix_groups,
                "prefetch_batches": depth,
            }
            train = splits(folder, batch_size, workers=workers, **own).train
            epochs = [list(train), list(train)]
            alone = splits(folder, batch_size, workers=1, **own).train
            assert_same(epochs[0] + epochs[1], [*alone, *alone])
            assert len(train) == len(epochs[0]) == len(epochs[1])
            assert sum(len(rows_of(batch)) for batch in epochs[0]) == train.num_rows
            ranks.append(epochs)
        for epoch in range(2):
            shapes = [[batch.num_rows for batch in rank[epoch]] for rank in ranks]
            assert all(shape == shapes[0] for shape in shapes), "equal steps of equal sizes on every rank"
            assert Counter(row for rank in ranks for batch in rank[epoch] for row in rows_of(batch)) == expected


@settings(max_examples=8)
@given(
    batch_size=st.integers(1, 16),
    world_size=st.integers(1, 3),
    last_batch=st.sampled_from(["keep", "drop"]),
    spec=st.sampled_from([ONE_HOT, MULTI_HOT]),
)
def test_resume_at_every_batch(batch_size: int, world_size: int, last_batch: str, spec: FeatureSpec) -> None:
    with temporary((26, 15), spec, 5) as folder:
        own: dict[str, Any] = {
            "rank": world_size - 1,
            "world_size": world_size,
            "last_batch": last_batch,
            "mix_groups": 2,
        }
        if last_batch == "drop" and batch_size > 41 // world_size:
            with pytest.raises(ConfigError, match=r"data\.last_batch=drop: 41 train rows .* do not fill a batch"):
                splits(folder, batch_size, **own)
            return
        source, resumed = (splits(folder, batch_size, **own).train for _ in range(2))
        whole = [list(source), list(source)]
        for epoch, batch in itertools.product(range(2), range(len(source))):
            resumed.load_state_dict({"epoch": epoch, "batch": batch})
            assert_same(list(resumed), whole[epoch][batch:])
            assert resumed.state_dict() == {"epoch": epoch + 1, "batch": 0}


def test_position_follows_the_consumer_not_the_prefetch(tmp_path: Path) -> None:
    folder = write(tmp_path / "p")
    source, other = splits(folder).train, splits(folder).train
    whole = list(other)
    iterator = iter(source)
    for number in range(1, 4):
        next(iterator)
        assert source.state_dict() == {"epoch": 0, "batch": number}
    assert_same(list(source), whole[3:])  # an iterator left alone, and one that goes on from its position
    for state in ({"epoch": 0, "batch": 8}, {"epoch": -1, "batch": 0}, {"epoch": 0, "batch": -1}):
        with pytest.raises(DataError, match=r"cannot resume at epoch .*an epoch has 8 batches here; resume with"):
            source.load_state_dict(state)
    strange: list[Any] = [{"epoch": 0}, {"epoch": "0", "batch": 1}, {"epoch": 0, "batch": 1.5}]
    for position in strange:
        with pytest.raises(DataError, match="a position has the whole numbers epoch and batch"):
            source.load_state_dict(position)


def test_resuming_reads_only_what_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = splits(write(tmp_path / "p", (100,), group_rows=10), mix_groups=2, workers=1).train
    read: list[int] = []

    def counting(shard: Any, group: int, layout: Any) -> Any:
        read.append(group)
        return read_group(shard, group, layout)

    monkeypatch.setattr("recsys.data.parquet_source.read_group", counting)
    list(train)
    assert sorted(read) == list(range(10)), "every row group once an epoch"
    read.clear()
    train.load_state_dict({"epoch": 3, "batch": 6})  # 60 of 100 rows are consumed: 3 of 5 blocks
    list(train)
    assert len(read) == 4


def test_shuffle_is_seeded_and_differs_by_epoch(tmp_path: Path) -> None:
    folder = write(tmp_path / "p")
    first, again, other = (splits(folder, seed=seed).train for seed in (5, 5, 6))
    epochs = [numbers(list(first)) for _ in range(3)]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert [numbers(list(again)) for _ in range(3)] == epochs
    assert numbers(list(other)) != epochs[0]
    assert numbers(list(splits(folder, batch_size=33).train)) == epochs[0], "whatever the batch size"


def test_workers_persist_over_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = splits(write(tmp_path / "p"), workers=2).train
    threads: set[int] = set()

    def noting(shard: Any, group: int, layout: Any) -> Any:
        threads.add(threading.get_ident())
        return read_group(shard, group, layout)

    monkeypatch.setattr("recsys.data.parquet_source.read_group", noting)
    for _ in range(4):
        list(train)
    assert 1 <= len(threads) <= 2
    assert threading.get_ident() not in threads


def test_last_batch_dropped_or_kept_is_said(tmp_path: Path) -> None:
    folder = write(tmp_path / "p")
    kept, dropped = splits(folder), splits(folder, last_batch="drop")
    assert [b.num_rows for b in kept.train] == [10] * 7 + [3]
    assert [b.num_rows for b in dropped.train] == [10] * 7
    assert [b.num_rows for b in dropped.test] == [9], "test rows are never dropped"
    assert kept.notes["last train batch"] == "kept, 3 of 10 rows"
    assert dropped.notes["last train batch"] == "dropped, 3 rows of every epoch"
    assert (kept.notes["train rows"], kept.notes["valid rows"], kept.notes["test rows"]) == (73, 11, 9)
    assert kept.fingerprint != dropped.fingerprint


def test_padding_has_weight_zero_and_valid_ids(tmp_path: Path) -> None:
    folder = write(tmp_path / "p", (7,), MULTI_HOT, group_rows=3)
    last = [list(splits(folder, 4, rank=rank, world_size=5).train)[-1] for rank in range(5)]
    assert [batch.num_rows for batch in last] == [2] * 5
    assert [int((batch.weights == 0).sum()) for batch in last] == [0, 0, 1, 1, 1]
    padded = last[-1].sparse_features
    assert [int(feature.lengths()[-1]) for feature in padded.to_dict().values()] == [1, 0, 1]
    assert last[-1].labels[-1] == 0


def test_more_ranks_than_rows_still_step_together(tmp_path: Path) -> None:
    folder = write(tmp_path / "p", (2,))
    sources = [splits(folder, 4, rank=rank, world_size=3).train for rank in range(3)]
    batches = [list(source) for source in sources]
    assert [source.num_rows for source in sources] == [1, 1, 0]
    assert [[b.num_rows for b in rank] for rank in batches] == [[1]] * 3


def test_evaluating_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    data = splits(write(tmp_path / "p"), workers=1)
    alone = numbers(list(splits(tmp_path / "p").train))
    seen: list[Batch] = []
    for batch in data.train:
        seen.append(batch)
        assert numbers(list(data.valid)) == list(range(73, 84))
    assert numbers(seen) == alone


def test_writing_into_a_batch_leaves_the_rows_alone(tmp_path: Path) -> None:
    source = splits(write(tmp_path / "p")).valid
    for batch in source:
        for tensor in (batch.dense_features, batch.sparse_features.values(), batch.labels, batch.weights):
            tensor.zero_()
    assert numbers(list(source)) == list(range(73, 84))


def test_fingerprint_follows_rows_and_order(tmp_path: Path) -> None:
    folder, other = write(tmp_path / "p"), write(tmp_path / "q", (40, 25, 7))
    first = splits(folder).fingerprint
    assert splits(folder, workers=1, verify="size", prefetch_batches=1).fingerprint == first
    assert len({first, splits(other).fingerprint, splits(folder, mix_groups=2).fingerprint}) == 3


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"path": None}, r"data\.path is not set; give the folder that prepare\.py wrote"),
        ({"verify": "no"}, r"data\.verify=no: valid are full, size"),
        ({"last_batch": "pad"}, r"data\.last_batch=pad: valid are keep, drop"),
        ({"workers": 0}, r"data\.workers=0: must be an integer of at least 1"),
        ({"mix_groups": 1.5}, r"data\.mix_groups=1\.5: must be an integer"),
        ({"rank": 2, "world_size": 2}, r"data\.rank=2: must be in \[0, 2\)"),
        ({"folds": 1}, r"data\.folds=1: must be an integer of at least 2"),
        ({"folds": 3, "fold": 3}, r"data\.fold=3: must be in \[0, 3\)"),
        ({"fold": 1}, r"data\.fold=1: needs data\.folds"),
    ],
)
def test_settings_are_checked(tmp_path: Path, settings_: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PreparedData(**{"path": str(tmp_path), **settings_}).splits(10, 0)


def test_batch_size_must_be_positive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch size is 0; it must be at least 1"):
        PreparedData(str(tmp_path)).splits(0, 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to pin for")
def test_pinning_needs_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.pin_memory=true: torch sees no GPU"):
        splits(write(tmp_path / "p"), pin_memory=True)


@pytest.mark.gpu
@pytest.mark.parametrize("spec", [ONE_HOT, MULTI_HOT], ids=["one-hot", "multi-hot"])
def test_batches_are_pinned_where_there_is_a_gpu(tmp_path: Path, spec: FeatureSpec) -> None:
    folder = write(tmp_path / "p", spec=spec)
    pinned, plain = list(splits(folder).train), list(splits(folder, pin_memory=False).train)
    assert_same(pinned, plain)
    for batch in pinned:
        sparse = batch.sparse_features
        assert all(t.is_pinned() for t in (batch.dense_features, sparse.values(), sparse.lengths(), sparse.offsets()))


def test_a_split_without_rows_is_refused(tmp_path: Path) -> None:
    tables = [numbered_rows(ONE_HOT, 0, 5)]
    folder = write_prepared(tmp_path / "p", ONE_HOT, {"train": tables, "valid": [], "test": tables})
    with pytest.raises(DataError, match=r"the split valid has no rows; prepare the data with a larger share"):
        splits(folder)


def test_source_is_the_interface(tmp_path: Path) -> None:
    train = splits(write(tmp_path / "p")).train
    assert isinstance(train, ParquetSource)
    assert (train.batch_size, len(train), train.num_rows) == (10, 8, 73)
