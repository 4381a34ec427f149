"""The time of a step from the costs of its operations: bounds, and a simulation between them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from recsys.advise.costs import Costs
from recsys.schedule.op import Kind, Op
from recsys.schedule.overlap import critical_path
from recsys.schedule.program import Program

Key = tuple[Kind, str]


@dataclass(frozen=True)
class Prediction:
    """A step of one program.

    Attributes:
        step_us: simulated: lanes run beside each other as far as the device has room.
        critical_path_us: the longest chain of dependent operations; no order and no lanes are faster.
        critical_path: operations on it.
        saturation_us: the device kept busy by everything at once; an estimate of where lanes stop to help.
        work_us: all operations one after the other.
    """

    step_us: float
    critical_path_us: float
    critical_path: list[str]
    saturation_us: float
    work_us: float


def predict(program: Program, costs: Costs, *, serial: bool) -> Prediction:
    """Bounds and simulated time of a step.

    Args:
        program: operations, lanes and dependencies.
        costs: of its operations; one that is not named costs nothing.
        serial: whether the executor runs one operation after the other whatever the lanes (every CPU does).
    """
    length, path = critical_path(program, costs.us)
    work = sum(costs.us.get(_name(op), 0.0) for op in program.ops)
    saturation = sum(costs.us.get(_name(op), 0.0) * costs.fill_of(_name(op)) for op in program.ops)
    step = work if serial else simulate(program, costs)
    rest = costs.rest_us
    return Prediction(step + rest, length + rest, path, (work if serial else saturation) + rest, work + rest)


def simulate(program: Program, costs: Costs) -> float:
    """Microseconds from the first operation's start to the last one's end.

    Operations of one lane run in program order, each as soon as what it depends on has ended. What runs at the same
    time shares the device: while the shares together exceed it, all of it slows down alike. A kernel that leaves no
    room for others is thus as good as alone.
    """
    queues: dict[int, list[Op]] = {}
    for op in program.ops:
        queues.setdefault(op.lane, []).append(op)
    left = {(op.kind, op.part): costs.us.get(_name(op), 0.0) for op in program.ops}
    needs = {(op.kind, op.part): program.dependencies(op) for op in program.ops}
    done: set[Key] = set()
    now = 0.0
    while any(queues.values()):
        heads = [queue[0] for queue in queues.values() if queue]
        running = [op for op in heads if all(need in done for need in needs[op.kind, op.part])]
        assert running, "a program is in an order that its dependencies allow"
        slowdown = max(1.0, sum(costs.fill_of(_name(op)) for op in running if left[op.kind, op.part] > 0))
        shortest = min(left[op.kind, op.part] for op in running)
        now += shortest * slowdown
        for op in running:
            key = (op.kind, op.part)
            left[key] -= shortest
            # Against rounding: what is left of equal lengths must not cost one more turn.
            if left[key] <= 1e-9 * max(1.0, shortest):
                done.add(key)
                queues[op.lane].pop(0)
    return now


def _name(op: Op) -> str:
    return f"{op.kind.value}:{op.part}"
