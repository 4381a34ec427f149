from __future__ import annotations

import pytest

from recsys.schedule import builders
from recsys.schedule.graph import Edge, PartGraph, PartSpec
from recsys.schedule.overlap import (
    Span,
    achieved_fraction,
    critical_path,
    intersection,
    label_replay,
    length,
    load_spans,
    measure_overlap,
    op_durations,
    saturation_estimate,
    union,
)


def span(op: str, start: float, end: float, **kw: object) -> Span:
    return Span(name=f"k{op}", start=start, end=end, op=op, **kw)  # type: ignore[arg-type]


def test_union_and_intersection() -> None:
    a = union([span("F:a@0", 0, 2), span("F:a@0", 1, 3), span("F:a@0", 5, 6)])
    assert a == [(0, 3), (5, 6)]
    assert length(a) == 4
    assert intersection(a, [(2, 5.5)]) == [(2, 3), (5, 5.5)]


def test_metrics_of_a_known_step() -> None:
    spans = [span("F:a@1", 0, 2), span("B:a@1", 2, 6), span("F:b@0", 2, 5), span("B:b@0", 6, 8)]
    found = measure_overlap(spans, {"a"}, alone=[span("F:a@0", 0, 10)])
    assert found.hidden == pytest.approx(3 / 4)
    assert found.r_fb == pytest.approx(3 / 5)
    assert found.concurrency == pytest.approx(11 / 8)
    assert found.stretch == pytest.approx(11 / 10)
    assert found.span_us == 8


def test_kernels_get_the_range_that_launched_them() -> None:
    trace = {
        "traceEvents": [
            {"ph": "X", "cat": "user_annotation", "name": "F:a@1", "tid": 7, "ts": 0, "dur": 10},
            {"ph": "X", "cat": "cuda_runtime", "name": "run", "tid": 7, "ts": 5, "dur": 1, "args": {"correlation": 3}},
            {"ph": "X", "cat": "cuda_runtime", "name": "run", "tid": 8, "ts": 5, "dur": 1, "args": {"correlation": 4}},
            {"ph": "X", "cat": "kernel", "name": "k", "ts": 20, "dur": 2,
             "args": {"correlation": 3, "stream": 9, "grid": [2, 3, 1]}},
            {"ph": "X", "cat": "kernel", "name": "l", "ts": 30, "dur": 2, "args": {"correlation": 4}},
        ]
    }  # fmt: skip
    first, second = load_spans(trace)
    assert (first.op, first.blocks, first.stream, first.phase, first.part) == ("F:a@1", 6, 9, "F", "a")
    assert second.op == ""


GRAPH = PartGraph(
    (
        PartSpec("a", has_loss=True),
        PartSpec("b", has_loss=True),
        PartSpec("c", (Edge("a", False), Edge("b")), has_loss=True),
    )
)


def test_critical_path_ignores_lanes() -> None:
    times = {"F:a": 1.0, "F:b": 5.0, "F:c": 2.0, "B:c": 2.0, "B:b": 4.0, "B:a": 3.0, "U:b": 1.0}
    found, path = critical_path(builders.erase(GRAPH), times)
    assert found == 14.0
    assert path == ["F:b", "F:c", "B:c", "B:b", "U:b"]


def test_a_replay_is_labelled_by_the_order_of_the_eager_step() -> None:
    program = builders.erase(GRAPH, {"a": 1}, early_update=True)
    ops = [str(op) for op in program.ops]
    eager = [Span("k", i, i + 1, op=op) for i, op in enumerate(ops)]
    known = [Span("k", i, i + 1, stream=3) for i in range(len(ops))]
    replay = [Span("before", -2, -1), *known, Span("more", 98, 99, stream=3)]
    first, *labels, last = [s.op for s in label_replay(replay, eager, program)]
    assert first == ""
    assert sorted(labels) == sorted(ops)
    assert last == labels[-1]


def test_bounds() -> None:
    product = Span("nvjet", 0, 10, blocks=66, warps=12)
    pointwise = Span("triton", 10, 20, blocks=132, warps=16)
    assert saturation_estimate([product, pointwise], 132) == pytest.approx(5 + 2.5)
    assert achieved_fraction(10, 7, 4) == pytest.approx(0.5)
    joint = [Span("k", 0, 4, op="U:a,b@0")]
    assert op_durations(joint) == {"U:a": (2.0, 1), "U:b": (2.0, 1)}
