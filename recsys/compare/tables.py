"""The tables of a comparison as text, and the files of its folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from recsys.compare.forest import forest_png
from recsys.compare.result import Comparison, Gap, Quality
from recsys.report.atomic import write_atomic

if TYPE_CHECKING:
    from rich.console import Console

COMPARISON_JSON = "comparison.json"
COMPARISON_MD = "comparison.md"
FOREST_PNG = "gaps.png"
NOT_THERE = "-"
_WIDTH = 150  # of the console's tables where no terminal sets it

_QUALITY_HEAD = (
    "experiment",
    "NE",
    "sd seed",
    "sd fold",
    "log loss",
    "AUC",
    "calibration (95 %)",
    "train rows/s",
    "speed",
)
_GAP_HEAD = ("experiment", "NE gap %", "95 % interval", "sd seed", "sd fold", "sd rows", "verdict")


def quality_rows(comparison: Comparison) -> list[list[str]]:
    """A row of cells for each experiment, under ``_QUALITY_HEAD``."""

    def row(quality: Quality) -> list[str]:
        low, high = quality.calibration_interval
        return [
            quality.label,
            f"{quality.ne.mean:.5f}",
            _number(quality.ne.sd_seed, 5),
            _number(quality.ne.sd_fold, 5),
            f"{quality.logloss:.5f}",
            f"{quality.auc:.5f}",
            f"{quality.calibration:.4f} ({low:.4f} .. {high:.4f})",
            _number(quality.rows_per_s, 0),
            _number(quality.speedup, 3),
        ]

    return [row(quality) for quality in comparison.qualities]


def gap_rows(comparison: Comparison) -> list[list[str]]:
    """A row of cells for each experiment but the reference, under ``_GAP_HEAD``."""

    def row(gap: Gap) -> list[str]:
        interval = _interval(gap.interval)
        if gap.wide_interval is not None:
            interval += f", wide {_interval(gap.wide_interval)}"
        return [
            gap.label,
            f"{gap.mean:+.3f}",
            interval,
            _number(gap.sd_seed, 3),
            _number(gap.sd_fold, 3),
            f"{gap.sd_row:.3f}",
            str(gap.verdict.word),
        ]

    return [row(gap) for gap in comparison.gaps]


def sentences(comparison: Comparison) -> list[str]:
    """The verdicts, whether schedules agree, and remarks."""
    lines = [f"{gap.label}: {gap.verdict.sentence}" for gap in comparison.gaps]
    for a, b, difference in comparison.twins:
        how = "agree bit for bit" if difference == 0 else f"differ by up to {difference:.3g} in a logit"
        lines.append(f"{a} and {b} differ in their schedule only and {how}")
    return [*lines, *comparison.notes]


def headline(comparison: Comparison) -> str:
    """What was compared."""
    folds = f"{comparison.folds} folds x " if comparison.folds > 1 else ""
    return (
        f"against {comparison.reference}: {folds}{comparison.seeds} seeds, {comparison.test_rows:,} test rows, "
        f"margin {comparison.margin:g} % of NE"
    )


def markdown(comparison: Comparison) -> str:
    """The text of ``comparison.md``."""
    runs = [
        [run.label, str(run.fold), str(run.seed), f"{run.ne:.5f}", run.config_hash, f"`{' '.join(run.arguments)}`"]
        for run in comparison.runs
    ]
    parts = [
        f"# NE gaps {headline(comparison)}",
        _markdown_table(_GAP_HEAD, gap_rows(comparison)),
        "\n".join(f"- {line}" for line in sentences(comparison)),
        f"![NE gaps with their intervals]({FOREST_PNG})",
        "## Figures of each experiment",
        _markdown_table(_QUALITY_HEAD, quality_rows(comparison)),
        "## Runs",
        _markdown_table(("experiment", "fold", "seed", "NE", "config hash", "arguments of train.py"), runs),
        "## Measured on",
        "\n".join(f"- {key}: {value}" for key, value in comparison.environment.items()),
    ]
    return "\n\n".join(parts) + "\n"


def write_comparison(folder: Path, comparison: Comparison) -> None:
    """Write the forest plot, ``comparison.md`` and, last, ``comparison.json``; each whole or not at all."""
    write_atomic(folder / FOREST_PNG, forest_png(comparison))
    write_atomic(folder / COMPARISON_MD, markdown(comparison))
    write_atomic(folder / COMPARISON_JSON, json.dumps(comparison.to_dict(), indent=1, allow_nan=False) + "\n")


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Show the tables and sentences on ``console`` (stdout by default)."""
    from rich.console import Console
    from rich.table import Table

    console = console or Console()
    if not console.is_terminal:
        console.width = max(console.width, _WIDTH)
    console.print(headline(comparison), markup=False, highlight=False, soft_wrap=True)
    for head, rows in ((_QUALITY_HEAD, quality_rows(comparison)), (_GAP_HEAD, gap_rows(comparison))):
        table = Table(head[0], header_style="bold")
        for name in head[1:]:
            table.add_column(name, justify="left" if name == "verdict" else "right")
        for row in rows:
            table.add_row(*(_plain(cell) for cell in row))
        console.print(table)
    for line in sentences(comparison):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _plain(cell: str) -> str:
    from rich.markup import escape

    return escape(cell)


def _number(value: float | None, digits: int) -> str:
    return NOT_THERE if value is None else f"{value:,.{digits}f}"


def _interval(interval: tuple[float, float]) -> str:
    return f"{interval[0]:+.3f} .. {interval[1]:+.3f}"


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
