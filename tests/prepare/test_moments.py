from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from recsys.prepare.moments import Moments

FLOATS = st.floats(-1e38, 1e38) | st.integers(-5, 5).map(float) | st.floats(-1e-300, 1e-300)


@given(st.lists(FLOATS, max_size=30), st.data())
def test_sums_are_exact_and_in_any_order(values: list[float], data: st.DataObject) -> None:
    array = np.array(values, np.float64)
    moments = Moments.of(array)
    assert Fraction(moments.total, 1 << 1075) == sum(map(Fraction, values))
    assert Fraction(moments.squares, 1 << 2150) == sum(Fraction(v) ** 2 for v in values)
    cut = data.draw(st.integers(0, len(values)))
    order = data.draw(st.permutations(range(len(values))))
    shuffled = array[np.array(order, np.intp)]
    assert Moments.of(shuffled[:cut]) + Moments.of(shuffled[cut:]) == moments


def test_mean_and_sd() -> None:
    values = np.random.default_rng(0).normal(5, 3, 1000)
    moments = Moments.of(values)
    assert math.isclose(moments.mean, values.mean(), rel_tol=1e-14)
    assert math.isclose(moments.sd, values.std(), rel_tol=1e-13)
    far = Moments.of(1.7e9 + np.arange(10.0))
    assert math.isclose(far.sd, np.arange(10.0).std(), rel_tol=1e-12)


def test_constant_and_nothing() -> None:
    assert (Moments.of(np.full(7, 0.1)).sd, Moments().sd, Moments().mean) == (1.0, 1.0, 0.0)
