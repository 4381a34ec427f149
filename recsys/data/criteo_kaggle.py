"""Criteo's Kaggle data (display advertising challenge, 2014) from its own TSV, in memory.

Rows are read, checked and encoded once into a cache folder that is keyed by the content of the files and the
settings; later runs load that. Encodings see the train rows only.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys.data.cache import Prepared, fetch
from recsys.data.criteo_lines import content_hash
from recsys.data.criteo_parse import CATEGORY_NAMES, INTEGER_NAMES, CriteoRows, read_rows
from recsys.data.encode import DenseEncoder, Vocabulary, log_bins
from recsys.data.memory_source import MemorySource
from recsys.data.source import DataSplits
from recsys.errors import ConfigError, DataError
from recsys.features import FeatureSpec, SparseFeature

_log = logging.getLogger(__name__)
_SPLITS = ("train", "valid", "test")
# Part of the cache key: raise it when the same file and settings would be encoded differently.
_ENCODING_VERSION = 1


class CriteoKaggle:
    """The Kaggle training file, cut in file order; or that file and a separate one to test on.

    Args:
        path: TSV, plain or .gz; nothing is downloaded.
        test_path: a second such file, all of it the test rows. None takes them from the end of ``path``.
        split: shares of ``path`` in file order. None is 0.8 train, 0.1 valid, 0.1 test, or with ``test_path``
            or ``folds`` 0.9 train, 0.1 valid.
        folds: cut ``path`` into so many blocks in file order, for cross-fitting; None does not.
        fold: the block, counted from 0, that is the test rows. ``split`` cuts the others, read from the one after
            it round to the one before it, into train and valid.
        min_count: categorical values seen less often in the train rows share the out-of-vocabulary id.
        dense_as_categorical: adds the logarithmic bin of each of the 13 integers as a categorical feature
            (``I1_bin`` ...), which makes F = 39.
        max_rows: reads only this many rows from the start of each file; None reads all.
        cache_dir: where prepared rows are kept.

    Preparing takes about 0.7 kB of memory a row: 32 GB for the full Kaggle file (45.8 M rows); see ``max_rows``.
    """

    def __init__(
        self,
        path: str | None,
        *,
        test_path: str | None = None,
        split: Sequence[float] | None = None,
        folds: int | None = None,
        fold: int = 0,
        min_count: int = 2,
        dense_as_categorical: bool = True,
        max_rows: int | None = None,
        cache_dir: str = "data/cache",
    ) -> None:
        self.path = path
        self.test_path = test_path
        self.split = split
        self.folds = folds
        self.fold = fold
        self.min_count = min_count
        self.dense_as_categorical = dense_as_categorical
        self.max_rows = max_rows
        self.cache_dir = cache_dir

    def splits(self, batch_size: int, seed: int) -> DataSplits:
        """Prepare the rows, or load them from the cache.

        Args:
            batch_size: rows of a batch.
            seed: of the order of the train rows.

        Raises:
            ConfigError: a setting is missing or impossible; names the key.
            DataError: a file or a row that cannot be used; names file and line.
        """
        path, test_path, shares = self._checked_settings()
        fingerprint = self._fingerprint(path, test_path, shares)
        prepared = fetch(
            Path(self.cache_dir).expanduser() / fingerprint[:16], lambda: self._prepare(path, test_path, shares)
        )
        train, valid, test = (
            MemorySource(
                prepared.spec,
                prepared.arrays[f"{name}_dense"],
                prepared.arrays[f"{name}_ids"],
                prepared.arrays[f"{name}_labels"],
                batch_size=batch_size,
                shuffle_seed=seed if name == "train" else None,
            )
            for name in _SPLITS
        )
        return DataSplits(train, valid, test, fingerprint, prepared.notes)

    def _checked_settings(self) -> tuple[Path, Path | None, tuple[float, ...]]:
        if not self.path or self.path == "???":
            raise ConfigError(
                "data.path is not set; give Criteo's Kaggle training file (TSV, plain or .gz): "
                "data.path=FILE (data/README.md tells how to obtain it)"
            )
        if not _is_count(self.min_count):
            raise ConfigError(f"data.min_count={self.min_count} must be an integer of at least 1 (1 keeps every value)")
        if self.max_rows is not None and not _is_count(self.max_rows):
            raise ConfigError(f"data.max_rows={self.max_rows} must be an integer of at least 1, or null for all rows")
        if not isinstance(self.dense_as_categorical, bool):
            raise ConfigError(f"data.dense_as_categorical={self.dense_as_categorical} must be true or false")
        if not self.cache_dir:
            raise ConfigError("data.cache_dir is not set; give the folder for prepared rows, such as data/cache")
        test_path = Path(str(self.test_path)).expanduser() if self.test_path else None
        return Path(str(self.path)).expanduser(), test_path, self._checked_shares()

    def _checked_shares(self) -> tuple[float, ...]:
        self._check_folds()
        test_is_apart = bool(self.test_path) or self.folds is not None
        names = _SPLITS[:2] if test_is_apart else _SPLITS
        if self.split is None:
            return (0.9, 0.1) if test_is_apart else (0.8, 0.1, 0.1)
        shares = tuple(self.split) if isinstance(self.split, Sequence) else ()
        are_shares = all(isinstance(share, int | float) and share > 0 for share in shares)
        if len(shares) != len(names) or not are_shares or abs(sum(shares) - 1) > 1e-9:
            raise ConfigError(
                f"data.split={self.split} must be {len(names)} positive shares ({', '.join(names)}) that sum to 1"
            )
        return shares

    def _check_folds(self) -> None:
        if self.folds is None:
            return
        if self.test_path:
            raise ConfigError(f"data.folds={self.folds} and data.test_path both choose the test rows; set one null")
        if not _is_count(self.folds) or self.folds < 2:
            raise ConfigError(f"data.folds={self.folds} must be an integer of at least 2, or null for one split")
        if isinstance(self.fold, bool) or not isinstance(self.fold, int) or not 0 <= self.fold < self.folds:
            raise ConfigError(f"data.fold={self.fold} must be an integer from 0 to {self.folds - 1}, below data.folds")

    def _fingerprint(self, path: Path, test_path: Path | None, shares: tuple[float, ...]) -> str:
        identity = {
            "reader": "criteo_kaggle",
            "version": _ENCODING_VERSION,
            "files": [content_hash(p) for p in (path, test_path) if p is not None],
            "split": shares,
            "min_count": self.min_count,
            "dense_as_categorical": self.dense_as_categorical,
            "max_rows": self.max_rows,
        }
        if self.folds is not None:
            identity["fold"] = [self.fold, self.folds]
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def _prepare(self, path: Path, test_path: Path | None, shares: tuple[float, ...]) -> Prepared:
        start = time.perf_counter()
        _log.info("%s: preparing the rows (once; kept in %s)", path, self.cache_dir)
        rows = read_rows(path, self.max_rows)
        num_rows = rows.num_rows
        held_out: dict[str, CriteoRows] = {}
        if self.folds is not None:
            rows, held_out["test"] = _cut_fold(rows, self.folds, self.fold)
        cuts = [0, *(round(rows.num_rows * share) for share in np.cumsum(shares))]
        parts = {name: rows[cuts[i] : cuts[i + 1]] for i, name in enumerate(_SPLITS[: len(shares)])} | held_out
        if test_path is not None:
            parts["test"] = read_rows(test_path, self.max_rows)
            num_rows += parts["test"].num_rows
        assert sum(part.num_rows for part in parts.values()) == num_rows, "rows were lost in the split"
        _check_parts(path, parts)
        prepared = encode_parts(parts, self.min_count, self.dense_as_categorical)
        _log.info("%s: %d rows prepared in %.1f s", path, num_rows, time.perf_counter() - start)
        return prepared


def _cut_fold(rows: CriteoRows, folds: int, fold: int) -> tuple[CriteoRows, CriteoRows]:
    """The rows outside block ``fold``, from its end round to its start, and the block's rows."""
    begin, end = (rows.num_rows * i // folds for i in (fold, fold + 1))
    order = np.concatenate((np.arange(end, rows.num_rows), np.arange(begin)))
    return rows[order], rows[begin:end]


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _check_parts(path: Path, parts: dict[str, CriteoRows]) -> None:
    for name, part in parts.items():
        if part.num_rows == 0:
            raise DataError(
                f"{path}, line {sum(p.num_rows for p in parts.values())} (the last): too few rows, the {name} split "
                "is empty; give a larger file, or change data.split or data.max_rows"
            )
    labels = parts["train"].labels
    if labels.min() == labels.max():
        raise DataError(
            f"{path}, lines 1 to {len(labels)}: every train row has label {labels[0]}, so there is nothing to learn; "
            "shuffle the file's lines (`shuf`), give more rows, or change data.split"
        )


def encode_parts(parts: dict[str, CriteoRows], min_count: int, dense_as_categorical: bool) -> Prepared:
    """Fit the encodings on ``parts["train"]`` and encode all parts.

    Args:
        parts: rows by the name of their split.
        min_count: least number of train rows that gives a categorical value its own id.
        dense_as_categorical: add a binned copy of each integer column.
    """
    train = parts["train"]
    dense_encoder = DenseEncoder.fit(train.integers, train.integers_missing)
    arrays: dict[str, NDArray[Any]] = {"dense_mean": dense_encoder.mean, "dense_sd": dense_encoder.sd}
    columns = {name: _sparse_columns(part, dense_as_categorical) for name, part in parts.items()}
    ids = {name: np.empty((len(columns[name]), part.num_rows), np.int32) for name, part in parts.items()}
    unseen: dict[str, dict[str, int]] = {name: {} for name in parts}
    features = []
    for i, feature in enumerate(columns["train"]):
        vocabulary = Vocabulary.fit(*columns["train"][feature], min_count)
        features.append(SparseFeature(feature, vocabulary.cardinality))
        arrays[f"vocabulary_{feature}"] = vocabulary.values
        for name in parts:
            ids[name][i], unseen[name][feature] = vocabulary.encode(*columns[name][feature])
    for name, part in parts.items():
        arrays[f"{name}_dense"] = dense_encoder.encode(part.integers, part.integers_missing)
        arrays[f"{name}_ids"] = ids[name]
        arrays[f"{name}_labels"] = part.labels
    notes = {
        "rows": {name: part.num_rows for name, part in parts.items()},
        "click_rate": {name: float(part.labels.mean()) for name, part in parts.items()},
        "unseen_ids": {name: unseen[name] for name in parts if name != "train"},
    }
    return Prepared(FeatureSpec(INTEGER_NAMES, tuple(features)), arrays, notes)


def _sparse_columns(rows: CriteoRows, dense_as_categorical: bool) -> dict[str, tuple[NDArray[Any], NDArray[np.bool_]]]:
    """Values and missing mask of every categorical feature, by its name, in order."""
    columns: dict[str, tuple[NDArray[Any], NDArray[np.bool_]]] = {
        name: (rows.categories[i], rows.categories_missing[i]) for i, name in enumerate(CATEGORY_NAMES)
    }
    if dense_as_categorical:
        for i, name in enumerate(INTEGER_NAMES):
            columns[f"{name}_bin"] = (log_bins(rows.integers[i]), rows.integers_missing[i])
    return columns
