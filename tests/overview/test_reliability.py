"""The calibration curve against counts made by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from recsys.overview.reliability import reliability
from recsys.report.predictions import Predictions


def predictions(logits: list[float], labels: list[int], weights: list[float] | None = None) -> Predictions:
    columns = (logits, labels, weights or [1.0] * len(logits))
    return Predictions(*(np.array(column, np.float32) for column in columns))


def test_bins_hold_neighbours_and_their_click_rate() -> None:
    bins = reliability(predictions([3, -3, 2, -2], [1, 0, 1, 0]), num_bins=2)
    assert [(b.observed, b.rows) for b in bins] == [(0.0, 2), (1.0, 2)]
    low, high = (1 / (1 + np.exp(3)) + 1 / (1 + np.exp(2))) / 2, (1 / (1 + np.exp(-3)) + 1 / (1 + np.exp(-2))) / 2
    assert [b.predicted for b in bins] == pytest.approx([low, high])


def test_interval_is_wilsons() -> None:
    (found,) = reliability(predictions([0.0] * 40, [1] * 10 + [0] * 30), num_bins=1)
    expected = stats.binomtest(10, 40).proportion_ci(0.95, "wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_weights_count() -> None:
    (found,) = reliability(predictions([0.0, 0.0], [1, 0], [3.0, 1.0]), num_bins=1)
    assert found.observed == pytest.approx(0.75) and found.predicted == pytest.approx(0.5)


def test_fewer_rows_than_bins() -> None:
    assert [b.rows for b in reliability(predictions([0.0, 1.0, 2.0], [0, 1, 0]), num_bins=12)] == [1, 1, 1]
