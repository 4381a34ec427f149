"""The tables against torch's own EmbeddingBag and a rowwise Adagrad written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.nn.functional import embedding_bag
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.errors import ConfigError
from recsys.features import FeatureSpec, SparseFeature
from recsys.sparse.sparse_arch import SparseArch, SparseConfig
from tests.reference.toy import CPU

SPEC = FeatureSpec((), (SparseFeature("a", 9), SparseFeature("b", 30, max_length=3), SparseFeature("c", 2)))
DIM, ROWS = 8, 6


def make(spec: FeatureSpec = SPEC, seed: int = 5, **changes: Any) -> SparseArch:
    config = SparseConfig(**{"embedding_dim": DIM, "lr": 0.1, **changes})
    return SparseArch(spec, config, seed=seed, device=CPU)


def bags(seed: int = 0) -> list[list[list[int]]]:
    """Ids by feature and row: one in ``a`` and ``c``, none to three in ``b``, repeats included."""
    draw = torch.Generator().manual_seed(seed)

    def ids(cardinality: int, length: int) -> list[int]:
        drawn: list[int] = torch.randint(0, cardinality, (length,), generator=draw).tolist()
        return drawn

    several = [[], [4], [4, 4], [7, 4, 29], [], [29, 0]]
    return [[ids(9, 1) for _ in range(ROWS)], several, [ids(2, 1) for _ in range(ROWS)]]


def keyed(features: Sequence[Sequence[Sequence[int]]], spec: FeatureSpec = SPEC) -> KeyedJaggedTensor:
    lengths = [len(bag) for feature in features for bag in feature]
    values = [i for feature in features for bag in feature for i in bag]
    return KeyedJaggedTensor.from_lengths_sync(spec.sparse_names, torch.tensor(values), torch.tensor(lengths))


def tables(arch: SparseArch) -> dict[str, torch.Tensor]:
    return {n: bag.weight.detach().clone() for n, bag in arch.collection.embedding_bags.items()}


def plain_lookup(weights: dict[str, torch.Tensor], features: Sequence[Sequence[Sequence[int]]]) -> torch.Tensor:
    pooled = []
    for weight, feature in zip(weights.values(), features, strict=True):
        ids = torch.tensor([i for bag in feature for i in bag])
        offsets = torch.tensor([0, *(len(bag) for bag in feature)][:-1]).cumsum(0)
        pooled.append(embedding_bag(ids, weight, offsets, mode="sum"))
    return torch.stack(pooled, dim=1)


def test_lookup_sums_the_rows_of_every_bag() -> None:
    arch = make()
    out_BFD = arch(keyed(bags()))
    assert out_BFD.shape == (ROWS, 3, DIM)
    torch.testing.assert_close(out_BFD, plain_lookup(tables(arch), bags()))
    weight = tables(arch)["b"]
    assert not out_BFD[0, 1].any(), "an empty bag is zero"
    torch.testing.assert_close(out_BFD[2, 1], 2 * weight[4])
    torch.testing.assert_close(out_BFD[3, 1], weight[7] + weight[4] + weight[29])


class WrittenOut:
    """Plain tables with the update spelled out.

    Rowwise Adagrad keeps one sum of mean squared gradients for each row (FBGEMM's EXACT_ROWWISE_ADAGRAD).
    """

    def __init__(self, weights: dict[str, torch.Tensor], optimizer: str, eps: float) -> None:
        self.weights = {n: w.clone().requires_grad_() for n, w in weights.items()}
        self.sums = {n: torch.zeros(len(w), 1) for n, w in weights.items()}
        self.optimizer, self.eps = optimizer, eps

    def step(self, features: Sequence[Sequence[Sequence[int]]], grad_BFD: torch.Tensor, lr: float) -> None:
        plain_lookup(self.weights, features).backward(grad_BFD)
        for name, weight in self.weights.items():
            assert weight.grad is not None
            scale: torch.Tensor | float = 1.0
            if self.optimizer == "rowwise_adagrad":
                self.sums[name] = self.sums[name] + weight.grad.square().mean(dim=1, keepdim=True)
                scale = 1.0 / (self.sums[name].sqrt() + self.eps)
            if self.optimizer == "adagrad":
                self.sums[name] = self.sums[name] + weight.grad.square()
                scale = 1.0 / (self.sums[name].sqrt() + self.eps)
            weight.data -= lr * scale * weight.grad
            weight.grad = None


@pytest.mark.parametrize("optimizer", ["rowwise_adagrad", "adagrad", "sgd"])
def test_training_follows_the_formula_also_with_a_moving_learning_rate(optimizer: str) -> None:
    arch = make(optimizer=optimizer)
    reference = WrittenOut(tables(arch), optimizer, eps=1e-8)
    draw = torch.Generator().manual_seed(1)
    for seed, factor in enumerate((1.0, 1.0, 0.25, 2.0)):
        arch.set_lr_factor(factor)
        grad_BFD = torch.randn(ROWS, 3, DIM, generator=draw)
        arch(keyed(bags(seed))).backward(grad_BFD)
        reference.step(bags(seed), grad_BFD, lr=0.1 * factor)
        for name, weight in tables(arch).items():
            torch.testing.assert_close(weight, reference.weights[name].detach(), rtol=1e-4, atol=1e-6)


def test_rows_that_no_one_looked_up_stay() -> None:
    arch = make()
    before = tables(arch)["b"]
    arch(keyed(bags())).sum().backward()
    moved = (tables(arch)["b"] != before).any(dim=1).nonzero().flatten().tolist()
    assert moved == [0, 4, 7, 29]


def test_no_gradient_is_kept() -> None:
    arch = make()
    arch(keyed(bags())).sum().backward()
    assert all(p.grad is None for p in arch.parameters())


def test_start_is_keyed_by_seed_and_table_and_by_nothing_else() -> None:
    start = tables(make())
    fewer = FeatureSpec((), (SparseFeature("c", 2), SparseFeature("b", 30)))
    for name, weight in tables(make(fewer)).items():
        assert torch.equal(weight, start[name]), f"{name} depends on the tables beside it"
    renamed = FeatureSpec((), (SparseFeature("z", 9),))
    assert not torch.equal(tables(make(renamed))["z"], start["a"])
    assert not torch.equal(tables(make(seed=6))["a"], start["a"])
    torch.manual_seed(99)
    assert torch.equal(tables(make())["a"], start["a"])


def test_start_is_uniform_within_the_configured_bound() -> None:
    spec = FeatureSpec((), (SparseFeature("big", 4096), SparseFeature("small", 1024)))
    start = tables(make(spec, init_scale=0.5, embedding_dim=16))
    for name, bound in (("big", 0.5 / 64), ("small", 0.5 / 32)):
        assert 0.99 * bound < start[name].abs().max() <= bound
        assert start[name].std().item() == pytest.approx(bound / 3**0.5, rel=0.02)
        assert abs(start[name].mean().item()) < 0.03 * bound


def test_state_can_be_put_back() -> None:
    arch, other = make(), make(seed=6)
    arch(keyed(bags())).sum().backward()
    other.load_state_dict(arch.state_dict())
    assert torch.equal(other(keyed(bags())), arch(keyed(bags())))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"optimizer": "adam"},
            r"sparse\.optimizer=adam: fbgemm has it on a GPU only; use sparse\.optimizer=rowwise_ada",
        ),
        ({"optimizer": "adagard"}, r"sparse\.optimizer=adagard: valid are adagrad, adam, rowwise_adagrad, sgd"),
        ({"embedding_dim": 6}, r"sparse\.embedding_dim=6: use a multiple of 4"),
        ({"embedding_dim": 0}, r"sparse\.embedding_dim=0: use a multiple of 4"),
        ({"lr": -1.0}, r"sparse\.lr=-1\.0: must be above 0"),
        ({"eps": -1.0}, r"sparse\.eps=-1\.0 .*must be at least 0"),
    ],
)
def test_a_configuration_that_cannot_work_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**changes)


@pytest.mark.parametrize(("first_order", "widest"), [(False, 1024), (True, 1020)])
def test_tables_too_wide_for_the_kernels_of_a_gpu_are_refused(first_order: bool, widest: int) -> None:
    config = SparseConfig(embedding_dim=widest + 4, first_order=first_order)
    with pytest.raises(ConfigError, match=rf"sparse\.embedding_dim={widest + 4}: .* on a GPU; use at most {widest}$"):
        SparseArch(SPEC, config, seed=0, device=torch.device("cuda"))
    SparseConfig(embedding_dim=widest, first_order=first_order).check_device(torch.device("cuda"))


def test_wide_tables_work_on_a_cpu() -> None:
    arch = make(embedding_dim=1028)
    weight = arch.collection.embedding_bags["a"].weight
    assert isinstance(weight, torch.Tensor)
    features = bags()
    looked_up = arch(keyed(features))[:, 0]
    torch.testing.assert_close(looked_up, weight[[ids[0] for ids in features[0]]], rtol=0, atol=0)
