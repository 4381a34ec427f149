"""The rows of the result tables, as text; Markdown and console show the same."""

from __future__ import annotations

from collections.abc import Callable

from recsys.report.model import ModelReport, RunReport

UNDEFINED = "undefined"
NOT_THERE = "-"
Row = tuple[str, ...]


def metric_rows(report: RunReport) -> list[Row]:
    """``(metric, <a cell for each of report.sides>)`` for quality, rows, speed and memory."""

    def row(label: str, show: Callable[[ModelReport], str]) -> Row:
        return (label, *(show(report.side(side)) for side in report.sides))

    return [
        row("NE", lambda m: decimals(m.ne, 5)),
        row("log loss (nats)", lambda m: decimals(m.logloss, 5)),
        row("AUC", lambda m: decimals(m.auc, 5)),
        row("calibration (mean pred. / label)", lambda m: decimals(m.calibration, 4)),
        row("click rate p", lambda m: decimals(m.base_rate, 5)),
        row("H(p) (nats)", lambda m: decimals(m.entropy, 5)),
        row("evaluated rows", lambda m: f"{m.rows:,}"),
        row("coverage", lambda m: percent(m.coverage)),
        row("train rows/s", lambda m: decimals(m.rows_per_s, 0, NOT_THERE)),
        row("peak memory (MiB)", lambda m: decimals(_mebi(m.peak_memory_bytes), 0, NOT_THERE)),
    ]


def head_rows(report: RunReport) -> list[Row]:
    """``(part, <a cell for each of report.sides>)``: NE of every local head of either model."""
    names = dict.fromkeys([*report.baseline.heads, *report.erase.heads])

    def show(model: ModelReport, name: str) -> str:
        return decimals(model.heads[name], 5) if name in model.heads else NOT_THERE

    return [(name, *(show(report.side(side), name) for side in report.sides)) for name in names]


def summary_lines(report: RunReport) -> list[str]:
    """What lies between the two models, a sentence each."""
    gap, speedup = report.ne_gap_percent, report.speedup
    if len(report.sides) == 1:
        lines = ["Nothing is detached and there is no local loss: the model is its own baseline"]
    else:
        lines = [_gap_line(gap)]
    if speedup is not None:
        lines.append(
            f"Speed: {speedup.median:.3f} times the baseline's rows/s "
            f"(p10 {speedup.p10:.3f}, p90 {speedup.p90:.3f}, {speedup.pairs} interleaved pairs)"
        )
    if report.bayes_ne is not None:
        lines.append(f"Floor: NE {report.bayes_ne:.5f}, that of the true click probabilities")
    if report.baseline_from_cache:
        lines.append(
            "The baseline's quality and memory are those of an earlier run with the same fingerprint; its speed is not"
        )
    return lines


def decimals(value: float | None, digits: int, missing: str = UNDEFINED) -> str:
    """The figure with so many decimals and grouped thousands."""
    return missing if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """A share in percent; "100 %" only where nothing is missing."""
    if value is None:
        return NOT_THERE
    return "100 %" if value == 1 else f"{min(100 * value, 99.9999):.4f} %"


def _mebi(num_bytes: int | None) -> float | None:
    return None if num_bytes is None else num_bytes / 2**20


def _gap_line(gap_percent: float | None) -> str:
    if gap_percent is None:
        return f"NE gap: {UNDEFINED}"
    return f"NE gap: {gap_percent:+.3f} % ({_verdict(gap_percent)} than the baseline)"


def _verdict(gap_percent: float) -> str:
    return "worse" if gap_percent > 0 else "better" if gap_percent < 0 else "neither better nor worse"
