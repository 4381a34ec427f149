"""How much of a step's work ran side by side: metrics over the kernels of a profiler trace.

U_x stands for the union of the kernel intervals of phase x; |U| for its length. All times are in microseconds.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recsys.schedule.op import Kind
from recsys.schedule.program import Program

_OP = re.compile(r"^[FBRU]:[^@]+@\d+$")
_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_PRODUCTS = ("nvjet", "cutlass::Kernel", "gemm")
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
        warps: warps of a block.
    """

    name: str
    start: float
    end: float
    stream: int = 0
    op: str = ""
    blocks: int = 0
    warps: int = 0

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
    threads = math.prod(args.get("block", (0,)))
    return Span(
        name=event["name"],
        start=event["ts"],
        end=event["ts"] + event["dur"],
        stream=args.get("stream", 0),
        op=launched.get(args.get("correlation", -1), ""),
        blocks=x * y * z,
        warps=-(-threads // 32),
    )


def _enclosing(ranges: Sequence[tuple[float, float, str]], ts: float) -> str:
    at = bisect.bisect_right(ranges, (ts, float("inf"), "")) - 1
    if at >= 0 and ranges[at][0] <= ts <= ranges[at][1]:
        return ranges[at][2]
    return ""


def label_replay(replay: Sequence[Span], eager: Sequence[Span], program: Program) -> list[Span]:
    """Give the kernels of one graph replay the operations of the same program's eager run.

    Ranges are lost in a replay, but every operation launches the kernels that it launches eagerly, in
    the same order, on one stream, and not before the operations that it depends on.

    Args:
        replay: spans of one replay, in order of their start.
        eager: spans of one eager step, in order of launch.
        program: the operations.

    Returns:
        The replay's spans. One that fits no operation goes to the operation before it on its stream, or
        keeps "" if there is none.
    """
    matcher = _Matcher(eager, program)
    return [replace(span, op=matcher.find(span)) for span in replay]


class _Matcher:
    def __init__(self, eager: Sequence[Span], program: Program) -> None:
        self._left: dict[str, list[tuple[str, int]]] = {}
        for span in eager:
            if span.op and not _is_copy(span):
                self._left.setdefault(span.op, []).append((span.name, span.blocks))
        for kernels in self._left.values():
            kernels.reverse()
        self._begun: set[str] = set()
        self._on_stream: dict[int, str] = {}
        lanes = {(op.kind, op.part): str(op) for op in program.ops}
        self._needs = {str(op): [lanes[d] for d in program.dependencies(op)] for op in program.ops}
        # A kernel that the eager step did not launch must not block an operation for good.
        self._tolerated = {op: max(1, len(left) // 10) for op, left in self._left.items()}

    def find(self, span: Span) -> str:
        here = self._on_stream.get(span.stream, "")
        if _is_copy(span) or self._take(here, span, lookahead=4):
            return here
        running = set(self._on_stream.values())
        others = sorted(self._left, key=lambda op: (op in running, op not in self._begun))
        for op in others:
            if self._may_run(op) and self._take(op, span, lookahead=1):
                self._begun.add(op)
                self._on_stream[span.stream] = op
                return op
        return here

    def _take(self, op: str, span: Span, lookahead: int) -> bool:
        left = self._left.get(op, [])
        for distance in range(min(lookahead, len(left))):
            if left[-1 - distance] == (span.name, span.blocks):
                del left[len(left) - 1 - distance :]
                return True
        return False

    def _may_run(self, op: str) -> bool:
        return op in self._begun or all(
            len(self._left.get(need, ())) <= self._tolerated.get(need, 0) for need in self._needs.get(op, [])
        )


def _is_copy(span: Span) -> bool:
    """Copies and fills differ between a replay and an eager step, and are told from their stream."""
    return span.name.startswith(("Memset", "Memcpy"))


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


def op_durations(spans: Sequence[Span]) -> dict[str, tuple[float, int]]:
    """Summed kernel time and number of kernels by operation, lane left out (``F:mlp``).

    A joint update is shared out evenly over its parts.
    """
    times: dict[str, tuple[float, int]] = {}
    for span in spans:
        kind, _, rest = span.op.partition(":")
        parts = rest.split("@")[0].split(",")
        for part in parts:
            key = f"{kind}:{part}"
            time, number = times.get(key, (0.0, 0))
            times[key] = (time + span.duration / len(parts), number + 1)
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


def saturation_estimate(spans: Sequence[Span], num_sms: int) -> float:
    """Microseconds for which the step's kernels would keep every multiprocessor busy.

    Matrix products take a multiprocessor's shared memory for each block and count by their share of
    multiprocessors; other kernels count by their share of resident warps (64 a multiprocessor). An estimate of
    where lanes stop to help, not a bound: it knows nothing of memory bandwidth.
    """
    return sum(s.duration * _share(s, num_sms) for s in spans)


def op_saturations(spans: Sequence[Span], num_sms: int) -> dict[str, float]:
    """By operation (``F:mlp``): microseconds for which its kernels would keep every multiprocessor busy.

    Divided by the time of ``op_durations`` it is the share of the device that the operation fills. As there, a joint
    update is shared out evenly over its parts.
    """
    times: dict[str, float] = {}
    for span in spans:
        kind, _, rest = span.op.partition(":")
        parts = rest.split("@")[0].split(",")
        for part in parts:
            key = f"{kind}:{part}"
            times[key] = times.get(key, 0.0) + span.duration * _share(span, num_sms) / len(parts)
    return times


def _share(span: Span, num_sms: int) -> float:
    if any(word in span.name for word in _PRODUCTS):
        return min(1.0, span.blocks / num_sms)
    return min(1.0, span.blocks * span.warps / (num_sms * 64))


def achieved_fraction(serial: float, measured: float, limit: float) -> float:
    """Eta, ``(T_serial - T) / (T_serial - T_limit)``: how much of what the schedule could gain it does gain."""
    return _ratio(serial - measured, serial - limit)


def _ratio(a: float, b: float) -> float:
    return a / b if b else 0.0
