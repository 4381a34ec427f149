"""The files of a run and the console table."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from recsys.report import LearningCurve, RunReport, print_report, write_run
from recsys.report.tables import metric_rows, percent
from recsys.report.writers import markdown


def test_files_of_a_run(tmp_path: Path, report: RunReport, curve: LearningCurve) -> None:
    folder = tmp_path / "new" / "run"
    write_run(folder, report, curve)
    assert sorted(p.name for p in folder.iterdir()) == ["curve.csv", "learning_curve.png", "report.json", "report.md"]
    assert json.loads((folder / "report.json").read_text()) == report.to_dict()
    write_run(folder, dataclasses.replace(report, bayes_ne=None), curve)
    assert json.loads((folder / "report.json").read_text())["bayes_ne"] is None


def test_failed_write_leaves_the_old_file(
    tmp_path: Path, report: RunReport, curve: LearningCurve, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, report, curve)
    before = (tmp_path / "report.json").read_bytes()

    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space left"):
        write_run(tmp_path, dataclasses.replace(report, bayes_ne=0.1), curve)
    assert (tmp_path / "report.json").read_bytes() == before
    assert not list(tmp_path.glob(".*")), "temporary files are removed"


def test_markdown(report: RunReport) -> None:
    text = markdown(dataclasses.replace(report, baseline_from_cache=True))
    assert "# erase6 against baseline6" in text
    assert "NE gap: +0.500 % (worse than the baseline)" in text
    assert "Speed: 1.200 times the baseline's rows/s (p10 1.120, p90 1.280, 3 interleaved pairs)" in text
    assert "Floor: NE 0.75000" in text
    assert "earlier run with the same fingerprint" in text
    assert "| metric | baseline6 (sequential) | erase6 (erase) |" in text
    assert "| NE | 0.80000 | 0.80400 |" in text
    assert "| cross | - | 0.82000 |" in text
    assert "| dot | - | undefined |" in text
    assert "- torch: 2.13.0" in text


def test_markdown_without_heads(report: RunReport) -> None:
    assert "local heads" not in markdown(dataclasses.replace(report, erase=report.baseline))


def test_every_figure_of_the_issue_is_a_row(report: RunReport) -> None:
    labels = " ".join(label for label, _, _ in metric_rows(report))
    figures = ("NE", "log loss", "AUC", "calibration", "click rate p", "H(p)", "evaluated rows", "coverage")
    for figure in (*figures, "train rows/s", "peak memory"):
        assert figure in labels
    assert ("evaluated rows", "15,339", "15,339") in metric_rows(report)
    assert ("peak memory (MiB)", "600", "600") in metric_rows(report)


def test_undefined_is_said(report: RunReport) -> None:
    undefined = dataclasses.replace(report.erase, ne=None, auc=None, rows_per_s=None)
    rows = metric_rows(dataclasses.replace(report, erase=undefined))
    assert ("AUC", "0.78125", "undefined") in rows
    assert ("train rows/s", "12,346", "-") in rows
    assert "NE gap: undefined" in markdown(dataclasses.replace(report, erase=undefined))


@pytest.mark.parametrize(
    ("share", "shown"), [(1.0, "100 %"), (0.9999999, "99.9999 %"), (0.5, "50.0000 %"), (0.0, "0.0000 %"), (None, "-")]
)
def test_coverage_is_100_percent_only_when_nothing_is_missing(share: float | None, shown: str) -> None:
    assert percent(share) == shown


def test_console(report: RunReport) -> None:
    text = io.StringIO()
    print_report(report, Console(file=text, width=80))
    shown = text.getvalue()
    assert max(len(line) for line in shown.splitlines() if "│" in line) <= 80
    for expected in ("baseline6 (sequential)", "erase6 (erase)", "0.80400", "NE of local head", "NE gap: +0.500 %"):
        assert expected in shown


def test_picture(tmp_path: Path, report: RunReport, curve: LearningCurve) -> None:
    write_run(tmp_path, report, curve)
    png = (tmp_path / "learning_curve.png").read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", png[16:24]) == (1125, 660)


def test_importing_the_report_is_light() -> None:
    code = (
        "import sys, recsys.report, recsys.metrics; print(sorted({'torch', 'matplotlib', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
