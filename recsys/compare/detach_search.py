"""Which parts to detach: a greedy search by NE per millisecond over measured runs."""

from __future__ import annotations

import copy
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recsys.errors import ConfigError, DataError
from recsys.report.record import RunRecord

DetachSet = frozenset[str]


@dataclass(frozen=True)
class Measured:
    """A model with some set of parts detached.

    Attributes:
        ne: normalized entropy, the mean over its runs.
        step_ms: time of a training step.
    """

    ne: float
    step_ms: float


@dataclass(frozen=True)
class Step:
    """One step of the search: the set reached, its figures, and its gap to the start in percent of NE."""

    detach: DetachSet
    measured: Measured
    gap_percent: float


Measure = Callable[[DetachSet], Measured]


def greedy_detach_set(
    measure: Measure | Mapping[DetachSet, Measured], parts: Sequence[str], *, max_gap_percent: float = 0.02
) -> list[Step]:
    """Detach one part after the other, each time the one that costs least NE for a millisecond saved.

    A part that saves no time is never detached. One that saves time and costs no NE comes before any that costs some,
    the greatest saving first.

    Args:
        measure: figures of a set of detached parts, a function (which may train) or a table of measured runs.
        parts: those that can be detached.
        max_gap_percent: how far NE may rise above that of the start, nothing detached.

    Returns:
        The path from the empty set on; the last step is the answer.

    Raises:
        DataError: the table lacks a set that the search needs; names it.
    """
    look_up = measure if callable(measure) else _reader(measure)
    start = look_up(frozenset())
    path = [Step(frozenset(), start, 0.0)]
    while True:
        now = path[-1]
        candidates = [_step(now.detach | {part}, look_up, start) for part in parts if part not in now.detach]
        allowed = [
            step
            for step in candidates
            if step.measured.step_ms < now.measured.step_ms and step.gap_percent <= max_gap_percent
        ]
        if not allowed:
            return path
        path.append(min(allowed, key=lambda step: _cost(now.measured, step.measured)))


def _step(detach: DetachSet, look_up: Measure, start: Measured) -> Step:
    measured = look_up(detach)
    return Step(detach, measured, 100 * (measured.ne / start.ne - 1))


def _cost(before: Measured, after: Measured) -> tuple[float, float]:
    """NE lost per millisecond saved, nothing where NE is gained; then the time saved."""
    saved_ms = before.step_ms - after.step_ms
    return max(0.0, after.ne - before.ne) / saved_ms, -saved_ms


def _reader(table: Mapping[DetachSet, Measured]) -> Measure:
    def look_up(detach: DetachSet) -> Measured:
        if detach not in table:
            names = ",".join(sorted(detach))
            raise DataError(f"there is no measured run with model.detach=[{names}], which the search needs; make one")
        return table[detach]

    return look_up


def measured_sets(records: Iterable[RunRecord]) -> dict[DetachSet, Measured]:
    """The table that runs of ``train.py`` make up: mean NE and median step time for each set of detached parts.

    Each run timed its model in turns with the baseline, which is the same model in all of them. Where all runs have
    that ratio, a step's time is the baseline's median time over all runs divided by it: what else the machine did
    while one of the runs was timed then cancels.

    Raises:
        ConfigError: runs differ in more than the seed and what is detached; names the folder.
        DataError: a folder is damaged, or its speed was not measured.
    """
    runs: list[RunRecord] = []
    common: str | None = None
    for record in records:
        rest = _without_detach(record.config)
        if common is not None and rest != common:
            raise ConfigError(f"{record.folder}: differs from the runs before it in more than model.detach and seed")
        common = rest
        if record.report.erase.ne is None or record.report.erase.rows_per_s is None:
            raise DataError(f"{record.folder}: holds no NE or no speed; make the run with train.py")
        runs.append(record)
    groups: dict[DetachSet, list[Measured]] = {}
    for record, step_ms in zip(runs, _step_times(runs), strict=True):
        ne = record.report.erase.ne
        assert ne is not None, "checked above"
        groups.setdefault(frozenset(record.report.detached), []).append(Measured(ne, step_ms))
    return {
        detach: Measured(statistics.mean(r.ne for r in found), statistics.median(r.step_ms for r in found))
        for detach, found in groups.items()
    }


def _step_times(runs: Sequence[RunRecord]) -> list[float]:
    def step_ms(run: RunRecord, rows_per_s: float) -> float:
        return 1000 * float(run.config["trainer"]["batch_size"]) / rows_per_s

    reports = [run.report for run in runs]
    speedups = [report.speedup.median for report in reports if report.speedup is not None]
    baselines = [
        step_ms(run, report.baseline.rows_per_s)
        for run, report in zip(runs, reports, strict=True)
        if report.baseline.rows_per_s is not None
    ]
    if len(speedups) == len(baselines) == len(runs):
        return [statistics.median(baselines) / speedup for speedup in speedups]
    own = [report.erase.rows_per_s for report in reports]
    return [step_ms(run, speed) for run, speed in zip(runs, own, strict=True) if speed is not None]


def _without_detach(config: Mapping[str, Any]) -> str:
    rest = copy.deepcopy({key: value for key, value in config.items() if key not in ("seed", "name")})
    rest["model"].pop("detach", None)
    return json.dumps(rest, sort_keys=True)
