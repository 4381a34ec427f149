"""Rows made by several threads are those of one, in the same order."""

from __future__ import annotations

import itertools

import pytest
import torch

from recsys.data import synthetic
from recsys.data.synthetic import SyntheticData


def test_threads_change_no_batch_and_no_position(monkeypatch: pytest.MonkeyPatch) -> None:
    data = SyntheticData(train_rows=1000, valid_rows=10, test_rows=10, max_cardinality=50)

    def epochs(threads: int) -> tuple[list[torch.Tensor], list[dict[str, int]]]:
        monkeypatch.setattr(synthetic, "_THREADS", threads)
        train = data.splits(128, 0).train
        seen: list[torch.Tensor] = []
        positions: list[dict[str, int]] = []
        for batch in itertools.islice(train, 3):  # left early: the rest follows from there
            seen.append(batch.sparse_features.values())
            positions.append(train.state_dict())
        for _ in range(2):
            for batch in train:
                seen.append(batch.sparse_features.values())
                positions.append(train.state_dict())
        return seen, positions

    expected, at = epochs(0)
    found, also_at = epochs(3)
    assert len(found) == len(expected) == 16
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert at == also_at
