"""Which sub-architectures to detach for speed on this machine.

    python -m scripts.advise +experiment=erase6
    python -m scripts.advise +experiment=erase6 trainer.batch_size=1024 --out advice.json
    python -m scripts.advise +experiment=bench_proxy schedule=erase_graph trainer.device=cuda --trace DIR/overlap.json

Measures each part alone, predicts the step of every set of detached parts from the longest chain of its schedule and
from how full the device is, measures the best few by the real step in turns with the end-to-end baseline, and names
the set that is certainly faster and detaches least, or says that nothing is to be gained. On a CPU parts are timed by
the clock, on a GPU from a profile (or from overlap.json of scripts/trace_schedule.py).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as `python scripts/advise.py` puts scripts/ there

from recsys.errors import DataError, UserError

if TYPE_CHECKING:
    from recsys.advise.costs import Costs


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a :class:`UserError` is told in one message and ends the process with status 1."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    flags = _parse(arguments)
    try:
        _advise(flags)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as of train.py, such as +experiment=erase6")
    parser.add_argument("--top", type=int, default=3, help="sets to measure, best predicted first (%(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each measured set (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=5, help="training steps a turn (default: %(default)s)")
    parser.add_argument("--op-steps", type=int, default=20, help="steps in which parts are timed alone (%(default)s)")
    parser.add_argument("--trace", type=Path, help="overlap.json of scripts.trace_schedule, instead of a profile")
    parser.add_argument("--out", type=Path, help="write everything as JSON here")
    flags = parser.parse_intermixed_args(arguments)
    if min(flags.top, flags.steps, flags.op_steps) < 1 or flags.rounds < 8:
        parser.error("--top, --steps and --op-steps must be at least 1, --rounds at least 8")
    return flags


def _advise(flags: argparse.Namespace) -> None:
    from recsys.config.cli import check_overrides, compose, to_plain

    check_overrides(flags.overrides)
    cfg = to_plain(compose(flags.overrides))
    traced = None if flags.trace is None else _read_trace(flags.trace)
    # Heavy imports come after the configuration stands.
    from recsys.advise.advice import Effort, advise
    from recsys.advise.tables import summary
    from recsys.report.atomic import write_atomic

    advice = advise(cfg, Effort(flags.op_steps, flags.rounds, flags.steps, flags.top), traced=traced)
    if flags.out is not None:
        write_atomic(flags.out, json.dumps(advice.to_dict(), indent=1, allow_nan=False) + "\n")
    print(summary(advice))


def _read_trace(path: Path) -> Costs:
    from recsys.advise.measure import costs_of_report

    try:
        return costs_of_report(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"--trace {path}: not overlap.json of scripts.trace_schedule ({error}); trace again") from error


if __name__ == "__main__":
    main()
