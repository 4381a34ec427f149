"""Where a training run stands, apart from weights: what a resumed run needs to go on as if it had not stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recsys.checkpoint.strict_json import take, take_count
from recsys.errors import CheckpointError
from recsys.report.curve import CurvePoint


@dataclass
class FitState:
    """Counters and results of a run so far.

    Attributes:
        step: training steps done, skipped ones included.
        epoch: of the next batch.
        batch: number of the next batch in its epoch.
        rows: training rows seen.
        skipped: steps whose batch was left out because a number was not finite.
        curve: valid NE over training rows seen.
        best_ne: the lowest valid NE so far.
        best_rows: training rows seen by the best state.
        since_best: evaluations since.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    rows: int = 0
    skipped: int = 0
    curve: list[CurvePoint] = field(default_factory=list)
    best_ne: float | None = None
    best_rows: int = 0
    since_best: int = 0

    def advance(self, rows: int, batches: int) -> None:
        """Count a step of ``rows`` rows, in epochs of ``batches``."""
        self.step += 1
        self.rows += rows
        self.batch += 1
        if self.batch == batches:
            self.epoch, self.batch = self.epoch + 1, 0

    def to_dict(self) -> dict[str, Any]:
        """In JSON's types, which keep every bit of a float."""
        counts = {name: getattr(self, name) for name in _COUNTS}
        return {**counts, "best_ne": self.best_ne, "curve": [[p.rows, p.ne, dict(p.heads)] for p in self.curve]}

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any], place: str) -> FitState:
        """Back from ``to_dict``.

        Raises:
            CheckpointError: names ``place`` and the entry that is not what was written.
        """
        curve = [_point(point, f"{place}, curve") for point in take(raw, "curve", list, place)]
        counts = {name: take_count(raw, name, place) for name in _COUNTS}
        return cls(**counts, curve=curve, best_ne=_number_or_none(raw.get("best_ne"), f"{place}, best_ne"))


_COUNTS = ("step", "epoch", "batch", "rows", "skipped", "best_rows", "since_best")


def _point(raw: Any, place: str) -> CurvePoint:
    if not isinstance(raw, list) or len(raw) != 3 or type(raw[0]) is not int or not isinstance(raw[2], dict):
        raise CheckpointError(f"{place}: holds {raw!r}, which is no point")
    heads = {name: _number_or_none(ne, f"{place}, {name}") for name, ne in raw[2].items()}
    return CurvePoint(raw[0], _number_or_none(raw[1], place), heads)


def _number_or_none(value: Any, place: str) -> float | None:
    if value is not None and type(value) is not float:
        raise CheckpointError(f"{place}: {value!r} is no number")
    return value
