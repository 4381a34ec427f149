"""When gradients are reduced, and what must not meet."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from recsys.errors import ConfigError
from recsys.models.recommender import DENSE, INTERACTION, MAIN_PATH, OVER, build_graph
from recsys.optim.clip import ClipByGlobalNorm
from recsys.optim.dense import DenseOptimConfig
from recsys.schedule import builders
from recsys.schedule.executors.serial import SerialExecutor
from recsys.schedule.factory import ScheduleConfig, build_program
from recsys.schedule.op import Kind
from recsys.schedule.program import Program
from recsys.schedule.step import ModuleParts
from tests.reference.toy import cuts_for, make_batch, make_model

GRAPH = build_graph(["mlp", "cross"], cuts_for(("cross",), ("mlp", "cross")), has_dense=True)
LANES = builders.lane_per_part(GRAPH, MAIN_PATH)


def words(program: Program) -> list[str]:
    return [f"{op.kind.value}:{op.part}@{op.lane}" for op in program.ops]


def test_erase_reduces_a_part_on_its_lane_as_soon_as_its_backward_is_done() -> None:
    program = builders.erase(GRAPH, LANES, reduce="early", early_update=True)
    ops = words(program)
    at = ops.index(f"B:cross@{LANES['cross']}")
    assert ops[at + 1 : at + 3] == [f"R:cross@{LANES['cross']}", f"U:cross@{LANES['cross']}"]
    assert at < ops.index("F:over@0")
    reduced = [op.part for op in program.ops if op.kind is Kind.REDUCE]
    assert reduced == ["cross", OVER, "mlp", INTERACTION, DENSE]


def test_a_joint_reduction_comes_after_the_last_backward_on_the_main_lane() -> None:
    program = builders.erase(GRAPH, LANES, reduce="joint")
    kinds = [op.kind for op in program.ops]
    first = kinds.index(Kind.REDUCE)
    assert Kind.BACKWARD not in kinds[first:] and Kind.UPDATE not in kinds[:first]
    assert {op.lane for op in program.ops if op.kind is Kind.REDUCE} == {0}


def test_a_pass_without_updates_only_gathers_gradients() -> None:
    program = builders.erase(GRAPH, LANES, reduce="early", updates=False)
    assert {op.kind for op in program.ops} == {Kind.FORWARD, Kind.BACKWARD}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ScheduleConfig("erase", early_update=True, reduce="joint"), "schedule.early_update=false"),
        (ScheduleConfig("erase_threads"), "schedule.reduce=joint"),
        (ScheduleConfig("erase_graph", trailing=True), "schedule.trailing=true"),
    ],
)
def test_orders_in_which_ranks_cannot_reduce_are_refused(config: ScheduleConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_program(config, GRAPH, MAIN_PATH, reduces=True)
    build_program(config, GRAPH, MAIN_PATH)  # one process may


def test_an_unknown_reduction_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"schedule.reduce=late: valid are early, joint"):
        ScheduleConfig(reduce="late")


class Recorder:
    """A reduction that doubles, and writes down what happens."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.open: dict[str, list[torch.Tensor]] = {}

    def launch(self, part: str, gradients: Sequence[torch.Tensor]) -> None:
        self.events.append(f"launch {part}")
        self.open[part] = list(gradients)

    def settle(self, parts: Sequence[str]) -> None:
        for part in parts:
            self.events.append(f"settle {part}")
            torch._foreach_mul_(self.open.pop(part), 2.0)


def test_a_reduction_is_settled_before_its_part_is_updated() -> None:
    moved = []
    for reduction in (None, Recorder()):
        model = make_model(cuts_for(("cross",), ("mlp", "cross")), ("mlp", "cross"), dropout=0.0)
        config = DenseOptimConfig("sgd", lr=0.1)
        optimizers = {n: config.build(p) for n in model.graph.names if (p := model.dense_parameters(n))}
        parts = ModuleParts(model.graph, dict(model.parts.items()), optimizers, reduction=reduction)
        before = {n: p.detach().clone() for n, p in model.named_parameters() if "sparse" not in n}
        program = builders.erase(model.graph, reduce="early", early_update=True)
        SerialExecutor().run(program, parts, make_batch())
        moved.append({n: p.detach() - before[n] for n, p in model.named_parameters() if n in before})
    assert isinstance(reduction, Recorder)
    assert reduction.events[:2] == ["launch cross", "settle cross"] and not reduction.open
    # The local loss of a detached part reaches nobody else: its update is exactly doubled.
    for name, once in moved[0].items():
        if name.startswith("parts.cross"):
            torch.testing.assert_close(moved[1][name], 2 * once)


def test_clipping_bounds_the_norm_of_all_parts_alike_under_every_order() -> None:
    results = []
    for make in (builders.sequential, builders.erase):
        model = make_model(cuts_for(("cross",), ("mlp", "cross")), ("mlp", "cross"), dropout=0.0)
        config = DenseOptimConfig("sgd", lr=1.0)
        optimizers = {n: config.build(p) for n in model.graph.names if (p := model.dense_parameters(n))}
        parts = ModuleParts(model.graph, dict(model.parts.items()), optimizers, clip=ClipByGlobalNorm(0.01))
        before = [p.detach().clone() for o in optimizers.values() for g in o.param_groups for p in g["params"]]
        for _ in range(2):
            SerialExecutor().run(make(model.graph), parts, make_batch())
        after = [p.detach() for o in optimizers.values() for g in o.param_groups for p in g["params"]]
        results.append([a - b for a, b in zip(after, before, strict=True)])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)
    # SGD at rate 1 moves by the gradient: two steps, each of norm 0.01.
    assert 0.01 < torch.cat([d.flatten() for d in results[0]]).norm() <= 0.02 + 1e-6


def test_clipping_is_torchs_own() -> None:
    draw = torch.Generator().manual_seed(0)
    parameters = [torch.nn.Parameter(torch.zeros(s)) for s in ((3, 4), (5,), (1,))]
    grads = [torch.randn(p.shape, generator=draw) for p in parameters]
    for p, g in zip(parameters, grads, strict=True):
        p.grad = g.clone()
    torch.nn.utils.clip_grad_norm_(parameters, 0.7)
    ClipByGlobalNorm(0.7)(grads)
    for p, g in zip(parameters, grads, strict=True):
        torch.testing.assert_close(p.grad, g)
    small = [g * 1e-3 for g in grads]
    kept = [g.clone() for g in small]
    ClipByGlobalNorm(0.7)(small)
    assert all(torch.equal(a, b) for a, b in zip(small, kept, strict=True))
