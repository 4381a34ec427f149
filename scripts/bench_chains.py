"""Time a chain's schedules against the captured end-to-end model on one GPU.

    python -m scripts.bench_chains --experiment mlp30 --out DIR --point chain.width=512,trainer.batch_size=256
    python -m scripts.bench_chains --experiment transformer --out DIR --point trainer.batch_size=8 ...

One process; the rows of a point take turns; every step trains on a fresh batch that is copied into static inputs.
Both sides have the same kernels, compilation and fused update.
"""

from __future__ import annotations

import argparse
import gc
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from recsys.schedule.executors.cuda_graph import GraphExecutor
from recsys.schedule.overlap import load_spans, saturation_estimate
from scripts.chain_lab import chain_pool, chain_runner
from scripts.schedule_lab import Runner, interleave, load_config, percentile, profile_step, warm_up

BASELINE = "end to end + sequential_graph"
SERIAL = "cut + sequential_graph"


def rows_of(lanes: list[int], sms: list[int]) -> list[tuple[str, bool, dict[str, Any]]]:
    """(label, cut, schedule)."""
    late: dict[str, Any] = {"name": "erase_graph", "early_update": False}
    rows: list[tuple[str, bool, dict[str, Any]]] = [
        (BASELINE, False, {"name": "sequential_graph", "early_update": False}),
        (SERIAL, True, {"name": "sequential_graph", "early_update": False}),
    ]
    rows += [(f"cut + erase_graph, {n} lanes", True, late | {"num_lanes": n}) for n in lanes]
    most = {"num_lanes": lanes[-1]}
    rows += [(f"cut + erase_graph, {lanes[-1]} lanes, gemm_sms={s}", True, late | most | {"gemm_sms": s}) for s in sms]
    early = {"name": "erase_graph", "early_update": True, "num_lanes": lanes[-1]}
    rows.append((f"cut + erase_graph, {lanes[-1]} lanes, early update", True, early))
    return rows


def measure(args: argparse.Namespace, point: list[str]) -> dict[str, Any]:
    """All rows of one point."""
    device = torch.device("cuda")
    cfg = load_config(args.experiment, ["trainer.precision=bf16", *args.overrides, *point])
    pool = chain_pool(cfg, 32, device)
    runners: list[Runner] = []
    for label, cut, schedule in rows_of(args.lanes, args.gemm_sms):
        runner = chain_runner(cfg, label, device, cut=cut, **schedule)
        warm_up(runner, pool)
        runners.append(runner)
        gc.collect()
    interleave(runners, pool, args.rounds, args.steps)
    rows: dict[str, Any] = {}
    for runner in runners:
        assert isinstance(runner.executor, GraphExecutor)
        p10, median, p90 = (percentile(runner.times_ms, q) for q in (0.1, 0.5, 0.9))
        rows[runner.label] = {"median_ms": median, "p10_ms": p10, "p90_ms": p90, **asdict(runner.executor.report)}
    spans = load_spans(profile_step(runners[1], pool))
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    return {"point": point, "batch_size": cfg["trainer"]["batch_size"], "rows": rows,
            "saturation_ms": saturation_estimate(spans, sms) / 1e3,
            "kernel_sum_ms": sum(s.duration for s in spans) / 1e3}  # fmt: skip


def markdown(experiment: str, results: list[dict[str, Any]]) -> str:
    """A table a point."""
    lines = [f"### {experiment}", "", "| point | row | median ms | p10 | p90 | time saved | kernels |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for result in results:
        base = result["rows"][BASELINE]["median_ms"]
        for label, r in result["rows"].items():
            lines.append(f"| {' '.join(result['point'])} | {label} | {r['median_ms']:.3f} | {r['p10_ms']:.3f} "
                         f"| {r['p90_ms']:.3f} | {1 - r['median_ms'] / base:.0%} | {r['kernels']} |")  # fmt: skip
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure every point and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="mlp30")
    parser.add_argument("--point", action="append", required=True, help="overrides, divided by commas")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--lanes", type=lambda s: [int(x) for x in s.split(",")], default=[3, 6, 8])
    parser.add_argument("--gemm-sms", type=lambda s: [int(x) for x in s.split(",") if x], default=[])
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    for point in args.point:
        results.append(measure(args, point.split(",")))
        (args.out / f"chain_{args.experiment}.json").write_text(json.dumps(results, indent=1))
        gc.collect()
        torch.cuda.empty_cache()
    table = markdown(args.experiment, results)
    (args.out / f"chain_{args.experiment}.md").write_text(table)
    print(table)


if __name__ == "__main__":
    main()
