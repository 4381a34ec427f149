"""NE, AUC, calibration and log loss of a trained model on any labelled rows, in all and by slice.

    python scripts/evaluate.py RUN FILE...
    python scripts/evaluate.py RUN "logs/*.parquet" --by country --by timestamp:day --json evaluation.json

A slice is a value of a column, a UTC day of a time column (COLUMN:day), or an input file (:file). A slice's NE is
over its own base rate.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as `python scripts/evaluate.py` puts scripts/ there

from recsys.errors import UserError

if TYPE_CHECKING:
    from recsys.metrics.binary import Metrics
    from recsys.serve.slices import Evaluation


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    flags = _parse(arguments)
    try:
        _evaluate(flags)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    from scripts.options import add_input_options

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_input_options(parser)
    parser.add_argument("--by", action="append", default=[], metavar="COLUMN", help="slices; may be given again")
    parser.add_argument("--top", type=int, default=20, help="slices shown of each grouping (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_intermixed_args(arguments)


def _evaluate(flags: argparse.Namespace) -> None:
    from recsys.serve.progress import rows_bar
    from recsys.serve.slices import SliceBy, evaluate_files
    from scripts.options import score_settings

    by = tuple(SliceBy.parse(text) for text in flags.by)
    with rows_bar("evaluate", quiet=flags.quiet) as on_rows:
        found = evaluate_files(score_settings(flags), by, top=flags.top, on_rows=on_rows)
    _print(found)
    if flags.json is not None:
        found.write(flags.json)
        print(f"written to {flags.json}")


def _print(found: Evaluation) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    named = [("all rows", found.total), *((f"head {name}", metrics) for name, metrics in found.heads.items())]
    tables = [("model", named)]
    for title, slices in found.slices.items():
        rows = [(s.value if s.num_values == 1 else f"{s.num_values} {s.value}", s.metrics) for s in slices]
        tables.append((title, rows))
    for title, rows in tables:
        table = Table(title, header_style="bold")
        for column in ("rows", "base rate", "NE", "log loss", "AUC", "calibration"):
            table.add_column(column, justify="right")
        for name, metrics in rows:
            table.add_row(name, *_cells(metrics))
        console.print(table)
    if found.quarantined:
        print(f"{found.quarantined:,} bad rows were left out")


def _cells(m: Metrics) -> list[str]:
    figures = (m.base_rate, m.ne, m.logloss, m.auc, m.calibration)
    return [f"{m.rows:,}", *("-" if value is None else f"{value:.5f}" for value in figures)]


if __name__ == "__main__":
    sys.exit(main())
