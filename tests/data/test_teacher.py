from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from recsys.data.synthetic import SyntheticData
from recsys.data.synthetic_columns import SPARSE_GROUP
from recsys.data.synthetic_kernels import NUM_SPARSE, STREAM_LATENT, id_latents
from recsys.data.synthetic_rows import Rows
from recsys.data.teacher import PAIRS, TRIPLES


def logits(rows: Rows) -> np.ndarray:
    return np.log(rows.probability) - np.log1p(-rows.probability)


def latents(data: SyntheticData, rows: Rows) -> np.ndarray:
    """Standardised latents of one-hot rows, ``(B, NUM_SPARSE, NUM_LATENTS)``, without the compiled code."""
    ids = rows.ids.reshape(NUM_SPARSE, -1)
    keys = data.columns.keys[STREAM_LATENT:]
    raw = np.stack([id_latents(ids[c], keys[c], data.head) for c in range(NUM_SPARSE)], axis=1)
    return (raw - data.teacher.centre) * data.teacher.inverse_sd


@pytest.fixture(scope="module")
def data() -> SyntheticData:
    return SyntheticData()


@pytest.fixture(scope="module")
def rows(data: SyntheticData) -> Rows:
    return data.rows(0, 100_000)


def test_click_rate_is_the_one_asked_for(rows: Rows) -> None:
    assert rows.probability.mean() == pytest.approx(0.25, abs=0.006)
    rare = SyntheticData(click_rate=0.03).rows(0, 100_000)
    assert rare.probability.mean() == pytest.approx(0.03, abs=0.003)


def test_labels_are_drawn_from_the_probabilities(rows: Rows) -> None:
    assert set(np.unique(rows.labels)) == {0.0, 1.0}
    p = rows.probability
    for low, high in ((0.0, 0.1), (0.1, 0.3), (0.3, 0.6), (0.6, 1.0)):
        inside = (p >= low) & (p < high)
        error = np.sqrt((p * (1 - p))[inside].sum()) / inside.sum()
        assert abs(rows.labels[inside].mean() - p[inside].mean()) < 4 * error


def test_bayes_ne_is_the_ne_of_the_true_probabilities(data: SyntheticData, rows: Rows) -> None:
    p, y = rows.probability, rows.labels.astype(np.float64)
    loss = -(y * np.log(p) + (1 - y) * np.log1p(-p))
    rate = y.mean()
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))
    # Standard error of the mean loss over these rows: about .001 of NE.
    assert loss.mean() / entropy == pytest.approx(data.bayes_ne(0, 100_000), abs=0.005)
    assert 0.55 < data.bayes_ne(0, 100_000) < 0.7


def test_bayes_ne_is_one_without_a_teacher() -> None:
    silent = SyntheticData(first_order=0, pair=0, triple=0, dense=0)
    assert silent.bayes_ne(0, 1000) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(silent.probability(0, 1000), 0.25, rtol=1e-9)


def test_strengths_are_standard_deviations_of_the_logit(data: SyntheticData, rows: Rows) -> None:
    scaled = rows.parts * data.teacher.part_scale
    np.testing.assert_allclose(scaled.std(axis=0), [0.9, 1.0, 1.7, 0.9], rtol=0.03)
    np.testing.assert_allclose(logits(rows), scaled.sum(axis=1) + data.teacher.bias, atol=1e-9)


def test_pair_and_triple_parts_are_the_stated_products(data: SyntheticData, rows: Rows) -> None:
    z = latents(data, rows)
    pair = sum((z[:, a, 1:3] * z[:, b, 1:3]).sum(axis=1) for a, b in PAIRS)
    triple = sum(z[:, a, 3] * z[:, b, 3] * z[:, c, 3] for a, b, c in TRIPLES)
    np.testing.assert_allclose(rows.parts[:, 1], pair, atol=1e-9)
    np.testing.assert_allclose(rows.parts[:, 2], triple, atol=1e-9)


def test_products_are_no_first_order_effects(data: SyntheticData, rows: Rows) -> None:
    """No additive function of single ids explains a product part: a logistic model cannot see it."""
    for part in (1, 2):
        left = rows.parts[:, part] - rows.parts[:, part].mean()
        total = left.var()
        for ids in rows.ids.reshape(NUM_SPARSE, -1):
            counts = np.maximum(np.bincount(ids), 1)
            left = left - (np.bincount(ids, weights=left) / counts)[ids]
        # 30 k ids fitted on 100 k rows take about a fourth of the variance by chance.
        assert left.var() / total > 0.65
    for product in (*PAIRS, *TRIPLES):
        groups = [SPARSE_GROUP[c] for c in product if SPARSE_GROUP[c]]
        assert len(set(groups)) == len(groups)
        assert len(set(product)) == len(product)


def test_dense_part_is_not_linear(rows: Rows) -> None:
    curve = rows.parts[:, 3]
    design = np.column_stack([rows.dense, rows.dense == -1.0, np.ones(rows.dense.shape[0])]).astype(np.float64)
    left = curve - design @ np.linalg.lstsq(design, curve, rcond=None)[0]
    assert left.var() / curve.var() > 0.4


def test_tail_ids_say_less(data: SyntheticData) -> None:
    ids = np.arange(2000)
    size = np.abs(id_latents(ids, data.columns.keys[STREAM_LATENT], data.head)).mean(axis=1)
    assert size[:10].mean() > 3 * size[100:].mean()
    assert size[1000:].mean() < 0.05


def test_drift_moves_the_teacher() -> None:
    drifting = SyntheticData(drift=1.0)
    still = SyntheticData()
    np.testing.assert_array_equal(drifting.rows(0, 1).probability, still.rows(0, 1).probability)

    def agreement(start: int) -> float:
        stop = start + 20_000
        return float(np.corrcoef(drifting.rows(start, stop).parts[:, 0], still.rows(start, stop).parts[:, 0])[0, 1])

    early, middle, late = agreement(0), agreement(480_000), agreement(990_000)
    assert early > 0.99
    assert 0.5 < middle < 0.95
    assert late < middle - 0.2
    # The size of the effects stays; ids and dense values do not move.
    assert drifting.rows(500_000, 520_000).parts[:, 0].std() == pytest.approx(
        still.rows(500_000, 520_000).parts[:, 0].std(), rel=0.1
    )
    np.testing.assert_array_equal(drifting.rows(500_000, 500_100).ids, still.rows(500_000, 500_100).ids)


def test_a_model_of_the_first_rows_is_worse_on_the_last_under_drift() -> None:
    def gap(data: SyntheticData) -> float:
        first, last = data.rows(0, 40_000), data.rows(960_000, 1_000_000)
        z = {"first": latents(data, first)[:, :, 0], "last": latents(data, last)[:, :, 0]}
        model = LogisticRegression(C=1.0).fit(z["first"], first.labels)
        return float(model.score(z["first"], first.labels) - model.score(z["last"], last.labels))

    still = SyntheticData(first_order=2.0, pair=0.0, triple=0.0, dense=0.0)
    assert gap(dataclasses.replace(still, drift=1.0)) > 0.05 > 0.01 > abs(gap(still))


def test_multi_hot_columns_keep_the_strength() -> None:
    data = SyntheticData(multi_hot=6)
    scaled = data.rows(0, 50_000).parts * data.teacher.part_scale
    np.testing.assert_allclose(scaled.std(axis=0), [0.9, 1.0, 1.7, 0.9], rtol=0.04)


def test_columns_capped_to_one_id_say_nothing() -> None:
    data = SyntheticData(max_cardinality=1)
    rows = data.rows(0, 2000)
    assert (rows.ids == 0).all()
    assert np.isfinite(rows.probability).all()
    np.testing.assert_array_equal(rows.parts[:, 1:3], 0.0)
