"""Time every schedule of one experiment against the strongest end-to-end baseline on one GPU.

    python -m scripts.bench_schedules --experiment bench_proxy --batch-sizes 256,512,1024,2048,4096 --out DIR

A process a batch size compiles at its leisure beside the others, then they measure one at a time. Within one,
schedules take turns; every step trains on a fresh batch, copied into static inputs where a graph replays.
Running with less than a schedule's name says is an error here.
"""

from __future__ import annotations

import argparse
import copy
import fcntl
import gc
import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from recsys.models.recommender import SPARSE
from recsys.schedule.executors.cuda_graph import GraphExecutor
from recsys.schedule.factory import ScheduleConfig
from recsys.schedule.overlap import achieved_fraction, critical_path, load_spans, op_durations, saturation_estimate
from scripts.eager_loop import sparse_dist_step
from scripts.schedule_lab import (
    Config,
    Contender,
    Runner,
    baseline_of,
    batch_pool,
    bench_spec,
    build_contender,
    build_runner,
    interleave,
    load_config,
    percentile,
    profile_step,
    step_memory,
    warm_up,
)
from scripts.schedule_table import markdown

POOL = 64
BASELINE = "baseline6 + sequential_graph"


def graph_schedules(sms: int) -> list[tuple[str, str, ScheduleConfig]]:
    """(label, contender, schedule) of the rows that are replayed."""
    early: dict[str, Any] = {"early_update": True, "strict": True}

    def row(who: str, name: str, **options: Any) -> tuple[str, str, ScheduleConfig]:
        shown = [f"{k}={'+'.join(v) if isinstance(v, tuple) else v}" for k, v in options.items()]
        return ", ".join([f"{who} + {name}", *shown]), who, ScheduleConfig(name, **options, **early)

    wukong, heaviest = ("wukong",), ("wukong", "attention", "masknet")
    return [
        (BASELINE, "baseline6", ScheduleConfig("sequential_graph", strict=True)),
        row("baseline6", "branch_graph"),
        row("baseline6", "branch_graph", urgent=wukong),
        row("baseline6", "branch_graph", gemm_sms=sms, urgent=wukong),
        ("erase + sequential_graph", "erase", ScheduleConfig("sequential_graph", strict=True)),
        row("erase", "erase_graph"),
        row("erase", "erase_graph", gemm_sms=sms),
        row("erase", "erase_graph", gemm_sms=sms, urgent=wukong),
        row("erase", "erase_graph", gemm_sms=sms, urgent=heaviest),
        row("own", "erase_graph", gemm_sms=sms, urgent=wukong),
    ]


EAGER = [
    ("baseline6 + sequential", "baseline6", ScheduleConfig("sequential", strict=True)),
    ("baseline6 + branch", "baseline6", ScheduleConfig("branch", strict=True)),
    ("erase + erase_blocking", "erase", ScheduleConfig("erase_blocking", strict=True)),
    ("erase + erase_threads", "erase", ScheduleConfig("erase_threads", strict=True)),
]


def build_pair(cfg: Config, size: int, device: torch.device) -> dict[str, Contender]:
    """The experiment's model, its baseline, and the model whose detached parts all train the embeddings, too.

    They share the tables: values do not matter here, memory does.
    """
    spec = bench_spec()
    cfg["name"] = "erase"
    pair = {"erase": build_contender(cfg, spec, device)}
    tables = pair["erase"].model.parts[SPARSE]
    pair["baseline6"] = build_contender(baseline_of(cfg), spec, device, tables=tables)
    own = copy.deepcopy(cfg)
    own["name"] = "own"
    own["model"]["embedding_grad_from"] = "all"
    pair["own"] = build_contender(own, spec, device, tables=tables)
    return pair


def measure(args: argparse.Namespace, size: int) -> dict[str, Any]:
    """All rows of one batch size."""
    device = torch.device("cuda")
    cfg = load_config(args.experiment, args.overrides)
    pair = build_pair(cfg, size, device)
    pool = batch_pool(pair["erase"].spec, size, POOL, device)
    for contender in pair.values():  # compile both forms of the update, too
        for early in (False, True):
            warm_up(build_runner(contender, ScheduleConfig("sequential", early_update=early)), pool, 3)
    gc.collect()
    torch.cuda.empty_cache()
    wait_for_turn(args, size)
    with (Path(args.out) / "turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        wanted = [r for r in graph_schedules(args.gemm_sms) if not any(word in r[0] for word in args.skip)]
        rows = [_row(label, pair[who], schedule, pool) for label, who, schedule in wanted]
        interleave([runner for runner, _ in rows], pool, args.rounds, args.steps)
        result: dict[str, Any] = {"batch_size": size, "rows": {r.label: _figures(r, info, size) for r, info in rows}}
        serial = next(r for r, _ in rows if r.label == "erase + sequential_graph")
        result["limits"] = limits(serial, pool)
        result["memory"] = memory(pair, pool)
        if size in args.eager_sizes:
            result["rows"] |= eager_rows(args, cfg, pair, pool, size)
    _add_fractions(result)
    return result


def _row(label: str, contender: Contender, schedule: ScheduleConfig, pool: list[Any]) -> tuple[Runner, dict[str, Any]]:
    runner = build_runner(contender, schedule, label)
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    warm_up(runner, pool)
    torch.cuda.empty_cache()
    info: dict[str, Any] = {"reserved_mib": (torch.cuda.memory_reserved() - before) / 2**20}
    if isinstance(runner.executor, GraphExecutor):
        info |= asdict(runner.executor.report)
    return runner, info


def _figures(runner: Runner, info: dict[str, Any], size: int) -> dict[str, Any]:
    times = runner.times_ms
    if isinstance(runner.executor, GraphExecutor):
        assert runner.executor.report.fallback is None, runner.executor.report
        info["replays"] = runner.executor.report.replays
    p10, median, p90 = (percentile(times, q) for q in (0.1, 0.5, 0.9))
    # The paper reports the 90th percentile of per-step examples/s, which is the fast end.
    return {"median_ms": median, "p10_ms": p10, "p90_ms": p90, "steps": len(times),
            "rows_per_s": size / median * 1e3, "p90_rows_per_s": size / p10 * 1e3, **info}  # fmt: skip


def limits(serial: Runner, pool: list[Any]) -> dict[str, Any]:
    """Longest dependency path and saturation estimate of the detached model, from one eager step's kernels."""
    runner = build_runner(serial.contender, ScheduleConfig("sequential"))
    spans = load_spans(profile_step(runner, pool))
    total = sum(s.duration for s in spans)
    # A replay's gap between two kernels of one lane; an eager step's gaps are the host's.
    gap = max(0.0, (percentile(serial.times_ms, 0.5) * 1e3 - total) / len(spans))
    durations = {op: d + gap * n for op, (d, n) in op_durations(spans).items()}
    length, path = critical_path(serial.program, durations)
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    return {"critical_ms": length / 1e3, "critical_path": path, "saturation_ms": saturation_estimate(spans, sms) / 1e3,
            "kernel_sum_ms": total / 1e3, "kernels": len(spans), "gap_us": gap, "ops_us": durations}  # fmt: skip


def memory(pair: dict[str, Contender], pool: list[Any]) -> dict[str, float]:
    """MiB above the step's start at the peak of one compiled, eager step."""
    end_to_end = build_runner(pair["baseline6"], ScheduleConfig("sequential"))
    early = ScheduleConfig("erase_blocking", early_update=True, update_lane=False)
    serial = Runner("", pair["erase"], build_runner(pair["erase"], early).program, end_to_end.executor)
    runners = {
        "baseline6": end_to_end,
        "erase": build_runner(pair["erase"], early),
        "erase on one lane": serial,
        "own": build_runner(pair["own"], early),
    }
    return {name: step_memory(runner, pool) / 2**20 for name, runner in runners.items()}


def eager_rows(
    args: argparse.Namespace, cfg: Config, pair: dict[str, Contender], pool: list[Any], size: int
) -> dict[str, Any]:
    """Rows that launch every kernel from the host, the plain torchrec loop among them."""
    runners = [build_runner(pair[who], schedule, label) for label, who, schedule in EAGER]
    for runner in runners:
        warm_up(runner, pool)
    interleave(runners, pool, 2, args.eager_steps)
    found = {r.label: _figures(r, {}, size) for r in runners}
    host_pool = [b.to(torch.device("cpu")).pin_memory() for b in pool[:16]]
    step = sparse_dist_step(baseline_of(cfg), pair["erase"].spec, pair["erase"].device, host_pool)
    for _ in range(10):
        step()
    times: list[float] = []
    for _ in range(2 * args.eager_steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    loop = Runner("baseline6, eager torchrec TrainPipelineSparseDist", runners[0].contender, runners[0].program,
                  runners[0].executor, times)  # fmt: skip
    torch.distributed.destroy_process_group()
    return found | {loop.label: _figures(loop, {}, size)}


def _add_fractions(result: dict[str, Any]) -> None:
    rows, limit = result["rows"], result["limits"]
    serial = rows["erase + sequential_graph"]["median_ms"]
    for label, row in rows.items():
        row["speedup"] = rows[BASELINE]["median_ms"] / row["median_ms"]
        if label.startswith("erase + erase_graph"):
            row["eta"] = achieved_fraction(serial, row["median_ms"], limit["critical_ms"])


def wait_for_turn(args: argparse.Namespace, size: int) -> None:
    """Wait until the process of every batch size is done compiling."""
    out = Path(args.out)
    (out / f"ready_{args.experiment}_{size}").touch()
    while len(list(out.glob("ready_*"))) + len(list(out.glob("failed_*"))) < args.workers:
        time.sleep(0.5)


def main() -> None:
    """Start a process a batch size, gather and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="bench_proxy")
    parser.add_argument("--batch-sizes", default="256,512,1024,2048,4096")
    parser.add_argument("--out", required=True, help="folder for JSON and Markdown")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=500, help="timed steps of a schedule in a round")
    parser.add_argument("--eager-sizes", type=lambda s: [int(x) for x in s.split(",") if x], default=[512])
    parser.add_argument("--eager-steps", type=int, default=50)
    parser.add_argument("--gemm-sms", type=int, default=44)
    parser.add_argument("--skip", type=lambda s: s.split(";"), default=[], help="leave out rows with these words")
    parser.add_argument("--workers", type=int, default=0, help="processes to wait for before measuring")
    parser.add_argument("--worker", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    name = f"{args.experiment}_{{}}.json"
    if args.worker:
        try:
            result = measure(args, args.worker)
        except BaseException:
            (out / f"failed_{args.experiment}_{args.worker}").touch()
            raise
        (out / name.format(args.worker)).write_text(json.dumps(result, indent=1))
        return
    sizes = [int(s) for s in args.batch_sizes.split(",")]
    workers = args.workers or len(sizes)
    command = [sys.executable, "-m", "scripts.bench_schedules", *sys.argv[1:], "--workers", str(workers)]
    processes = [subprocess.Popen([*command, "--worker", str(size)]) for size in sizes]
    failed = [size for size, process in zip(sizes, processes, strict=True) if process.wait()]
    results = [json.loads(p.read_text()) for s in sizes if (p := out / name.format(s)).is_file()]
    table = markdown(args.experiment, results)
    (out / f"{args.experiment}.md").write_text(table)
    print(table)
    if failed:
        sys.exit(f"error: no result for batch sizes {failed}")


if __name__ == "__main__":
    main()
