"""How much of a step's work ran side by side: metrics over the kernels of a profiler trace.

U_x stands for the union of the kernel intervals of phase x; |U| for its length. All times are in microseconds.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recsys.schedule.op import Kind
from recsys.schedule.program import Program

_OP = re.compile(r"^[FBRU]:[^@]+@\d+$")
_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")

Intervals = list[tuple[float, float]]


@dataclass(frozen=True)
class Span:
    """A kernel, copy or fill on the device.

    Attributes:
        name: of the kernel.
        start: microseconds.
        end: microseconds.
        stream: CUDA stream.
        op: ``str`` of the operation that launched it (``F:mlp@1``), or "" where none did.
        blocks: thread blocks of its grid; 0 for copies and fills.
        node: order of capture in a replayed graph, or -1.
    """

    name: str
    start: float
    end: float
    stream: int = 0
    op: str = ""
    blocks: int = 0
    node: int = -1

    @property
    def duration(self) -> float:
        """Microseconds from start to end."""
        return self.end - self.start

    @property
    def phase(self) -> str:
        """``F``, ``B``, ``R``, ``U`` or ""."""
        return self.op[:1]

    @property
    def part(self) -> str:
        """Name of the part, or ""."""
        return self.op[2:].split("@")[0]


def load_spans(trace: Mapping[str, Any]) -> list[Span]:
    """Device work of a Chrome trace written by ``torch.profiler``, each with the operation that launched it."""
    events = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    ranges: dict[Any, list[tuple[float, float, str]]] = {}
    for e in events:
        if e.get("cat") == "user_annotation" and _OP.match(e["name"]):
            ranges.setdefault(e["tid"], []).append((e["ts"], e["ts"] + e["dur"], e["name"]))
    for found in ranges.values():
        found.sort()
    launched: dict[int, str] = {}
    for e in events:
        if e.get("cat") in _LAUNCHES and "correlation" in e.get("args", {}):
            launched[e["args"]["correlation"]] = _enclosing(ranges.get(e["tid"], []), e["ts"])
    spans = [_span(e, launched) for e in events if e.get("cat") in _DEVICE_WORK]
    return sorted(spans, key=lambda s: s.start)


def _span(event: Mapping[str, Any], launched: Mapping[int, str]) -> Span:
    args = event.get("args", {})
    x, y, z = args.get("grid", (0, 0, 0))
    return Span(
        name=event["name"],
        start=event["ts"],
        end=event["ts"] + event["dur"],
        stream=args.get("stream", 0),
        op=launched.get(args.get("correlation", -1), ""),
        blocks=x * y * z,
        node=args.get("graph node id", -1),
    )


def _enclosing(ranges: Sequence[tuple[float, float, str]], ts: float) -> str:
    at = bisect.bisect_right(ranges, (ts, float("inf"), "")) - 1
    if at >= 0 and ranges[at][0] <= ts <= ranges[at][1]:
        return ranges[at][2]
    return ""


def label_replay(replay: Sequence[Span], eager: Sequence[Span]) -> list[Span]:
    """Give the kernels of one graph replay the operations of the same program's eager run.

    Ranges are lost in a replay, but its nodes are numbered in the order of capture, which is the
    order in which the eager run launches the same kernels.

    Args:
        replay: spans of one replay, with nodes.
        eager: spans of one eager step, in launch order.

    Raises:
        ValueError: the two do not hold the same kernels.
    """
    ordered = sorted((s for s in replay if s.node >= 0), key=lambda s: s.node)
    known = [s for s in eager if s.op]
    if [s.name for s in ordered] != [s.name for s in known]:
        raise ValueError(f"the replay has {len(ordered)} kernels and the eager step {len(known)}, or other ones")
    return sorted((replace(s, op=k.op) for s, k in zip(ordered, known, strict=True)), key=lambda s: s.start)


def union(spans: Iterable[Span]) -> Intervals:
    """The times at which at least one of ``spans`` runs, as disjoint intervals in order."""
    merged: Intervals = []
    for start, end in sorted((s.start, s.end) for s in spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def length(intervals: Intervals) -> float:
    """Summed length of disjoint intervals."""
    return sum(end - start for start, end in intervals)


def intersection(a: Intervals, b: Intervals) -> Intervals:
    """The times that lie in both."""
    out: Intervals = []
    i = j = 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            out.append((start, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return out


@dataclass(frozen=True)
class Overlap:
    """Overlap of one step.

    Attributes:
        r_fb: ``|U_F n U_B| / min(|U_F|, |U_B|)``: forward beside backward.
        hidden: H, the share of early backward that runs beside forward or main backward.
        concurrency: C, summed kernel time over the time in which any kernel runs.
        stretch: S, kernel time here over kernel time alone; None without a trace of one lane. C > 1 with
            S as large is contention, not gain.
        busy_us: time in which any kernel runs.
        span_us: from the first kernel's start to the last one's end.
    """

    r_fb: float
    hidden: float
    concurrency: float
    stretch: float | None
    busy_us: float
    span_us: float


def measure_overlap(spans: Sequence[Span], early: Collection[str], alone: Sequence[Span] | None = None) -> Overlap:
    """Metrics of one step.

    Args:
        spans: the step's device work with operations.
        early: parts whose backward starts early.
        alone: the same kernels run one after the other.
    """
    forward = union(s for s in spans if s.phase == "F")
    backward = [s for s in spans if s.phase == "B"]
    early_union = union(s for s in backward if s.part in early)
    others = union(s for s in spans if s.phase == "F" or (s.phase == "B" and s.part not in early))
    shorter = min(length(forward), length(union(backward)))
    busy = length(union(spans))
    total = sum(s.duration for s in spans)
    return Overlap(
        r_fb=_ratio(length(intersection(forward, union(backward))), shorter),
        hidden=_ratio(length(intersection(early_union, others)), length(early_union)),
        concurrency=_ratio(total, busy),
        stretch=None if alone is None else _ratio(total, sum(s.duration for s in alone)),
        busy_us=busy,
        span_us=max(s.end for s in spans) - min(s.start for s in spans),
    )


def op_durations(spans: Sequence[Span]) -> dict[str, float]:
    """Time of each operation in a trace of one lane: kernels and the gaps between them, by ``str(op)`` without lane."""
    times: dict[str, float] = {}
    previous: Span | None = None
    for span in sorted(spans, key=lambda s: s.start):
        key = span.op.split("@")[0]
        gap = max(0.0, span.start - previous.end) if previous is not None else 0.0
        times[key] = times.get(key, 0.0) + span.duration + gap
        previous = span
    return times


def critical_path(program: Program, durations: Mapping[str, float]) -> tuple[float, list[str]]:
    """The longest chain of dependent operations: no schedule of the program's graph can be faster.

    Args:
        program: operations and what they depend on; its lanes do not count.
        durations: microseconds by operation (``F:mlp``).

    Returns:
        Its length, and the operations on it.
    """
    best: dict[tuple[Kind, str], tuple[float, list[str]]] = {}
    for op in program.ops:
        before = max((best[d] for d in program.dependencies(op)), key=lambda b: b[0], default=(0.0, []))
        name = f"{op.kind.value}:{op.part}"
        best[op.kind, op.part] = (before[0] + durations.get(name, 0.0), [*before[1], name])
    return max(best.values(), key=lambda b: b[0])


def saturation_bound(spans: Sequence[Span], num_sms: int) -> float:
    """Microseconds that the same kernels need if packed without a gap, each filling one multiprocessor a block at most.

    An estimate from below: a kernel of fewer blocks than multiprocessors counts in proportion.
    """
    return sum(s.duration * (min(1.0, s.blocks / num_sms) if s.blocks else 0.05) for s in spans)


def achieved_fraction(serial: float, measured: float, limit: float) -> float:
    """Eta, ``(T_serial - T) / (T_serial - T_limit)``: how much of what the schedule could gain it does gain."""
    return _ratio(serial - measured, serial - limit)


def _ratio(a: float, b: float) -> float:
    return a / b if b else 0.0
