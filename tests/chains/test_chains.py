"""Chains: every schedule gives the same numbers, cuts stop gradients, and the layers' own gradients are right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional

from recsys.chains.base import Chain, ChainModel
from recsys.chains.layers import learn_layer, linear_relu
from recsys.chains.wire import build_stepper
from recsys.config.cli import compose, to_plain
from recsys.config.target import build_target
from recsys.schedule.op import Kind
from recsys.train.stepper import Stepper

CPU = torch.device("cpu")
SMALL = {
    "mlp30": ["chain.layers=5", "chain.width=12"],
    "transformer": ["chain.width=8", "chain.heads=2", "chain.context=6", "chain.blocks=1"],
}
States = dict[str, torch.Tensor]


def build(experiment: str, *overrides: str, cut: bool = True, schedule: str = "erase") -> tuple[ChainModel, Stepper]:
    cfg = to_plain(compose([f"+experiment={experiment}", *SMALL[experiment], f"schedule={schedule}", *overrides]))
    chain: Chain = build_target(cfg["chain"] | {"train_rows": 16, "test_rows": 16}, "chain")
    model = chain.build(chain.make_data(0), 0, cut=cut)
    return model, build_stepper(cfg, model, CPU, 3)


def train(experiment: str, *overrides: str, **options: Any) -> tuple[States, list[dict[str, torch.Tensor]]]:
    model, stepper = build(experiment, *overrides, **options)
    chain: Chain = build_target(
        to_plain(compose([f"+experiment={experiment}", *SMALL[experiment], *overrides]))["chain"]
        | {"train_rows": 48, "test_rows": 1},
        "chain",
    )
    losses = [stepper(batch).losses for batch in chain.make_data(0).batches(16, 0, 0)]
    return {k: v.detach().clone() for k, v in model.modules.state_dict().items()}, losses


@pytest.mark.filterwarnings("ignore:schedule :UserWarning")
@pytest.mark.parametrize("experiment", sorted(SMALL))
@pytest.mark.parametrize("every", [1, 2])
def test_every_schedule_gives_the_same_numbers(experiment: str, every: int) -> None:
    cuts = f"chain.cut_every={every}"
    expected, losses = train(experiment, cuts, schedule="sequential")
    for schedule, update in (
        ("erase", "true"),
        ("erase", "false"),
        ("erase_threads", "true"),
        ("branch_graph", "true"),
    ):
        states, found = train(experiment, cuts, f"schedule.early_update={update}", schedule=schedule)
        assert all(torch.equal(states[k], expected[k]) for k in expected), schedule
        assert all(torch.equal(a[k], b[k]) for a, b in zip(found, losses, strict=True) for k in b)


@pytest.mark.parametrize("experiment", sorted(SMALL))
def test_every_backward_but_the_last_piece_is_early(experiment: str) -> None:
    model, stepper = build(experiment)
    ops = stepper.program.ops
    last = max(i for i, op in enumerate(ops) if op.kind is Kind.FORWARD)
    early = {op.part for op in ops[:last] if op.kind is Kind.BACKWARD}
    assert early == {n for n in model.graph.names if model.graph.has_backward(n)} - set(
        [n for n in model.graph.names if model.graph.has_backward(n)][-1 if experiment == "mlp30" else -2 :]
    )
    assert len({op.lane for op in ops}) > 2


@pytest.mark.parametrize("experiment", sorted(SMALL))
def test_gradient_stops_at_cuts_alone(experiment: str) -> None:
    """The first stage learns the same whatever comes after the cut, and another thing without the cut."""
    with_cut, _ = train(experiment)
    longer, _ = train(experiment, f"chain.{'layers' if experiment == 'mlp30' else 'stages'}=2")
    end_to_end, _ = train(experiment, cut=False)
    first = [k for k in longer if k.startswith("stage1.")]
    assert first
    assert all(torch.equal(with_cut[k], longer[k]) for k in first)
    assert not all(torch.equal(with_cut[k], end_to_end[k]) for k in first)


def test_the_mlp_without_cuts_matches_plain_torch() -> None:
    model, stepper = build("mlp30", "optim=sgd", "optim.lr=0.1", cut=False)
    plain = torch.nn.Sequential()
    for name in model.graph.names:
        layer = model.modules[name].get_submodule("linear")
        assert isinstance(layer, torch.nn.Linear)
        copy = torch.nn.Linear(layer.in_features, layer.out_features)
        copy.load_state_dict(layer.state_dict())
        plain.append(copy)
        if not name.endswith("_head"):
            plain.append(torch.nn.ReLU())
    chain: Chain = build_target(
        to_plain(compose(["+experiment=mlp30", *SMALL["mlp30"]]))["chain"] | {"train_rows": 16}, "chain"
    )
    batch = next(chain.make_data(0).batches(16, 0, 0))
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    functional.cross_entropy(plain(batch.inputs), batch.targets).backward()
    optimizer.step()
    stepper(batch)
    trained = [p for n in model.graph.names for p in model.modules[n].parameters()]
    for a, b in zip(trained, plain.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_gradients_of_a_cut_off_layer_match_autograd() -> None:
    draw = torch.Generator().manual_seed(0)
    shapes = [(20, 7), (12, 7), (12,), (10, 12), (10,)]
    leaves = [torch.randn(s, generator=draw, dtype=torch.float64).requires_grad_() for s in shapes]
    targets = torch.randint(0, 10, (20,), generator=draw)
    x, w, b, wh, bh = leaves
    hidden = linear_relu(x, w, b)
    loss = functional.cross_entropy(functional.linear(hidden, wh, bh).float(), targets)
    expected = torch.autograd.grad(loss, [w, b, wh, bh])
    found_loss, _ = learn_layer(x, hidden.detach(), w, b, wh, bh, targets)
    found = torch.autograd.grad(found_loss, [w, b, wh, bh])
    for a, e in zip((found_loss, *found), (loss, *expected), strict=True):
        torch.testing.assert_close(a, e, rtol=1e-5, atol=1e-7)
