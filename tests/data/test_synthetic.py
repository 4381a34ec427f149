from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.data.synthetic import SyntheticData, SyntheticSource
from recsys.errors import ConfigError, DataError
from recsys.types import Batch

CONFIG = Path(__file__).parents[2] / "configs" / "data" / "synthetic.yaml"
SMALL = SyntheticData(train_rows=1050, valid_rows=300, test_rows=500)


def assert_same(a: Batch, b: Batch) -> None:
    for name in ("dense_features", "labels", "weights"):
        assert torch.equal(getattr(a, name), getattr(b, name))
    assert torch.equal(a.sparse_features.values(), b.sparse_features.values())
    assert torch.equal(a.sparse_features.lengths(), b.sparse_features.lengths())


def rows_of(source: SyntheticSource) -> torch.Tensor:
    """One epoch as a set of distinct rows."""
    return torch.cat([batch.dense_features for batch in source])


def test_config_file_is_the_default_data() -> None:
    data = instantiate(OmegaConf.load(CONFIG))
    assert data == SyntheticData()
    assert data.fingerprint == SyntheticData().fingerprint
    assert set(OmegaConf.load(CONFIG)) - {"_target_"} == {field.name for field in dataclasses.fields(SyntheticData)}


@pytest.mark.parametrize("multi_hot", [1, 3])
def test_batches_are_what_the_contract_says(multi_hot: int) -> None:
    data = dataclasses.replace(SMALL, multi_hot=multi_hot)
    source = SyntheticSource(data, 100, 350, batch_size=100)
    batches = list(source)
    assert [batch.num_rows for batch in batches] == [100, 100, 50]
    assert len(source) == 3
    assert source.num_rows == 250
    for batch in batches:
        sparse = batch.sparse_features
        assert (batch.dense_features.dtype, batch.dense_features.shape[1]) == (torch.float32, 13)
        assert (batch.labels.dtype, batch.weights.dtype) == (torch.float32, torch.float32)
        assert (batch.weights == 1).all()
        assert (sparse.values().dtype, sparse.lengths().dtype, sparse.offsets().dtype) == (
            torch.int64,
            torch.int32,
            torch.int64,
        )
        assert sparse.stride() == batch.num_rows
        assert sparse.keys() == source.spec.sparse_names


@pytest.mark.parametrize("multi_hot", [1, 3])
def test_precomputed_offsets_are_torchrecs_own(multi_hot: int) -> None:
    data = dataclasses.replace(SMALL, multi_hot=multi_hot)
    given = next(iter(SyntheticSource(data, 0, 64, batch_size=64))).sparse_features
    plain = KeyedJaggedTensor(keys=given.keys(), values=given.values(), lengths=given.lengths())
    assert given.offsets().tolist() == plain.offsets().tolist()
    assert given.length_per_key() == plain.length_per_key()
    assert given.offset_per_key() == plain.offset_per_key()
    for key in SMALL.column_settings.spec().sparse_names:
        assert torch.equal(given[key].values(), plain[key].values())
        assert torch.equal(given[key].lengths(), plain[key].lengths())


def test_splits_are_disjoint_and_complete() -> None:
    splits = SMALL.splits(batch_size=128, seed=0)
    assert (splits.train.num_rows, splits.valid.num_rows, splits.test.num_rows) == (1050, 300, 500)
    together = torch.cat([rows_of(s) for s in (splits.train, splits.valid, splits.test)])  # type: ignore[arg-type]
    np.testing.assert_array_equal(together.numpy(), SMALL.rows(0, 1850).dense)


def test_notes_give_the_floor_of_the_test_rows() -> None:
    notes = SMALL.splits(batch_size=128, seed=0).notes
    p = SMALL.rows(1350, 1850).probability
    entropy = -(p * np.log(p) + (1 - p) * np.log(1 - p)).mean()
    mean = p.mean()
    assert notes["bayes_ne"] == pytest.approx(entropy / -(mean * np.log(mean) + (1 - mean) * np.log(1 - mean)))


def test_resume_at_every_batch() -> None:
    source = SMALL.splits(batch_size=200, seed=5).train
    states, batches = [], []
    for _ in range(2):
        states.append(source.state_dict())
        for batch in source:
            batches.append(batch)
            states.append(source.state_dict())
        states.pop()  # after the last batch the epoch has ended only once the iterator is exhausted
    assert source.state_dict() == {"epoch": 2, "batch": 0}
    for at, state in enumerate(states):
        resumed = SMALL.splits(batch_size=200, seed=5).train
        resumed.load_state_dict(state)
        rest = [*resumed, *resumed] if state["epoch"] == 0 else [*resumed]
        assert len(rest) == len(batches) - at
        for a, b in zip(rest, batches[at:], strict=True):
            assert_same(a, b)


def test_later_epochs_are_shuffled_by_seed_with_the_short_batch_last() -> None:
    def epochs(seed: int | None) -> list[list[Batch]]:
        source = SyntheticSource(SMALL, 0, 1050, batch_size=100, order_seed=seed)
        return [list(source) for _ in range(3)]

    first, second, third = epochs(1)
    assert_same(first[0], epochs(2)[0][0])
    order = [[batch.dense_features[0].tolist() for batch in epoch] for epoch in (first, second, third)]
    assert order[0] != order[1] != order[2]
    assert sorted(order[0]) == sorted(order[1]) == sorted(order[2])
    assert [batch.num_rows for batch in second] == [100] * 10 + [50]
    assert order[1] == [batch.dense_features[0].tolist() for batch in epochs(1)[1]]
    assert order[1] != [batch.dense_features[0].tolist() for batch in epochs(2)[1]]
    assert order[0] == [batch.dense_features[0].tolist() for batch in epochs(None)[1]]


def test_bad_position_is_refused() -> None:
    source = SyntheticSource(SMALL, 0, 300, batch_size=100)
    with pytest.raises(
        DataError, match="cannot resume at epoch 0, batch 4: an epoch has 3 batches here; resume with the"
    ):
        source.load_state_dict({"epoch": 0, "batch": 4})


CHANGES: dict[str, Any] = {
    "train_rows": 1051,
    "valid_rows": 301,
    "test_rows": 501,
    "row_offset": 1850,
    "max_cardinality": 500,
    "zipf_exponent": 1.1,
    "correlation": 0.3,
    "click_rate": 0.2,
    "first_order": 1.0,
    "pair": 1.1,
    "triple": 1.0,
    "dense": 1.0,
    "head": 40.0,
    "multi_hot": 2,
    "drift": 0.5,
    "seed": 1,
}


def test_fingerprint_names_every_setting_and_the_version() -> None:
    prints = {dataclasses.replace(SMALL, **{name: value}).fingerprint for name, value in CHANGES.items()}
    assert set(CHANGES) == {field.name for field in dataclasses.fields(SyntheticData)}
    assert len(prints | {SMALL.fingerprint}) == len(CHANGES) + 1
    assert SMALL.fingerprint.startswith("synthetic v1 ")
    assert dataclasses.replace(SMALL, head=30).fingerprint == SMALL.fingerprint


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("train_rows", 0, "a whole number of at least 1"),
        ("train_rows", 1 << 60, "small enough: all rows together below 2\\*\\*59"),
        ("valid_rows", 2.5, "a whole number of at least 1"),
        ("test_rows", "many", "a whole number of at least 1"),
        ("max_cardinality", -3, "a whole number of at least 1"),
        ("zipf_exponent", 0.0, "a finite number above 0"),
        ("correlation", 1.0, "in \\[0, 1\\)"),
        ("click_rate", 1.0, "between 0 and 1"),
        ("first_order", -0.1, "a finite number of at least 0"),
        ("pair", float("nan"), "a finite number of at least 0"),
        ("triple", float("inf"), "a finite number of at least 0"),
        ("dense", None, "a finite number of at least 0"),
        ("head", 0, "a finite number above 0"),
        ("multi_hot", 300, "at most 255"),
        ("multi_hot", True, "a whole number of at least 1"),
        ("drift", -1.0, "a finite number of at least 0"),
        ("seed", -1, "a whole number from 0"),
    ],
)
def test_bad_settings_are_named(name: str, value: Any, wanted: str) -> None:
    with pytest.raises(ConfigError, match=f"^data.{name} is .*, but it must be {wanted}.*; set data.{name}="):
        SyntheticData(**{name: value})
