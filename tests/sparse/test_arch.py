"""Tables start with the same numbers in any pieces; dense gradients train them as the fused kernels do."""

from __future__ import annotations

import pytest
import torch

from recsys.sparse import arch
from recsys.sparse.arch import TablePiece, init_table
from recsys.sparse.replicated import make_optimizer, replicate
from recsys.sparse.sparse_arch import SparseArch, SparseConfig
from tests.reference.toy import CPU, SPEC, make_batch


def test_pieces_of_a_table_are_the_whole_one_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = torch.zeros(23, 8)
    init_table([TablePiece("t", whole, 0, 0, 23, 8)], seed=5, scale=3.0, dim=8)
    bound = 3.0 / 23**0.5
    assert whole.abs().max() <= bound and whole.abs().max() > 0.9 * bound and whole.unique().numel() > 150
    monkeypatch.setattr(arch, "_BLOCK_ELEMENTS", 40)  # 5 rows at a time
    rows, columns = torch.zeros(6, 8), torch.zeros(23, 4)
    init_table([TablePiece("t", rows, 9, 0, 23, 8), TablePiece("t", columns, 0, 4, 23, 8)], seed=5, scale=3.0, dim=8)
    assert torch.equal(rows, whole[9:15]) and torch.equal(columns, whole[:, 4:])
    wide = torch.ones(23, 12)
    init_table([TablePiece("t", wide, 0, 0, 23, 12)], seed=5, scale=3.0, dim=8)
    assert torch.equal(wide[:, :8], whole) and (wide[:, 8:] == 0).all()


@pytest.mark.parametrize("optimizer", ["sgd", "rowwise_adagrad"])
def test_dense_gradients_give_the_numbers_of_the_fused_kernels(optimizer: str) -> None:
    config = SparseConfig(embedding_dim=8, optimizer=optimizer, lr=0.1)
    fused, dense = (make(SPEC, config, seed=3, device=CPU) for make in (SparseArch, replicate))
    outside = make_optimizer(config, dense.dense_parameters())
    for seed in range(4):
        ids = make_batch(16, seed=seed).sparse_features
        outputs = [tables(ids) for tables in (fused, dense)]
        torch.testing.assert_close(outputs[1], outputs[0], rtol=1e-6, atol=1e-7)
        for output in outputs:
            output.square().sum().backward()
        outside.step()
        outside.zero_grad()
    for a, b in zip(fused.pieces(), dense.pieces(), strict=True):
        torch.testing.assert_close(b.weight, a.weight, rtol=1e-5, atol=1e-6)
