"""What stands on the page: sections of sentences, charts and tables, made from what was gathered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from recsys.overview import charts, paired, tables
from recsys.overview.charts import Drawing
from recsys.overview.entries import Entry, make_entries
from recsys.overview.gather import Gathered
from recsys.overview.paired import PairedGap
from recsys.overview.reliability import reliability
from recsys.overview.tables import Table
from recsys.report.predictions import BASELINE_PREDICTIONS_NPZ, PREDICTIONS_NPZ, Predictions

TRACE_COMMAND = "python -m scripts.trace_ops RUN_FOLDER"
TRACE_COMMAND_GPU = "python -m scripts.trace_schedule --experiment bench_proxy --out DIR"


@dataclass
class Section:
    """A part of the page.

    Attributes:
        name: anchor.
        title: heading.
        text: sentences, a paragraph each.
        drawings: charts.
        shown: tables that are always open.
        folded: summary -> table that opens on a click.
        wide: whether it takes the page's whole width where there is room for two.
    """

    name: str
    title: str
    text: list[str] = field(default_factory=list)
    drawings: list[Drawing] = field(default_factory=list)
    shown: list[Table] = field(default_factory=list)
    folded: dict[str, Table] = field(default_factory=dict)
    wide: bool = False


@dataclass(frozen=True)
class Page:
    """Headline figures and sections.

    Attributes:
        cards: heading -> (figure, remark).
    """

    title: str
    cards: dict[str, tuple[str, str]]
    sections: list[Section]


def make_page(found: Gathered, margin: float) -> Page:
    """Work the page out.

    Args:
        found: what lies in the folders.
        margin: percent of NE inside which a gap does not matter; comparisons have their own.

    Raises:
        DataError: a run's folder is damaged.
    """
    entries = make_entries(found.runs)
    pairs, remarks = paired.of_entries(entries, margin)
    gaps = [*(gap for _, comparison in found.comparisons for gap in paired.of_comparison(comparison)), *pairs]
    sections = [
        _pareto(found, entries),
        _gaps(gaps, [*remarks, *(note for _, c in found.comparisons for note in c.notes)]),
        _figures(entries, gaps),
        _learning(entries),
        _heads(entries),
        _calibration(entries),
        _differences(entries),
        _timeline(found),
        _environment(found, entries),
    ]
    title = " · ".join(dict.fromkeys(e.experiment for e in entries if e.side == "erase")) or "Schedules"
    return Page(title, _cards(found, entries, gaps), sections)


def _cards(found: Gathered, entries: Sequence[Entry], gaps: Sequence[PairedGap]) -> dict[str, tuple[str, str]]:
    cards = {"runs": (f"{len(found.runs)}", f"{len(entries)} models, baselines included")}
    ranked = sorted((e for e in entries if e.ne is not None), key=lambda e: e.ne or 0.0)
    if ranked and len({e.data for e in ranked}) == 1:
        cards["best test NE"] = (f"{ranked[0].ne:.5f}", ranked[0].label)
    timed = [e for e in entries if e.speedup is not None and e.side == "erase"]
    if timed:
        fastest = max(timed, key=lambda e: e.speedup or 0.0)
        cards["most speed"] = (f"{fastest.speedup:.2f} times", f"{fastest.label}, over its baseline")
    if gaps:
        least = min(gaps, key=lambda pair: pair.gap.mean).gap
        cards["lowest NE gap"] = (f"{least.mean:+.3f} %", f"{least.label}: {least.verdict.word}")
    return cards


def _pareto(found: Gathered, entries: Sequence[Entry]) -> Section:
    section = Section("pareto", "NE against throughput")
    labels = [entry.label for entry in entries]
    points: dict[str, list[dict[str, object]]] = {}
    for entry in entries:
        if entry.ne is not None and entry.rows_per_s is not None:
            point = {"model": entry.label, "ne": entry.ne, "sd": entry.ne_sd, "rows_per_s": entry.rows_per_s,
                     "speedup": entry.speedup, "runs": len(entry.runs)}  # fmt: skip
            points.setdefault(entry.data, []).append(point)
    for folder, comparison in found.comparisons:
        for quality in comparison.qualities:
            if quality.rows_per_s is not None:
                point = {"model": quality.label, "ne": quality.ne.mean, "sd": quality.ne.sd_seed,
                         "rows_per_s": quality.rows_per_s, "speedup": quality.speedup,
                         "runs": comparison.folds * comparison.seeds}  # fmt: skip
                points.setdefault(str(folder), []).append(point)
    for number, group in enumerate(points.values()):
        own = [*labels, *(str(p["model"]) for p in group if p["model"] not in labels)]
        section.drawings.append(
            charts.pareto(group, [label for label in own if _has(group, label)], f"pareto-{number}")
        )
    if len(points) > 1:
        section.text.append("One chart for each data set and each comparison: NE and speed compare within one only.")
    if not points:
        section.text.append(
            "No run here was timed: train.py times each run, scripts.compare unless --no-speed is given."
        )
    else:
        section.text.append(
            "Down and to the right is better; the dashed line joins what nothing beats in both. Speed is over the "
            "baseline that took turns with the model, so that it does not depend on how free the machine was; rows/s, "
            "under the pointer and in the table, do."
        )
    return section


def _has(group: Sequence[dict[str, object]], label: str) -> bool:
    return any(point["model"] == label for point in group)


def _gaps(gaps: Sequence[PairedGap], remarks: Sequence[str]) -> Section:
    section = Section("gaps", "Paired NE gaps", [*dict.fromkeys(remarks)])
    if not gaps:
        section.text.append("Nothing to pair: no run here has a baseline beside it, and there is no comparison.")
        return section
    section.drawings = [charts.gaps(gaps, "gaps")]
    section.text.insert(
        0,
        f"Each against the baseline on the same test rows; lines are 95 % intervals, small dots single pairs, the band "
        f"the margin of {max(pair.margin for pair in gaps):g} % inside which a gap does not matter.",
    )
    return section


def _figures(entries: Sequence[Entry], gaps: Sequence[PairedGap]) -> Section:
    section = Section("figures", "Figures on the test rows", wide=True)
    section.shown = [*([tables.gaps(gaps)] if gaps else []), *([tables.quality(entries)] if entries else [])]
    if not section.shown:
        section.text = ["No run and no comparison lies in these folders."]
    return section


def _learning(entries: Sequence[Entry]) -> Section:
    section = Section("learning", "Learning curves")
    if not any(curve for entry in entries for _, curve in entry.curves()):
        section.text = ["No run here evaluated while it trained."]
        return section
    floors = {run.report.bayes_ne for entry in entries for run in entry.runs}
    floor = floors.pop() if len(floors) == 1 else None
    section.drawings = [charts.learning_curves(entries, floor)]
    section.text = ["A line a run. Click a model in the legend to bring it out, click beside it for all."]
    if floor is not None:
        section.text.append(f"No model can pass NE {floor:.5f}, that of the true click probabilities.")
    return section


def _heads(entries: Sequence[Entry]) -> Section:
    section = Section("heads", "NE of each local head")
    drawing = charts.head_curves(entries)
    if drawing is None:
        section.text = ["No run here has local heads in its curve.csv: the experiments that detach have them."]
    else:
        section.text = ["On validation rows while training, mean over seeds; dashed is the whole model."]
        section.drawings = [drawing]
    return section


def _calibration(entries: Sequence[Entry]) -> Section:
    section = Section("calibration", "Calibration")
    bins, without = [], []
    for entry in entries:
        run = entry.runs[0]
        path = run.folder / (BASELINE_PREDICTIONS_NPZ if entry.side == "baseline" else PREDICTIONS_NPZ)
        if path.exists():
            bins += [{"model": entry.label, **asdict(found)} for found in reliability(Predictions.read(path))]
        else:
            without.append(entry.label)
    if bins:
        section.drawings = [charts.calibration(bins, [e.label for e in entries if e.label not in without])]
        section.text = [
            "Test rows of the first run of each model, in bins of as many rows each; the diagonal is right."
        ]
    if without:
        section.text.append(f"Without predictions in their folder, run them again: {'; '.join(without)}.")
    return section


def _timeline(found: Gathered) -> Section:
    section = Section("timeline", "Schedule and overlap", wide=True)
    if not found.traces:
        section.text = [
            f"No trace of a step lies in these folders. `{TRACE_COMMAND}` times a step by operation on a CPU, "
            f"`{TRACE_COMMAND_GPU}` traces two schedules on a GPU; both write an overlap.json that is shown here."
        ]
    for at, trace in enumerate(found.traces):
        ends = [start + length for spans in trace.timeline.values() for _, start, length, _ in spans]
        for number, (name, spans) in enumerate(trace.timeline.items()):
            ms = f": {trace.median_ms[name]:.3f} ms a step" if name in trace.median_ms else ""
            title = f"{'/'.join(trace.folder.parts[-2:])}, {name}{ms}"
            section.drawings.append(charts.timeline(spans, max(ends), f"timeline-{at}-{number}", title))
    if found.traces:
        section.shown.append(tables.overlap(found.traces))
    for experiment in dict.fromkeys(b.experiment for b in found.benches):
        own = [b for b in found.benches if b.experiment == experiment]
        rows = [
            {"schedule": s, "batch": b.batch_size, "speedup": row["speedup"], "ms": row["median_ms"]}
            for b in sorted(own, key=lambda b: b.batch_size)
            for s, row in b.rows.items()
            if "speedup" in row
        ]
        section.drawings.append(charts.speed_by_batch(rows, f"bench-{experiment.replace('_', '-')}"))
        section.folded[f"{experiment}: every schedule and batch size"] = tables.bench(own)
    return section


def _differences(entries: Sequence[Entry]) -> Section:
    section = Section("config", "Config differences")
    table = tables.config_differences(entries)
    if len(table.head) > 1:
        section.shown = [table]
    else:
        section.text = ["The experiments' configurations differ in nothing but seeds and folds."]
    return section


def _environment(found: Gathered, entries: Sequence[Entry]) -> Section:
    section = Section("environment", "Environment and commit", wide=True)
    if entries:
        section.shown = [tables.environments(entries)]
        section.folded = {"every run, its seed and its folder": tables.sources(entries)}
    if found.missing:
        section.text = [f"Run folders that a comparison names and that are gone: {', '.join(found.missing)}."]
    return section
