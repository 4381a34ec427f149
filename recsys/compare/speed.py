"""Training speed of all experiments of a plan, side by side in one process."""

from __future__ import annotations

import copy
import json

from recsys.compare.plan import Plan


def measure_speed(plan: Plan) -> dict[str, list[float]] | None:
    """Training rows per second of each experiment, one value a turn; the models take turns on the same batches.

    Returns:
        None if the experiments read different batches, so that there is nothing to take turns on.
    """
    from recsys.config.wire import build_data, build_device
    from recsys.run import time_models

    cfgs = [copy.deepcopy(cell.cfg) for cell in plan.cells if (cell.fold, cell.index) == (0, 0)]
    batches = {json.dumps([cfg["data"], cfg["trainer"]["batch_size"], cfg["trainer"]["device"]]) for cfg in cfgs}
    if len(batches) > 1:
        return None
    timing = time_models(cfgs, build_data(cfgs[0]), build_device(cfgs[0]["trainer"]["device"]))
    pairs = zip(plan.labels, timing.seconds, strict=True)
    return {label: [timing.rows / seconds for seconds in turns] for label, turns in pairs}
