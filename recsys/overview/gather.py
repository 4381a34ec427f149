"""Find what lies under the folders that were named: runs, comparisons, traces of steps, schedule benchmarks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from recsys.compare.result import Comparison
from recsys.compare.tables import COMPARISON_JSON
from recsys.errors import DataError
from recsys.report.record import RunRecord

OVERLAP_JSON = "overlap.json"
"""Written by ``scripts/trace_schedule.py`` on a GPU and ``scripts/trace_ops.py`` on a CPU."""

Read = TypeVar("Read")


@dataclass(frozen=True)
class Trace:
    """One step under one or more schedules, all times in microseconds unless they say ms.

    Attributes:
        folder: where ``overlap.json`` lies.
        median_ms: schedule -> milliseconds a step.
        overlap: the fields of ``recsys.schedule.overlap.Overlap``.
        critical_path_us: longest chain of dependent operations.
        critical_path: the operations on it.
        eta: how much of what the schedule could gain it does gain; None where nothing was compared.
        timeline: schedule -> spans, each ``(operation, start, duration, stream)``.
    """

    folder: Path
    median_ms: dict[str, float]
    overlap: dict[str, float | None]
    critical_path_us: float
    critical_path: list[str]
    eta: float | None
    timeline: dict[str, list[tuple[str, float, float, int]]]


@dataclass(frozen=True)
class Bench:
    """One batch size of ``scripts/bench_schedules.py``: schedule -> ``median_ms``, ``rows_per_s``, ``speedup``."""

    path: Path
    batch_size: int
    rows: dict[str, dict[str, Any]]

    @property
    def experiment(self) -> str:
        """Its name, from the file's."""
        return self.path.stem.rpartition("_")[0]


@dataclass
class Gathered:
    """Everything that was found, each once, in the order of paths.

    Attributes:
        missing: run folders that a comparison names and that are gone.
    """

    runs: list[RunRecord] = field(default_factory=list)
    comparisons: list[tuple[Path, Comparison]] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    benches: list[Bench] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def gather(folders: Sequence[Path]) -> Gathered:
    """Look through ``folders`` and everything below them; a comparison brings the runs that it was made of.

    Raises:
        DataError: a folder does not exist or is damaged, or nothing was found.
    """
    for folder in folders:
        if not folder.is_dir():
            raise DataError(f"{folder}: no such folder; give folders of runs, sweeps or comparisons")
    found = Gathered()
    found.comparisons = [(p.parent, _read(p, Comparison.from_dict)) for p in _files(folders, COMPARISON_JSON)]
    records = [record for folder in folders for record in RunRecord.find(folder)]
    for folder, comparison in found.comparisons:
        for run in comparison.runs:
            there = next((p for p in (Path(run.folder), folder / run.folder) if p.is_dir()), None)
            if there is None:
                found.missing.append(run.folder)
            else:
                records.append(RunRecord(there))
    found.runs = list({record.folder.resolve(): record for record in records}.values())
    found.traces = [_read(path, partial(_trace, path)) for path in _files(folders, OVERLAP_JSON)]
    candidates = (p for p in _files(folders, "*_[0-9]*.json") if p.stem.rpartition("_")[2].isdigit())
    found.benches = [bench for path in candidates if (bench := _read(path, partial(_bench, path))) is not None]
    if not (found.runs or found.comparisons or found.traces or found.benches):
        raise DataError(
            f"{', '.join(map(str, folders))}: holds no run (a folder with report.json), no comparison and no timing; "
            "make a run with python train.py +experiment=erase6"
        )
    return found


def _files(folders: Iterable[Path], pattern: str) -> list[Path]:
    found = (path for folder in folders for path in sorted(folder.rglob(pattern)))
    return list({path.resolve(): path for path in found}.values())


def _trace(path: Path, raw: dict[str, Any]) -> Trace:
    return Trace(
        folder=path.parent,
        median_ms=dict(raw["median_ms"]),
        overlap=dict(raw["overlap"]),
        critical_path_us=float(raw["critical_path_us"]),
        critical_path=list(raw["critical_path"]),
        eta=raw["eta"],
        timeline={
            name: [(str(op), float(start), float(length), int(stream)) for op, start, length, stream in spans]
            for name, spans in raw["timeline"].items()
        },
    )


def _bench(path: Path, raw: dict[str, Any]) -> Bench | None:
    """None for another tool's file that happens to end in a number."""
    if not isinstance(raw, dict) or "limits" not in raw or "batch_size" not in raw:
        return None
    return Bench(path, int(raw["batch_size"]), dict(raw["rows"]))


def _read(path: Path, make: Callable[[dict[str, Any]], Read]) -> Read:
    try:
        return make(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path}: cannot be read ({type(error).__name__}: {error}); make it again") from error
