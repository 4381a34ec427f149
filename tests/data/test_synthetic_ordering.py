"""The task separates model classes: logistic > pair products > triple products > floor, in NE."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from recsys.data.source import BatchSource, DataSplits
from recsys.data.synthetic import SyntheticData
from recsys.types import Batch
from tests.reference.logistic import logistic_ne

DIM = 16


class Crossed(nn.Module):
    """A small DLRM (dense MLP, pairwise dots, over-MLP); order 3 has a two-layer cross (DCNv2) beside the dots."""

    def __init__(self, cardinalities: list[int], order: int) -> None:
        super().__init__()
        sizes = torch.tensor(cardinalities)
        num_tokens = len(cardinalities) + 1
        self.begins_F = (sizes.cumsum(0) - sizes)[:, None]
        self.table = nn.Embedding(int(sizes.sum()), DIM)
        nn.init.normal_(self.table.weight, std=0.2)
        self.dense = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, DIM))
        self.above = torch.triu_indices(num_tokens, num_tokens, 1)
        width = num_tokens * DIM
        self.down = nn.ModuleList(nn.Linear(width, 32, bias=False) for _ in range(order - 1 if order > 2 else 0))
        self.up = nn.ModuleList(nn.Linear(32, width) for _ in self.down)
        read = self.above.shape[1] + DIM + (width if order > 2 else 0)
        self.over = nn.Sequential(nn.Linear(read, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, batch: Batch) -> torch.Tensor:
        ids_FB = batch.sparse_features.values().view(-1, batch.num_rows) + self.begins_F
        dense_BD = self.dense(batch.dense_features)
        tokens_BTD = torch.cat([dense_BD[:, None], self.table(ids_FB).transpose(0, 1)], dim=1)
        dots_BP = (tokens_BTD @ tokens_BTD.transpose(1, 2))[:, self.above[0], self.above[1]]
        flat = crossed = tokens_BTD.flatten(1)
        for down, up in zip(self.down, self.up, strict=True):
            crossed = flat * up(down(crossed)) + crossed
        read = [dense_BD, dots_BP, crossed] if self.down else [dense_BD, dots_BP]
        return self.over(torch.cat(read, dim=1))[:, 0]


def crossed_ne(train: BatchSource, test: BatchSource, order: int) -> float:
    for source in (train, test):
        source.load_state_dict({"epoch": 0, "batch": 0})
    torch.manual_seed(0)
    model = Crossed([feature.cardinality for feature in train.spec.sparse], order)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.006)
    for batch in train:
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(model(batch), batch.labels).backward()
        optimizer.step()
    with torch.no_grad():
        scored = [(model(batch), batch.labels) for batch in test]
    logits, labels = (torch.cat(tensors).double() for tensors in zip(*scored, strict=True))
    p = labels.mean()
    entropy = -(p * p.log() + (1 - p) * (1 - p).log())
    return float(binary_cross_entropy_with_logits(logits, labels) / entropy)


def few_rows(**strengths: float) -> DataSplits:
    """Strong effects of one kind on small vocabularies, so that little training shows the order."""
    data = SyntheticData(train_rows=60_000, valid_rows=1, test_rows=15_000, max_cardinality=50, **strengths)  # type: ignore[arg-type]
    return data.splits(batch_size=256, seed=0)


def test_pairs_separate_a_dlrm_from_a_logistic_model() -> None:
    splits = few_rows(pair=2.5, triple=0.0, dense=0.5)
    logistic = logistic_ne(splits.train, splits.test)
    dots = crossed_ne(splits.train, splits.test, order=2)
    assert logistic - dots > 0.1
    assert dots - splits.notes["bayes_ne"] > 0.02


def test_triples_separate_a_cross_from_a_dlrm() -> None:
    splits = few_rows(pair=0.0, triple=2.5, dense=0.5)
    dots = crossed_ne(splits.train, splits.test, order=2)
    cross = crossed_ne(splits.train, splits.test, order=3)
    assert dots - cross > 0.03
    assert cross - splits.notes["bayes_ne"] > 0.02


def test_logistic_reference_learns_what_is_linear() -> None:
    """Without interactions it comes near the floor, so what it loses elsewhere is the interactions' part."""
    splits = few_rows(pair=0.0, triple=0.0, dense=0.0, first_order=1.5)
    assert logistic_ne(splits.train, splits.test) - splits.notes["bayes_ne"] < 0.02
