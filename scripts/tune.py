"""Search settings at random: the same draws for every experiment, chosen by NE on the valid rows alone.

    python -m scripts.tune baseline6 erase6 data=criteo_kaggle data.path=FILE --trials 20 \\
        --ranges scripts/ranges/criteo_sample.yaml --seed 7 --jobs 2

An experiment is a name from configs/experiment, or name:key=value,key=value; a plain key=value goes to all of them.
The ranges are a YAML file, a config key to its values a line. Test figures are shown for the chosen setting only.
Runs are kept by fingerprint: what was interrupted goes on, more trials add to those that are there, and a trial that
fails is listed and tried again the next time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as `python scripts/tune.py` puts scripts/ there

from recsys.errors import UserError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a :class:`UserError` is told in one message and ends the process with status 1."""
    flags = _parse(arguments)
    try:
        tune(flags)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="+", metavar="EXPERIMENT|KEY=VALUE", help="what to tune, and overrides for all")
    parser.add_argument("--ranges", type=Path, required=True, help="YAML file: config key -> list of values")
    parser.add_argument("--trials", type=int, default=20, help="settings to draw (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws; seed=N is that of the runs (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, on a CPU or a GPU (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="of each run, part of its fingerprint (default: cores / jobs)")
    parser.add_argument("--runs", type=Path, default=Path("runs/by_fingerprint"), help="where runs lie (%(default)s)")
    parser.add_argument("--out", type=Path, help="folder of this search (default: runs/tune/<time>)")
    flags = parser.parse_intermixed_args(arguments)
    if flags.jobs < 1 or (flags.threads is not None and flags.threads < 1):
        parser.error("--jobs and --threads must be at least 1")
    flags.threads = flags.threads or max(1, len(os.sched_getaffinity(0)) // flags.jobs)
    flags.out = flags.out or Path("runs/tune") / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{os.getpid()}"
    return flags


def tune(flags: argparse.Namespace) -> None:
    """Draw, run, choose, write and show."""
    from recsys.compare.plan import split_arguments
    from recsys.compare.ranges import draw_settings, read_ranges

    experiments, common = split_arguments(flags.what)
    settings = draw_settings(read_ranges(flags.ranges), flags.trials, flags.seed)
    # Heavy imports come after the ranges stand.
    from recsys.compare.search import conclude, plan_trials, run_trials
    from recsys.compare.search_tables import summary, write_search

    trials = plan_trials(experiments, common, settings)
    outcomes = run_trials(
        trials, flags.runs, jobs=flags.jobs, threads=flags.threads, on_done=_tell(len(trials), len(settings))
    )
    search = conclude(trials, outcomes, settings, seed=flags.seed, ranges=str(flags.ranges))
    write_search(flags.out, search)
    print(f"\n{summary(search)}\nwritten to {flags.out}")


def _tell(total: int, num_settings: int) -> Callable[..., None]:
    """A line for each trial as it ends, with the time left at the pace so far."""
    from recsys.compare.search import Outcome, Trial

    start, done, trained = time.perf_counter(), 0, 0

    def tell(trial: Trial, outcome: Outcome) -> None:
        nonlocal done, trained
        done += 1
        trained += not outcome.from_cache
        left = (time.perf_counter() - start) / trained * (total - done) / 60 if trained else 0.0
        where = f"{done}/{total} {trial.label}, trial {trial.index} of {num_settings}"
        how = "from an earlier run" if outcome.from_cache else f"{outcome.seconds:.0f} s, at most {left:.0f} min left"
        if outcome.error is not None:
            print(f"{where}: failed: {outcome.error}", flush=True)
        else:
            print(f"{where}: valid NE {outcome.valid_ne:.5f}, {how}", flush=True)

    return tell


if __name__ == "__main__":
    main()
