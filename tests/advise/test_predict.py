"""Costs, bounds and simulated steps of small models whose times can be worked out by hand."""

from __future__ import annotations

import pytest

from recsys.advise.costs import Costs, mix
from recsys.advise.measure import costs_of_report, costs_of_trace
from recsys.advise.predict import predict, simulate
from recsys.schedule import builders
from recsys.schedule.graph import Edge, PartGraph, PartSpec
from recsys.schedule.program import Program


def program(detached: bool, lanes: dict[str, int] | None = None, early: bool = True) -> Program:
    """A side part and an over-arch that reads it, both without inputs besides."""
    graph = PartGraph(
        (
            PartSpec("side", has_loss=detached, trainable=False),
            PartSpec("over", (Edge("side", grad=not detached),), has_loss=True, trainable=False),
        )
    )
    return (builders.erase if early else builders.sequential)(graph, lanes or {"side": 1})


US = {"F:side": 10.0, "B:side": 30.0, "F:over": 5.0, "B:over": 15.0}


@pytest.mark.parametrize(
    ("detached", "fill", "step"),
    [
        (False, 0.1, 60.0),  # a chain: F side, F over, B over, B side
        (True, 0.1, 40.0),  # F side, then B side beside F and B of over
        (True, 1.0, 60.0),  # every kernel fills the device: nothing runs beside another
        (True, 0.75, 50.0),  # 20 us of over beside side at 2 / 3 of the speed: 10 + 30 + 10
    ],
)
def test_lanes_share_the_device(detached: bool, fill: float, step: float) -> None:
    costs = Costs(US, dict.fromkeys(US, fill))
    assert simulate(program(detached), costs) == pytest.approx(step)
    found = predict(program(detached), costs, serial=False)
    assert found.critical_path_us == (40.0 if detached else 60.0)
    assert found.critical_path == ["F:side", "B:side"] if detached else ["F:side", "F:over", "B:over", "B:side"]
    assert found.saturation_us == pytest.approx(60 * fill)
    assert found.step_us >= max(found.critical_path_us, found.saturation_us) - 1e-9


def test_one_lane_is_the_sum_whatever_is_detached() -> None:
    costs = Costs(US, dict.fromkeys(US, 0.1), rest_us=7.0)
    assert simulate(program(True, {"side": 0}), costs) == pytest.approx(60)
    found = predict(program(True), costs, serial=True)
    assert found.step_us == found.work_us == found.saturation_us == pytest.approx(67)


def test_what_costs_nothing_ends_at_once() -> None:
    assert simulate(program(True), Costs({})) == 0.0


def test_costs_of_a_mixed_model() -> None:
    attached = Costs({"F:a": 1.0, "B:a": 4.0, "F:b": 2.0, "B:b": 8.0, "B:tokens": 10.0}, {"B:b": 0.5}, 6.0)
    detached = Costs({"F:a": 1.5, "B:a": 2.0, "F:b": 3.0, "B:b": 5.0, "B:tokens": 4.0}, {}, 2.0)
    found = mix(attached, detached, {"a"}, ("a", "b"))
    assert found.us == {"F:a": 1.5, "B:a": 2.0, "F:b": 2.0, "B:b": 8.0, "B:tokens": 7.0}
    assert (found.fill_of("B:b"), found.fill_of("B:a"), found.rest_us) == (0.5, 1.0, 4.0)
    assert mix(attached, detached, (), ("a", "b")).us == attached.us
    assert mix(attached, detached, ("a", "b"), ("a", "b")).us == detached.us


def test_costs_of_a_profile() -> None:
    def event(cat: str, name: str, ts: float, dur: float, **args: object) -> dict[str, object]:
        return {"ph": "X", "cat": cat, "name": name, "tid": 1, "ts": ts, "dur": dur, "args": args}

    kernel = {"stream": 7, "block": [32 * 8, 1, 1]}
    trace = {
        "traceEvents": [
            event("user_annotation", "F:a@0", 0, 10),
            event("cuda_runtime", "launch", 1, 1, correlation=1),
            event("cuda_runtime", "launch", 2, 1, correlation=2),
            event("kernel", "relu", 20, 30, correlation=1, grid=[40, 1, 1], **kernel),
            event("kernel", "gemm", 50, 10, correlation=2, grid=[5, 1, 1], **kernel),
        ]
    }
    found = costs_of_trace(trace, num_sms=10, replay_us=44)
    assert found.us == {"F:a": pytest.approx(44)}  # 40 of kernels, 4 of gaps
    # 40 blocks of 8 warps fill half of 640 warps; a product's 5 blocks half of 10 multiprocessors.
    assert found.fill == {"F:a": pytest.approx(20 / 44)}


def test_costs_of_a_trace_report() -> None:
    found = costs_of_report({"ops": {"F:a": {"us": 3, "fill": 0.25}}})
    assert (found.us, found.fill) == ({"F:a": 3.0}, {"F:a": 0.25})
    with pytest.raises(ValueError, match="no object 'ops'"):
        costs_of_report({"eta": 1})
