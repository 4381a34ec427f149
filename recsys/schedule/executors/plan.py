"""Which operation waits for which: a program's cross-lane dependencies, reduced to the ones that matter."""

from __future__ import annotations

from dataclasses import dataclass

from recsys.schedule.op import Kind, Op
from recsys.schedule.program import Program


@dataclass(frozen=True)
class PlannedOp:
    """One launch: an operation, or a run of updates of one lane that are done at once.

    Attributes:
        ops: what is launched.
        lane: where.
        waits: indices of launches on other lanes that must have ended.
        signals: whether another lane waits for this one.
        away: updates of parts whose backward ran on another lane.
    """

    ops: tuple[Op, ...]
    lane: int
    waits: tuple[int, ...]
    signals: bool
    away: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A program as launches.

    Attributes:
        launches: in issue order.
        last: lane -> its last launch, for lanes other than 0; the main lane waits for these at the end.
    """

    launches: tuple[PlannedOp, ...]
    last: dict[int, int]


def make_plan(program: Program, ops: tuple[Op, ...] | None = None) -> Plan:
    """Plan ``ops`` (all of the program's by default), which the caller issues in this order.

    Operations of one lane run in order, so a lane waits only for other lanes' launches, and of one
    lane only for the latest that it has not yet waited for.
    """
    groups = _group_updates(program.ops if ops is None else ops)
    index_of = {(op.kind, op.part): i for i, group in enumerate(groups) for op in group}
    waited: dict[int, dict[int, int]] = {}
    waits: list[tuple[int, ...]] = []
    for i, group in enumerate(groups):
        lane = group[0].lane
        seen = waited.setdefault(lane, {})
        latest: dict[int, int] = {}
        for op in group:
            for dependency in program.dependencies(op):
                source = index_of.get(dependency)
                if source is None or source == i:
                    continue
                source_lane = groups[source][0].lane
                if source_lane != lane:
                    latest[source_lane] = max(source, latest.get(source_lane, -1))
        fresh = {k: v for k, v in latest.items() if v > seen.get(k, -1)}
        seen.update(fresh)
        waits.append(tuple(sorted(fresh.values())))
    last = {group[0].lane: i for i, group in enumerate(groups) if group[0].lane != 0}
    signalled = {w for ws in waits for w in ws} | set(last.values())
    home = {op.part: op.lane for op in program.ops if op.kind is Kind.BACKWARD}
    launches = tuple(
        PlannedOp(group, group[0].lane, ws, i in signalled, _away(group, home))
        for i, (group, ws) in enumerate(zip(groups, waits, strict=True))
    )
    return Plan(launches, last)


def _away(group: tuple[Op, ...], home: dict[str, int]) -> tuple[str, ...]:
    return tuple(op.part for op in group if op.kind is Kind.UPDATE and op.lane != home.get(op.part, op.lane))


def _group_updates(ops: tuple[Op, ...]) -> list[tuple[Op, ...]]:
    groups: list[list[Op]] = []
    for op in ops:
        joins = bool(groups) and op.kind is Kind.UPDATE
        if joins and groups[-1][-1].kind is Kind.UPDATE and groups[-1][-1].lane == op.lane:
            groups[-1].append(op)
        else:
            groups.append([op])
    return [tuple(g) for g in groups]
