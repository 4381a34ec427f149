"""The learning curve: NE on the validation rows over training rows seen, of both models of a run and their heads."""

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
_HEAD = "ne_"  # in front of a part's name, the column of its local head


@dataclass(frozen=True)
class CurvePoint:
    """NE on all validation rows at one moment of the training.

    Attributes:
        rows: training rows seen so far.
        ne: NE of the model at that moment; None where it is undefined.
        heads: part name -> NE of its local head at that moment; empty where there are none.
    """

    rows: int
    ne: float | None
    heads: Mapping[str, float | None] = field(default_factory=dict)


@dataclass
class LearningCurve:
    """Points of both sides, in the order of their rows; ``curve.csv`` with columns ``model,rows,ne``.

    Each local head of either side has a column ``ne_<part>`` more.

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
        """Write the csv file; an undefined NE is an empty cell, and so is that of a head which a side does not have."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        heads = list(dict.fromkeys(name for side in SIDES for point in self.side(side) for name in point.heads))
        writer.writerow([*_HEADER, *(_HEAD + name for name in heads)])
        for side in SIDES:
            for p in self.side(side):
                writer.writerow([side, p.rows, _cell(p.ne), *(_cell(p.heads.get(name)) for name in heads)])
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
        heads = lines[0][len(_HEADER) :] if lines else []
        if not lines or lines[0][: len(_HEADER)] != _HEADER or not all(name.startswith(_HEAD) for name in heads):
            raise DataError(f"{path}, line 1: expected the header {','.join(_HEADER)!r}; run again")
        curve = LearningCurve()
        for number, cells in enumerate(lines[1:], start=2):
            try:
                name, rows, ne, *rest = cells
                side: Side = {known: known for known in SIDES}[name]  # type: ignore[index]
                found = zip(heads, rest, strict=True)
                by_head = {head.removeprefix(_HEAD): _number(cell) for head, cell in found if cell}
                point = CurvePoint(int(rows), _number(ne) if ne else None, by_head)
            except (ValueError, KeyError) as error:
                raise DataError(
                    f"{path}, line {number}: {','.join(cells)!r} is no point ({error}); run again"
                ) from error
            curve.side(side).append(point)
        return curve


def _number(cell: str) -> float:
    value = float(cell)
    if not math.isfinite(value):
        raise ValueError(f"NE is {cell}")
    return value


def _cell(ne: float | None) -> str:
    return "" if ne is None or not math.isfinite(ne) else repr(float(ne))
