"""Advice as text."""

from __future__ import annotations

from recsys.advise.advice import Advice
from recsys.advise.costs import Costs
from recsys.compare.search_tables import NOT_THERE, render

_SHOWN_SETS = 8


def summary(advice: Advice) -> str:
    """What is shown on the terminal: costs of parts, bounds and predictions of the best sets, the recommendation."""
    names = list(dict.fromkeys(op.partition(":")[2] for costs in (advice.attached, advice.detached) for op in costs.us))
    own = ["F", "B", "U"] if advice.serial else ["F", "B", "U", "fill"]
    head = ["part", *own, f"detached {own[0]}", *own[1:]]
    rows = [
        [
            name,
            *_cells(advice.attached, name, own),
            *(_cells(advice.detached, name, own) if name in advice.parts else [NOT_THERE] * len(own)),
        ]
        for name in names
    ]
    return "\n\n".join(
        [
            f"{advice.experiment}, batch {advice.batch_size}: ms of each part alone (forward, backward, update)"
            + ("" if advice.serial else " and the share of the device that it fills"),
            render((head, rows)),
            _explanation(advice),
            render(_set_table(advice)),
            advice.recommendation.text,
            "Speed alone: what detaching costs in NE only training tells (scripts.compare, +sweep=detach_subsets).",
        ]
    )


def _cells(costs: Costs, name: str, columns: list[str]) -> list[str]:
    """Milliseconds of forward, backward and update, and the share of the device over them."""
    times = {kind: costs.us.get(f"{kind}:{name}") for kind in "FBU"}
    known = {f"{kind}:{name}": us for kind, us in times.items() if us is not None}
    total = sum(known.values())
    cells = {kind: NOT_THERE if us is None else f"{us / 1000:.3f}" for kind, us in times.items()}
    busy = sum(us * costs.fill_of(op) for op, us in known.items())
    cells["fill"] = f"{100 * busy / total:.0f} %" if total else NOT_THERE
    return [cells[column] for column in columns]


def _explanation(advice: Advice) -> str:
    base = advice.baseline
    text = f"baseline: {base.step_us / 1000:.3f} ms a step predicted, {advice.baseline_ms:.3f} measured"
    if advice.serial:
        kind = "in CPU time" if advice.clock == "cpu" else "by the wall clock, so let the machine do nothing else"
        return f"{text} ({kind}); operations run one after the other here: what can be gained is work removed"
    chain, full = base.critical_path_us / 1000, base.saturation_us / 1000
    return f"{text}; longest chain {chain:.3f} ms, device full for {full:.3f} ms"


def _set_table(advice: Advice) -> tuple[list[str], list[list[str]]]:
    head = ["detach", "predicted ms", "longest chain", "device full", "predicted gain", "measured ms", "measured gain"]
    shown = [c for i, c in enumerate(advice.candidates) if i < _SHOWN_SETS or c.measured is not None]
    rows = []
    for c in shown:
        p, m = c.prediction, c.measured
        rows.append(
            [
                f"[{','.join(sorted(c.detach))}]",
                *(f"{us / 1000:.3f}" for us in (p.step_us, p.critical_path_us, p.saturation_us)),
                f"{c.predicted_gain:.3f}",
                NOT_THERE if c.step_ms is None else f"{c.step_ms:.3f}",
                NOT_THERE if m is None else f"{m.median:.3f} ({m.low:.3f} .. {m.high:.3f})",
            ]
        )
    return head, rows
