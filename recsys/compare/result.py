"""The figures of a comparison: read the runs' folders, infer, and keep it all as plain values."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from recsys.compare import rows
from recsys.compare.inference import (
    Components,
    Design,
    Estimate,
    components,
    estimate,
    runs_to_resolve,
    shared_rows_factor,
)
from recsys.compare.plan import Plan
from recsys.compare.runner import Finished, Key
from recsys.compare.verdict import Verdict, Word, explain, judge
from recsys.errors import DataError
from recsys.report.model import ModelReport
from recsys.report.predictions import Predictions
from recsys.report.record import RunRecord

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Spread:
    """A mean over runs with standard deviations between seeds of a fold and between folds beyond that."""

    mean: float
    sd_seed: float | None
    sd_fold: float | None


@dataclass(frozen=True)
class Quality:
    """An experiment's own figures over its runs.

    Attributes:
        calibration: mean prediction / mean label, with its 95 % interval.
        rows_per_s: median training rows per second from one interleaved timing; None where not measured.
        speedup: median ratio of it to the reference's in the same turn.
    """

    label: str
    ne: Spread
    logloss: float
    auc: float
    calibration: float
    calibration_interval: tuple[float, float]
    rows_per_s: float | None = None
    speedup: float | None = None


@dataclass(frozen=True)
class Gap:
    """An experiment's NE against the reference's, in percent; above 0 is worse.

    Attributes:
        interval: 95 %.
        wide_interval: the same with Nadeau and Bengio's correction, where folds train on each other's test rows.
        sd_seed, sd_fold, sd_row: components of a single pair's gap; None where the design cannot show one. ``sd_fold``
            holds ``sd_row``.
        values: K x N gaps, one for each pair.
    """

    label: str
    mean: float
    interval: tuple[float, float]
    wide_interval: tuple[float, float] | None
    se: float
    df: float
    basis: str
    p_difference: float
    p_equivalence: float
    sd_seed: float | None
    sd_fold: float | None
    sd_row: float
    verdict: Verdict
    seeds_needed: int | None
    folds_needed: int | None
    values: list[list[float]]


@dataclass(frozen=True)
class Run:
    """Where a run lies, and how to make it by hand."""

    label: str
    fold: int
    seed: int
    ne: float
    config_hash: str
    folder: str
    from_cache: bool
    arguments: Sequence[str]


@dataclass(frozen=True)
class Comparison:
    """Everything that the tables show.

    Attributes:
        margin: percent of NE inside which a gap does not matter.
        twins: experiments that differ in their schedule only, and the largest difference of their logits.
        notes: remarks that belong under the tables.
    """

    reference: str
    folds: int
    seeds: int
    test_rows: int
    margin: float
    qualities: list[Quality]
    gaps: list[Gap]
    twins: list[tuple[str, str, float]]
    runs: list[Run]
    environment: Mapping[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def with_speed(self, rows_per_s: Mapping[str, Sequence[float]]) -> Comparison:
        """With the speeds of each experiment, turn by turn."""
        base = rows_per_s[self.reference]

        def add(quality: Quality) -> Quality:
            own = rows_per_s[quality.label]
            ratios = [a / b for a, b in zip(own, base, strict=True)]
            return replace(quality, rows_per_s=statistics.median(own), speedup=statistics.median(ratios))

        return replace(self, qualities=[add(quality) for quality in self.qualities])

    def to_dict(self) -> dict[str, Any]:
        """Plain values; keys are the attributes' names."""
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Comparison:
        """Read what ``to_dict`` gave, also after JSON made lists of its tuples.

        Raises:
            ValueError, KeyError, TypeError: something is missing or of another shape.
        """
        qualities = [
            Quality(**{**q, "ne": Spread(**q["ne"]), "calibration_interval": _pair(q["calibration_interval"])})
            for q in raw["qualities"]
        ]
        gaps = [
            Gap(
                **{
                    **g,
                    "interval": _pair(g["interval"]),
                    "wide_interval": g["wide_interval"] and _pair(g["wide_interval"]),
                    "verdict": Verdict(Word(g["verdict"]["word"]), g["verdict"]["sentence"]),
                }
            )
            for g in raw["gaps"]
        ]
        twins = [(str(a), str(b), float(difference)) for a, b, difference in raw["twins"]]
        runs = [Run(**run) for run in raw["runs"]]
        return cls(**{**raw, "qualities": qualities, "gaps": gaps, "twins": twins, "runs": runs})


def analyse(plan: Plan, finished: Mapping[Key, Finished], margin: float) -> Comparison:
    """All figures but the speeds.

    Args:
        plan: the runs.
        finished: where each is.
        margin: of equivalence, percent of NE.

    Raises:
        DataError: a folder is damaged, a metric is undefined, or experiments were tested on different rows.
    """
    reports = {key: RunRecord(done.folder).report.erase for key, done in finished.items()}
    for key, report in reports.items():
        if None in (report.ne, report.logloss, report.auc, report.calibration):
            raise DataError(f"{finished[key].folder}: NE is undefined on test rows of one class; take more test rows")
    design = Design(plan.num_folds, plan.num_seeds, _rows_of_a_fold(plan, reports), plan.folds_share_rows)
    qualities, gaps = [], []
    for label in plan.labels:
        against = _collect(plan, finished, label)
        qualities.append(_quality(plan, reports, label, against.calibration, design))
        if label != plan.reference:
            gaps.append(make_gap(label, against.gap, design, margin))
    first = finished[plan.cells[0].key]
    return Comparison(
        reference=plan.reference,
        folds=plan.num_folds,
        seeds=plan.num_seeds,
        test_rows=sum(reports[plan.reference, fold, 0].rows for fold in range(plan.num_folds)),
        margin=margin,
        qualities=qualities,
        gaps=gaps,
        twins=[(a, b, _twin_difference(plan, finished, a, b)) for a, b in plan.twins()],
        runs=[_run(plan, number, finished, reports) for number in range(len(plan.cells))],
        environment=RunRecord(first.folder).report.environment,
        notes=_notes(plan),
    )


def _pair(values: Sequence[float]) -> tuple[float, float]:
    low, high = values
    return float(low), float(high)


@dataclass(frozen=True)
class Sample:
    """K x N values and the K row variances of their fold means, as ``rows.over_seeds`` gives them."""

    values: list[list[float]]
    row_variances: list[float]

    def estimate(self, num_rows: int) -> Estimate:
        return estimate(np.array(self.values), np.array(self.row_variances), num_rows)

    def components(self) -> Components:
        return components(np.array(self.values), np.array(self.row_variances))


@dataclass(frozen=True)
class _Collected:
    gap: Sample
    calibration: Sample


def _collect(plan: Plan, finished: Mapping[Key, Finished], label: str) -> _Collected:
    """Statistics of an experiment's rows; one fold's predictions are in memory at a time."""
    gaps, calibrations = Sample([], []), Sample([], [])
    for fold in range(plan.num_folds):
        pairs = [_read_pair(plan, finished, label, fold, index) for index in range(plan.num_seeds)]
        for sample, statistic in ((gaps, rows.gap_percent), (calibrations, rows.calibration)):
            values, variance = rows.over_seeds(statistic, pairs)
            sample.values.append(values)
            sample.row_variances.append(variance)
    return _Collected(gaps, calibrations)


def _read_pair(
    plan: Plan, finished: Mapping[Key, Finished], label: str, fold: int, index: int
) -> tuple[Predictions, Predictions]:
    folders = [finished[name, fold, index].folder for name in (label, plan.reference)]
    model, reference = (rows.read(folder) for folder in folders)
    rows.check_same_rows(model, reference, *folders)
    return model, reference


def _quality(
    plan: Plan, reports: Mapping[Key, ModelReport], label: str, calibration: Sample, design: Design
) -> Quality:
    own = [report for key, report in reports.items() if key[0] == label]
    nes = np.array(
        [[reports[label, fold, i].ne for i in range(plan.num_seeds)] for fold in range(plan.num_folds)], dtype=float
    )
    parts = components(nes, np.zeros(plan.num_folds))
    calibrated = calibration.estimate(design.rows)
    return Quality(
        label=label,
        ne=Spread(float(nes.mean()), _sd(parts.seed), _sd(parts.fold)),
        logloss=float(np.mean([r.logloss for r in own])),
        auc=float(np.mean([r.auc for r in own])),
        calibration=calibrated.mean,
        calibration_interval=calibrated.interval(CONFIDENCE),
    )


def make_gap(label: str, sample: Sample, design: Design, margin: float) -> Gap:
    """Estimate, interval, components and verdict of an experiment's K x N gaps."""
    found, parts = sample.estimate(design.rows), sample.components()
    word = judge(found, margin)
    needed = runs_to_resolve(parts, found.mean, design, margin) if word is Word.OPEN else None
    # One fold shares no training rows with another.
    shares_rows = design.fixed_rows and design.folds > 1
    widened = found.widened(shared_rows_factor(design.folds)) if shares_rows else None
    return Gap(
        label=label,
        mean=found.mean,
        interval=found.interval(CONFIDENCE),
        wide_interval=widened.interval(CONFIDENCE) if widened is not None else None,
        se=found.se,
        df=found.df,
        basis=found.basis,
        p_difference=found.p_difference(),
        p_equivalence=found.p_equivalence(margin),
        sd_seed=_sd(parts.seed),
        sd_fold=_sd(parts.fold),
        sd_row=math.sqrt(parts.row),
        verdict=Verdict(word, explain(word, found, margin, design, needed)),
        seeds_needed=needed.seeds if needed is not None else None,
        folds_needed=needed.folds if needed is not None else None,
        values=sample.values,
    )


def _run(plan: Plan, number: int, finished: Mapping[Key, Finished], reports: Mapping[Key, ModelReport]) -> Run:
    cell = plan.cells[number]
    done, report = finished[cell.key], reports[cell.key]
    assert report.ne is not None, "checked before"
    return Run(
        label=cell.label,
        fold=cell.fold,
        seed=cell.cfg["seed"],
        ne=report.ne,
        config_hash=report.config_hash,
        folder=str(done.folder),
        from_cache=done.from_cache,
        arguments=cell.overrides,
    )


def _twin_difference(plan: Plan, finished: Mapping[Key, Finished], a: str, b: str) -> float:
    cells = [(fold, index) for fold in range(plan.num_folds) for index in range(plan.num_seeds)]
    return max(rows.largest_difference(finished[a, f, i].folder, finished[b, f, i].folder) for f, i in cells)


def _rows_of_a_fold(plan: Plan, reports: Mapping[Key, ModelReport]) -> int:
    return min(reports[plan.reference, fold, 0].rows for fold in range(plan.num_folds))


def _sd(variance: float | None) -> float | None:
    return None if variance is None else math.sqrt(variance)


def _notes(plan: Plan) -> list[str]:
    notes = ["Every interval is for its own row of the table: with many rows, some will miss by chance."]
    if plan.folds_share_rows:
        notes.append(
            "Folds share no test row but train on each other's, so their means are not wholly independent: the wide "
            "interval (Nadeau and Bengio, 2003) is the cautious reading."
        )
    if plan.num_folds == 1:
        notes.append("One split: the intervals speak of other seeds and other test rows, not of other training rows.")
    return notes
