from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys.data.encode import MISSING, OUT_OF_VOCABULARY, DenseEncoder, Vocabulary, log_bins, signed_log

INT64 = st.integers(-(2**63), 2**63 - 1)


def test_signed_log_by_hand() -> None:
    np.testing.assert_allclose(signed_log(np.array([0, 1, -1, 7])), [0.0, np.log(2), -np.log(2), np.log(8)])


@given(st.lists(INT64, min_size=2, max_size=30))
def test_signed_log_is_finite_and_monotone(values: list[int]) -> None:
    logs = signed_log(np.array(sorted(values), np.int64))
    assert np.isfinite(logs).all()
    assert (np.diff(logs) >= 0).all()


def test_log_bins_by_hand() -> None:
    # floor(ln(x)^2): 3 -> 1, 5 -> 2, 10 -> 5, 1000 -> 47; each + 2.
    assert log_bins(np.array([-3, 0, 1, 2, 3, 5, 10, 1000])).tolist() == [-3, 0, 1, 2, 3, 4, 7, 49]


@given(st.lists(INT64, min_size=2, max_size=30))
def test_log_bins_are_monotone(values: list[int]) -> None:
    bins = log_bins(np.array(sorted(values), np.int64)).tolist()
    assert bins == sorted(bins)


def test_dense_encoder_standardises_present_train_values() -> None:
    values = np.array([[0, 1, 7, 0], [5, 5, 5, 5], [0, 0, 0, 0]], np.int64)
    missing = np.array([[0, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1]], bool)
    encoder = DenseEncoder.fit(values, missing)
    logs = np.log([1, 2, 8])
    np.testing.assert_allclose(encoder.mean, [logs.mean(), np.log(6), 0.0])
    np.testing.assert_allclose(encoder.sd, [logs.std(), 1.0, 1.0])
    dense = encoder.encode(values, missing)
    assert dense.shape == (4, 3)
    assert dense.dtype == np.float32
    np.testing.assert_allclose(dense[:3, 0], (logs - logs.mean()) / logs.std(), rtol=1e-6)
    assert dense[3, 0] == 0, "a missing value is the mean"
    assert (dense[:, 1:] == 0).all(), "a constant or absent column is 0 everywhere"
    # Other rows use the train constants; an absent column stays finite when it turns up later.
    later = encoder.encode(np.array([[7], [6], [9]]), np.zeros((3, 1), bool))
    np.testing.assert_allclose(later[0, 0], (np.log(8) - logs.mean()) / logs.std(), rtol=1e-6)
    np.testing.assert_allclose(later[0, 1:], [np.log(7) - np.log(6), np.log(10)], rtol=1e-6)


def test_vocabulary_by_hand() -> None:
    values = np.array([30, 10, 10, 20, 20, 20, 0, 0, 40], np.uint32)
    missing = np.array([0, 0, 0, 0, 0, 0, 1, 1, 0], bool)
    vocabulary = Vocabulary.fit(values, missing, min_count=2)
    assert vocabulary.values.tolist() == [20, 10], "by falling frequency; a missing value is no value"
    assert vocabulary.rare.tolist() == [30, 40]
    assert vocabulary.cardinality == 4
    ids, num_unseen = vocabulary.encode(
        np.array([20, 10, 30, 99, 0, 0, 99], np.uint32), np.array([0, 0, 0, 0, 1, 0, 0], bool)
    )
    assert ids.tolist() == [2, 3, OUT_OF_VOCABULARY, OUT_OF_VOCABULARY, MISSING, OUT_OF_VOCABULARY, OUT_OF_VOCABULARY]
    assert num_unseen == 3, "99 twice and the present 0; 30 is rare, not unseen"
    assert ids.dtype == np.int32


def test_vocabulary_of_a_column_that_is_always_missing() -> None:
    vocabulary = Vocabulary.fit(np.zeros(3, np.uint32), np.ones(3, bool), min_count=1)
    assert vocabulary.cardinality == 2
    ids, num_unseen = vocabulary.encode(np.array([0, 5], np.uint32), np.array([True, False]))
    assert ids.tolist() == [MISSING, OUT_OF_VOCABULARY]
    assert num_unseen == 1


@pytest.mark.parametrize("min_count", [1, 2, 5])
@given(st.lists(st.one_of(st.none(), st.integers(0, 12)), min_size=1, max_size=60))
def test_vocabulary_gives_every_frequent_value_one_id(min_count: int, column: list[int | None]) -> None:
    values = np.array([x or 0 for x in column], np.uint32)
    missing = np.array([x is None for x in column])
    vocabulary = Vocabulary.fit(values, missing, min_count)
    ids, num_unseen = vocabulary.encode(values, missing)
    assert num_unseen == 0, "train rows hold nothing unseen"
    assert ids.max() < vocabulary.cardinality
    decoded = [None if i == MISSING else int(vocabulary.values[i - 2]) if i > 1 else -1 for i in ids]
    assert decoded == [x if x is None or column.count(x) >= min_count else -1 for x in column]
