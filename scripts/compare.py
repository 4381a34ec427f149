"""Compare experiments over paired seeds and folds, with intervals and a verdict for every NE gap.

    python -m scripts.compare baseline6 erase6 --seeds 5
    python -m scripts.compare erase6 data=criteo_kaggle data.path=train.tsv.gz --folds 5 --seeds 4
    python -m scripts.compare erase6 erase6:model.skip_tokens=true erase6:model.detach=[cross,dot] optim.lr=2e-3
    python -m scripts.compare dlrm dcnv2 --reference dcnv2 --margin 0.05

An experiment is a name from configs/experiment, or name:key=value,key=value; a plain key=value goes to all of them.
With erase6 or a variant of it the four controls stand in the table: baseline6, heads6 (+ local losses), late6
(detached, backward late) and erase6 (detached, backward early); the last two must agree bit for bit on a CPU.
Runs are kept by fingerprint: what was interrupted goes on, and no run is made twice.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as `python scripts/compare.py` puts scripts/ there

from recsys.errors import UserError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a :class:`UserError` is told in one message and ends the process with status 1."""
    flags = _parse(arguments)
    try:
        compare(flags)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", nargs="+", metavar="EXPERIMENT|KEY=VALUE", help="what to compare, and overrides for all"
    )
    parser.add_argument("--seeds", type=int, default=3, help="seeds in each fold (default: %(default)s)")
    parser.add_argument(
        "--folds", type=int, default=1, help="folds; 1 keeps the data's own split (default: %(default)s)"
    )
    parser.add_argument(
        "--margin", type=float, default=0.02, help="gaps inside it do not matter, %% of NE (%(default)s)"
    )
    parser.add_argument("--reference", help="experiment to measure against (default: the first of the table)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time, on a CPU or a GPU (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="of each run, part of its fingerprint (default: cores / jobs)")
    parser.add_argument("--runs", type=Path, default=Path("runs/by_fingerprint"), help="where runs lie (%(default)s)")
    parser.add_argument("--out", type=Path, help="folder of this comparison (default: runs/compare/<time>)")
    parser.add_argument("--no-speed", action="store_true", help="leave the timing at the end out")
    flags = parser.parse_intermixed_args(arguments)
    if flags.jobs < 1 or (flags.threads is not None and flags.threads < 1) or not flags.margin > 0:
        parser.error("--jobs and --threads must be at least 1, --margin above 0")
    flags.threads = flags.threads or max(1, len(os.sched_getaffinity(0)) // flags.jobs)
    flags.out = flags.out or Path("runs/compare") / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{os.getpid()}"
    return flags


def compare(flags: argparse.Namespace) -> None:
    """Plan, run, infer, write and show."""
    from recsys.compare.plan import make_plan, split_arguments, with_controls

    experiments, common = split_arguments(flags.what)
    plan = make_plan(
        with_controls(experiments), common, num_seeds=flags.seeds, num_folds=flags.folds, reference=flags.reference
    )
    # Heavy imports come after the configuration stands.
    from recsys.compare.result import analyse
    from recsys.compare.runner import run_plan
    from recsys.compare.speed import measure_speed
    from recsys.compare.tables import print_comparison, write_comparison
    from recsys.config.wire import build_device

    devices = {build_device(cell.cfg["trainer"]["device"]).type for cell in plan.cells}
    finished = run_plan(
        plan,
        flags.runs,
        jobs=flags.jobs,
        threads=flags.threads,
        exact=devices == {"cpu"},
        on_done=_tell(len(plan.cells)),
    )
    comparison = analyse(plan, finished, flags.margin)
    if not flags.no_speed and (speeds := measure_speed(plan)) is not None:
        comparison = comparison.with_speed(speeds)
    write_comparison(flags.out, comparison)
    print_comparison(comparison)
    print(f"written to {flags.out}")


def _tell(total: int) -> Callable[..., None]:
    """A line for each run as it ends, with the time left at the pace so far."""
    from recsys.compare.plan import Cell
    from recsys.compare.runner import Finished

    start, done, trained = time.perf_counter(), 0, 0

    def tell(cell: Cell, finished: Finished) -> None:
        nonlocal done, trained
        done += 1
        trained += not finished.from_cache
        left = (time.perf_counter() - start) / trained * (total - done) / 60 if trained else 0.0
        how = "from an earlier run" if finished.from_cache else f"{finished.seconds:.0f} s, at most {left:.0f} min left"
        print(f"{done}/{total} {cell.label}, fold {cell.fold}, seed {cell.cfg['seed']}: {how}", flush=True)

    return tell


if __name__ == "__main__":
    main()
