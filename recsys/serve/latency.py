"""Time of one prediction on a CPU, one thread: the trainer's model and an exported package take turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recsys.errors import ConfigError
from recsys.schedule.infer import infer
from recsys.serve.batches import EncodedRows
from recsys.serve.export import COMPILED, load_package, random_rows
from recsys.serve.trained import TrainedModel


@dataclass(frozen=True)
class Latency:
    """Time of a call.

    Attributes:
        way: what was called.
        batch: rows of a call.
        p50_ms, p99_ms: of all calls.
        calls: that were timed.
    """

    way: str
    batch: int
    p50_ms: float
    p99_ms: float
    calls: int


def measure_latency(
    trained: TrainedModel, package: Path, *, batches: Sequence[int] = (1, 32, 1024), calls: int = 200, rounds: int = 4
) -> list[Latency]:
    """Time encoded rows to probabilities: by the trainer's model (``eager``) and by each way of the package.

    Args:
        trained: on the CPU.
        package: an exported folder.
        batches: rows of a call.
        calls: of each way and batch, in ``rounds`` turns.
        rounds: turns.
    """
    if calls < rounds or rounds < 1 or min(batches) < 1:
        raise ConfigError("the benchmark needs a batch of at least 1 row and at least a call a round")
    exported = load_package(package)
    compiled = load_package(package, compiled=True) if (package / COMPILED).exists() else None
    result = []
    with _one_thread():
        for batch in batches:
            rows = random_rows(trained.encoder.spec, batch, seed=batch)
            ways = {"eager": _eager(trained, rows), "exported": _packaged(exported, rows)}
            if compiled is not None:
                ways["compiled"] = _packaged(compiled, rows)
            for call in ways.values():
                for _ in range(10):
                    call()
            seconds: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(rounds):
                for way, call in ways.items():
                    seconds[way] += [_timed(call) for _ in range(calls // rounds)]
            for way, times in seconds.items():
                p50, p99 = (float(np.percentile(times, q)) * 1e3 for q in (50, 99))
                result.append(Latency(way, batch, p50, p99, len(times)))
    return result


def _eager(trained: TrainedModel, rows: EncodedRows) -> Callable[[], Any]:
    (batch,) = rows.batches(rows.num_rows)
    modules = dict(trained.model.parts.items())

    def call() -> Any:
        logits = infer(trained.model.graph, modules, batch, trained.autocast).logits
        return torch.sigmoid(trained.prediction.combine(logits)).numpy()

    return call


def _packaged(model: Any, rows: EncodedRows) -> Callable[[], Any]:
    ids, lengths = rows.flat(0, rows.num_rows)
    sizes = None if rows.spec.is_one_hot else lengths
    return lambda: model(rows.dense_BN, ids, sizes)


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
