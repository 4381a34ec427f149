"""Every schedule of one model gives the same numbers, and those of one joint backward."""

import gc
import itertools
import weakref
from collections.abc import Callable

import pytest
import torch

from recsys.models.recommender import MAIN_PATH, SPARSE, Recommender
from recsys.optim.dense import DenseOptimConfig
from recsys.schedule import builders
from recsys.schedule.executors.serial import SerialExecutor
from recsys.schedule.graph import PartGraph
from recsys.schedule.infer import infer
from recsys.schedule.program import Program
from recsys.schedule.step import ModuleParts, StepResult
from tests.reference.toy import SIX, cuts_for, make_batch, make_model, make_parts

SUBSETS = [s for size in range(7) for s in itertools.combinations(SIX, size)]
Order = Callable[..., Program]


def program(order: Order, graph: PartGraph, **options: bool) -> Program:
    return order(graph, builders.lane_per_part(graph, MAIN_PATH), **options)


def train(
    detached: tuple[str, ...], order: Order, steps: int = 2, **options: bool
) -> tuple[Recommender, list[StepResult]]:
    model = make_model(cuts_for(detached, heads="all"))
    parts = make_parts(model)
    run = program(order, model.graph, **options)
    return model, [SerialExecutor().run(run, parts, make_batch(seed=i)) for i in range(steps)]


@pytest.mark.parametrize("detached", SUBSETS, ids="+".join)
def test_erase_equals_sequential_bit_for_bit_for_every_detach_set(detached: tuple[str, ...]) -> None:
    late, late_results = train(detached, builders.sequential)
    early, early_results = train(detached, builders.erase, early_update=True)
    before = make_model(cuts_for(detached, heads="all")).state_dict()
    for name, value in late.state_dict().items():
        assert torch.equal(value, early.state_dict()[name]), name
        assert not torch.equal(value, before[name]), f"{name} did not train"
    for one, other in zip(late_results, early_results, strict=True):
        assert all(torch.equal(v, other.losses[k]) for k, v in one.losses.items())


class _RecordedSgd(torch.optim.SGD):
    """Keeps the gradients that the step had."""

    seen: list[torch.Tensor]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        self.seen = [p.grad.clone() for group in self.param_groups for p in group["params"] if p.grad is not None]


@pytest.mark.parametrize("detached", [(), ("dot",), ("mlp", "attention", "masknet"), SIX], ids="+".join)
@pytest.mark.parametrize("grad", ["undetached", "main", "all"])
def test_gradients_are_those_of_one_joint_backward(detached: tuple[str, ...], grad: str) -> None:
    cuts = cuts_for(detached, heads="all", grad=grad)
    model, twin = make_model(cuts), make_model(cuts)
    optimizers = {n: _RecordedSgd(p, lr=1.0) for n in model.graph.names if (p := model.dense_parameters(n))}
    batch = make_batch()
    parts = ModuleParts(model.graph, dict(model.parts.items()), optimizers)
    SerialExecutor().run(program(builders.erase, model.graph), parts, batch)
    tables_before = {n: v.clone() for n, v in twin.parts[SPARSE].state_dict().items()}
    _joint_backward(twin)
    for name, optimizer in optimizers.items():
        for ours, parameter in zip(optimizer.seen, twin.dense_parameters(name), strict=True):
            assert parameter.grad is not None
            torch.testing.assert_close(ours, parameter.grad, rtol=1e-4, atol=1e-6)
    for name, table in model.parts[SPARSE].state_dict().items():
        assert not torch.equal(table, tables_before[name])
        # rowwise Adagrad moves a row by lr * g / |g| in its first step: rounding of g shows at most there
        torch.testing.assert_close(table, twin.parts[SPARSE].state_dict()[name], rtol=1e-3, atol=1e-4)


def _joint_backward(model: Recommender) -> None:
    """The plain way: stop-gradients inside one forward, one backward over the sum of all losses."""
    outputs: dict[str, torch.Tensor] = {}
    losses = []
    for part in model.graph.parts:
        inputs = [outputs[e.source] if e.grad else outputs[e.source].detach() for e in part.inputs]
        output = model.parts[part.name](make_batch(), *inputs)
        outputs[part.name] = output.out
        if output.loss is not None:
            losses.append(output.loss)
    torch.stack(losses).sum().backward()


@pytest.mark.parametrize("order", [builders.sequential, builders.erase])
def test_the_embedding_backward_is_entered_once_a_step(order: Order) -> None:
    model = make_model(cuts_for(SIX, grad="all"))
    entered = []

    def watch(module: object, args: object, output: object) -> None:
        output.out.register_hook(lambda g: entered.append(g.shape))  # type: ignore[attr-defined]

    model.parts[SPARSE].register_forward_hook(watch)
    SerialExecutor().run(program(order, model.graph), make_parts(model), make_batch(rows=24))
    assert entered == [(24, 5, 8)]


def test_no_gradient_of_table_size_ever_exists() -> None:
    model = make_model(cuts_for(SIX))
    tables = list(model.parts[SPARSE].parameters())
    for parameter in tables:
        parameter.register_hook(lambda g: pytest.fail("a dense gradient reached a table"))
    before = [t.detach().clone() for t in tables]
    SerialExecutor().run(program(builders.erase, model.graph), make_parts(model), make_batch())
    assert all(t.grad is None for t in tables)
    assert all(not torch.equal(t, b) for t, b in zip(tables, before, strict=True))


def test_nothing_of_a_step_is_left_alive() -> None:
    model = make_model(cuts_for(("cross",), heads="all"))
    parts = make_parts(model)
    kept: list[weakref.ref[torch.Tensor]] = []
    for module in model.parts.values():
        module.register_forward_hook(lambda _m, _a, out: kept.append(weakref.ref(out.out)))
    result = SerialExecutor().run(program(builders.erase, model.graph), parts, make_batch())
    gc.collect()
    assert len(kept) == len(model.graph.names) and all(ref() is None for ref in kept)
    assert all(not v.requires_grad for v in [*result.losses.values(), *result.logits.values()])
    assert all(p.grad is None for p in model.parameters())


def test_a_step_after_a_failed_one_is_refused_not_mixed() -> None:
    model = make_model(cuts_for(()))
    parts = make_parts(model)
    parts.begin(make_batch())
    parts.forward(SPARSE)
    with pytest.raises(AssertionError, match="was not ended"):
        parts.begin(make_batch())


def test_adding_a_head_or_a_part_changes_no_other_parts_start() -> None:
    plain = make_model(cuts_for((), heads="detached"), SIX[:2])
    more = make_model(cuts_for(SIX[:3], SIX[:3]), SIX[:3])
    for name in ("sparse", "dense", "interaction", "mlp", "cross"):
        for key, value in plain.parts[name].state_dict().items():
            assert torch.equal(value, more.parts[name].state_dict()[key]), f"{name}.{key}"
    batch = make_batch()
    one, other = (infer(m.graph, dict(m.parts.items()), batch).logits for m in (make_model(cuts_for(SIX)), more))
    assert torch.equal(one["mlp"], other["mlp"]), "dropout of a part depends on the parts beside it"


def test_sgd_on_every_part_follows_the_formula() -> None:
    model, twin = (make_model(cuts_for((), grad="all"), dropout=0.0) for _ in range(2))
    SerialExecutor().run(
        program(builders.sequential, model.graph), make_parts(model, DenseOptimConfig("sgd", lr=0.5)), make_batch()
    )
    _joint_backward(twin)
    for ours, theirs in zip(model.dense_parameters("over"), twin.dense_parameters("over"), strict=True):
        assert theirs.grad is not None
        torch.testing.assert_close(ours, theirs - 0.5 * theirs.grad)
