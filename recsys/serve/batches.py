"""From encoded columns to the batches that a model reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.features import FeatureSpec
from recsys.types import Batch


@dataclass(frozen=True)
class EncodedRows:
    """Encoded rows as arrays.

    Attributes:
        spec: the columns.
        dense_BN: float32.
        ids: of each sparse feature, int32 values of all rows.
        offsets: of each sparse feature, int64 ``(B + 1,)`` into its values.
    """

    spec: FeatureSpec
    dense_BN: NDArray[np.float32]
    ids: list[NDArray[np.int32]]
    offsets: list[NDArray[np.int64]]

    @staticmethod
    def of(spec: FeatureSpec, columns: dict[str, Any], num_rows: int) -> EncodedRows:
        """Take Arrow columns by feature name."""
        dense_BN = np.empty((num_rows, len(spec.dense)), np.float32)
        for n, name in enumerate(spec.dense):
            dense_BN[:, n] = columns[name].to_numpy(zero_copy_only=False)
        one_each = np.arange(num_rows + 1)
        ids, offsets = [], []
        for feature in spec.sparse:
            array = columns[feature.name]
            is_list = feature.max_length > 1 or hasattr(array, "offsets")
            offsets.append(array.offsets.to_numpy().astype(np.int64) if is_list else one_each)
            ids.append((array.values if is_list else array).to_numpy(zero_copy_only=False).astype(np.int32, copy=False))
        return EncodedRows(spec, dense_BN, ids, offsets)

    @property
    def num_rows(self) -> int:
        """B."""
        return len(self.dense_BN)

    def flat(self, start: int, stop: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ids and lengths ``(F * B,)`` of rows ``[start, stop)``, feature by feature."""
        values = [ids[at[start] : at[stop]] for ids, at in zip(self.ids, self.offsets, strict=True)]
        lengths = [np.diff(at[start : stop + 1]) for at in self.offsets]
        return np.concatenate(values), np.concatenate(lengths).astype(np.int32)

    def batches(self, batch_size: int) -> Iterator[Batch]:
        """Batches in order; the last may be short. Labels are 0 and weights 1."""
        for start in range(0, self.num_rows, batch_size):
            stop = min(start + batch_size, self.num_rows)
            ids, lengths = self.flat(start, stop)
            offsets = np.zeros(len(lengths) + 1, np.int32)
            np.cumsum(lengths, out=offsets[1:])
            features = KeyedJaggedTensor(
                keys=self.spec.sparse_names,
                values=torch.from_numpy(ids),
                lengths=torch.from_numpy(lengths),
                offsets=torch.from_numpy(offsets),
                stride=stop - start,
            )
            dense = torch.from_numpy(self.dense_BN[start:stop])
            yield Batch(dense, features, torch.zeros(stop - start), torch.ones(stop - start))
