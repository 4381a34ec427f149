"""Runs put together: what differs in its seed only is one entry, with a name that tells it from the others."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recsys.report.curve import CurvePoint
from recsys.report.model import ModelReport, Side
from recsys.report.record import RunRecord
from recsys.track.tracking import flatten

# Never a difference between two models: seeds and folds replicate one, the rest shows or stores figures.
_NO_DIFFERENCE = frozenset(
    (
        *("seed", "name", "trackers", "data.fold", "data.row_offset", "data.cache_dir", "metrics.window_rows"),
        *("trainer.quiet", "trainer.cache_dir", "trainer.reuse_baseline"),
        *("trainer.timing.rounds", "trainer.timing.steps"),
    )
)
_NOT_THE_BASELINES = ("model.detach", "model.local_losses", "model.embedding_grad_from", "model.loss_weights")
_LONGEST_LABEL = 64


@dataclass(frozen=True)
class Entry:
    """Runs of one model over seeds and folds.

    Attributes:
        label: unique on the page.
        experiment: its name in the reports.
        side: under which key of each ``report.json`` it stands.
        runs: at least one.
        config: dotted key -> value, without what is no difference between models.
    """

    label: str
    experiment: str
    side: Side
    runs: tuple[RunRecord, ...]
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reports(self) -> list[ModelReport]:
        """This model's figures in each run."""
        return [run.report.side(self.side) for run in self.runs]

    @property
    def data(self) -> str:
        """Which rows it was measured on, as text; NE compares within it only."""
        chosen = {key: value for key, value in self.config.items() if key.startswith("data.")}
        return json.dumps(chosen, sort_keys=True, default=str)

    @property
    def ne(self) -> float | None:
        """Mean test NE of the runs in which it is defined."""
        return mean([report.ne for report in self.reports])

    @property
    def ne_sd(self) -> float | None:
        """Standard deviation of test NE between runs; None with fewer than two."""
        values = [report.ne for report in self.reports if report.ne is not None]
        return statistics.stdev(values) if len(values) > 1 else None

    @property
    def rows_per_s(self) -> float | None:
        """Median training rows per second; None where no run timed it."""
        return median([report.rows_per_s for report in self.reports])

    @property
    def speedup(self) -> float | None:
        """Median over runs of the speed over the run's own baseline; None where not timed."""
        if self.side == "baseline":
            return 1.0 if any(run.report.speedup for run in self.runs) else None
        return median([run.report.speedup.median for run in self.runs if run.report.speedup is not None])

    @property
    def has_own_baseline(self) -> bool:
        """Whether its runs hold another model that it was measured against."""
        return self.side == "erase" and all(len(run.report.sides) > 1 for run in self.runs)

    def curves(self) -> list[tuple[RunRecord, list[CurvePoint]]]:
        """The learning curve of each run."""
        return [(run, run.curve.side(self.side)) for run in self.runs]


def make_entries(runs: Sequence[RunRecord]) -> list[Entry]:
    """Group runs by what they trained; baselines first, each model by mean NE within its kind.

    A run whose experiment is its own baseline gives one entry, any other run belongs to two. A baseline that several
    runs share (same fingerprint) counts once.

    Raises:
        DataError: a run's folder is damaged.
    """
    groups: dict[str, tuple[str, Side, dict[str, Any], dict[str, RunRecord]]] = {}
    for run in runs:
        for side in run.report.sides:
            config = _config_of(run, side)
            name = run.report.baseline_name if side == "baseline" else run.report.experiment
            key = json.dumps([name, side, config], sort_keys=True, default=str)
            members = groups.setdefault(key, (name, side, config, {}))[3]
            # The seed is in the fingerprint, so a fold's or another seed's run stays a run of its own.
            members.setdefault(run.report.side(side).config_hash if side == "baseline" else str(run.folder), run)
    labels = _labels([(name, config) for name, _, config, _ in groups.values()])
    entries = [
        Entry(label, name, side, tuple(members.values()), config)
        for label, (name, side, config, members) in zip(labels, groups.values(), strict=True)
    ]
    return sorted(entries, key=lambda e: (e.side != "baseline", e.ne is None, e.ne or 0.0))


def _config_of(run: RunRecord, side: Side) -> dict[str, Any]:
    flat = {key: value for key, value in flatten(run.config).items() if key not in _NO_DIFFERENCE}
    if side == "baseline":
        dropped = (*_NOT_THE_BASELINES, "schedule")
        return {key: value for key, value in flat.items() if not key.startswith(dropped)}
    return flat


def differences(entries: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """Keys of (name, config) pairs whose values are not all alike; a key that one lacks differs."""
    keys = dict.fromkeys(key for _, config in entries for key in config)
    return [key for key in keys if len({str(config.get(key, "-")) for _, config in entries}) > 1]


def _labels(named: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str]:
    """The experiment's name, with what tells it from others of that name behind it."""
    made: list[str] = []
    for name, config in named:
        others = [pair for pair in named if pair[0] == name]
        told = [f"{key.rpartition('.')[2]}={config.get(key, '-')}" for key in differences(others)]
        label = f"{name} {' '.join(told)}".replace("'", "").replace(", ", ",").strip()
        if len(label) > _LONGEST_LABEL:
            label = label[: _LONGEST_LABEL - 1] + "…"
        number = sum(other == label or other.startswith(f"{label} #") for other in made)
        made.append(label if number == 0 else f"{label} #{number + 1}")
    return made


def mean(values: Sequence[float | None]) -> float | None:
    """Mean of those that are defined."""
    defined = [value for value in values if value is not None]
    return statistics.fmean(defined) if defined else None


def median(values: Sequence[float | None]) -> float | None:
    """Median of those that are defined."""
    defined = [value for value in values if value is not None]
    return statistics.median(defined) if defined else None
