from __future__ import annotations

import numpy as np
import pytest
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.data.memory_source import MemorySource
from recsys.errors import ConfigError, DataError
from recsys.features import FeatureSpec, SparseFeature
from recsys.types import Batch

NUM_ROWS = 103


def source(batch_size: int = 10, shuffle_seed: int | None = None, num_rows: int = NUM_ROWS) -> MemorySource:
    """Rows that carry their own number in every column."""
    row = np.arange(num_rows)
    spec = FeatureSpec(("d0", "d1"), tuple(SparseFeature(f"s{i}", 1000 * (i + 1)) for i in range(3)))
    return MemorySource(
        spec,
        np.stack([row, row + 0.5], axis=1).astype(np.float32),
        np.stack([row, row + 1000, row + 2000]).astype(np.int32),
        row % 2,
        batch_size=batch_size,
        shuffle_seed=shuffle_seed,
    )


def row_numbers(batches: list[Batch]) -> list[int]:
    return [int(x) for batch in batches for x in batch.dense_features[:, 0]]


def assert_same(left: list[Batch], right: list[Batch]) -> None:
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert torch.equal(a.dense_features, b.dense_features)
        assert torch.equal(a.sparse_features.values(), b.sparse_features.values())
        assert torch.equal(a.labels, b.labels)


@pytest.mark.parametrize("shuffle_seed", [None, 5])
def test_batch_content(shuffle_seed: int | None) -> None:
    batches = list(source(shuffle_seed=shuffle_seed))
    assert [b.num_rows for b in batches] == [10] * 10 + [3], "the last short batch is kept"
    for batch in batches:
        row = batch.dense_features[:, 0]
        assert batch.dense_features.dtype == batch.labels.dtype == batch.weights.dtype == torch.float32
        assert torch.equal(batch.dense_features[:, 1], row + 0.5)
        assert torch.equal(batch.labels, row % 2)
        assert torch.equal(batch.weights, torch.ones(batch.num_rows))
        sparse = batch.sparse_features
        assert sparse.keys() == ["s0", "s1", "s2"]
        assert sparse.stride() == batch.num_rows
        for i, key in enumerate(sparse.keys()):
            assert torch.equal(sparse[key].values(), row.long() + 1000 * i)
            assert torch.equal(sparse[key].lengths(), torch.ones_like(sparse[key].lengths()))


def test_keyed_jagged_tensor_is_consistent() -> None:
    batch = next(iter(source(shuffle_seed=1)))
    sparse = batch.sparse_features
    rebuilt = KeyedJaggedTensor.from_lengths_sync(sparse.keys(), sparse.values(), sparse.lengths())
    assert torch.equal(rebuilt.offsets(), sparse.offsets())
    assert rebuilt.stride() == sparse.stride()
    assert sparse.values().dtype == sparse.offsets().dtype, "fbgemm wants one integer type"


def test_file_order_without_a_seed() -> None:
    s = source()
    for _ in range(2):
        assert row_numbers(list(s)) == list(range(NUM_ROWS))


def test_shuffle_is_a_new_seeded_permutation_every_epoch() -> None:
    s = source(shuffle_seed=7)
    epochs = [row_numbers(list(s)) for _ in range(3)]
    assert all(sorted(e) == list(range(NUM_ROWS)) for e in epochs)
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    again = source(shuffle_seed=7, batch_size=33)
    assert [row_numbers(list(again)) for _ in range(3)] == epochs, "the order does not depend on the batch size"
    assert row_numbers(list(source(shuffle_seed=8))) != epochs[0]


@pytest.mark.parametrize("shuffle_seed", [None, 5])
@pytest.mark.parametrize("stop", [0, 1, 4, 10, 11, 15])
def test_resume_is_exact(shuffle_seed: int | None, stop: int) -> None:
    s = source(shuffle_seed=shuffle_seed)
    whole = [*s, *s]
    first = source(shuffle_seed=shuffle_seed)
    seen: list[Batch] = []
    while len(seen) < stop:
        for batch in first:
            seen.append(batch)
            if len(seen) == stop:
                break
    resumed = source(shuffle_seed=shuffle_seed)
    resumed.load_state_dict(first.state_dict())
    rest = list(resumed)
    assert_same(rest, whole[stop : 11 if stop < 11 else 22])
    assert_same(list(first), rest)


def test_position_after_the_last_batch_is_the_next_epoch() -> None:
    s = source()
    iterator = iter(s)
    assert s.state_dict() == {"epoch": 0, "batch": 0}
    for number in range(1, 11):
        next(iterator)
        assert s.state_dict() == {"epoch": 0, "batch": number}
    next(iterator)
    assert s.state_dict() == {"epoch": 1, "batch": 0}


def test_position_of_other_data_is_refused() -> None:
    for state in ({"epoch": 0, "batch": 11}, {"epoch": 0, "batch": -1}, {"epoch": -1, "batch": 0}):
        with pytest.raises(DataError, match=r"cannot resume at epoch .*11 batches here; resume with"):
            source().load_state_dict(state)


@pytest.mark.parametrize("batch_size", [0, -4])
def test_batch_size_must_be_positive(batch_size: int) -> None:
    with pytest.raises(ConfigError, match=f"batch size is {batch_size}; it must be at least 1"):
        source(batch_size)


def test_batch_larger_than_the_data() -> None:
    s = source(batch_size=1000)
    assert len(s) == 1
    assert [b.num_rows for b in s] == [NUM_ROWS]


@pytest.mark.parametrize("shuffle_seed", [None, 5])
def test_writing_into_a_batch_leaves_the_rows_alone(shuffle_seed: int | None) -> None:
    s = source(shuffle_seed=shuffle_seed)
    for batch in s:
        for tensor in (batch.dense_features, batch.sparse_features.values(), batch.labels, batch.weights):
            tensor.zero_()
    fresh = source(shuffle_seed=shuffle_seed)
    list(fresh)
    assert_same(list(s), list(fresh))
