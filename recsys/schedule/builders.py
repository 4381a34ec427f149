"""Pure functions that turn a graph of parts into a program."""

from __future__ import annotations

from collections.abc import Mapping

from recsys.schedule.graph import PartGraph
from recsys.schedule.op import Kind, Op
from recsys.schedule.program import Program

Lanes = Mapping[str, int]


def sequential(
    graph: PartGraph, lanes: Lanes | None = None, *, early_update: bool = False, update_lanes: Lanes | None = None
) -> Program:
    """All forwards, then all backwards in reverse, as one joint ``backward()`` would run them.

    Args:
        graph: the parts.
        lanes: part name -> lane; parts not named run on lane 0. More than one lane gives the exact
            branch-parallel schedule, which needs nothing detached.
        early_update: update each part right after its backward instead of all parts at the end.
        update_lanes: part -> lane of its update, where that is not the part's own lane.
    """
    return _build(graph, lanes or {}, update_lanes or {}, early=False, early_update=early_update)


def erase(
    graph: PartGraph, lanes: Lanes | None = None, *, early_update: bool = False, update_lanes: Lanes | None = None
) -> Program:
    """ERASE: a backward runs as soon as the parts that send it gradient have run theirs.

    That is right after the forward for a detached part with a loss of its own, and after its head's for one whose head
    is another part.

    Source: arXiv 2608.18469, section 4. Arguments as in :func:`sequential`.
    """
    return _build(graph, lanes or {}, update_lanes or {}, early=True, early_update=early_update)


def lane_per_part(graph: PartGraph, main: frozenset[str], groups: Mapping[str, int] | None = None) -> dict[str, int]:
    """Give every part outside ``main`` a lane of its own; ``groups`` pins parts to a lane >= 1 instead."""
    groups = groups or {}
    lanes, free = dict(groups), 1
    for name in graph.names:
        if name in main or name in lanes:
            continue
        while free in lanes.values():
            free += 1
        lanes[name] = free
    return lanes


def _build(graph: PartGraph, lanes: Lanes, update_lanes: Lanes, *, early: bool, early_update: bool) -> Program:
    ops: list[Op] = []
    done: set[str] = set()

    def emit(kind: Kind, name: str) -> None:
        lane = lanes.get(name, 0)
        ops.append(Op(kind, name, update_lanes.get(name, lane) if kind is Kind.UPDATE else lane))

    def backward(name: str) -> None:
        emit(Kind.BACKWARD, name)
        done.add(name)
        if early_update and graph[name].trainable:
            emit(Kind.UPDATE, name)

    trained = [n for n in graph.names if graph.has_backward(n)]
    waiting: list[str] = []
    for name in graph.names:
        emit(Kind.FORWARD, name)
        if name in trained:
            waiting.append(name)
        if early:
            # Later parts first: a part's backward frees those of the parts that it sends gradient into.
            for ready in reversed(waiting):
                if not set(graph.grad_consumers(ready)) - done:
                    backward(ready)
            waiting = [n for n in waiting if n not in done]
    for name in reversed(waiting):
        backward(name)
    if not early_update:
        for name in trained:
            if graph[name].trainable:
                emit(Kind.UPDATE, name)
    return Program(graph, tuple(ops))
