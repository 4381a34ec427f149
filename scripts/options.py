"""Options that scoring and evaluating share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recsys.serve.pipeline import ScoreSettings


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """The run, the files, and how they are read."""
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("files", nargs="+", metavar="FILE", help="files, folders or globs")
    parser.add_argument("--side", default="erase", help="erase (the experiment's model, default) or baseline")
    parser.add_argument("--format", help="criteo, csv, tsv or parquet (default: that of training; parquet by suffix)")
    parser.add_argument("--encoded", action="store_true", help="rows hold ids and numbers as features.json names them")
    parser.add_argument("--bad-rows", default="error", help="error (default) or quarantine")
    parser.add_argument("--limit", type=int, default=1000, help="quarantined rows that are too many (%(default)s)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes; each holds the model (%(default)s)")
    parser.add_argument("--chunk-mib", type=float, default=8.0, help="MiB of input a worker has in hand (%(default)s)")
    parser.add_argument("--batch-size", type=int, help="rows of a forward (default: that of training)")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def score_settings(flags: argparse.Namespace, carried: Sequence[str] = ()) -> ScoreSettings:
    """What the options ask for.

    Raises:
        ConfigError: a value is out of its range.
    """
    from recsys.serve.pipeline import ScoreSettings

    return ScoreSettings(
        run=flags.run,
        inputs=list(flags.files),
        side=flags.side,
        format=flags.format,
        encoded=flags.encoded,
        carried=tuple(dict.fromkeys(carried)),
        bad_rows=flags.bad_rows,
        bad_rows_limit=flags.limit,
        device=flags.device,
        workers=flags.workers,
        chunk_mib=flags.chunk_mib,
        batch_size=flags.batch_size,
    )
