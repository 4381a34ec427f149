"""Rows in memory for the toy recommender, with clicks that its features explain."""

from __future__ import annotations

import numpy as np

from recsys.data.memory_source import MemorySource
from recsys.data.source import DataSplits
from recsys.features import FeatureSpec
from tests.reference.toy import SPEC


def toy_source(
    rows: int, batch_size: int, *, seed: int = 0, shuffle_seed: int | None = None, spec: FeatureSpec = SPEC
) -> MemorySource:
    """``rows`` rows whose clicks follow the parity of the first id and the first dense value."""
    draw = np.random.default_rng(seed)
    dense = draw.standard_normal((rows, len(spec.dense))).astype(np.float32)
    ids = np.stack([draw.integers(0, f.cardinality, rows) for f in spec.sparse]).astype(np.int32)
    logit = 2.0 * (ids[0] % 2) - 1.0 + dense[:, 0]
    labels = (draw.random(rows) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return MemorySource(spec, dense, ids, labels, batch_size=batch_size, shuffle_seed=shuffle_seed)


def toy_splits(train_rows: int = 96, valid_rows: int = 50, batch_size: int = 16) -> DataSplits:
    """Train rows shuffled, valid and test rows of one size, a short last batch where sizes say so."""
    return DataSplits(
        train=toy_source(train_rows, batch_size, seed=1, shuffle_seed=0),
        valid=toy_source(valid_rows, batch_size, seed=2),
        test=toy_source(valid_rows, batch_size, seed=3),
        fingerprint="toy",
    )
