from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from recsys.compare.rows import calibration, gap_percent, largest_difference, over_seeds, ratio_of_means, read
from recsys.errors import DataError
from recsys.metrics import calibration as exact_calibration
from recsys.metrics import ne
from recsys.report.predictions import PREDICTIONS_NPZ, Predictions

from .conftest import MakeRun

RNG = np.random.default_rng(5)
LABELS = (RNG.random(300) < 0.3).astype(float)
A, B = RNG.normal(size=(2, 300)).astype(np.float32)


def weighted(logits: np.ndarray, weights: np.ndarray) -> Predictions:
    return Predictions(logits, LABELS.astype(np.float32), weights.astype(np.float32))


@pytest.mark.parametrize("weights", [np.ones(300), np.arange(1.0, 301.0)])
def test_figures_are_those_of_the_metrics(weights: np.ndarray) -> None:
    model, reference = weighted(A, weights), weighted(B, weights)
    gap, influence_R = gap_percent(model, reference)
    left, right = ne(A, LABELS, weights), ne(B, LABELS, weights)
    assert left is not None
    assert right is not None
    assert gap == pytest.approx(100 * (left / right - 1), abs=1e-10)
    assert influence_R.mean() == pytest.approx(0, abs=1e-10)
    assert calibration(model, reference)[0] == pytest.approx(exact_calibration(A, LABELS, weights), abs=1e-12)


def test_row_variance_is_that_of_the_bootstrap() -> None:
    numerator, denominator = RNG.gamma(2.0, size=(2, 400)) + np.linspace(0, 2, 400)
    _, influence = ratio_of_means(numerator, denominator)
    drawn = stats.bootstrap(
        (numerator, denominator),
        lambda n, d, axis: n.mean(axis=axis) / d.mean(axis=axis),
        paired=True,
        n_resamples=2000,
        method="basic",
        rng=np.random.default_rng(1),
    )
    assert np.sqrt(influence.var(ddof=1) / 400) == pytest.approx(drawn.standard_error, rel=0.06)


def test_seeds_that_share_rows_do_not_average_the_rows_away() -> None:
    ones = np.ones(300)
    pair = weighted(A, ones), weighted(B, ones)
    values, variance = over_seeds(gap_percent, [pair])
    again, same_variance = over_seeds(gap_percent, [pair, pair, pair])
    assert again == values * 3
    assert same_variance == pytest.approx(variance)


def test_what_rows_do_to_single_seeds_is_left_to_their_spread() -> None:
    """Influences row + noise of a seed's own: only the rows' common part is returned."""
    rng = np.random.default_rng(3)
    pair = weighted(A, np.ones(300)), weighted(B, np.ones(300))
    found = []
    for _ in range(200):
        common = rng.normal(size=300)

        def statistic(model: object, reference: object, common: np.ndarray = common) -> tuple[float, np.ndarray]:
            return 0.0, common + 2 * rng.normal(size=300)

        found.append(over_seeds(statistic, [pair] * 4)[1])
    assert np.mean(found) == pytest.approx(1 / 300, rel=0.05)


def test_one_bit_is_a_difference(make_run: MakeRun) -> None:
    other = A.copy()
    other[17] = np.nextafter(other[17], np.float32(9))
    a, same, b = make_run("a", A, LABELS), make_run("same", A, LABELS), make_run("b", other, LABELS)
    assert largest_difference(a, same) == 0
    assert 0 < largest_difference(a, b) < 1e-6


def test_other_rows_are_refused(make_run: MakeRun) -> None:
    a, b = make_run("a", A, LABELS), make_run("b", A, 1 - LABELS)
    with pytest.raises(
        DataError, match=r"a and .*b were tested on different rows .* compare experiments that read the"
    ):
        largest_difference(a, b)


@pytest.mark.parametrize("damage", ["cut", "absent", "text", "ragged"])
def test_damaged_predictions_are_refused(make_run: MakeRun, damage: str) -> None:
    path = make_run("a", A, LABELS) / PREDICTIONS_NPZ
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:500])
    elif damage == "absent":
        path.unlink()
    elif damage == "text":
        path.write_text("nothing")
    else:
        Predictions(A, LABELS.astype(np.float32)[:5], np.ones(300, np.float32)).write(path)
    with pytest.raises(DataError, match=r"test_predictions\.npz: .*; delete its folder and run again"):
        read(path.parent)


def test_predictions_come_back_as_they_went(tmp_path: Path) -> None:
    rows = weighted(A, np.arange(300.0))
    rows.write(tmp_path / "x.npz")
    back = Predictions.read(tmp_path / "x.npz")
    for name in ("logits", "labels", "weights"):
        assert getattr(back, name).dtype == np.float32
        assert np.array_equal(getattr(back, name), getattr(rows, name))
