"""Score rows with a trained model: TSV, CSV or parquet in, parquet with a probability a row out.

    python scripts/score.py RUN FILE... --out scores.parquet
    python scripts/score.py RUN "logs/*.parquet" --out scores.parquet --keep user_id --heads --workers 4

RUN is the folder of a run. Rows are encoded as in training; docs/serving.md explains the options.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as `python scripts/score.py` puts scripts/ there

from recsys.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    flags = _parse(arguments)
    try:
        _score(flags)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        return 130
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    from scripts.options import add_input_options

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_input_options(parser)
    parser.add_argument("--out", type=Path, required=True, help="the parquet file to write")
    parser.add_argument(
        "--keep", nargs="+", default=[], metavar="COLUMN", help="columns of the input to copy, as a key"
    )
    parser.add_argument("--heads", action="store_true", help="also the probabilities of the local heads")
    return parser.parse_intermixed_args(arguments)


def _score(flags: argparse.Namespace) -> None:
    from recsys.serve.progress import rows_bar
    from recsys.serve.score import score
    from scripts.options import score_settings

    with rows_bar("score", quiet=flags.quiet) as on_rows:
        summary = score(score_settings(flags, flags.keep), flags.out, heads=flags.heads, on_rows=on_rows)
    print(f"{summary.output}: {summary.rows:,} rows in {summary.seconds:.1f} s, {summary.rows_per_s:,.0f} rows/s")
    unknown = {name: count for name, count in summary.out_of_vocabulary.items() if count}
    if unknown and summary.rows:
        most = sorted(unknown, key=lambda name: -unknown[name])[:5]
        shares = ", ".join(f"{name} {unknown[name] / summary.rows:.1%}" for name in most)
        print(f"out of vocabulary, most in: {shares}")
    if summary.quarantine is not None:
        print(f"{summary.quarantine}: {summary.quarantined:,} bad rows, left out")


if __name__ == "__main__":
    sys.exit(main())
