"""Rows per second of data loaders on the same parquet shards: ``python scripts/bench_loader.py``.

13 dense and 26 categorical columns, shuffled, batches of 4096; nothing is trained. The loaders take turns, an epoch
at a time, after one epoch each to warm up; a child process is a loader's own, and its CPU time includes its threads
and processes.

``recsys``            ``data=prepared`` with 1 and 2 worker threads
``pandas``            files read into one DataFrame, single rows collated by torch's ``DataLoader``
``pandas, batches``   the same with the rows of a batch taken at once
``pandas, in memory`` the same with the files read before the clock starts
``fuxictr``           FuxiCTR's ``ParquetDataLoader``, run by the interpreter that ``--fuxictr-python`` names

All but ``fuxictr``, which gives a tensor a column, give the ids feature-major, as the model wants them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # `python scripts/x.py` puts scripts/ there

DENSE = [f"I{i}" for i in range(1, 14)]
CARDINALITY = {f"C{i}": 10 ** (2 + i % 5) for i in range(1, 27)}
SHARD_ROWS = 1 << 19

Loader = Callable[[], Iterator[int]]


def main() -> None:
    """Measure every loader and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=3 * SHARD_ROWS, help="train rows (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=4096, help="rows per batch (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=3, help="timed epochs a loader (default: %(default)s)")
    parser.add_argument("--row-limit", type=int, default=200_000, help="rows of an epoch of the loader pandas")
    parser.add_argument("--fuxictr-python", help="an interpreter with fuxictr installed; without it that line is left")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        _serve(arguments.child[0], Path(arguments.child[1]), arguments.batch_size, arguments.row_limit)
        return
    names = ["recsys, 1 worker", "recsys, 2 workers", "pandas", "pandas, batches", "pandas, in memory"]
    names += ["fuxictr"] if arguments.fuxictr_python else []
    with tempfile.TemporaryDirectory() as folder:
        data = _write(Path(folder) / "prepared", arguments.rows)
        _print_table(_measure(names, data, arguments), arguments)


def _measure(names: list[str], data: Path, arguments: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    children = {name: _child(name, data, arguments) for name in names}
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for epoch in range(arguments.epochs + 1):
        for name in names if epoch % 2 else reversed(names):
            child = children[name]
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("epoch\n")
            child.stdin.flush()
            while not (line := child.stdout.readline()).startswith("{"):
                assert line, f"the loader {name} ended; see its message above"
            if epoch:
                results[name].append(json.loads(line))
    for child in children.values():
        child.communicate()
    return results


def _child(name: str, data: Path, arguments: argparse.Namespace) -> subprocess.Popen[str]:
    python = arguments.fuxictr_python if name == "fuxictr" else sys.executable
    sizes = ["--batch-size", str(arguments.batch_size), "--row-limit", str(arguments.row_limit)]
    command = [python, str(Path(__file__).resolve()), "--child", name, str(data), *sizes]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
    )


def _serve(name: str, data: Path, batch_size: int, row_limit: int) -> None:
    """One epoch for every line on stdin; its figures as a line of JSON."""
    loaders: dict[str, Callable[[], Loader]] = {
        "recsys, 1 worker": partial(_recsys, data, batch_size, 1),
        "recsys, 2 workers": partial(_recsys, data, batch_size, 2),
        "pandas": partial(_pandas_rows, data, batch_size, row_limit),
        "pandas, batches": partial(_pandas_batches, data, batch_size),
        "pandas, in memory": partial(_pandas_in_memory, data, batch_size),
        "fuxictr": partial(_fuxictr, data, batch_size),
    }
    loader = loaders[name]()
    for _ in sys.stdin:
        begin, begin_cpu = time.perf_counter(), _cpu_seconds()
        rows = sum(loader())
        figures = {"rows": rows, "s": time.perf_counter() - begin, "cpu_s": _cpu_seconds() - begin_cpu}
        print(json.dumps({**figures, "rss_bytes": _peak_rss_bytes()}), flush=True)


def _recsys(data: Path, batch_size: int, workers: int) -> Loader:
    from recsys.data.parquet_source import PreparedData

    train = PreparedData(str(data), workers=workers).splits(batch_size, 0).train
    return lambda: (batch.num_rows for batch in train)


def _pandas_rows(data: Path, batch_size: int, row_limit: int) -> Loader:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    def epoch() -> Iterator[int]:
        frame = _frame(data).iloc[:row_limit]
        tensors = [
            torch.from_numpy(frame[columns].to_numpy().copy()) for columns in (DENSE, list(CARDINALITY), "label")
        ]
        for _, ids, labels in DataLoader(TensorDataset(*tensors), batch_size=batch_size, shuffle=True):
            ids.t().contiguous()
            yield len(labels)

    return epoch


def _pandas_batches(data: Path, batch_size: int) -> Loader:
    return lambda: _batches_of(_frame(data), batch_size)


def _pandas_in_memory(data: Path, batch_size: int) -> Loader:
    frame = _frame(data)
    return lambda: _batches_of(frame, batch_size)


def _batches_of(frame: Any, batch_size: int) -> Iterator[int]:
    """The usual loop, without Python work per row."""
    import torch
    from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

    class Frame(Dataset[Any]):
        def __len__(self) -> int:
            return len(frame)

        def __getitem__(self, rows: list[int]) -> tuple[Any, Any, Any]:
            part = frame.iloc[rows]
            dense = torch.from_numpy(part[DENSE].to_numpy().copy())
            ids = torch.from_numpy(part[list(CARDINALITY)].to_numpy().copy()).t().contiguous()
            return dense, ids, torch.from_numpy(part["label"].to_numpy().copy())

    sampler = BatchSampler(RandomSampler(Frame()), batch_size, drop_last=False)
    for _, _, labels in DataLoader(Frame(), sampler=sampler, batch_size=None):
        yield len(labels)


def _fuxictr(data: Path, batch_size: int) -> Loader:
    from types import SimpleNamespace

    from fuxictr.pytorch.dataloaders import RankDataLoader  # type: ignore[import-not-found]

    columns = [*DENSE, *CARDINALITY]
    features = SimpleNamespace(features=dict.fromkeys(columns), labels=["label"])
    loader, _ = RankDataLoader(
        features, stage="train", train_data=str(data / "train"), batch_size=batch_size, data_format="parquet"
    )
    return lambda: (len(batch["label"]) for batch in loader)


def _frame(data: Path) -> Any:
    import pandas as pd

    return pd.concat([pd.read_parquet(path) for path in sorted((data / "train").glob("*.parquet"))], ignore_index=True)


def _write(folder: Path, rows: int) -> Path:
    import pyarrow as pa

    from recsys.features import FeatureSpec, SparseFeature
    from tests.reference.prepared_folder import write_prepared

    draw = np.random.default_rng(0)

    def table(num_rows: int) -> pa.Table:
        columns: dict[str, Any] = {"label": (draw.random(num_rows) < 0.25).astype(np.float32)}
        columns["row"] = np.arange(num_rows)
        columns |= {name: np.log1p(draw.geometric(0.01, num_rows)).astype(np.float32) for name in DENSE}
        for name, cardinality in CARDINALITY.items():
            columns[name] = (cardinality * draw.random(num_rows) ** 3).astype(np.int32)
        return pa.table(columns)

    spec = FeatureSpec(tuple(DENSE), tuple(SparseFeature(*item) for item in CARDINALITY.items()))
    train = [table(min(SHARD_ROWS, rows - at)) for at in range(0, rows, SHARD_ROWS)]
    return write_prepared(folder, spec, {"train": train, "valid": [table(1024)], "test": [table(1024)]})


def _cpu_seconds() -> float:
    """CPU time of this process and of all below it, running or not."""
    ticks = 0
    parents, seconds = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # it has just ended
        parents[int(path.parent.name)], seconds[int(path.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    family = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    ticks = sum(seconds[process] for process in family if process in seconds)
    return ticks / os.sysconf("SC_CLK_TCK")


def _peak_rss_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _print_table(results: dict[str, list[dict[str, float]]], arguments: argparse.Namespace) -> None:
    print(f"{arguments.rows:,} rows, batches of {arguments.batch_size}, medians of {arguments.epochs} epochs\n")
    print("| loader | rows/s | rows per CPU second | peak RSS of the process, GB |")
    print("|---|---:|---:|---:|")
    for name, epochs in results.items():
        speed, per_cpu = (median(e["rows"] / e[key] for e in epochs) for key in ("s", "cpu_s"))
        print(f"| {name} | {speed:,.0f} | {per_cpu:,.0f} | {max(e['rss_bytes'] for e in epochs) / 1e9:.2f} |")


if __name__ == "__main__":
    main()
