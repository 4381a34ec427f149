"""One operation of a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What an operation does to its part."""

    FORWARD = "F"
    BACKWARD = "B"
    REDUCE = "R"
    UPDATE = "U"


@dataclass(frozen=True)
class Op:
    """``kind`` applied to ``part`` on ``lane``.

    A lane is a logical stream: operations of one lane run in program order, operations of two
    lanes run in any order that the dependencies allow. ``str(op)`` is the profiler's range name.
    """

    kind: Kind
    part: str
    lane: int = 0

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.part}@{self.lane}"
