"""Tune and fit one peer on rows that scripts/peers.py prepared; runs inside that script's environment.

    PEERS_ENV/bin/python scripts/peers_fit.py FOLDER PEER JOBS

Reads ``FOLDER/rows.npz`` and ``FOLDER/PEER.settings.json``; writes ``FOLDER/PEER.result.json`` (valid NE of every
setting) and, for the best of them, ``FOLDER/PEER.logits.npy``, its test logits. Needs numpy, scipy, scikit-learn and
LightGBM, and nothing of the product.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Settings = dict[str, Any]
FOLDS = 5
"""Blocks of the train rows, drawn at random, for target means: a row's mean comes from the other blocks."""
MAX_ROUNDS = 2000
PATIENCE = 50
MAX_ITERATIONS = 200


@dataclass(frozen=True)
class Rows:
    """All R rows in file order.

    Attributes:
        labels: uint8 ``(R,)``.
        integers: float64 ``(13, R)``, NaN where missing.
        bins: int64 ``(13, R)``, logarithmic bins of the integers; -1 minus the least value where missing.
        categories: int64 ``(26, R)``, -1 where missing.
        num_train, num_valid: the first rows, and those after them; the others are the test rows.
    """

    labels: Array
    integers: Array
    bins: Array
    categories: Array
    num_train: int
    num_valid: int

    @property
    def parts(self) -> tuple[slice, slice, slice]:
        """Rows of train, valid and test."""
        end = self.num_train + self.num_valid
        return slice(0, self.num_train), slice(self.num_train, end), slice(end, len(self.labels))


def read(folder: Path) -> Rows:
    """What scripts/peers.py wrote."""
    with np.load(folder / "rows.npz") as raw:
        arrays = {name: raw[name] for name in ("labels", "integers", "bins", "categories")}
        return Rows(**arrays, num_train=int(raw["num_train"]), num_valid=int(raw["num_valid"]))


def normalized_entropy(logits: Array, labels: Array) -> float:
    """Mean cross-entropy / entropy of the mean label."""
    loss = np.logaddexp(0.0, np.where(labels == 1, -logits, logits)).mean()
    p = labels.mean()
    return float(loss / -(p * np.log(p) + (1 - p) * np.log(1 - p)))


def hashed_one_hot(columns: Array, num_train: int, *, bits: int, min_count: int) -> Array:
    """A feature's number in ``[0, 2 ** bits)`` for each value, ``(columns, R)``.

    Values seen less than ``min_count`` times in the train rows share one feature of their column.
    """
    features = np.empty(columns.shape, np.int64)
    for i, column in enumerate(columns):
        values, inverse = np.unique(column, return_inverse=True)
        counts = np.bincount(inverse[:num_train], minlength=len(values))
        kept = np.where(counts >= min_count, values.astype(np.int64), np.int64(-(2**40)))
        features[i] = (_mix(kept.astype(np.uint64) + np.uint64(i) * np.uint64(2**48)) >> np.uint64(64 - bits))[inverse]
    return features


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def encode(column: Array, labels: Array, num_train: int, *, smoothing: float, seed: int = 0) -> tuple[Array, Array]:
    """Frequency and smoothed target mean of each row's value, from train rows other than the row itself.

    Args:
        column: values ``(R,)``.
        labels: ``(R,)``; those behind ``num_train`` are not used.
        num_train: rows that the figures are fitted on.
        smoothing: rows at the click rate that every mean starts from.
        seed: of the blocks.

    Returns:
        ``log(1 + count)``, and the mean label. A train row counts the others only, and its mean comes from the
        blocks it is not in; rows behind the train rows use all of these.
    """
    values, inverse = np.unique(column, return_inverse=True)
    train, y = inverse[:num_train], labels[:num_train].astype(np.float64)
    counts = np.bincount(train, minlength=len(values)).astype(np.float64)
    sums = np.bincount(train, weights=y, minlength=len(values))
    frequency = counts[inverse]
    frequency[:num_train] -= 1
    means = ((sums + smoothing * y.mean()) / (counts + smoothing))[inverse]
    blocks = np.random.default_rng(seed).integers(FOLDS, size=num_train)
    for block in range(FOLDS):
        inside = blocks == block
        count = counts - np.bincount(train[inside], minlength=len(values))
        total = sums - np.bincount(train[inside], weights=y[inside], minlength=len(values))
        prior = y[~inside].mean()
        means[:num_train][inside] = ((total + smoothing * prior) / (count + smoothing))[train[inside]]
    return np.log1p(frequency), means


def fit_logistic(rows: Rows, settings: Settings) -> tuple[Callable[[slice], Array], dict[str, int]]:
    """Logistic regression with an L2 penalty on one-hot features of categories and binned integers."""
    from scipy.sparse import csr_matrix
    from sklearn.linear_model import LogisticRegression

    bits, min_count = settings["bits"], settings["min_count"]
    columns = np.concatenate([rows.categories, rows.bins])
    features = hashed_one_hot(columns, rows.num_train, bits=bits, min_count=min_count)
    width, num_rows = features.shape
    starts = np.arange(0, num_rows * width + 1, width)
    x = csr_matrix((np.ones(features.size, np.float64), features.T.ravel(), starts), shape=(num_rows, 2**bits))
    train = rows.parts[0]
    model = LogisticRegression(C=settings["C"], solver="lbfgs", max_iter=MAX_ITERATIONS, tol=1e-3)
    model.fit(x[train], rows.labels[train])
    return (lambda part: model.decision_function(x[part])), {"iterations": int(model.n_iter_[0])}


def fit_lightgbm(rows: Rows, settings: Settings) -> tuple[Callable[[slice], Array], dict[str, int]]:
    """Gradient-boosted trees, stopped by the valid rows."""
    import lightgbm  # type: ignore[import-not-found, unused-ignore]

    settings = dict(settings)
    smoothing = settings.pop("smoothing")
    encoded = [encode(c, rows.labels, rows.num_train, smoothing=smoothing) for c in rows.categories]
    x = np.column_stack([*rows.integers, *(array for pair in encoded for array in pair)]).astype(np.float32)
    train, valid, _ = rows.parts
    data = lightgbm.Dataset(x[train], rows.labels[train], params={"verbosity": -1})
    parameters = {**settings, "objective": "binary", "metric": "binary_logloss", "verbosity": -1, "num_threads": 1,
                  "seed": 0, "deterministic": True, "force_col_wise": True}  # fmt: skip
    model = lightgbm.train(
        parameters,
        data,
        MAX_ROUNDS,
        valid_sets=[lightgbm.Dataset(x[valid], rows.labels[valid], reference=data)],
        callbacks=[lightgbm.early_stopping(PATIENCE, verbose=False)],
    )
    return (lambda part: model.predict(x[part], raw_score=True)), {"rounds": int(model.best_iteration)}


PEERS = {"logistic": fit_logistic, "lightgbm": fit_lightgbm}
_read_once = cache(read)


def try_setting(settings: Settings, peer: str, folder: Path) -> dict[str, Any]:
    """NE on the valid rows, and what the fit took."""
    start = time.perf_counter()
    rows = _read_once(folder)
    predict, notes = PEERS[peer](rows, settings)
    valid = rows.parts[1]
    ne = normalized_entropy(predict(valid), rows.labels[valid])
    result = {"settings": settings, "valid_ne": ne, **notes, "seconds": round(time.perf_counter() - start, 1)}
    print(f"{peer}: {json.dumps(result)}", flush=True)
    return result


def main(folder: Path, peer: str, jobs: int) -> None:
    """Try every setting, then fit the best once more and write its test logits."""
    settings = json.loads((folder / f"{peer}.settings.json").read_text())
    work = partial(try_setting, peer=peer, folder=folder)
    if jobs > 1:
        with ProcessPoolExecutor(jobs) as pool:
            trials = list(pool.map(work, settings))
    else:
        trials = [work(setting) for setting in settings]
    best = min(range(len(trials)), key=lambda number: trials[number]["valid_ne"])
    rows = _read_once(folder)
    predict, _ = PEERS[peer](rows, settings[best])
    np.save(folder / f"{peer}.logits.npy", predict(rows.parts[2]))
    (folder / f"{peer}.result.json").write_text(json.dumps({"best": best, "trials": trials}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
