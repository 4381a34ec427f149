"""Train an experiment and its baseline, and report what ERASE gained and cost: see ``python train.py --help``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

try:
    from recsys.config.cli import Sweep, main
except ValueError as error:  # packages that do not fit together: the message says what to install
    raise SystemExit(f"error: {error}") from None


def task(cfg: dict[str, Any], folder: Path) -> None:
    """Run one job; torch is imported only now, so that help and configuration errors come at once."""
    if "chain" in cfg:
        from recsys.chains.run import run_chain

        run_chain(cfg, folder)
    else:
        from recsys.run import run

        run(cfg, folder)


def open_sweep(arguments: list[str]) -> Sweep:
    """Check every job of a multirun, before the first one starts."""
    from recsys.sweep.multirun import Multirun

    return Multirun.open(arguments)


if __name__ == "__main__":
    main(task, open_sweep)
