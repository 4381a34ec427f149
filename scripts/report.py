"""One HTML page, and Markdown, over any number of run folders, sweeps and comparisons.

    python -m scripts.report runs/2026-01-31 multirun --out runs/report
    make report RUNS="runs/2026-01-31 multirun"

Shows NE against throughput, paired gaps with intervals, learning curves, NE of every local head over time,
calibration, the schedule's timeline and overlap, what differs in the configurations, environment and commit. The page
needs no network. Timelines come from overlap.json files in the folders: see scripts/trace_ops.py and, on a GPU,
scripts/trace_schedule.py.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as `python scripts/report.py` puts scripts/ there

from recsys.errors import UserError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a :class:`UserError` is told in one message and ends the process with status 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="of runs, sweeps, comparisons, traces")
    parser.add_argument("--out", type=Path, default=Path("runs/report"), help="where it is written (%(default)s)")
    parser.add_argument(
        "--margin", type=float, default=0.02, help="gaps inside it do not matter, %% of NE (%(default)s)"
    )
    flags = parser.parse_args(arguments)
    if not flags.margin > 0:
        parser.error("--margin must be above 0")
    start = time.perf_counter()
    try:
        path = report(flags.folders, flags.out, flags.margin)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    size = path.stat().st_size / 1e6
    print(f"written to {path} ({size:.1f} MB, {time.perf_counter() - start:.0f} s) and {path.with_suffix('.md')}")


def report(folders: Sequence[Path], out: Path, margin: float) -> Path:
    """Gather, work out, write; gives the HTML file's path.

    Raises:
        UserError: a folder is missing, empty or damaged.
    """
    from recsys.overview.gather import gather
    from recsys.overview.page import make_page
    from recsys.overview.render import write_page

    return write_page(out, make_page(gather(folders), margin))


if __name__ == "__main__":
    main()
