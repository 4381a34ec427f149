"""A fair logistic regression on the rows of a source: what any click model has to beat."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from recsys.data.source import BatchSource
from recsys.features import FeatureSpec
from recsys.types import Batch

_MAX_COLUMNS = 1 << 20
_STRENGTHS = (0.003, 0.01, 0.03, 0.1)  # scikit-learn's C, the inverse of the L2 penalty
_CHECKED_SHARE = 0.15


def logistic_ne(train: BatchSource, test: BatchSource) -> float:
    """NE on ``test`` of an L2-regularised logistic regression fitted on one epoch of ``train``.

    Features: one-hot ids (hashed if there are more than 2**20), dense values, and per dense column
    whether the value is its smallest (missing values and zero counts sit there). The penalty is chosen
    on the last 15 % of the training rows; the test rows are only scored. Reads one whole epoch of each source.
    """
    features, labels = _matrix(train)
    test_features, test_labels = _matrix(test)
    dense = slice(features.shape[1] - 2 * len(train.spec.dense), features.shape[1] - len(train.spec.dense))
    scale = np.ones(features.shape[1])
    scale[dense] = 1.0 / np.sqrt(np.maximum(features[:, dense].power(2).mean(axis=0), 1e-12)).A1
    features, test_features = features @ sp.diags(scale), test_features @ sp.diags(scale)
    fitted = int(labels.shape[0] * (1.0 - _CHECKED_SHARE))
    checks = {
        c: _ne(labels[fitted:], _fit(features[:fitted], labels[:fitted], c).predict_proba(features[fitted:])[:, 1])
        for c in _STRENGTHS
    }
    best = min(checks, key=lambda c: checks[c])
    return _ne(test_labels, _fit(features, labels, best).predict_proba(test_features)[:, 1])


def _fit(features: sp.csr_matrix, labels: np.ndarray, strength: float) -> LogisticRegression:
    return LogisticRegression(C=strength, max_iter=1000, tol=1e-3).fit(features, labels)


def _matrix(source: BatchSource) -> tuple[sp.csr_matrix, np.ndarray]:
    """Features and labels of the rows with weight, sparse ``(rows, ids + 2 N)`` and ``(rows,)``."""
    sparse, dense, labels = zip(*(_arrays(batch, source.spec) for batch in source), strict=True)
    values = np.concatenate(dense).astype(np.float64)
    lowest = values == values.min(axis=0)
    matrix = sp.hstack([sp.vstack(sparse), sp.csr_matrix(values), sp.csr_matrix(lowest.astype(np.float64))])
    return matrix.tocsr(), np.concatenate(labels)


def _arrays(batch: Batch, spec: FeatureSpec) -> tuple[sp.csr_matrix, np.ndarray, np.ndarray]:
    sizes = np.array([f.cardinality for f in spec.sparse])
    begins = np.cumsum(sizes) - sizes
    ids = batch.sparse_features.values().numpy().astype(np.int64)
    lengths = batch.sparse_features.lengths().numpy()
    num_rows = batch.num_rows
    columns = (ids + np.repeat(np.repeat(begins, num_rows), lengths)) % _MAX_COLUMNS
    rows = np.repeat(np.tile(np.arange(num_rows), len(sizes)), lengths)
    width = min(int(sizes.sum()), _MAX_COLUMNS)
    matrix = sp.csr_matrix((np.ones(ids.shape[0]), (rows, columns)), shape=(num_rows, width))
    kept = batch.weights.numpy() > 0
    return matrix[kept], batch.dense_features.numpy()[kept], batch.labels.numpy()[kept].astype(np.int64)


def _ne(labels: np.ndarray, probability: np.ndarray) -> float:
    p = np.clip(probability, 1e-12, 1.0 - 1e-12)
    rate = labels.mean()
    loss = -np.where(labels == 1, np.log(p), np.log1p(-p)).mean()
    return float(loss / -(rate * np.log(rate) + (1.0 - rate) * np.log1p(-rate)))
