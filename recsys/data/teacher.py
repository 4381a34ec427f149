"""The teacher that labels the synthetic rows: which columns matter and how strongly.

logit(row) = bias + s_1 first + s_2 pair + s_3 triple + s_4 dense, where each part is scaled to unit
variance over the rows, so a strength s is a standard deviation of the logit:

    first   sum_c w_c z_c0 + sum_j v_j t_j
    pair    sum over column pairs (a, b) of z_a1 z_b1 + z_a2 z_b2    (dot products: what dot interaction can learn)
    triple  sum over column triples (a, b, c) of z_a3 z_b3 z_c3      (what a two-layer cross can learn)
    dense   waves, steps, a product and kinks of single dense values

``z_c`` are the latents of column c's id, hashed from (seed, column, id) and standardised within the column;
``t_j`` is the standardised dense value, 0 where it is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsys.data.synthetic_columns import ColumnSettings
from recsys.data.synthetic_kernels import (
    MISSING,
    NUM_DENSE,
    NUM_LATENTS,
    NUM_PARTS,
    NUM_SPARSE,
    STREAM_LATENT,
    Columns,
    Float64,
    Int64,
    Teacher,
    id_latents,
)
from recsys.data.synthetic_rows import Rows, make_rows

# Zero-based columns. They have small vocabularies, so that 240 k rows show each product often enough to learn it
# (with C1, C19 in a pair and three columns of 10 to 24 ids in a triple, a DLRM was no better than a logistic model
# on one seed), and no two in a product follow the same latent: else it would be a first-order effect in disguise.
PAIRS = ((5, 16), (13, 24), (4, 22), (1, 21))
TRIPLES = ((8, 19, 16), (8, 21, 22))

# Rows that no split reaches; they only fix the teacher's scales.
_SAMPLE_START = 1 << 60
_SAMPLE_ROWS = 1 << 16


@dataclass(frozen=True)
class TeacherSettings:
    """What of the teacher can be set.

    Attributes:
        click_rate: mean probability.
        first_order, pair, triple, dense: strengths, standard deviations of the logit.
        head: ids up to about this popularity rank carry the full effect.
        drift: turns of the first-order effects per million rows.
    """

    click_rate: float
    first_order: float
    pair: float
    triple: float
    dense: float
    head: float
    drift: float


def make_teacher(settings: TeacherSettings, column_settings: ColumnSettings, columns: Columns) -> Teacher:
    """Fix scales and bias on a sample of rows, so that strengths and click rate mean what they say.

    Drift is left out of the sample: the scales are those of row 0.
    """
    blank = _blank_teacher(settings)
    sample = _sample(column_settings, columns, blank)
    centre, inverse_sd = _latent_scales(sample, columns, settings.head)
    dense_mean, dense_inverse_sd = _dense_scales(sample)
    teacher = blank._replace(
        centre=centre, inverse_sd=inverse_sd, dense_mean=dense_mean, dense_inverse_sd=dense_inverse_sd
    )
    parts = _sample(column_settings, columns, teacher).parts
    scale = np.array([settings.first_order, settings.pair, settings.triple, settings.dense])
    scale *= _inverse_or_zero(parts.std(axis=0))
    bias = _bias_for(settings.click_rate, parts @ scale)
    return teacher._replace(part_scale=scale, bias=bias, drift=settings.drift)


def _sample(settings: ColumnSettings, columns: Columns, teacher: Teacher) -> Rows:
    return make_rows(settings, columns, teacher, _SAMPLE_START, _SAMPLE_START + _SAMPLE_ROWS)


def _blank_teacher(settings: TeacherSettings) -> Teacher:
    """The teacher before its scales are known."""
    return Teacher(
        head=settings.head,
        centre=np.zeros((NUM_SPARSE, NUM_LATENTS)),
        inverse_sd=np.ones((NUM_SPARSE, NUM_LATENTS)),
        dense_mean=np.zeros(NUM_DENSE),
        dense_inverse_sd=np.ones(NUM_DENSE),
        sparse_weight=np.ones(NUM_SPARSE),
        dense_weight=np.resize((0.8, -0.4, 0.6), NUM_DENSE),
        pairs=np.array(PAIRS, dtype=np.int64),
        triples=np.array(TRIPLES, dtype=np.int64),
        part_scale=np.zeros(NUM_PARTS),
        bias=0.0,
        drift=0.0,
    )


def _latent_scales(sample: Rows, columns: Columns, head: float) -> tuple[Float64, Float64]:
    """Mean and inverse standard deviation of each column's latents, ``(NUM_SPARSE, NUM_LATENTS)`` each.

    A column with several ids per row is scaled so that the row's sum has about unit variance.
    """
    centre = np.zeros((NUM_SPARSE, NUM_LATENTS))
    inverse_sd = np.zeros((NUM_SPARSE, NUM_LATENTS))
    num_rows = sample.labels.shape[0]
    begins = sample.offsets[::num_rows]
    for c in range(NUM_SPARSE):
        ids: Int64 = sample.ids[begins[c] : begins[c + 1]]
        latents = id_latents(ids, columns.keys[STREAM_LATENT + c], head)
        centre[c] = latents.mean(axis=0)
        ids_per_row = max(1.0, ids.shape[0] / num_rows)
        inverse_sd[c] = _inverse_or_zero(latents.std(axis=0) * np.sqrt(ids_per_row))
    return centre, inverse_sd


def _dense_scales(sample: Rows) -> tuple[Float64, Float64]:
    """Mean and inverse standard deviation of the present dense values, ``(NUM_DENSE,)`` each."""
    values = np.where(sample.dense == MISSING, np.nan, sample.dense.astype(np.float64))
    return np.nanmean(values, axis=0), _inverse_or_zero(np.nanstd(values, axis=0))


def _inverse_or_zero(spread: Float64) -> Float64:
    """1 / spread; 0 for what never varies (a column capped to one id), which then says nothing."""
    varies = spread > 1e-12
    return np.where(varies, 1.0 / np.where(varies, spread, 1.0), 0.0)


def _bias_for(click_rate: float, logits: Float64) -> float:
    """Bias that gives the logits this mean probability, by bisection."""
    low, high = -50.0, 50.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        if np.mean(1.0 / (1.0 + np.exp(-(logits + middle)))) < click_rate:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
