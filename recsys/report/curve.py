"""The learning curve: NE on the validation rows over training rows seen, of both models of a run."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recsys.errors import DataError
from recsys.report.atomic import write_atomic
from recsys.report.model import SIDES, Side

_HEADER = ["model", "rows", "ne"]


@dataclass(frozen=True)
class CurvePoint:
    """NE on all validation rows at one moment of the training.

    Attributes:
        rows: training rows seen so far.
        ne: NE of the model at that moment; None where it is undefined.
    """

    rows: int
    ne: float | None


@dataclass
class LearningCurve:
    """Points of both sides, in the order of their rows; ``curve.csv`` with columns ``model,rows,ne``.

    Attributes:
        best_rows: training rows that the reported state of a side had seen, if that is not the last
            point; not in the file.
    """

    baseline: list[CurvePoint] = field(default_factory=list)
    erase: list[CurvePoint] = field(default_factory=list)
    best_rows: Mapping[Side, int] = field(default_factory=dict)

    def side(self, side: Side) -> list[CurvePoint]:
        """The points of one model; append to it while training."""
        return self.baseline if side == "baseline" else self.erase

    def write(self, path: Path) -> None:
        """Write the csv file; an undefined NE is an empty cell."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_HEADER)
        for side in SIDES:
            writer.writerows([side, p.rows, _cell(p.ne)] for p in self.side(side))
        write_atomic(path, text.getvalue())

    @staticmethod
    def read(path: Path) -> LearningCurve:
        """Read what ``write`` wrote.

        Raises:
            DataError: the file is missing, or a line is malformed; names the file and the line.
        """
        try:
            lines = list(csv.reader(path.read_text().splitlines()))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"{path}: the learning curve cannot be read ({error}); run again") from error
        if not lines or lines[0] != _HEADER:
            raise DataError(f"{path}, line 1: expected the header {','.join(_HEADER)!r}; run again")
        curve = LearningCurve()
        for number, cells in enumerate(lines[1:], start=2):
            try:
                name, rows, ne = cells
                side: Side = {known: known for known in SIDES}[name]  # type: ignore[index]
                point = CurvePoint(int(rows), float(ne) if ne else None)
                if point.ne is not None and not math.isfinite(point.ne):
                    raise ValueError(f"NE is {ne}")
            except (ValueError, KeyError) as error:
                raise DataError(
                    f"{path}, line {number}: {','.join(cells)!r} is no point ({error}); run again"
                ) from error
            curve.side(side).append(point)
        return curve


def _cell(ne: float | None) -> str:
    return "" if ne is None or not math.isfinite(ne) else repr(float(ne))
