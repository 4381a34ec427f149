"""Quality of click predictions, and what a run costs. Importing this loads numpy, not torch."""

from recsys.metrics.accumulator import EvalAccumulator
from recsys.metrics.binary import Metrics, auc, base_rate, calibration, compute_metrics, entropy, logloss, ne
from recsys.metrics.memory import peak_memory_bytes, reset_peak_memory
from recsys.metrics.running import RunningNE

__all__ = [
    "EvalAccumulator",
    "Metrics",
    "RunningNE",
    "auc",
    "base_rate",
    "calibration",
    "compute_metrics",
    "entropy",
    "logloss",
    "ne",
    "peak_memory_bytes",
    "reset_peak_memory",
]
