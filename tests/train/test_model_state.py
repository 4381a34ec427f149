"""Rowwise optimizer state of column-wise sharded tables, read by another plan."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from recsys.checkpoint.peers import Alone
from recsys.checkpoint.read import Checkpoint
from recsys.checkpoint.shard import Shard
from recsys.checkpoint.write import Snapshot, write_checkpoint
from recsys.errors import CheckpointError
from recsys.train.model_state import _convert, _is_columnwise
from scripts.fault_job import Job, job_config
from tests.reference.tiny_run import changed

ROWS, WIDTHS = 5, (8, 4)


def columnwise(folder: Path, squares_RD: torch.Tensor) -> Checkpoint:
    """What two column shards of a table save whose gradients had these squares."""
    weight, state = "model/parts.sparse.embedding_bags.C1.weight", "fused/C1/momentum1"
    pieces, at = [], 0
    for number, width in enumerate(WIDTHS):
        part = squares_RD[:, at : at + width]
        pieces.append(Shard(weight, (ROWS, sum(WIDTHS)), (0, at), torch.zeros(ROWS, width)))
        pieces.append(Shard(state, (2 * ROWS,), (number * ROWS,), part.mean(dim=1)))
        at += width
    return Checkpoint(write_checkpoint(folder, Snapshot(1, pieces, {}), Alone()))


def test_means_over_column_shards_become_the_mean_over_the_row(tmp_path: Path) -> None:
    squares_RD = torch.rand(ROWS, sum(WIDTHS), generator=torch.Generator().manual_seed(0))
    checkpoint = columnwise(tmp_path, squares_RD)
    whole = Shard("fused/C1/momentum1", (ROWS,), (0,), torch.zeros(ROWS))
    lower = Shard("fused/C1/momentum1", (ROWS,), (3,), torch.zeros(2))
    for shard in (whole, lower):
        assert _is_columnwise(shard, checkpoint)
        _convert(shard, checkpoint)
    torch.testing.assert_close(whole.tensor, squares_RD.mean(dim=1))
    assert torch.equal(lower.tensor, whole.tensor[3:])


def test_the_other_way_is_refused_with_the_reason(tmp_path: Path) -> None:
    checkpoint = columnwise(tmp_path, torch.ones(ROWS, sum(WIDTHS)))
    four = Shard("fused/C1/momentum1", (4 * ROWS,), (0,), torch.zeros(ROWS))
    with pytest.raises(
        CheckpointError, match=r"table 'C1' keeps 2 numbers a row .* \(column-wise sharding\).*resume with"
    ):
        _is_columnwise(four, checkpoint)


def test_tables_that_grew_are_named(tmp_path: Path) -> None:
    Job(tmp_path).run()
    with pytest.raises(CheckpointError, match=r"model/.*\.weight: \d+ x 16 in the checkpoint, \d+ x 32 here"):
        Job(tmp_path, changed(job_config(), "sparse.embedding_dim", 32)).run()
