from __future__ import annotations

from recsys.schedule import builders
from recsys.schedule.executors.cuda_graph import split_around
from recsys.schedule.executors.plan import make_plan
from recsys.schedule.executors.trailing import cut_program, trailing_parts
from recsys.schedule.graph import Edge, PartGraph, PartSpec
from recsys.schedule.op import Kind
from recsys.schedule.program import Program

GRAPH = PartGraph(
    (
        PartSpec("in", trainable=False),
        PartSpec("main", (Edge("in"),)),
        PartSpec("a", (Edge("in", grad=False),), has_loss=True),
        PartSpec("b", (Edge("in"),), has_loss=True),
        PartSpec("over", (Edge("main"), Edge("a", grad=False), Edge("b", grad=False)), has_loss=True),
    )
)
LANES = {"a": 1, "b": 2}


def waits(program: Program) -> dict[str, list[str]]:
    plan = make_plan(program)
    names = [",".join(map(str, launch.ops)) for launch in plan.launches]
    return {names[i]: [names[w] for w in launch.waits] for i, launch in enumerate(plan.launches)}


def test_only_cross_lane_dependencies_wait() -> None:
    found = waits(builders.erase(GRAPH, LANES, early_update=True))
    assert found["F:a@1"] == ["F:in@0"]
    assert found["B:a@1"] == found["U:a@1"] == []
    assert found["F:over@0"] == ["F:a@1", "F:b@2"]
    assert found["B:in@0"] == ["B:b@2"]


def test_a_lane_waits_once_for_what_it_already_waited_for() -> None:
    found = waits(builders.sequential(GRAPH, LANES))
    assert found["F:over@0"] == ["F:a@1", "F:b@2"]
    assert found["B:main@0"] == []


def test_updates_side_by_side_in_one_lane_are_one_launch() -> None:
    everywhere = dict.fromkeys(GRAPH.names, 0)
    plan = make_plan(builders.erase(GRAPH, LANES, update_lanes=everywhere))
    last = plan.launches[-1]
    assert [op.part for op in last.ops] == ["main", "a", "b", "over"]
    assert last.away == ("a", "b")


def test_every_wait_is_signalled_and_every_lane_joined() -> None:
    plan = make_plan(builders.erase(GRAPH, LANES, early_update=True, update_lanes={"over": 3, "main": 3}))
    for launch in plan.launches:
        assert all(plan.launches[w].signals for w in launch.waits)
    assert set(plan.last) == {1, 2, 3}
    assert all(plan.launches[i].signals for i in plan.last.values())


def test_parts_outside_run_before_and_after_the_capture() -> None:
    split = split_around(builders.erase(GRAPH, LANES), frozenset({"in"}))
    assert [str(op) for op in split.before] == ["F:in@0"]
    assert [str(op) for op in split.after] == ["B:in@0"]
    assert {op.part for op in split.inside} == {"main", "a", "b", "over"}


def test_only_parts_that_send_no_gradient_trail() -> None:
    assert trailing_parts(GRAPH) == ("a",)
    cut = cut_program(builders.erase(GRAPH, LANES, early_update=True))
    assert [str(op) for op in cut.head] == ["F:in@0"]
    assert [op.kind for op in cut.trails["a"][1]] == [Kind.BACKWARD, Kind.UPDATE]
    assert "a" not in {op.part for op in cut.tail}
