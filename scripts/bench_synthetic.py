"""Rows per second of the synthetic data on one core: ``python scripts/bench_synthetic.py``.

``generator`` is the bare arrays, ``batches`` what training gets (a KeyedJaggedTensor included), both in one
thread, for the default settings, for Criteo Kaggle's whole vocabularies, and with up to 8 ids per row in
five columns. Medians of the repeats; on a machine with other work the CPU time is the fairer figure.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `python scripts/x.py` puts scripts/ there

from recsys.data.synthetic import SyntheticData, SyntheticSource

SETTINGS = {
    "default": SyntheticData(),
    "whole vocabularies": SyntheticData(max_cardinality=20_000_000),
    "multi-hot": SyntheticData(multi_hot=8),
}


def main() -> None:
    """Measure and print one line per setting and form."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=2048, help="rows per batch (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=7, help="timings per line (default: %(default)s)")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    begin = time.perf_counter()
    SyntheticData().rows(0, 1)
    print(
        f"first row after {time.perf_counter() - begin:.2f} s (compiled code comes from numba's cache the second time)"
    )
    for name, data in SETTINGS.items():
        _report(f"{name}, generator", partial(_generate, data, arguments.batch_size), arguments.repeats)
        _report(f"{name}, batches", partial(_iterate, data, arguments.batch_size), arguments.repeats)


def _report(name: str, work: Callable[[], int], repeats: int) -> None:
    wall, cpu = [], []
    work()
    for _ in range(repeats):
        begin, begin_cpu = time.perf_counter(), time.thread_time()
        num_rows = work()
        wall.append(num_rows / (time.perf_counter() - begin))
        cpu.append(num_rows / (time.thread_time() - begin_cpu))
    print(f"{name:31} {median(cpu):12,.0f} rows per CPU second, {median(wall):12,.0f} rows/s by the clock")


def _generate(data: SyntheticData, batch_size: int) -> int:
    for start in range(0, data.train_rows, batch_size):
        data.rows(start, min(start + batch_size, data.train_rows))
    return data.train_rows


def _iterate(data: SyntheticData, batch_size: int) -> int:
    return sum(batch.num_rows for batch in SyntheticSource(data, 0, data.train_rows, batch_size))


if __name__ == "__main__":
    main()
