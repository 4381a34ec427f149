"""Synthetic click logs in Criteo's shape: any row range by itself, no files, with a known floor for NE.

Row i's every value is a pure function of (settings, i), so splits, batches and ranks are row ranges.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property, partial

import numpy as np
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.data.prefetch import prefetch
from recsys.data.source import BatchSource, DataSplits
from recsys.data.synthetic_columns import ColumnSettings
from recsys.data.synthetic_kernels import NUM_SPARSE, Columns, Float64, Teacher
from recsys.data.synthetic_rows import Rows, make_rows
from recsys.data.teacher import TeacherSettings, make_teacher
from recsys.errors import ConfigError
from recsys.features import FeatureSpec
from recsys.types import Batch

# Part of the fingerprint: raise it with every change that moves a bit of any row.
GENERATOR_VERSION = 1

_CHUNK_ROWS = 1 << 16
# One core makes 0.7 M rows/s, fewer than a GPU trains on; on a few cores the training needs them itself.
_THREADS = min(4, len(os.sched_getaffinity(0)) // 4)
_MAX_ROWS = 1 << 59  # the rows that fix the teacher's scales lie beyond


@dataclass(frozen=True)
class SyntheticData:
    """Settings of the synthetic data (config group ``data=synthetic``).

    Train, valid and test are consecutive row ranges in this order, so with drift the test rows are the newest.

    Attributes:
        train_rows, valid_rows, test_rows: sizes of the splits.
        row_offset: the row that they begin at; ranges that do not meet are independent draws of the same task.
        max_cardinality: cap on the vocabularies, else Criteo Kaggle's (C3 has 10,131,227).
        zipf_exponent: the id of popularity rank r has probability about ``r ** -zipf_exponent``; ids are ranks.
        correlation: in [0, 1), how much the columns of a user (item) follow the row's user (item) type.
        click_rate: mean click probability, in (0, 1).
        first_order, pair, triple, dense: strengths of the teacher's parts, standard deviations of the logit.
        head: ids up to about this popularity rank carry full effects; beyond, they fade as 1 / rank.
        multi_hot: most ids per row in the five columns with the largest vocabularies; 1 is one-hot everywhere.
        drift: how far the teacher's first-order effects turn per million rows: 1 replaces them by others.
        seed: of the data; the model's seed is another.

    Raises:
        ConfigError: a value is outside its range.
    """

    train_rows: int = 240_000
    valid_rows: int = 20_000
    test_rows: int = 40_000
    row_offset: int = 0
    max_cardinality: int = 2_000
    zipf_exponent: float = 1.0
    correlation: float = 0.5
    click_rate: float = 0.25
    first_order: float = 0.9
    pair: float = 1.0
    triple: float = 1.7
    dense: float = 0.9
    head: float = 30.0
    multi_hot: int = 1
    drift: float = 0.0
    seed: int = 2024

    def __post_init__(self) -> None:
        for name in ("train_rows", "valid_rows", "test_rows", "max_cardinality", "multi_hot"):
            self._check(name, "a whole number of at least 1", _is_int(self, name) and getattr(self, name) >= 1)
        self._check("row_offset", "a whole number of at least 0", _is_int(self, "row_offset") and self.row_offset >= 0)
        self._check("seed", "a whole number from 0 to 2**63 - 1", _is_int(self, "seed") and 0 <= self.seed < 1 << 63)
        for name in ("first_order", "pair", "triple", "dense", "drift"):
            self._check(name, "a finite number of at least 0", _is_real(self, name) and getattr(self, name) >= 0)
        for name in ("zipf_exponent", "head"):
            self._check(name, "a finite number above 0", _is_real(self, name) and getattr(self, name) > 0)
        self._check("correlation", "in [0, 1)", _is_real(self, "correlation") and 0 <= self.correlation < 1)
        self._check("click_rate", "between 0 and 1", _is_real(self, "click_rate") and 0 < self.click_rate < 1)
        self._check("multi_hot", "at most 255", self.multi_hot <= 255)
        self._check("train_rows", "small enough: all rows together below 2**59", self.num_rows < _MAX_ROWS)
        ends_early = self.row_offset + self.num_rows < _MAX_ROWS
        self._check("row_offset", "small enough: the last row below 2**59", ends_early)

    def _check(self, name: str, wanted: str, good: bool) -> None:
        if not good:
            raise ConfigError(f"data.{name} is {getattr(self, name)!r}, but it must be {wanted}; set data.{name}=...")

    @property
    def num_rows(self) -> int:
        """Rows of the three splits together."""
        return self.train_rows + self.valid_rows + self.test_rows

    @property
    def column_settings(self) -> ColumnSettings:
        """The part of the settings that shapes the columns."""
        return ColumnSettings(
            seed=self.seed,
            max_cardinality=self.max_cardinality,
            zipf_exponent=float(self.zipf_exponent),
            correlation=float(self.correlation),
            max_length=self.multi_hot,
        )

    @property
    def teacher_settings(self) -> TeacherSettings:
        """The part of the settings that shapes the labels."""
        return TeacherSettings(
            click_rate=float(self.click_rate),
            first_order=float(self.first_order),
            pair=float(self.pair),
            triple=float(self.triple),
            dense=float(self.dense),
            head=float(self.head),
            drift=float(self.drift),
        )

    @cached_property
    def columns(self) -> Columns:
        """Distributions of the columns."""
        return self.column_settings.columns()

    @cached_property
    def teacher(self) -> Teacher:
        """The true model of the click; making it takes about a tenth of a second."""
        return make_teacher(self.teacher_settings, self.column_settings, self.columns)

    @property
    def fingerprint(self) -> str:
        """Generator version and every setting: equal fingerprints mean equal rows."""
        settings = {
            "rows": [self.row_offset, self.train_rows, self.valid_rows, self.test_rows],
            "columns": asdict(self.column_settings),
            "teacher": asdict(self.teacher_settings),
        }
        return f"synthetic v{GENERATOR_VERSION} {json.dumps(settings, sort_keys=True)}"

    def rows(self, start: int, stop: int) -> Rows:
        """Rows ``start .. stop`` as arrays; they need not lie in a split."""
        return make_rows(self.column_settings, self.columns, self.teacher, start, stop)

    def probability(self, start: int, stop: int) -> Float64:
        """True click probability of rows ``start .. stop``, float64 ``(stop - start,)``."""
        chunks = range(start, stop, _CHUNK_ROWS)
        return np.concatenate([self.rows(at, min(at + _CHUNK_ROWS, stop)).probability for at in chunks])

    def bayes_ne(self, start: int, stop: int) -> float:
        """NE of the true probabilities p over rows ``start .. stop``, in expectation over the labels.

        mean H(p_i) / H(mean p_i) with H(p) = -p log p - (1 - p) log(1 - p): no model has a lower expected NE.
        """
        p = self.probability(start, stop)
        return float(_entropy(p).mean() / _entropy(p.mean()))

    def splits(self, batch_size: int, seed: int) -> DataSplits:
        """Train, valid and test rows.

        Args:
            batch_size: rows per batch; the last of an epoch may be short.
            seed: orders the batches of later epochs of ``train``, nothing else.
        """
        valid_start = self.row_offset + self.train_rows
        test_start = valid_start + self.valid_rows
        end = test_start + self.test_rows
        return DataSplits(
            train=SyntheticSource(self, self.row_offset, valid_start, batch_size, order_seed=seed),
            valid=SyntheticSource(self, valid_start, test_start, batch_size),
            test=SyntheticSource(self, test_start, end, batch_size),
            fingerprint=self.fingerprint,
            notes={"bayes_ne": self.bayes_ne(test_start, end), "generator_version": GENERATOR_VERSION},
        )


class SyntheticSource(BatchSource):
    """Rows ``start .. stop`` of a ``SyntheticData``, made as they are asked for.

    Args:
        data: what the rows are.
        start, stop: row range.
        batch_size: rows per batch; the last of an epoch may be short.
        order_seed: the first epoch is in row order (rows are independent, and drift needs the order of time);
            with a seed every later epoch takes the full batches in an order drawn from (seed, epoch).
    """

    def __init__(
        self, data: SyntheticData, start: int, stop: int, batch_size: int, order_seed: int | None = None
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"the batch size is {batch_size}, but it must be at least 1")
        self.data = data
        self.start = start
        self.num_rows = stop - start
        self.batch_size = batch_size
        self.spec: FeatureSpec = data.column_settings.spec()
        self._order_seed = order_seed

    def __len__(self) -> int:
        return math.ceil(self.num_rows / self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        epoch, first = self._epoch, self._batch
        tasks = (partial(self._batch_number, int(number)) for number in self._order(epoch)[first:])
        if _THREADS == 0:
            for at, task in enumerate(tasks, start=first):
                self._move_past(epoch, at)
                yield task()
        else:
            with ThreadPoolExecutor(_THREADS) as pool:
                for at, batch in enumerate(prefetch(pool, tasks, depth=2 * _THREADS), start=first):
                    self._move_past(epoch, at)
                    yield batch

    def _batch_number(self, number: int) -> Batch:
        begin = self.start + number * self.batch_size
        return self._make_batch(begin, min(begin + self.batch_size, self.start + self.num_rows))

    def _order(self, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        order = np.arange(len(self))
        if epoch > 0 and self._order_seed is not None:
            num_full = self.num_rows // self.batch_size
            # The short batch stays last, as every consumer expects.
            np.random.default_rng((self._order_seed, epoch)).shuffle(order[:num_full])
        return order

    def _make_batch(self, start: int, stop: int) -> Batch:
        rows = self.data.rows(start, stop)
        num_rows = stop - start
        # With offsets, stride and the lengths per key given, the KJT needs no device sync to find them later.
        per_key = rows.offsets[::num_rows].tolist()
        features = KeyedJaggedTensor(
            keys=self.spec.sparse_names,
            values=torch.from_numpy(rows.ids),
            lengths=torch.from_numpy(rows.lengths.reshape(-1)),
            offsets=torch.from_numpy(rows.offsets),
            stride=num_rows,
            length_per_key=[per_key[f + 1] - per_key[f] for f in range(NUM_SPARSE)],
            offset_per_key=per_key,
        )
        return Batch(
            dense_features=torch.from_numpy(rows.dense),
            sparse_features=features,
            labels=torch.from_numpy(rows.labels),
            weights=torch.ones(num_rows),
        )


def _entropy(p: Float64) -> Float64:
    """Entropy in nats of a click with probability p; p strictly between 0 and 1."""
    result: Float64 = np.asarray(-p * np.log(p) - (1.0 - p) * np.log1p(-p))
    return result


def _is_int(data: SyntheticData, name: str) -> bool:
    value = getattr(data, name)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_real(data: SyntheticData, name: str) -> bool:
    value = getattr(data, name)
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
