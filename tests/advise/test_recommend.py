from __future__ import annotations

import pytest

from recsys.advise.recommend import gain, recommend

A, B, AB = frozenset("a"), frozenset("b"), frozenset("ab")
PREDICTED = {A: 1.2, B: 1.1, AB: 1.3}
BASE = [10.0, 10.2, 9.9, 10.1, 10.0, 9.8, 10.3, 10.0, 10.0]


def times(factor: float) -> list[float]:
    return [seconds / factor for seconds in BASE]


def test_the_interval_is_that_of_the_order() -> None:
    ratios = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8]
    found = gain(ratios, [1.0] * 9)
    # Of nine turns, leaving out one at each end covers the median with 1 - 2 * 10 / 512 = 96 %.
    assert (found.median, found.low, found.high) == (1.4, 1.1, 1.7)
    assert gain(ratios, [1.0] * 9, comparisons=5).low == 1.0


def test_the_fastest_set() -> None:
    found = recommend(BASE, {A: times(1.2), B: times(1.05), AB: times(1.4)}, PREDICTED)
    assert found.detach == AB and found.predicted == 1.3
    assert found.measured is not None and found.measured.median == pytest.approx(1.4)
    assert found.text.startswith("detach [a,b]: 1.300 times the baseline's speed predicted, 1.400 measured")


def test_of_equals_the_one_that_detaches_least() -> None:
    both = [seconds * wobble for seconds, wobble in zip(times(1.21), [1, 1.02, 0.99] * 3, strict=True)]
    found = recommend(BASE, {A: times(1.2), AB: both}, PREDICTED)
    assert found.detach == A and "[a,b] with 1.210 is not certainly faster and detaches more" in found.text


def test_nothing_is_to_be_gained() -> None:
    noisy = [seconds * wobble for seconds, wobble in zip(times(1.05), [0.8, 1.3, 1.0] * 3, strict=True)]
    found = recommend(BASE, {A: times(0.97), AB: noisy}, PREDICTED)
    assert found.detach == frozenset() and found.measured is None
    assert found.text.startswith("nothing is to be gained here: the best measured set, [a,b], has 1.0")
    assert recommend(BASE, {}, {}).text.startswith("nothing is to be gained: no set")
