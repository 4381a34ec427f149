from __future__ import annotations

import pytest
import torch

from recsys.errors import ConfigError
from recsys.schedule.executors.serial import SerialExecutor
from recsys.schedule.factory import NAMES, ScheduleConfig, _priorities, build_executor, build_program
from recsys.schedule.graph import Edge, PartGraph, PartSpec
from recsys.schedule.op import Kind

GRAPH = PartGraph(
    (
        PartSpec("main"),
        PartSpec("a", has_loss=True),
        PartSpec("over", (Edge("main"), Edge("a", grad=False)), has_loss=True),
    )
)
MAIN = frozenset({"main", "over"})
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("early", [False, True])
def test_every_rung_makes_a_valid_program(name: str, early: bool) -> None:
    program = build_program(ScheduleConfig(name, early_update=early), GRAPH, MAIN)
    lanes = {op.part: op.lane for op in program.ops if op.kind is Kind.FORWARD}
    assert lanes["main"] == lanes["over"] == 0
    assert (lanes["a"] > 0) == (not name.startswith("sequential"))
    order = [str(op).split("@")[0] for op in program.ops]
    assert (order.index("B:a") < order.index("F:over")) == name.startswith("erase")


def test_without_early_update_all_updates_stand_together_on_the_main_lane() -> None:
    program = build_program(ScheduleConfig("erase"), GRAPH, MAIN)
    assert [(op.kind, op.lane) for op in program.ops[-3:]] == [(Kind.UPDATE, 0)] * 3


def test_main_lane_updates_go_to_a_lane_beside_it() -> None:
    program = build_program(ScheduleConfig("erase", early_update=True), GRAPH, MAIN)
    assert {op.part: op.lane for op in program.ops if op.kind is Kind.UPDATE} == {"main": 2, "a": 1, "over": 2}


@pytest.mark.parametrize("name", ["sequential", "erase"])
def test_plain_names_run_on_a_cpu(name: str) -> None:
    config = ScheduleConfig(name, strict=True)
    assert isinstance(build_executor(config, build_program(config, GRAPH, MAIN), CPU), SerialExecutor)


@pytest.mark.parametrize("name", ["branch", "erase_graph", "erase_threads"])
def test_a_cpu_says_what_it_cannot_give(name: str) -> None:
    config = ScheduleConfig(name)
    program = build_program(config, GRAPH, MAIN)
    with pytest.warns(UserWarning, match=f"schedule {name}: .* need a GPU"):
        assert isinstance(build_executor(config, program, CPU), SerialExecutor)
    with pytest.raises(ConfigError, match=r"schedule\.strict=true"):
        build_executor(ScheduleConfig(name, strict=True), program, CPU)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "erase_grph"}, "did you mean erase_graph"),
        ({"name": "erase", "lanes": {"a": 0}}, "lane 0 is the main lane"),
        ({"name": "erase", "warmup_steps": 0}, "warmup_steps"),
    ],
)
def test_mistakes_are_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ScheduleConfig(**settings)  # type: ignore[arg-type]


def test_a_lane_for_an_unknown_part() -> None:
    with pytest.raises(ConfigError, match="no part 'x'; valid are main, a, over"):
        build_program(ScheduleConfig("erase", lanes={"x": 1}), GRAPH, MAIN)


def test_priorities_put_the_main_lane_first_and_updates_last() -> None:
    config = ScheduleConfig("erase", early_update=True, urgent=("a",))
    program = build_program(config, GRAPH, MAIN)
    assert _priorities(config, program) == {0: -5, 1: -4, 2: 0}
    assert _priorities(ScheduleConfig("erase"), program) == {0: -5, 1: -1, 2: 0}
