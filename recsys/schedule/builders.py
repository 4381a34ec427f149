"""Pure functions that turn a graph of parts into a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from recsys.schedule.graph import PartGraph
from recsys.schedule.op import Kind, Op
from recsys.schedule.program import Program

Lanes = Mapping[str, int]
Reduce = Literal["early", "joint"]


def sequential(
    graph: PartGraph,
    lanes: Lanes | None = None,
    *,
    early_update: bool = False,
    update_lanes: Lanes | None = None,
    reduce: Reduce | None = None,
    updates: bool = True,
) -> Program:
    """All forwards, then all backwards in reverse, as one joint ``backward()`` would run them.

    Args:
        graph: the parts.
        lanes: part name -> lane; parts not named run on lane 0. More than one lane gives the exact
            branch-parallel schedule, which needs nothing detached.
        early_update: update each part right after its backward instead of all parts at the end.
        update_lanes: part -> lane of its update, where that is not the part's own lane.
        reduce: when gradients are summed over ranks: ``early``, each part's right after its backward and on its
            lane; ``joint``, all of them after the last backward on lane 0; None, never. Ranks reduce in one order,
            that of the program.
        updates: False leaves the gradients where they are, for a later program to add to and to update from.
    """
    order = _Order(early=False, early_update=early_update, reduce=reduce, updates=updates)
    return _build(graph, lanes or {}, update_lanes or {}, order)


def erase(
    graph: PartGraph,
    lanes: Lanes | None = None,
    *,
    early_update: bool = False,
    update_lanes: Lanes | None = None,
    reduce: Reduce | None = None,
    updates: bool = True,
) -> Program:
    """ERASE: a backward runs as soon as the parts that send it gradient have run theirs.

    That is right after the forward for a detached part with a loss of its own, and after its head's for one whose head
    is another part.

    Source: arXiv 2608.18469, section 4. Arguments as in :func:`sequential`.
    """
    order = _Order(early=True, early_update=early_update, reduce=reduce, updates=updates)
    return _build(graph, lanes or {}, update_lanes or {}, order)


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


@dataclass(frozen=True)
class _Order:
    """What comes early: backwards of parts that wait for nobody, reductions, updates."""

    early: bool
    early_update: bool
    reduce: Reduce | None
    updates: bool


def _build(graph: PartGraph, lanes: Lanes, update_lanes: Lanes, order: _Order) -> Program:
    ops: list[Op] = []
    done: set[str] = set()
    if order.reduce == "joint" and order.early_update:
        raise ValueError("a joint reduction comes after the last backward, and early updates before it")

    def emit(kind: Kind, name: str, lane: int | None = None) -> None:
        ops.append(Op(kind, name, lanes.get(name, 0) if lane is None else lane))

    def update(name: str) -> None:
        emit(Kind.UPDATE, name, update_lanes.get(name, lanes.get(name, 0)))

    def backward(name: str) -> None:
        emit(Kind.BACKWARD, name)
        done.add(name)
        if name in updated and order.reduce == "early":
            emit(Kind.REDUCE, name)
        if name in updated and order.early_update:
            update(name)

    trained = [n for n in graph.names if graph.has_backward(n)]
    updated = [n for n in trained if order.updates and graph[n].trainable]
    waiting: list[str] = []
    for name in graph.names:
        emit(Kind.FORWARD, name)
        if name in trained:
            waiting.append(name)
        if order.early:
            # Later parts first: a part's backward frees those of the parts that it sends gradient into.
            for ready in reversed(waiting):
                if not set(graph.grad_consumers(ready)) - done:
                    backward(ready)
            waiting = [n for n in waiting if n not in done]
    for name in reversed(waiting):
        backward(name)
    if order.reduce == "joint":
        for name in updated:
            emit(Kind.REDUCE, name, 0)
    if not order.early_update:
        for name in updated:
            update(name)
    return Program(graph, tuple(ops), order.updates)
