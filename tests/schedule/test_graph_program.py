"""Graphs and programs as data."""

import itertools
from collections.abc import Callable

import pytest

from recsys.schedule import builders
from recsys.schedule.graph import Edge, PartGraph, PartSpec
from recsys.schedule.op import Kind, Op
from recsys.schedule.program import Program


def two_branches(detached: frozenset[str] = frozenset()) -> PartGraph:
    """``in`` -> a, b -> ``top``; a and b have losses of their own if detached."""
    return PartGraph(
        (
            PartSpec("in"),
            *(PartSpec(n, (Edge("in", n not in detached),), has_loss=n in detached) for n in "ab"),
            PartSpec("top", tuple(Edge(n, n not in detached) for n in "ab"), has_loss=True),
        )
    )


def names(program: Program) -> list[str]:
    return [f"{op.kind.value}:{op.part}" for op in program.ops]


def test_sequential_runs_backward_in_reverse() -> None:
    assert names(builders.sequential(two_branches())) == (
        ["F:in", "F:a", "F:b", "F:top", "B:top", "B:b", "B:a", "B:in", "U:in", "U:a", "U:b", "U:top"]
    )


def test_erase_runs_a_detached_backward_right_after_its_forward() -> None:
    graph = two_branches(frozenset("a"))
    assert names(builders.erase(graph, early_update=True)) == (
        ["F:in", "F:a", "B:a", "U:a", "F:b", "F:top", "B:top", "U:top", "B:b", "U:b", "B:in", "U:in"]
    )


def test_a_part_that_no_gradient_reaches_has_no_backward_and_no_update() -> None:
    graph = two_branches(frozenset("ab"))
    assert not graph.has_backward("in")
    assert "B:in" not in names(builders.erase(graph)) and "U:in" not in names(builders.erase(graph))


def test_gradient_does_not_flow_through_a_part_without_backward() -> None:
    graph = PartGraph((PartSpec("a"), PartSpec("dead_end", (Edge("a"),)), PartSpec("loss", (Edge("a", False),), True)))
    assert graph.grad_consumers("a") == () and not graph.has_backward("dead_end")


@pytest.mark.parametrize("order", [builders.sequential, builders.erase])
@pytest.mark.parametrize("early_update", [False, True])
def test_every_detach_set_gives_a_valid_program(order: Callable[..., Program], early_update: bool) -> None:
    for size in range(3):
        for detached in itertools.combinations("ab", size):
            graph = two_branches(frozenset(detached))
            lanes = builders.lane_per_part(graph, frozenset({"in", "top"}))
            program = order(graph, lanes, early_update=early_update)
            assert program.num_lanes == 3


def test_lane_groups_pin_parts_and_the_rest_get_free_lanes() -> None:
    graph = PartGraph(tuple(PartSpec(n) for n in "mabc"))
    assert builders.lane_per_part(graph, frozenset("m"), {"b": 1}) == {"b": 1, "a": 2, "c": 3}


def test_render_shows_lanes_as_rows() -> None:
    graph = two_branches(frozenset("a"))
    rows = builders.erase(graph, {"a": 1}).render().splitlines()
    assert len(rows) == 2 and "B:a" in rows[1] and "B:a" not in rows[0]


F, B, U = Kind.FORWARD, Kind.BACKWARD, Kind.UPDATE


@pytest.mark.parametrize(
    ("ops", "message"),
    [
        ([Op(B, "x")], "B:x@0: comes before F:x"),
        ([Op(F, "x"), Op(F, "x")], "F:x@0: stands twice"),
        ([Op(F, "y")], "the graph has no part 'y'"),
        ([Op(F, "x", 0), Op(B, "x", 1)], "must share a lane"),
        ([Op(F, "x"), Op(B, "x")], "the program lacks U:x"),
        ([Op(F, "x"), Op(U, "x")], "U:x@0: comes before B:x"),
    ],
)
def test_a_wrong_program_is_refused(ops: list[Op], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Program(PartGraph((PartSpec("x", has_loss=True),)), tuple(ops))


def test_an_embedding_backward_before_one_that_feeds_it_is_refused() -> None:
    graph = two_branches()
    ops = builders.sequential(graph).ops
    wrong = [o for o in ops if (o.kind, o.part) != (B, "in")]
    wrong.insert(5, Op(B, "in"))
    with pytest.raises(ValueError, match="B:in@0: comes before B:a, B:b|B:in@0: comes before B:a"):
        Program(graph, tuple(wrong))


def test_a_graph_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="'a': reads \\['b'\\]"):
        PartGraph((PartSpec("a", (Edge("b"),)), PartSpec("b")))
