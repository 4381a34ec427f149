"""Row groups in memory, column by column, and the batches gathered from them.

The columns of a row group are already feature-major: they are copied into place one by one and never transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.data.parquet_shard import LABEL, WEIGHT, Layout, flat_values, list_values
from recsys.errors import DataError
from recsys.features import SparseFeature
from recsys.types import Batch

Ids = NDArray[np.int32]
# Positions of a block, or a run of them.
Rows = NDArray[np.int64] | slice


@dataclass
class Ragged:
    """A multi-hot column of a block.

    Attributes:
        values: ids of all rows, one after another.
        starts: int64 ``(R,)``, where a row's ids begin in ``values``.
        lengths: int32 ``(R,)``.
    """

    values: Ids
    starts: NDArray[np.int64]
    lengths: Ids

    def take(self, rows: Rows) -> tuple[Ids, Ids]:
        """Values and lengths of some rows, in their order."""
        lengths = self.lengths[rows]
        ends = np.cumsum(lengths, dtype=np.int64)
        total = int(ends[-1]) if len(ends) else 0
        shift = self.starts[rows] - (ends - lengths)
        return self.values[np.repeat(shift, lengths) + np.arange(total)], lengths


class Block:
    """Rows of a few spans, in the order of the spans.

    Args:
        layout: the columns.
        num_rows: R, rows in all.

    Attributes:
        dense_NR: float32.
        ids_GR: int32, of the G one-hot features.
        ragged: of the multi-hot features, by name; there after :meth:`join`.
        order: where position i of the block comes from; None: from i.
    """

    def __init__(self, layout: Layout, num_rows: int) -> None:
        self._layout = layout
        self.one_hot = {f.name: g for g, f in enumerate(f for f in layout.spec.sparse if f.max_length == 1)}
        self.dense_NR = np.empty((len(layout.spec.dense), num_rows), np.float32)
        self.ids_GR = np.empty((len(self.one_hot), num_rows), np.int32)
        self.labels_R = np.empty(num_rows, np.float32)
        self.weights_R = np.empty(num_rows, np.float32) if layout.has_weight else None
        self.ragged: dict[str, Ragged] = {}
        self.order: NDArray[np.int64] | None = None
        self._lists: dict[str, dict[int, tuple[Ids, Ids]]] = {
            f.name: {} for f in layout.spec.sparse if f.max_length > 1
        }

    def fill(self, at: int, rows: Rows, table: Any, place: str) -> None:
        """Check a row group and copy some of its rows to the positions from ``at`` on.

        Raises:
            DataError: a null, an id outside its table, a dense value that is not finite, a label other than 0 and 1,
                a weight that is not positive; names ``place``, row and column.
        """
        here = slice(at, at + (rows.stop - rows.start if isinstance(rows, slice) else len(rows)))
        labels = flat_values(table, LABEL, place)
        _check((labels == 0) | (labels == 1), labels, place, LABEL, "is neither 0 nor 1")
        _copy(labels, rows, self.labels_R[here])
        if self.weights_R is not None:
            weights = flat_values(table, WEIGHT, place)
            # A weight of 0 would be taken for padding and leave the row out of evaluations.
            _check(np.isfinite(weights) & (weights > 0), weights, place, WEIGHT, "is not a positive number")
            _copy(weights, rows, self.weights_R[here])
        for n, name in enumerate(self._layout.spec.dense):
            values = flat_values(table, name, place)
            _check(np.isfinite(values), values, place, name, "is not finite")
            _copy(values, rows, self.dense_NR[n, here])
        for feature in self._layout.spec.sparse:
            if feature.max_length == 1:
                ids = flat_values(table, feature.name, place)
                _check_ids(ids, feature, place)
                _copy(ids, rows, self.ids_GR[self.one_hot[feature.name], here])
            else:
                self._lists[feature.name][at] = _checked_lists(table, feature, place).take(rows)

    def join(self, order: NDArray[np.int64] | None) -> Block:
        """Finish the block, once every span is filled in; ``order`` as in the attribute."""
        for name, parts in self._lists.items():
            ordered = [parts[at] for at in sorted(parts)]
            lengths = np.concatenate([lengths for _, lengths in ordered])
            starts = np.cumsum(lengths, dtype=np.int64) - lengths
            self.ragged[name] = Ragged(np.concatenate([values for values, _ in ordered]), starts, lengths)
        self._lists = {}
        self.order = order
        return self

    def rows(self, start: int, stop: int) -> Rows:
        """Where positions ``[start, stop)`` of the shuffled block lie."""
        return slice(start, stop) if self.order is None else self.order[start:stop]


@dataclass
class BatchMaker:
    """Gathers rows of blocks into batches.

    Lengths and offsets of one-hot batches are constants, made once a batch size and shared by the batches.

    Attributes:
        layout: the columns.
        pin_memory: put batches into page-locked memory.
    """

    layout: Layout
    pin_memory: bool = False
    _constants: dict[int, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)

    def __call__(self, pieces: Sequence[tuple[Block, int, int]], num_rows: int) -> Batch:
        """A batch of ``num_rows`` rows from positions ``[start, stop)`` of blocks, padded by rows of weight 0.

        A row of padding has id 0 in every one-hot feature, no id in the others, and zeros otherwise.
        """
        spec = self.layout.spec
        dense_BN = np.zeros((num_rows, len(spec.dense)), np.float32)
        labels_B, weights_B = np.zeros(num_rows, np.float32), np.zeros(num_rows, np.float32)
        taken: list[tuple[Block, Rows, slice]] = []
        at = 0
        for block, start, stop in pieces:
            rows, here = block.rows(start, stop), slice(at, at + stop - start)
            taken.append((block, rows, here))
            dense_BN[here] = _take(block.dense_NR, rows).T
            labels_B[here] = block.labels_R[rows]
            weights_B[here] = 1.0 if block.weights_R is None else block.weights_R[rows]
            at = here.stop
        assert at <= num_rows, f"{at} rows for a batch of {num_rows}"
        sparse = self._one_hot(taken, num_rows) if spec.is_one_hot else self._jagged(taken, num_rows)
        dense, labels, weights = (torch.from_numpy(a) for a in (dense_BN, labels_B, weights_B))
        batch = Batch(dense, sparse, labels, weights)
        return batch.pin_memory() if self.pin_memory else batch

    def _one_hot(self, taken: Sequence[tuple[Block, Rows, slice]], num_rows: int) -> KeyedJaggedTensor:
        num_features = len(self.layout.spec.sparse)
        if len(taken) == 1 and taken[0][2] == slice(0, num_rows):
            values_FB = _take(taken[0][0].ids_GR, taken[0][1])
        else:
            values_FB = np.zeros((num_features, num_rows), np.int32)
            for block, rows, here in taken:
                values_FB[:, here] = _take(block.ids_GR, rows)
        lengths, offsets = self._constant(num_features * num_rows)
        return KeyedJaggedTensor(
            keys=self.layout.spec.sparse_names,
            values=torch.from_numpy(values_FB.reshape(-1)),
            lengths=lengths,
            offsets=offsets,
            stride=num_rows,
        )

    def _constant(self, num: int) -> tuple[torch.Tensor, torch.Tensor]:
        if num not in self._constants:
            both = torch.ones(num, dtype=torch.int32), torch.arange(num + 1, dtype=torch.int32)
            self._constants[num] = (both[0].pin_memory(), both[1].pin_memory()) if self.pin_memory else both
        return self._constants[num]

    def _jagged(self, taken: Sequence[tuple[Block, Rows, slice]], num_rows: int) -> KeyedJaggedTensor:
        features = self.layout.spec.sparse
        lengths_FB = np.zeros((len(features), num_rows), np.int32)
        values: list[Ids] = []
        for f, feature in enumerate(features):
            if feature.max_length == 1:
                ids_B = np.zeros(num_rows, np.int32)
                for block, rows, here in taken:
                    ids_B[here] = block.ids_GR[block.one_hot[feature.name]][rows]
                lengths_FB[f] = 1
                values.append(ids_B)
                continue
            for block, rows, here in taken:
                ids, lengths_FB[f, here] = block.ragged[feature.name].take(rows)
                values.append(ids)
        offsets = np.zeros(lengths_FB.size + 1, np.int64)
        np.cumsum(lengths_FB.reshape(-1), dtype=np.int64, out=offsets[1:])
        assert offsets[-1] < 2**31, "ids of a batch are counted in 32 bits"
        return KeyedJaggedTensor(
            keys=self.layout.spec.sparse_names,
            values=torch.from_numpy(np.concatenate([np.zeros(0, np.int32), *values])),
            lengths=torch.from_numpy(lengths_FB.reshape(-1)),
            offsets=torch.from_numpy(offsets.astype(np.int32)),
            stride=num_rows,
        )


def _take(columns: NDArray[Any], rows: Rows) -> NDArray[Any]:
    """``columns[:, rows]`` as an array of its own."""
    if isinstance(rows, slice):
        return columns[:, rows].copy()
    return np.take(columns, rows, axis=1)


def _copy(column: NDArray[Any], rows: Rows, out: NDArray[Any]) -> None:
    if isinstance(rows, slice):
        out[:] = column[rows]
    else:
        # The rows are in range; with any mode but "raise" numpy writes into ``out`` without a buffer.
        np.take(column, rows, out=out, mode="clip")


def _checked_lists(table: Any, feature: SparseFeature, place: str) -> Ragged:
    values, offsets = list_values(table, feature.name, place)
    lengths = np.diff(offsets)
    fits = lengths <= feature.max_length
    _check(fits, lengths, place, feature.name, f"ids in a row are more than its max_length {feature.max_length}")
    used = values[offsets[0] : offsets[-1]]
    if not _in_table(used, feature.cardinality):
        bad = int(np.flatnonzero((used < 0) | (used >= feature.cardinality))[0])
        row = int(np.searchsorted(offsets, bad + offsets[0], side="right")) - 1
        raise DataError(_bad_id(place, row, feature, int(used[bad])))
    return Ragged(values, offsets[:-1].astype(np.int64), lengths)


def _check_ids(ids: Ids, feature: SparseFeature, place: str) -> None:
    if not _in_table(ids, feature.cardinality):
        row = int(np.flatnonzero((ids < 0) | (ids >= feature.cardinality))[0])
        raise DataError(_bad_id(place, row, feature, int(ids[row])))


def _in_table(ids: Ids, cardinality: int) -> bool:
    # Seen as unsigned, a negative id is beyond any table: one pass instead of two.
    return len(ids) == 0 or int(ids.view(np.uint32).max()) < cardinality


def _bad_id(place: str, row: int, feature: SparseFeature, value: int) -> str:
    return (
        f"{place}, row {row}: feature {feature.name!r}: id {value} is outside its table of {feature.cardinality} rows; "
        "features.json is of other data, or one of the two is damaged; prepare the data again"
    )


def _check(good: NDArray[np.bool_], values: NDArray[Any], place: str, column: str, what: str) -> None:
    if not good.all():
        row = int(np.flatnonzero(~good)[0])
        raise DataError(f"{place}, row {row}: column {column!r}: {values[row]} {what}; prepare the data again")
