"""The page's charts as Vega-Lite specifications (Altair); the page draws them, and Markdown gets them as SVG files.

Text and grid take the page's colours there. Marks have colours that stand out on white and on black.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from recsys.overview.entries import Entry
from recsys.overview.paired import PairedGap

# Okabe and Ito's palette, lightened where it would be lost on black; told apart also by colour-blind readers.
PALETTE = ("#1f83c4", "#d55e00", "#009e73", "#cc79a7", "#e0a000", "#56b4e9", "#8c6bb1", "#7f7f7f")
QUIET = "#8a8a8a"
PHASES = {"forward": "#1f83c4", "backward": "#d55e00", "update": "#009e73", "other": QUIET}
_WARM_UP = 0.05  # share of the run whose NE, often far above 1, does not set the scale
_BAR = 18  # pixels of a line in charts that have a line for each entry or part


@dataclass(frozen=True)
class Drawing:
    """A chart of the page.

    Attributes:
        name: unique; letters and hyphens.
        spec: Vega-Lite.
        alt: what it shows, for those who do not see it.
    """

    name: str
    spec: dict[str, Any]
    alt: str


def _drawing(name: str, chart: Any, alt_text: str, height: int = 300) -> Drawing:
    made = chart.properties(width="container", height=height)
    return Drawing(name, {**made.to_dict(), "autosize": {"type": "fit-x", "contains": "padding"}}, alt_text)


def _rows(values: Sequence[dict[str, Any]]) -> alt.Data:
    return alt.Data(values=list(values))


def _colour(labels: Sequence[str]) -> alt.Color:
    """A colour for each of the first labels; the others are grey and not in the legend."""
    colours = [PALETTE[i] if i < len(PALETTE) else QUIET for i in range(len(labels))]
    legend = alt.Legend(
        orient="bottom", columns=1, title=None, labelLimit=320, values=list(labels[: len(PALETTE)]), symbolLimit=0
    )
    return alt.Color("model:N", scale=alt.Scale(domain=list(labels), range=colours), legend=legend)


def pareto(entries: Sequence[dict[str, Any]], labels: Sequence[str], name: str) -> Drawing:
    """NE against throughput; what nothing beats in both is joined by a line.

    Args:
        entries: ``model``, ``ne``, ``rows_per_s``, ``sd``, ``speedup``, ``runs``.
        labels: of all entries of the page, for the colours.
        name: of the drawing.
    """
    data = [{**e, "low": e["ne"] - (e["sd"] or 0), "high": e["ne"] + (e["sd"] or 0)} for e in entries]
    # Over the baseline timed in turn where all were: rows/s of two runs compare only on an equally free machine.
    relative = all(e["speedup"] is not None for e in entries)
    data = [{**e, "speed": e["speedup"] if relative else e["rows_per_s"]} for e in data]
    x = alt.X(
        "speed:Q",
        title="training speed, times the baseline's →" if relative else "train rows/s →",
        scale=alt.Scale(zero=False, padding=24),
        axis=alt.Axis(tickCount=5),
    )
    test_ne = "test NE (lower is better)"
    y = alt.Y("ne:Q", title=test_ne, scale=alt.Scale(zero=False, padding=16))
    front = alt.Chart(_rows(pareto_front(data))).mark_line(color=QUIET, strokeDash=[4, 4]).encode(x=x, y=y)
    base = alt.Chart(_rows(data)).encode(x=x)
    spread = base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title=test_ne), y2="high:Q", color=_colour(labels))
    points = base.mark_point(filled=True, size=110, opacity=1).encode(
        y=y,
        color=_colour(labels),
        tooltip=[
            alt.Tooltip("model:N"),
            alt.Tooltip("ne:Q", title="test NE", format=".5f"),
            alt.Tooltip("sd:Q", title="sd between runs", format=".5f"),
            alt.Tooltip("rows_per_s:Q", title="train rows/s", format=",.0f"),
            alt.Tooltip("speedup:Q", title="over baseline", format=".3f"),
            alt.Tooltip("runs:Q"),
        ],
    )
    return _drawing(name, front + spread + points, "Test NE of each model over its training rows per second")


def pareto_front(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Points that no other beats in both speed and NE, fastest last."""
    front: list[dict[str, Any]] = []
    for point in sorted(points, key=lambda p: (-p["speed"], p["ne"])):
        if not front or point["ne"] < front[-1]["ne"]:
            front.append(point)
    return front[::-1]


def gaps(found: Sequence[PairedGap], name: str) -> Drawing:
    """A gap with its interval a line, each replicate a dot, the margin of equivalence behind them."""
    rows: list[dict[str, Any]] = []
    dots: list[dict[str, Any]] = []
    for number, pair in enumerate(found):
        gap, line = pair.gap, f"{number} {pair.gap.label}"
        wide = gap.wide_interval or gap.interval
        rows.append(
            {
                "line": line, "model": gap.label, "against": pair.reference, "gap": gap.mean, "runs": pair.runs,
                "low": gap.interval[0], "high": gap.interval[1], "wide_low": wide[0], "wide_high": wide[1],
                "verdict": str(gap.verdict.word),
            }
        )  # fmt: skip
        dots += [{"line": line, "model": gap.label, "value": v} for values in gap.values for v in values]
    # Names stand above their lines, not beside them: a phone has no room beside.
    y = alt.Y("line:N", axis=alt.Axis(labels=False, ticks=False, title=None), sort=[row["line"] for row in rows])
    data = _rows(rows)
    words = [
        alt.Tooltip("model:N"), alt.Tooltip("against:N"), alt.Tooltip("gap:Q", title="NE gap %", format="+.3f"),
        alt.Tooltip("low:Q", title="95 % from", format="+.3f"), alt.Tooltip("high:Q", title="to", format="+.3f"),
        alt.Tooltip("verdict:N"), alt.Tooltip("runs:Q"),
    ]  # fmt: skip
    margin = max(pair.margin for pair in found)
    band = alt.Chart(_rows([{"from": -margin, "to": margin}])).mark_rect(color=PALETTE[2], opacity=0.22)
    percent = "NE gap in percent (left is better)"
    x = alt.X("gap:Q", title=percent, axis=alt.Axis(tickCount=5))
    layers = [
        band.encode(x=alt.X("from:Q", title=percent), x2="to:Q"),
        alt.Chart(_rows([{"at": 0}])).mark_rule(color=QUIET).encode(x="at:Q"),
        alt.Chart(data).mark_rule(color=PALETTE[1], strokeDash=[2, 3]).encode(y=y, x="wide_low:Q", x2="wide_high:Q"),
        alt.Chart(data).mark_rule(color=PALETTE[1], strokeWidth=3).encode(y=y, x="low:Q", x2="high:Q", tooltip=words),
        alt.Chart(_rows(dots)).mark_point(filled=True, color=QUIET, size=18, yOffset=8).encode(y=y, x="value:Q"),
        alt.Chart(data).mark_text(align="left", yOffset=-13, fontSize=12, limit=330, color=QUIET)
        .encode(y=y, x=alt.value(4), text="model:N"),
        alt.Chart(data).mark_point(shape="diamond", filled=True, color=PALETTE[1], size=120, opacity=1)
        .encode(y=y, x=x, tooltip=words),
    ]  # fmt: skip
    return _drawing(name, alt.layer(*layers), "NE gap of each model with its 95 % interval", 40 + 44 * len(rows))


def learning_curves(entries: Sequence[Entry], floor: float | None) -> Drawing:
    """Validation NE over training rows, a line a run; click a model in the legend to bring it out."""
    points = [
        {"model": e.label, "run": str(run.folder), "seed": run.report.side(e.side).seed, "rows": p.rows, "ne": p.ne}
        for e in entries
        for run, curve in e.curves()
        for p in curve
        if p.ne is not None
    ]
    chosen = alt.selection_point(fields=["model"], bind="legend")
    line = (
        alt.Chart(_rows(points))
        .mark_line(point=alt.OverlayMarkDef(size=28), clip=True)
        .encode(
            x=_seen(),
            y=alt.Y("ne:Q", title="NE on validation rows", scale=_scale(points, floor)),
            detail="run:N",
            color=_colour([e.label for e in entries]),
            opacity=alt.when(chosen).then(alt.value(0.9)).otherwise(alt.value(0.1)),
            tooltip=["model:N", "seed:Q", alt.Tooltip("rows:Q", format=","), alt.Tooltip("ne:Q", format=".5f")],
        )
        .add_params(chosen)
    )
    return _drawing("learning-curves", _with_floor(line, floor), "Validation NE of every run while it trained")


def head_curves(entries: Sequence[Entry]) -> Drawing | None:
    """Validation NE of each local head and of the whole model, of the model that the reader chooses; a line a part."""
    points = [
        {"model": e.label, "part": part, "seed": run.report.side(e.side).seed, "rows": p.rows, "ne": ne}
        for e in entries
        for run, curve in e.curves()
        for p in curve
        if p.heads
        for part, ne in [("the model", p.ne), *p.heads.items()]
        if ne is not None
    ]
    if not points:
        return None
    labels = list(dict.fromkeys(point["model"] for point in points))
    parts = list(dict.fromkeys(str(point["part"]) for point in points))
    colours = [PALETTE[i % len(PALETTE)] for i in range(len(parts))]
    chosen = alt.param(name="shown", bind=alt.binding_select(options=labels, name="model "), value=labels[0])
    legend = alt.Legend(orient="bottom", columns=3, title=None)
    line = (
        alt.Chart(_rows(points))
        .mark_line(point=alt.OverlayMarkDef(size=28), clip=True)
        .encode(
            x=_seen(),
            y=alt.Y("mean(ne):Q", title="NE on validation rows", scale=_scale(points, None)),
            color=alt.Color("part:N", scale=alt.Scale(domain=parts, range=colours), legend=legend),
            strokeDash=alt.condition("datum.part == 'the model'", alt.value([5, 3]), alt.value([1, 0])),
            tooltip=["part:N", alt.Tooltip("rows:Q", format=","), alt.Tooltip("mean(ne):Q", title="NE", format=".5f")],
        )
        .transform_filter("datum.model == shown")
        .add_params(chosen)
    )
    return _drawing("head-curves", line, "Validation NE of each local head while training, mean over seeds")


def calibration(bins: Sequence[dict[str, Any]], labels: Sequence[str]) -> Drawing:
    """Observed click rate over mean prediction, with 95 % intervals; on the diagonal is right.

    Args:
        bins: ``model`` and the fields of :class:`recsys.overview.reliability.Bin`.
        labels: of all entries of the page, for the colours.
    """
    top = max(max(b["predicted"], b["high"]) for b in bins)
    diagonal = alt.Chart(_rows([{"at": 0, "is": 0}, {"at": top, "is": top}]))
    chosen = alt.selection_point(fields=["model"], bind="legend")
    base = alt.Chart(_rows(bins)).encode(
        x=alt.X("predicted:Q", title="mean prediction", axis=alt.Axis(tickCount=5)),
        color=_colour(labels),
        opacity=alt.when(chosen).then(alt.value(0.9)).otherwise(alt.value(0.08)),
    )
    layers = [
        diagonal.mark_line(color=QUIET, strokeDash=[4, 4]).encode(x=alt.X("at:Q", title="mean prediction"), y="is:Q"),
        base.mark_rule().encode(y=alt.Y("low:Q", title="observed click rate"), y2="high:Q"),
        base.mark_line(point=alt.OverlayMarkDef(size=36)).encode(
            y=alt.Y("observed:Q", title="observed click rate"),
            tooltip=[
                "model:N",
                alt.Tooltip("predicted:Q", format=".4f"),
                alt.Tooltip("observed:Q", format=".4f"),
                alt.Tooltip("low:Q", title="95 % from", format=".4f"),
                alt.Tooltip("high:Q", title="to", format=".4f"),
                "rows:Q",
            ],
        ).add_params(chosen),
    ]  # fmt: skip
    return _drawing("calibration", alt.layer(*layers), "Observed click rate over predicted probability")


def timeline(spans: Sequence[tuple[str, float, float, int]], end_us: float, name: str, title: str) -> Drawing:
    """One step: a line a part, a bar an operation or kernel, coloured by phase.

    Args:
        spans: operation (``B:mlp@1`` or ""), start and duration in microseconds, stream.
        end_us: end of the scale, the same for the steps that stand below each other.
        name: of the drawing.
        title: the schedule and its time.
    """
    phases = {"F": "forward", "B": "backward", "U": "update"}
    data: list[dict[str, Any]] = []
    for op, start, duration, stream in spans:
        part = op[2:].split("@")[0]
        phase = phases.get(op[:1], "other")
        line = "(no part)" if not part else "updates" if "," in part else part
        data.append({"part": line, "phase": phase, "op": op, "start": start / 1e3, "end": (start + duration) / 1e3,
                     "us": duration, "stream": stream})  # fmt: skip
    parts = list(dict.fromkeys(row["part"] for row in sorted(data, key=lambda r: r["start"])))
    bars = (
        alt.Chart(_rows(data), title=alt.Title(title, anchor="start", fontSize=13, limit=330))
        .mark_bar(height=_BAR - 6)
        .encode(
            x=alt.X(
                "start:Q",
                title="milliseconds",
                axis=alt.Axis(labelOverlap=True, tickCount=6),
                scale=alt.Scale(domain=[0, end_us / 1e3], nice=False),
            ),
            x2="end:Q",
            y=alt.Y("part:N", sort=parts, title=None, axis=alt.Axis(labelLimit=90, grid=True)),
            color=alt.Color(
                "phase:N",
                scale=alt.Scale(domain=list(PHASES), range=list(PHASES.values())),
                legend=alt.Legend(orient="bottom", title=None, columns=4),
            ),
            tooltip=["op:N", "phase:N", alt.Tooltip("us:Q", title="microseconds", format=",.1f"), "stream:Q"],
        )
    )
    return _drawing(name, bars, f"Operations of one step, {title}", 30 + _BAR * len(parts))


def speed_by_batch(rows: Sequence[dict[str, Any]], name: str) -> Drawing:
    """Speed of each schedule over the first one by batch size: ``schedule``, ``batch``, ``speedup``, ``ms``."""
    labels = list(dict.fromkeys(row["schedule"] for row in rows))
    line = (
        alt.Chart(_rows([{**row, "model": row["schedule"]} for row in rows]))
        .mark_line(point=True)
        .encode(
            x=alt.X("batch:Q", title="batch size", scale=alt.Scale(type="log", base=2), axis=alt.Axis(format="d")),
            y=alt.Y("speedup:Q", title="speed over the first schedule", scale=alt.Scale(zero=False)),
            color=_colour(labels),
            tooltip=[
                "schedule:N",
                "batch:Q",
                alt.Tooltip("speedup:Q", format=".3f"),
                alt.Tooltip("ms:Q", format=".3f"),
            ],
        )
    )
    return _drawing(name, line, "Speed of each schedule by batch size")


def _seen() -> alt.X:
    return alt.X(
        "rows:Q",
        title="training rows seen",
        axis=alt.Axis(format="~s", tickCount=5),
        scale=alt.Scale(nice=False, padding=8),
    )


def _scale(points: Sequence[dict[str, Any]], floor: float | None) -> alt.Scale:
    last = max(point["rows"] for point in points)
    shown = [point["ne"] for point in points if point["rows"] >= _WARM_UP * last]
    low, high = min(shown), max(shown)
    if floor is not None and high - floor < 4 * (high - low):  # far below, it would flatten the curves
        low = min(low, floor)
    space = 0.06 * (high - low) or 0.01
    return alt.Scale(domain=[low - space, high + space], nice=False)


def _with_floor(line: Any, floor: float | None) -> Any:
    if floor is None:
        return line
    rule = alt.Chart(_rows([{"floor": floor, "what": "Bayes floor"}])).mark_rule(
        color=PALETTE[2], strokeDash=[6, 4], clip=True
    )
    words = ["what:N", alt.Tooltip("floor:Q", title="NE", format=".5f")]
    return line + rule.encode(y=alt.Y("floor:Q", title="NE on validation rows"), tooltip=words)
