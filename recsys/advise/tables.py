"""Advice as text."""

from __future__ import annotations

from recsys.advise.advice import Advice
from recsys.advise.costs import Costs
from recsys.compare.search_tables import NOT_THERE, render

_SHOWN_SETS = 8


def summary(advice: Advice) -> str:
    """What is shown on the terminal: costs of parts, bounds and predictions of the best sets, the recommendation."""
    attached, detached = _part_table(advice, advice.attached), _part_table(advice, advice.detached)
    names = list(dict.fromkeys(op.partition(":")[2] for costs in (advice.attached, advice.detached) for op in costs.us))
    head = ["part", "F", "B", "U", "fill", "detached F", "B", "U", "fill"]
    rows = [[name, *attached[name], *(detached[name] if name in advice.parts else [NOT_THERE] * 4)] for name in names]
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


def _part_table(advice: Advice, costs: Costs) -> dict[str, list[str]]:
    names = dict.fromkeys(op.partition(":")[2] for op in (*advice.attached.us, *advice.detached.us))

    def cells(name: str) -> list[str]:
        ops = [f"{kind}:{name}" for kind in "FBU"]
        times = [costs.us.get(op) for op in ops]
        total = sum(t for t in times if t is not None)
        busy = sum(t * costs.fill_of(op) for op, t in zip(ops, times, strict=True) if t is not None)
        fill = NOT_THERE if advice.serial or not total else f"{100 * busy / total:.0f} %"
        return [*(NOT_THERE if t is None else f"{t / 1000:.3f}" for t in times), fill]

    return {name: cells(name) for name in names}


def _explanation(advice: Advice) -> str:
    base = advice.baseline
    text = f"baseline: {base.step_us / 1000:.3f} ms a step predicted, {advice.baseline_ms:.3f} measured"
    if advice.serial:
        return f"{text}; operations run one after the other here, so what can be gained is work removed"
    return f"{text}; longest chain {base.critical_path_us / 1000:.3f} ms, device full for {base.saturation_us / 1000:.3f} ms"


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
