from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from recsys.data.synthetic import SyntheticData
from recsys.data.synthetic_columns import CRITEO_CARDINALITIES, DENSE_MISSING, MULTI_HOT_COLUMNS
from recsys.data.synthetic_kernels import NUM_SPARSE, mix
from recsys.data.synthetic_rows import Rows

# Rows 0 and 1 of the default data: whoever changes them raises GENERATOR_VERSION.
GOLDEN_IDS = [
    [59, 321, 4, 761, 282, 2, 712, 21, 0, 175, 399, 0, 95, 0, 10, 4, 1, 260, 250, 0, 217, 7, 8, 102, 0, 1578],
    [68, 29, 3, 346, 184, 7, 713, 1, 2, 223, 267, 481, 8, 23, 14, 1, 7, 290, 518, 1, 17, 1, 2, 6, 5, 6],
]
GOLDEN_COUNTS = [
    [None, 0, None, 16, 5306, 28, 4, 0, 24, 1, 0, None, 3],
    [5, 4, None, 0, 1189, None, 10, 7, 7295, None, 4, None, 1],
]
GOLDEN_LABELS = [1, 1, 0, 0]
GOLDEN_PROBABILITY = [0.9422855809709773, 0.42967811471783135, 0.0404539913737851, 0.8986537025423388]


def column(rows: Rows, c: int) -> np.ndarray:
    num_rows = rows.labels.shape[0]
    return rows.ids[rows.offsets[c * num_rows] : rows.offsets[(c + 1) * num_rows]]


def rows_between(rows: Rows, low: int, high: int) -> list[np.ndarray]:
    """Every value of rows low..high of a set of rows, whatever the lengths."""
    num_rows = rows.labels.shape[0]
    ids = [rows.ids[rows.offsets[c * num_rows + low] : rows.offsets[c * num_rows + high]] for c in range(NUM_SPARSE)]
    flat = (rows.dense, rows.labels, rows.probability, rows.parts)
    return [*ids, rows.lengths[:, low:high], *(array[low:high] for array in flat)]


@pytest.fixture(scope="module")
def sample() -> Rows:
    return SyntheticData().rows(0, 60_000)


def test_hash_is_splitmix64() -> None:
    # First outputs of splitmix64 seeded with 1234567, from its reference implementation.
    states = (np.arange(1, 4, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(1234567)
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert mix.py_func(states).tolist() == expected
    assert [int(mix(state)) for state in states] == expected


def test_golden_rows() -> None:
    rows = SyntheticData(pair=1.3, triple=1.3).rows(0, 4)
    assert rows.ids.reshape(NUM_SPARSE, 4).T[:2].tolist() == GOLDEN_IDS
    expected = [[-1.0 if n is None else np.log1p(n) for n in counts] for counts in GOLDEN_COUNTS]
    np.testing.assert_array_equal(rows.dense[:2], np.array(expected, dtype=np.float32))
    assert rows.labels.tolist() == GOLDEN_LABELS
    np.testing.assert_allclose(rows.probability, GOLDEN_PROBABILITY, rtol=1e-12)


@pytest.mark.parametrize("changed", [{}, {"multi_hot": 5}, {"drift": 0.7, "max_cardinality": 20_000_000}])
def test_any_range_can_be_made_alone(changed: dict[str, Any]) -> None:
    data = SyntheticData(**changed)
    whole = data.rows(0, 300)
    alone = SyntheticData(**changed).rows(100, 200)
    for part, other in zip(rows_between(whole, 100, 200), rows_between(alone, 0, 100), strict=True):
        np.testing.assert_array_equal(part, other)


def test_seeds_and_rows_differ() -> None:
    rows, other = SyntheticData().rows(0, 1000), SyntheticData(seed=7).rows(0, 1000)
    # Columns of a few ids agree by chance; those with many rarely do.
    assert np.mean(column(rows, 2) == column(other, 2)) < 0.1
    assert np.mean(column(rows, 2)[1:] == column(rows, 2)[:-1]) < 0.1


def test_dense_missing_rates_and_tails(sample: Rows) -> None:
    missing = (sample.dense == -1.0).mean(axis=0)
    # 1 / 2048 is the resolution of the rates.
    np.testing.assert_allclose(missing, DENSE_MISSING, atol=0.008)
    assert np.isfinite(sample.dense).all()
    present = sample.dense[:, 1]
    counts = np.round(np.expm1(present.astype(np.float64)))
    np.testing.assert_allclose(np.log1p(counts), present, rtol=1e-6)
    # Tail index 1: ten times the threshold, a tenth of the rows beyond it.
    beyond = [(counts > threshold).mean() for threshold in (40, 400)]
    assert beyond[0] / beyond[1] == pytest.approx(10, rel=0.35)
    assert counts.max() > 100 * np.median(counts)


def test_cardinalities_are_criteos_up_to_the_cap(sample: Rows) -> None:
    spec = SyntheticData(max_cardinality=20_000_000).column_settings.spec()
    assert [f.cardinality for f in spec.sparse] == list(CRITEO_CARDINALITIES)
    assert len(spec.dense) == 13
    capped = SyntheticData().column_settings.spec()
    assert [f.cardinality for f in capped.sparse] == [min(n, 2_000) for n in CRITEO_CARDINALITIES]
    for c, feature in enumerate(capped.sparse):
        assert column(sample, c).min() == 0
        assert column(sample, c).max() < feature.cardinality
    assert column(sample, 8).max() == 2  # all three ids of C9 occur


@pytest.mark.parametrize("exponent", [0.8, 1.0, 1.3])
def test_ids_follow_a_zipf_law(exponent: float) -> None:
    data = SyntheticData(zipf_exponent=exponent)
    ids = column(data.rows(0, 200_000), 2)
    counts = np.bincount(ids, minlength=2000)
    # Decades of ranks, away from the first ranks (a density cut at whole numbers) and from rare ids.
    edges = np.array([8, 16, 32, 64, 128, 256])
    density = [counts[a:b].mean() for a, b in pairwise(edges)]
    slope = np.polyfit(np.log(np.sqrt(edges[:-1] * edges[1:])), np.log(density), 1)[0]
    assert slope == pytest.approx(-exponent, abs=0.08)


def test_columns_of_one_group_are_dependent() -> None:
    """C2 and C3 both follow the item type, C1 the user type."""

    def dependence(correlation: float, a: int, b: int) -> float:
        rows = SyntheticData(correlation=correlation).rows(0, 20_000)
        x, y = (column(rows, c) < np.median(column(rows, c)) for c in (a, b))
        # How much knowing which half x is in tells of y's; 0 for independent columns.
        return abs(float(np.mean(x & y) - np.mean(x) * np.mean(y)))

    assert dependence(0.0, 1, 2) < 0.015
    assert dependence(0.5, 1, 2) > 0.03
    assert dependence(0.5, 0, 2) < 0.015


def test_correlation_leaves_the_marginals_alone() -> None:
    apart = np.bincount(column(SyntheticData(correlation=0.0).rows(0, 100_000), 1), minlength=583)
    tied = np.bincount(column(SyntheticData(correlation=0.9).rows(0, 100_000), 1), minlength=583)
    np.testing.assert_allclose(apart[:5], tied[:5], rtol=0.06)


def test_multi_hot_lengths() -> None:
    data = SyntheticData(multi_hot=4)
    rows = data.rows(0, 20_000)
    spec = data.column_settings.spec()
    assert [c for c, f in enumerate(spec.sparse) if f.max_length > 1] == list(MULTI_HOT_COLUMNS)
    assert not spec.is_one_hot
    for c in range(NUM_SPARSE):
        lengths = rows.lengths[c]
        if c not in MULTI_HOT_COLUMNS:
            assert (lengths == 1).all()
            continue
        share = np.bincount(lengths, minlength=5) / 20_000
        np.testing.assert_allclose(share, [0.1, 0.36, 0.216, 0.1296, 0.1944], atol=0.012)
    np.testing.assert_array_equal(np.diff(rows.offsets), rows.lengths.reshape(-1))
    assert rows.ids.shape[0] == rows.lengths.sum()
    # Ids of one row differ: they are drawn apart.
    two = np.flatnonzero(rows.lengths[2] == 2)
    first = rows.offsets[2 * 20_000 + two]
    assert np.mean(rows.ids[first] == rows.ids[first + 1]) < 0.3
