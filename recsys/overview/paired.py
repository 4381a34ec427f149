"""NE gaps of runs to the baseline that they were trained beside, with intervals from the paired test rows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from recsys.compare import rows
from recsys.compare.inference import Design
from recsys.compare.result import Comparison, Gap, Sample, make_gap
from recsys.overview.entries import Entry
from recsys.report.predictions import BASELINE_PREDICTIONS_NPZ, PREDICTIONS_NPZ, Predictions
from recsys.report.record import RunRecord


@dataclass(frozen=True)
class PairedGap:
    """A gap and what it was measured against."""

    reference: str
    margin: float
    runs: int
    gap: Gap


def of_comparison(comparison: Comparison) -> list[PairedGap]:
    """The gaps that a comparison has worked out."""
    runs = comparison.folds * comparison.seeds
    return [PairedGap(comparison.reference, comparison.margin, runs, gap) for gap in comparison.gaps]


def of_entries(entries: Sequence[Entry], margin: float) -> tuple[list[PairedGap], list[str]]:
    """The gap of every entry whose runs have a baseline of their own.

    Args:
        entries: of the page.
        margin: percent of NE inside which a gap does not matter.

    Returns:
        The gaps, and a remark for each entry that has none because its runs hold no predictions.

    Raises:
        DataError: predictions are damaged, or those of the two sides are of different rows.
    """
    gaps, remarks = [], []
    for entry in (e for e in entries if e.has_own_baseline):
        whole = [run for run in entry.runs if _has_predictions(run)]
        if len(whole) < len(entry.runs):
            left_out = len(entry.runs) - len(whole)
            remarks.append(f"{entry.label}: {left_out} of {len(entry.runs)} runs hold no predictions; run them again")
        for number, folds in enumerate(_designs(whole)):
            label = entry.label if number == 0 else f"{entry.label} ({number + 1})"
            gaps.append(_gap(entry, label, folds, margin))
    return gaps, remarks


def _has_predictions(run: RunRecord) -> bool:
    return all((run.folder / name).exists() for name in (PREDICTIONS_NPZ, BASELINE_PREDICTIONS_NPZ))


def _designs(runs: Sequence[RunRecord]) -> list[list[list[RunRecord]]]:
    """Folds x seeds. Runs on the same test rows are seeds of one fold; folds of unlike size stand alone."""
    folds: dict[str, list[RunRecord]] = {}
    for run in runs:
        labels = Predictions.read(run.folder / PREDICTIONS_NPZ).labels
        folds.setdefault(hashlib.sha256(labels.tobytes()).hexdigest(), []).append(run)
    found = list(folds.values())
    if len({len(fold) for fold in found}) > 1:
        return [[fold] for fold in found]
    return [found] if found else []


def _gap(entry: Entry, label: str, folds: Sequence[Sequence[RunRecord]], margin: float) -> PairedGap:
    sample, num_rows = Sample([], []), []
    for fold in folds:
        pairs = [_read_pair(run) for run in fold]
        values, variance = rows.over_seeds(rows.gap_percent, pairs)
        sample.values.append(values)
        sample.row_variances.append(variance)
        num_rows.append(len(pairs[0][0].labels))
    design = Design(len(folds), len(folds[0]), min(num_rows), "data.folds" in entry.config)
    reference = entry.runs[0].report.baseline_name
    return PairedGap(reference, margin, sum(map(len, folds)), make_gap(label, sample, design, margin))


def _read_pair(run: RunRecord) -> tuple[Predictions, Predictions]:
    paths = [run.folder / name for name in (PREDICTIONS_NPZ, BASELINE_PREDICTIONS_NPZ)]
    model, reference = (Predictions.read(path) for path in paths)
    rows.check_same_rows(model, reference, *paths)
    return model, reference
