"""A schedule as data."""

from __future__ import annotations

from dataclasses import dataclass

from recsys.schedule.graph import PartGraph
from recsys.schedule.op import Kind, Op


@dataclass(frozen=True)
class Program:
    """The operations of one training step in the order in which the host issues them.

    Attributes:
        graph: the parts that the operations act on.
        ops: every part's forward once, its backward once if a gradient reaches it, and its update
            once if it then has parameters to update.
        updates: whether the parts are updated; without, gradients stay and the next program's add to them.
    """

    graph: PartGraph
    ops: tuple[Op, ...]
    updates: bool = True

    def __post_init__(self) -> None:
        self.validate()

    @property
    def num_lanes(self) -> int:
        """Lanes in use; lane 0 is the main lane."""
        return 1 + max((op.lane for op in self.ops), default=0)

    def dependencies(self, op: Op) -> tuple[tuple[Kind, str], ...]:
        """The operations that must have ended before ``op`` may start."""
        graph, part = self.graph, op.part
        if op.kind is Kind.FORWARD:
            return tuple((Kind.FORWARD, e.source) for e in graph[part].inputs)
        if op.kind is Kind.BACKWARD:
            return ((Kind.FORWARD, part), *((Kind.BACKWARD, c) for c in graph.grad_consumers(part)))
        if op.kind is Kind.REDUCE:
            return ((Kind.BACKWARD, part),)
        reduced = any(o.kind is Kind.REDUCE and o.part == part for o in self.ops)
        return ((Kind.REDUCE if reduced else Kind.BACKWARD, part),)

    def validate(self) -> None:
        """Check that the operations are complete and in an order that the dependencies allow.

        Raises:
            ValueError: an operation is missing, doubled, unknown, before one that it depends on, or
                a part's forward and backward are on two lanes (autograd runs a backward on the
                stream of its forward).
        """
        done: dict[tuple[Kind, str], int] = {}
        for op in self.ops:
            if op.part not in self.graph.names:
                raise ValueError(f"{op}: the graph has no part {op.part!r}")
            if (op.kind, op.part) in done:
                raise ValueError(f"{op}: stands twice in the program")
            missing = [f"{k.value}:{p}" for k, p in self.dependencies(op) if (k, p) not in done]
            if missing:
                raise ValueError(f"{op}: comes before {', '.join(missing)}, which it depends on")
            if op.kind is Kind.BACKWARD and done[Kind.FORWARD, op.part] != op.lane:
                raise ValueError(f"{op}: forward and backward of one part must share a lane")
            done[op.kind, op.part] = op.lane
        required = {key for part in self.graph.names for key in self._required(part)}
        if missing_ops := sorted(f"{k.value}:{p}" for k, p in required - set(done)):
            raise ValueError(f"the program lacks {', '.join(missing_ops)}")

    def _required(self, part: str) -> list[tuple[Kind, str]]:
        needs = [(Kind.FORWARD, part)]
        if self.graph.has_backward(part):
            needs.append((Kind.BACKWARD, part))
            if self.updates and self.graph[part].trainable:
                needs.append((Kind.UPDATE, part))
        return needs

    def render(self) -> str:
        """The program as a grid: a row a lane, a column an operation in issue order."""
        cells = [f"{op.kind.value}:{op.part}" for op in self.ops]
        rows = []
        for lane in range(self.num_lanes):
            row = (c if op.lane == lane else "." * len(c) for c, op in zip(cells, self.ops, strict=True))
            rows.append(f"lane {lane} | " + " ".join(row))
        return "\n".join(rows)
