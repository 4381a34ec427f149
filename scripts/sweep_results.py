"""What a sweep says so far: the table over its jobs, the failed ones, and which parts to detach.

    python -m scripts.sweep_results multirun/DATE/TIME-...
    python -m scripts.sweep_results multirun/DATE/TIME-... --max-gap 0.1

Reads what is there, also while the sweep runs, and writes results.md, results.csv, pareto.png and jobs.png into its
folder. The search for what to detach takes one part after the other, each time the one that costs least NE for a
millisecond saved (recsys/compare/detach_search.py).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as `python scripts/sweep_results.py` puts scripts/

from recsys.errors import UserError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a :class:`UserError` is told in one message and ends the process with status 1."""
    from recsys.sweep.results import read_sweep
    from recsys.sweep.tables import MAX_GAP_PERCENT, summary, write_results

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="of the sweep")
    parser.add_argument(
        "--max-gap",
        type=float,
        default=MAX_GAP_PERCENT,
        metavar="PERCENT",
        help="how far NE may rise above that of nothing detached (default: %(default)s)",
    )
    flags = parser.parse_args(arguments)
    try:
        result = read_sweep(flags.folder)
        write_results(flags.folder, result, flags.max_gap)
        print(summary(result, flags.max_gap))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
