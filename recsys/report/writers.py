"""Write the results of a run into its folder, and show them on the console."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from recsys.report.atomic import write_atomic
from recsys.report.curve import LearningCurve
from recsys.report.model import RunReport
from recsys.report.tables import Row, head_rows, metric_rows, summary_lines

if TYPE_CHECKING:
    from rich.console import Console

REPORT_JSON = "report.json"
REPORT_MD = "report.md"
CURVE_CSV = "curve.csv"
CURVE_PNG = "learning_curve.png"


def write_run(folder: Path, report: RunReport, curve: LearningCurve) -> None:
    """Write ``curve.csv``, ``learning_curve.png``, ``report.md`` and, last, ``report.json``.

    Each file appears whole or not at all, and a folder with a ``report.json`` has the other files too.
    """
    from recsys.report.plots import learning_curve_png

    curve.write(folder / CURVE_CSV)
    write_atomic(folder / CURVE_PNG, learning_curve_png(report, curve))
    write_atomic(folder / REPORT_MD, markdown(report))
    write_atomic(folder / REPORT_JSON, json.dumps(report.to_dict(), indent=1, allow_nan=False) + "\n")


def markdown(report: RunReport) -> str:
    """The text of ``report.md``."""
    labels = [report.label(side) for side in report.sides]
    parts = [
        f"# {report.experiment}" + (f" against {report.baseline_name}" if len(report.sides) > 1 else ""),
        "\n".join(f"- {line}" for line in summary_lines(report)),
        _markdown_table(["metric", *labels], metric_rows(report)),
        f"![NE on validation rows over training rows seen]({CURVE_PNG})",
    ]
    if heads := head_rows(report):
        parts += ["## NE of the local heads", _markdown_table(["part", *labels], heads)]
    facts = {
        "detached": ", ".join(report.detached) or "nothing",
        "seed": " / ".join(str(report.side(side).seed) for side in report.sides),
        "config hash": " / ".join(report.side(side).config_hash for side in report.sides),
        **{f"data: {key}": value for key, value in report.data_notes.items()},
        **report.environment,
    }
    parts += ["## Measured on", "\n".join(f"- {key}: {value}" for key, value in facts.items())]
    return "\n\n".join(parts) + "\n"


def print_report(report: RunReport, console: Console | None = None) -> None:
    """Show the tables on ``console`` (stdout by default)."""
    from rich.console import Console
    from rich.table import Table

    console = console or Console()
    labels = [report.label(side) for side in report.sides]
    for first, rows in (("metric", metric_rows(report)), ("NE of local head", head_rows(report))):
        if not rows:
            continue
        table = Table(first, header_style="bold")
        for label in labels:
            table.add_column(label, justify="right")
        for row in rows:
            table.add_row(*row)
        console.print(table)
    for line in summary_lines(report):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _markdown_table(head: list[str], rows: list[Row]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
