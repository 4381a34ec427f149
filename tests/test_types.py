"""The batch as torchrec's pipelines want it."""

from __future__ import annotations

import pytest
import torch
from torchrec.streamable import Pipelineable

from recsys.types import Batch
from tests.reference.toy import CPU, SPEC, make_batch


def parts(batch: Batch) -> list[torch.Tensor]:
    sparse = batch.sparse_features
    return [batch.dense_features, sparse.values(), sparse.lengths(), batch.labels, batch.weights]


def assert_same(batch: Batch, other: Batch) -> None:
    assert batch.sparse_features.keys() == other.sparse_features.keys() == SPEC.sparse_names
    assert batch.sparse_features.stride() == other.sparse_features.stride()
    for one, two in zip(parts(batch), parts(other), strict=True):
        assert one.dtype == two.dtype and torch.equal(one.cpu(), two.cpu())


def test_it_is_pipelineable() -> None:
    batch = make_batch(rows=24)
    assert isinstance(batch, Pipelineable)
    assert batch.num_rows == 24 == batch.sparse_features.stride()


def test_to_moves_every_tensor() -> None:
    batch = make_batch()
    assert_same(batch.to(CPU, non_blocking=True), batch)
    meta = batch.to(torch.device("meta"))
    assert all(t.device.type == "meta" for t in parts(meta))


def test_pin_memory() -> None:
    batch = make_batch()
    if not torch.accelerator.is_available():
        with pytest.raises(RuntimeError, match="accelerator"):
            batch.pin_memory()
        return
    pinned = batch.pin_memory()
    assert all(t.is_pinned() for t in parts(pinned))
    assert_same(pinned, batch)


def test_record_stream_reaches_every_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    batch, seen = make_batch(), []
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: seen.append((self.data_ptr(), stream)))
    stream = object()
    batch.record_stream(stream)  # type: ignore[arg-type]
    assert {t.data_ptr() for t in parts(batch)} <= {pointer for pointer, _ in seen}
    assert {s for _, s in seen} == {stream}
