"""``curve.csv``."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from recsys.errors import DataError
from recsys.report import CurvePoint, LearningCurve


def test_round_trip_is_exact(tmp_path: Path, curve: LearningCurve) -> None:
    curve.write(tmp_path / "curve.csv")
    assert LearningCurve.read(tmp_path / "curve.csv") == curve
    assert (tmp_path / "curve.csv").read_text().splitlines()[:3] == ["model,rows,ne", "baseline,0,", "baseline,100,1.5"]


def test_heads_have_columns_of_their_own(tmp_path: Path) -> None:
    curve = LearningCurve([CurvePoint(10, 0.9)], [CurvePoint(10, 0.8, {"dot": 0.85, "cross": 0.75})])
    curve.write(tmp_path / "curve.csv")
    assert (tmp_path / "curve.csv").read_text().splitlines() == [
        "model,rows,ne,ne_dot,ne_cross",
        "baseline,10,0.9,,",
        "erase,10,0.8,0.85,0.75",
    ]
    assert LearningCurve.read(tmp_path / "curve.csv") == curve


def test_non_finite_ne_is_undefined(tmp_path: Path) -> None:
    curve = LearningCurve()
    curve.side("erase").append(CurvePoint(10, math.nan))
    curve.write(tmp_path / "curve.csv")
    assert LearningCurve.read(tmp_path / "curve.csv").erase == [CurvePoint(10, None)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("rows,ne\n", 1),
        ("model,rows,ne,auc\n", 1),
        ("model,rows,ne,ne_dot\nerase,1,0.5\n", 2),
        ("model,rows,ne,ne_dot\nerase,1,0.5,inf\n", 2),
        ("model,rows,ne\nbaseline,1,0.5\nother,2,0.5\n", 3),
        ("model,rows,ne\nbaseline,x,0.5\n", 2),
        ("model,rows,ne\nbaseline,1,nan\n", 2),
        ("model,rows,ne\nbaseline,1\n", 2),
        ("model,rows,ne\n\n", 2),
    ],
)
def test_malformed_line_is_named(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "curve.csv").write_text(text)
    with pytest.raises(DataError, match=rf"curve\.csv, line {line}: .*; run again"):
        LearningCurve.read(tmp_path / "curve.csv")
