"""The page's tables as cells of text; HTML and Markdown show the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recsys.overview.entries import Entry, differences, mean
from recsys.overview.gather import Bench, Trace
from recsys.overview.paired import PairedGap
from recsys.report.tables import NOT_THERE, decimals


@dataclass(frozen=True)
class Table:
    """Cells; the first column names the line."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def quality(entries: Sequence[Entry]) -> Table:
    """Test figures of every model, means over its runs."""
    rows = [
        (
            entry.label,
            str(len(entry.runs)),
            decimals(entry.ne, 5),
            decimals(entry.ne_sd, 5, NOT_THERE),
            decimals(mean([r.auc for r in entry.reports]), 5),
            decimals(mean([r.logloss for r in entry.reports]), 5),
            decimals(mean([r.calibration for r in entry.reports]), 4),
            decimals(entry.rows_per_s, 0, NOT_THERE),
            decimals(entry.speedup, 3, NOT_THERE),
        )
        for entry in entries
    ]
    head = ("model", "runs", "test NE", "sd", "AUC", "log loss", "calibration", "train rows/s", "speed")
    return Table(head, rows)


def gaps(found: Sequence[PairedGap]) -> Table:
    """Every gap with its interval and verdict."""
    rows = []
    for pair in found:
        gap = pair.gap
        interval = f"{gap.interval[0]:+.3f} .. {gap.interval[1]:+.3f}"
        if gap.wide_interval is not None:
            interval += f" (wide {gap.wide_interval[0]:+.3f} .. {gap.wide_interval[1]:+.3f})"
        rows.append((gap.label, pair.reference, str(pair.runs), f"{gap.mean:+.3f}", interval, gap.verdict.sentence))
    return Table(("model", "against", "pairs", "NE gap %", "95 % interval", "verdict"), rows)


def overlap(traces: Sequence[Trace]) -> Table:
    """How much of a traced step ran side by side."""
    rows = [
        (
            str(trace.folder),
            ", ".join(f"{name} {ms:.3f}" for name, ms in trace.median_ms.items()),
            decimals(trace.overlap["r_fb"], 3),
            decimals(trace.overlap["hidden"], 3),
            decimals(trace.overlap["concurrency"], 3),
            decimals(trace.overlap["stretch"], 3, NOT_THERE),
            decimals(trace.eta, 3, NOT_THERE),
            f"{trace.critical_path_us / 1e3:.3f}: {' '.join(trace.critical_path)}",
        )
        for trace in traces
    ]
    head = ("trace", "ms a step", "forward beside backward", "early backward hidden", "concurrency", "stretch",
            "gain achieved", "critical path, ms")  # fmt: skip
    return Table(head, rows)


def bench(benches: Sequence[Bench]) -> Table:
    """Milliseconds a step and speed of every schedule by batch size."""
    rows = [
        (
            schedule,
            f"{found.batch_size:,}",
            decimals(row["median_ms"], 3),
            decimals(row["rows_per_s"], 0),
            decimals(row.get("speedup"), 3, NOT_THERE),
        )
        for found in sorted(benches, key=lambda b: (b.experiment, b.batch_size))
        for schedule, row in found.rows.items()
    ]
    return Table(("schedule", "batch", "ms a step", "rows/s", "speed"), rows)


def config_differences(entries: Sequence[Entry]) -> Table:
    """The keys of the configuration in which the experiments' own models are not alike, a line a model."""
    own = [entry for entry in entries if entry.side == "erase"]
    keys = differences([(entry.label, entry.config) for entry in own])
    rows = [(entry.label, *(str(entry.config.get(key, NOT_THERE)) for key in keys)) for entry in own]
    return Table(("model", *keys), rows)


def environments(entries: Sequence[Entry]) -> Table:
    """What the figures were measured on, a line an environment with the models that ran there."""
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for entry in entries:
        for run in entry.runs:
            facts = tuple((key, str(value)) for key, value in run.report.environment.items())
            labels = found.setdefault(facts, [])
            if entry.label not in labels:
                labels.append(entry.label)
    keys = list(dict.fromkeys(key for facts in found for key, _ in facts))
    rows = [("; ".join(labels), *(dict(facts).get(key, NOT_THERE) for key in keys)) for facts, labels in found.items()]
    return Table(("models", *keys), rows)


def sources(entries: Sequence[Entry]) -> Table:
    """Where every run lies, with its seed and fingerprint."""
    rows = [
        (entry.label, str(run.report.side(entry.side).seed), decimals(run.report.side(entry.side).ne, 5),
         run.report.side(entry.side).config_hash, str(run.folder))
        for entry in entries
        for run in entry.runs
    ]  # fmt: skip
    return Table(("model", "seed", "test NE", "fingerprint", "folder"), rows)
