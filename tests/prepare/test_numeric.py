from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recsys.prepare.numeric import log_bins, transform

INT64 = st.integers(-(2**63), 2**63 - 1)


def signed_log(values: list[int]) -> np.ndarray:
    return transform(np.array(values, np.float64), ("signed_log",), 1.0)


def test_signed_log_by_hand() -> None:
    np.testing.assert_allclose(signed_log([0, 1, -1, 7]), [0.0, np.log(2), -np.log(2), np.log(8)])


@given(st.lists(INT64, min_size=2, max_size=30))
def test_signed_log_is_finite_and_monotone(values: list[int]) -> None:
    logs = signed_log(sorted(values))
    assert np.isfinite(logs).all()
    assert (np.diff(logs) >= 0).all()


def test_log_bins_by_hand() -> None:
    # floor(ln(x)^2): 3 -> 1, 5 -> 2, 10 -> 5, 1000 -> 47; each + 2.
    assert log_bins(np.array([-3, 0, 1, 2, 3, 5, 10, 1000])).tolist() == [-3, 0, 1, 2, 3, 4, 7, 49]


@given(st.lists(INT64, min_size=2, max_size=30))
def test_log_bins_are_monotone(values: list[int]) -> None:
    bins = log_bins(np.array(sorted(values), np.int64)).tolist()
    assert bins == sorted(bins)
