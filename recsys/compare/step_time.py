"""The time of a training step of one setting, measured once and kept beside its run."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from recsys.errors import DataError
from recsys.report.atomic import write_atomic

STEP_TIME_JSON = "step_time.json"


def step_time_ms(cfg: dict[str, Any], folder: Path) -> float:
    """Median milliseconds of a training step over ``trainer.timing.rounds``, from ``folder`` where they are there.

    What else the machine does while it measures is in it: several jobs at a time make every step slower.

    Raises:
        DataError: the file in ``folder`` is damaged; names it.
    """
    path = folder / STEP_TIME_JSON
    if not path.exists():
        write_atomic(path, json.dumps({"ms_a_step": _measure(cfg)}) + "\n")
    try:
        return statistics.median(float(value) for value in json.loads(path.read_text())["ms_a_step"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: damaged ({error}); delete it") from error


def _measure(cfg: dict[str, Any]) -> list[float]:
    from recsys.config.wire import build_data, build_device
    from recsys.run import time_models

    timing = time_models([cfg], build_data(cfg), build_device(cfg["trainer"]["device"]))
    steps = cfg["trainer"]["timing"]["steps"]
    return [1000 * seconds / steps for seconds in timing.seconds[0]]
