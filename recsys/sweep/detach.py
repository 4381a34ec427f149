"""What the runs of a sweep say about which parts to detach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recsys.compare.detach_search import DetachSet, Measured, Step, greedy_detach_set, measured_sets
from recsys.errors import DataError
from recsys.report.record import RunRecord


@dataclass(frozen=True)
class DetachFindings:
    """The answer of measured runs, and how far to trust it.

    Attributes:
        table: what was measured, by set.
        path: of the greedy search by NE per millisecond; its last step is the answer. None where runs that it needs
            are missing; ``missing`` names the first.
        fastest: the fastest measured set within the budget; None without a run that detaches nothing.
        max_gap_percent: the budget: how far NE may rise above that of nothing detached.
        seeds: the fewest runs that a set has.
    """

    table: dict[DetachSet, Measured]
    path: list[Step] | None
    missing: str | None
    fastest: DetachSet | None
    max_gap_percent: float
    seeds: int


def find_detach_set(records: Sequence[RunRecord], max_gap_percent: float) -> DetachFindings:
    """Search among the sets that ``records`` measured.

    Raises:
        ConfigError: the runs differ in more than what is detached and the seed.
        DataError: a run is damaged or holds no speed, or there is none.
    """
    if not records:
        raise DataError("there is no finished run to search among")
    table = measured_sets(records)
    counts = [sum(frozenset(r.report.detached) == detach for r in records) for detach in table]
    parts = sorted(set().union(*table))
    path, missing = None, None
    try:
        path = greedy_detach_set(table, parts, max_gap_percent=max_gap_percent)
    except DataError as error:
        missing = str(error)
    fastest = None
    if (start := table.get(frozenset())) is not None:
        allowed = [d for d, m in table.items() if 100 * (m.ne / start.ne - 1) <= max_gap_percent]
        fastest = min(allowed, key=lambda detach: (table[detach].step_ms, len(detach)))
    return DetachFindings(table, path, missing, fastest, max_gap_percent, min(counts))


def sentences(findings: DetachFindings) -> list[str]:
    """The findings in words, a line each."""
    start = findings.table.get(frozenset())
    lines = [
        f"{len(findings.table)} sets measured, {findings.seeds} run{'s' if findings.seeds > 1 else ''} each or more; "
        f"NE may rise by {findings.max_gap_percent:g} % above that of nothing detached"
    ]
    if start is None:
        return [*lines, "no run has model.detach=[]: add it, the others are measured against it"]
    lines.append(f"nothing detached: NE {start.ne:.5f}, {start.step_ms:.2f} ms a step")
    if findings.path is None:
        lines.append(f"no greedy search: {findings.missing}")
    for before, step in zip(findings.path or [], (findings.path or [])[1:], strict=False):
        (part,) = step.detach - before.detach
        lines.append(f"+ {part}: NE {step.gap_percent:+.3f} %, {step.measured.step_ms:.2f} ms a step")
    if findings.path is not None and len(findings.path) == 1:
        lines.append("greedy search: no single part saves time within the budget; detach nothing")
    elif findings.path is not None:
        lines.append(f"greedy search: model.detach={_show(findings.path[-1].detach)}")
    if findings.fastest is not None:
        best = findings.table[findings.fastest]
        lines.append(
            f"fastest measured set within the budget: model.detach={_show(findings.fastest)}, "
            f"NE {100 * (best.ne / start.ne - 1):+.3f} %, {best.step_ms:.2f} ms a step"
        )
    if findings.seeds < 3:
        lines.append(
            "so few seeds do not tell a gap from noise: compare the sets that matter over seeds (scripts.compare)"
        )
    return lines


def _show(detach: DetachSet) -> str:
    return f"[{','.join(sorted(detach))}]"
