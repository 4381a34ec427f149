"""Faults of single rows: what is told of them, and the policies `error` and `quarantine`."""

from __future__ import annotations

import json
from dataclasses import dataclass

MEND = "mend the value or get a new copy of the file"
NEW_COPY = "the file is damaged: get a new copy of it"
_MAX_SHOWN = 40
_MAX_KEPT = 4096


@dataclass(frozen=True)
class Fault:
    """A row that cannot be used.

    Attributes:
        index: of the row in its piece of the input, from 0.
        message: what is wrong and what to do, without the place.
        text: the row as it stands in the input, for the side file.
    """

    index: int
    message: str
    text: str


@dataclass(frozen=True)
class QuarantinedRow:
    """A line of ``quarantine.jsonl``.

    Attributes:
        place: file and line (or row).
        problem: as in the message of the policy `error`.
        text: the row, cut after 4096 characters.
    """

    place: str
    problem: str
    text: str

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps({"place": self.place, "problem": self.problem, "text": self.text[:_MAX_KEPT]})


def shown(text: str) -> str:
    """A value as messages show it: quoted and short."""
    return repr(text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "...")


def bad_value(column: str, text: str, problem: str) -> str:
    """The message about a value."""
    return f"column {column}: {shown(text)} {problem}; {MEND}"
