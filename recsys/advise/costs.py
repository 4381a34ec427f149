"""What each operation costs alone, and how the costs of a partly detached model follow from two measured ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Costs:
    """Operations of one model, each run alone.

    Attributes:
        us: microseconds by operation (``F:mlp``, ``B:mlp``, ``U:mlp``).
        fill: share of the device that it keeps busy meanwhile, in (0, 1]; 1 where not named: nothing runs beside it.
        rest_us: of a step, outside of all operations.
    """

    us: Mapping[str, float]
    fill: Mapping[str, float] = field(default_factory=dict)
    rest_us: float = 0.0

    def fill_of(self, op: str) -> float:
        """Share of the device, 1 where it is not known."""
        return self.fill.get(op, 1.0)


def mix(attached: Costs, detached: Costs, detach: Collection[str], parts: Collection[str]) -> Costs:
    """Costs of the model that detaches ``detach``.

    A detached part costs what it costs in the model that detaches all, another one what it costs in the model that
    detaches none. What the main path costs (the sum of the tokens' gradients, above all) goes from the one to the
    other with the number of detached parts.

    Args:
        attached: measured with nothing detached.
        detached: measured with all of ``parts`` detached.
        detach: the set asked for.
        parts: those that can be detached.
    """
    weight = len(detach) / len(parts) if parts else 0.0

    def between(a: float, b: float) -> float:
        return a + weight * (b - a)

    us: dict[str, float] = {}
    fill: dict[str, float] = {}
    for op in dict.fromkeys([*attached.us, *detached.us]):
        part = op.partition(":")[2]
        if part in parts:
            source = detached if part in detach else attached
            if op in source.us:
                us[op], fill[op] = source.us[op], source.fill_of(op)
        else:
            us[op] = between(attached.us.get(op, 0.0), detached.us.get(op, 0.0))
            fill[op] = between(attached.fill_of(op), detached.fill_of(op))
    return Costs(us, fill, between(attached.rest_us, detached.rest_us))
