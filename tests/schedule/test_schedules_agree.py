"""Every schedule of one model gives the same numbers, and those of one joint backward."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
import torch

from recsys.models.recommender import MAIN_PATH, SPARSE, Recommender
from recsys.optim.dense import DenseOptimConfig
from recsys.schedule import builders
from recsys.schedule.executors.serial import SerialExecutor
from recsys.schedule.graph import PartGraph
from recsys.schedule.infer import infer
from recsys.schedule.program import Program
from recsys.schedule.step import ModuleParts, PartOutput, StepResult
from recsys.types import Batch
from tests.reference.toy import SIX, cuts_for, make_batch, make_model, make_parts

SUBSETS = [s for size in range(7) for s in itertools.combinations(SIX, size)]
FEW = [(), ("dot",), ("mlp", "attention", "masknet"), SIX]
ROWS = 8
Order = Callable[..., Program]
States = dict[str, torch.Tensor]


def program(order: Order, graph: PartGraph, **options: bool) -> Program:
    return order(graph, builders.lane_per_part(graph, MAIN_PATH), **options)


@dataclass
class Run:
    """A model that trains, and what was seen on the way.

    Attributes:
        states: the parameters at the start and after each step.
        gradients: by part, those that its optimizer had at each of its steps, one list a step.
        embedding_grads: one for each time that the embedding backward was entered.
        outputs: of the parts' forwards, none of which may outlive its step.
    """

    model: Recommender
    states: list[States] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)
    gradients: dict[str, list[list[torch.Tensor]]] = field(default_factory=dict)
    embedding_grads: list[torch.Tensor] = field(default_factory=list)
    outputs: list[weakref.ref[torch.Tensor]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.keep_state()
        for name, module in self.model.parts.items():
            module.register_forward_hook(partial(self._watch_output, name))

    def train(self, order: Order, steps: int = 2, **options: bool) -> Run:
        config = DenseOptimConfig(lr=0.01)
        optimizers = {n: config.build(p) for n in self.model.graph.names if (p := self.model.dense_parameters(n))}
        for name, optimizer in optimizers.items():
            optimizer.register_step_pre_hook(partial(self._watch_update, name))
        parts = ModuleParts(self.model.graph, dict(self.model.parts.items()), optimizers)
        run = program(order, self.model.graph, **options)
        for i in range(steps):
            self.results.append(SerialExecutor().run(run, parts, make_batch(ROWS, seed=i)))
            self.keep_state()
        return self

    def keep_state(self) -> None:
        self.states.append({n: v.clone() for n, v in self.model.state_dict().items()})

    def _watch_output(self, name: str, _module: object, _args: object, output: PartOutput) -> None:
        self.outputs.append(weakref.ref(output.out))
        if name == SPARSE:
            output.out.register_hook(lambda grad: self.embedding_grads.append(grad.clone()))

    def _watch_update(self, name: str, optimizer: torch.optim.Optimizer, *_: object) -> None:
        grads = [p.grad.clone() for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.gradients.setdefault(name, []).append(grads)


@dataclass(frozen=True)
class Pair:
    """One model under both orders."""

    detached: tuple[str, ...]
    late: Run
    early: Run


def start(detached: tuple[str, ...], grad: str = "undetached") -> Run:
    return Run(make_model(cuts_for(detached, heads="all", grad=grad)))


@pytest.fixture(scope="module", params=SUBSETS, ids="+".join)
def pair(request: pytest.FixtureRequest) -> Pair:
    """Every set of detached parts, each trained once for all the tests that read it."""
    detached: tuple[str, ...] = request.param
    early = start(detached).train(builders.erase, early_update=True)
    return Pair(detached, start(detached).train(builders.sequential), early)


def assert_equal_bit_for_bit(one: Run, other: Run) -> None:
    for before, after in zip(one.states, other.states, strict=True):
        assert before.keys() == after.keys()
        assert [n for n, v in before.items() if not torch.equal(v, after[n])] == []
    trained = {n for n in one.model.graph.names if one.model.dense_parameters(n)}
    assert one.gradients.keys() == other.gradients.keys() == trained
    for name, steps in one.gradients.items():
        for step, other_step in zip(steps, other.gradients[name], strict=True):
            assert all(torch.equal(g, h) for g, h in zip(step, other_step, strict=True)), name
    assert all(torch.equal(g, h) for g, h in zip(one.embedding_grads, other.embedding_grads, strict=True))
    for result, other_result in zip(one.results, other.results, strict=True):
        assert result.losses.keys() == other_result.losses.keys()
        assert all(torch.equal(v, other_result.losses[k]) for k, v in result.losses.items())


def test_erase_equals_sequential_bit_for_bit_for_every_detach_set(pair: Pair) -> None:
    assert_equal_bit_for_bit(pair.late, pair.early)
    first, *_, last = pair.late.states
    assert [n for n, v in first.items() if torch.equal(v, last[n])] == [], "did not train"


@pytest.mark.parametrize("detached", FEW, ids="+".join)
def test_when_the_updates_run_changes_nothing(detached: tuple[str, ...]) -> None:
    reference = start(detached).train(builders.sequential)
    assert_equal_bit_for_bit(reference, start(detached).train(builders.sequential, early_update=True))
    assert_equal_bit_for_bit(reference, start(detached).train(builders.erase))


def test_the_embedding_backward_is_entered_once_a_step(pair: Pair) -> None:
    for run in (pair.late, pair.early):
        assert [g.shape for g in run.embedding_grads] == [(ROWS, 5, 8)] * 2


@pytest.mark.parametrize("order", [builders.sequential, builders.erase])
def test_it_is_entered_once_when_every_part_sends_gradient_into_it(order: Order) -> None:
    assert len(start(SIX, grad="all").train(order, steps=1).embedding_grads) == 1


def test_nothing_of_a_step_is_left_alive(pair: Pair) -> None:
    """Not even until the garbage collector comes by."""
    for run in (pair.late, pair.early):
        assert len(run.outputs) == 2 * len(run.model.graph.names) and all(ref() is None for ref in run.outputs)
        left = [t for result in run.results for t in (*result.losses.values(), *result.logits.values())]
        assert left and all(not t.requires_grad for t in left)
        assert all(p.grad is None for p in run.model.parameters())


def test_gradients_are_those_of_one_joint_backward_for_every_detach_set(pair: Pair) -> None:
    assert_as_joint_backward(pair.early, start(pair.detached))


@pytest.mark.parametrize("detached", FEW, ids="+".join)
@pytest.mark.parametrize("grad", ["main", "all"])
def test_so_they_are_whoever_sends_gradient_into_the_embeddings(detached: tuple[str, ...], grad: str) -> None:
    run = start(detached, grad).train(builders.erase, steps=1)
    assert_as_joint_backward(run, start(detached, grad))


def assert_as_joint_backward(run: Run, twin: Run) -> None:
    """The first step of ``run`` against a twin that is still at the start."""
    _joint_backward(twin.model, make_batch(ROWS, seed=0))
    for name, steps in run.gradients.items():
        for ours, parameter in zip(steps[0], twin.model.dense_parameters(name), strict=True):
            assert parameter.grad is not None
            torch.testing.assert_close(ours, parameter.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(run.embedding_grads[0], twin.embedding_grads[0], rtol=1e-4, atol=1e-6)
    twin.keep_state()
    tables = [name for name in twin.states[0] if name.startswith(f"parts.{SPARSE}.")]
    assert tables
    for name in tables:
        assert not torch.equal(twin.states[0][name], twin.states[1][name]), name
        # rowwise Adagrad moves a row by lr * g / |g| in its first step: rounding of g shows at most there
        torch.testing.assert_close(run.states[1][name], twin.states[1][name], rtol=1e-3, atol=1e-4)


def _joint_backward(model: Recommender, batch: Batch) -> None:
    """The plain way: stop-gradients inside one forward, one backward over the sum of all losses."""
    outputs: dict[str, torch.Tensor] = {}
    losses = []
    for part in model.graph.parts:
        inputs = [outputs[e.source] if e.grad else outputs[e.source].detach() for e in part.inputs]
        output = model.parts[part.name](batch, *inputs)
        outputs[part.name] = output.out
        if output.loss is not None:
            losses.append(output.loss)
    torch.stack(losses).sum().backward()


def test_no_gradient_of_table_size_ever_exists() -> None:
    model = make_model(cuts_for(SIX))
    tables = list(model.parts[SPARSE].parameters())
    for parameter in tables:
        parameter.register_hook(lambda g: pytest.fail("a dense gradient reached a table"))
    before = [t.detach().clone() for t in tables]
    SerialExecutor().run(program(builders.erase, model.graph), make_parts(model), make_batch())
    assert all(t.grad is None for t in tables)
    assert all(not torch.equal(t, b) for t, b in zip(tables, before, strict=True))


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
    _joint_backward(twin, make_batch())
    for ours, theirs in zip(model.dense_parameters("over"), twin.dense_parameters("over"), strict=True):
        assert theirs.grad is not None
        torch.testing.assert_close(ours, theirs - 0.5 * theirs.grad)
