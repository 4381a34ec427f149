"""The schedule benchmark's results as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BASELINE = "baseline6 + sequential_graph"
BRANCH = "baseline6 + branch_graph"
ERASE = "erase + erase_graph"
SERIAL = "erase + sequential_graph"


def markdown(experiment: str, results: Sequence[dict[str, Any]]) -> str:
    """Summary, memory and limits, and every row."""
    lines = [f"### {experiment}", "", *_summary(results), "", *_limits(results), "", *_rows(results), ""]
    return "\n".join(lines)


def best_ms(rows: dict[str, Any], prefix: str) -> float:
    """Median of the fastest row whose label starts with ``prefix``."""
    return min(r["median_ms"] for label, r in rows.items() if label.startswith(prefix))


def _summary(results: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "| B | baseline6 sequential_graph ms | baseline6 branch_graph ms | erase sequential_graph ms "
        "| erase erase_graph ms | erase_graph over baseline6 sequential_graph | of that, work removed "
        "| of that, overlap "
        "| erase_graph over baseline6 branch_graph |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        rows = result["rows"]
        base, branch, serial, erase = (best_ms(rows, p) for p in (BASELINE, BRANCH, SERIAL, ERASE))
        lines.append(
            f"| {result['batch_size']} | {base:.3f} | {branch:.3f} | {serial:.3f} | {erase:.3f} "
            f"| **{base / erase:.2f}** | {base / serial:.2f} | {serial / erase:.2f} | **{branch / erase:.2f}** |"
        )
    return lines


def _limits(results: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "| B | longest dependency path ms | saturation estimate ms | kernels | eta | peak of step, baseline6 MiB "
        "| erase MiB | ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        limit, memory = result["limits"], result["memory"]
        eta = max(r["eta"] for r in result["rows"].values() if "eta" in r)
        base, erase = memory["baseline6"], memory["erase"]
        lines.append(
            f"| {result['batch_size']} | {limit['critical_ms']:.3f} | {limit['saturation_ms']:.3f} "
            f"| {limit['kernels']} | {eta:.2f} | {base:.0f} | {erase:.0f} | {erase / base:.2f} |"
        )
    return lines


def _rows(results: Sequence[dict[str, Any]]) -> list[str]:
    lines = [
        "| B | row | median ms | p10 | p90 | rows/s (median) | rows/s (90th percentile) "
        "| over baseline6 sequential_graph | kernels | graph memory MiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in results:
        for label, r in result["rows"].items():
            kernels = r.get("kernels", "")
            reserved = f"{r['reserved_mib']:.0f}" if kernels else ""
            lines.append(
                f"| {result['batch_size']} | {label} | {r['median_ms']:.3f} | {r['p10_ms']:.3f} | {r['p90_ms']:.3f} "
                f"| {r['rows_per_s']:,.0f} | {r['p90_rows_per_s']:,.0f} | {r['speedup']:.2f} | {kernels} | {reserved} |"
            )
    return lines
