"""Search settings, at random or guided, chosen by NE on the valid rows alone.

    python -m scripts.tune baseline6 erase6 data=criteo_kaggle data.path=FILE --trials 20 \\
        --ranges scripts/ranges/criteo_sample.yaml --seed 7 --jobs 2
    python -m scripts.tune erase6 --sampler tpe --trials 40 --ranges scripts/ranges/detach.yaml --max-step-ms 40
    python -m scripts.tune erase6 --sampler tpe --trials 40 --ranges scripts/ranges/detach.yaml --pareto
    python -m scripts.tune erase6 --sampler tpe --ranges scripts/ranges/detach.yaml --pareto --show

At random: the same draws for every experiment. Guided (--sampler tpe, by Optuna): one experiment; the lowest NE, with
--max-step-ms under a limit of the step time, with --pareto as a front of both. Its study lies in an SQLite file: stop
it, start it again with more trials, look at it with --show or any program that reads Optuna's files.

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
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as `python scripts/tune.py` puts scripts/ there

from recsys.errors import ConfigError, UserError

if TYPE_CHECKING:
    from recsys.compare.plan import Experiment


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
    parser.add_argument("--sampler", choices=("random", "tpe"), default="random", help="(default: %(default)s)")
    parser.add_argument("--study", type=Path, help="SQLite file of a guided search (default: runs/tune/EXPERIMENT.db)")
    parser.add_argument("--max-step-ms", type=float, help="guided: limit of the median training step")
    parser.add_argument("--pareto", action="store_true", help="guided: seek the front of NE and step time")
    parser.add_argument("--show", action="store_true", help="guided: tell what the study holds, run nothing")
    flags = parser.parse_intermixed_args(arguments)
    if flags.sampler == "random" and (flags.study or flags.max_step_ms is not None or flags.pareto or flags.show):
        parser.error("--study, --max-step-ms, --pareto and --show need --sampler tpe")
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
    if flags.sampler == "tpe":
        tune_guided(flags, experiments, common)
        return
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


def tune_guided(flags: argparse.Namespace, experiments: list[Experiment], common: list[str]) -> None:
    """Ask, run, tell, choose, write and show."""
    from recsys.compare.ranges import read_ranges
    from recsys.compare.search import conclude
    from recsys.compare.search_tables import summary, write_search
    from recsys.compare.study import Goal, Question, ended, open_study, search, told

    if len(experiments) != 1:
        raise ConfigError("--sampler tpe: name one experiment, for it follows that one's results")
    if flags.trials < 1:
        raise ConfigError(f"--trials {flags.trials}: must be at least 1")
    goal = Goal(flags.max_step_ms, flags.pareto)
    question = Question(experiments[0], tuple(common), read_ranges(flags.ranges), goal)
    path = flags.study or Path("runs/tune") / f"{_file_name(experiments[0].label)}.db"
    if flags.show and not path.exists():
        raise ConfigError(f"--study {path}: no such file; there is nothing to show yet")
    with open_study(path, question, flags.seed) as study:
        there = len(ended(study))
        if not flags.show:
            print(f"{path}: {there} trials are there, {max(0, flags.trials - there)} to come", flush=True)
            tell = _tell(max(0, flags.trials - there), flags.trials)
            search(study, question, flags.trials, flags.runs, jobs=flags.jobs, threads=flags.threads, on_done=tell)
        trials, outcomes, settings = told(study, question)
    if not trials:
        raise UserError(f"--study {path}: no trial has ended yet")
    found = conclude(
        trials,
        outcomes,
        settings,
        seed=flags.seed,
        ranges=str(flags.ranges),
        sampler="tpe",
        max_step_ms=goal.max_step_ms,
    )
    write_search(flags.out, found)
    print(f"\n{summary(found)}\nwritten to {flags.out}")


def _file_name(label: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in label)


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
