"""Trace an experiment under two schedules on a GPU: Chrome traces, overlap metrics, and a timeline of both.

    python -m scripts.trace_schedule --experiment bench_proxy --batch-size 512 --out DIR

Writes ``serial.json`` (``sequential_graph``) and ``erase.json`` (``erase_graph``) for Chrome or Perfetto,
``overlap.json`` and ``timeline.png``. Both are replays of one CUDA graph; which operation a kernel belongs to is
read off an eager step of the same program.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from recsys.schedule.executors.gemm_sms import gemm_sms
from recsys.schedule.executors.streams import StreamExecutor
from recsys.schedule.factory import ScheduleConfig
from recsys.schedule.op import Kind
from recsys.schedule.overlap import (
    Span,
    achieved_fraction,
    critical_path,
    label_replay,
    load_spans,
    measure_overlap,
    op_durations,
    op_saturations,
    saturation_estimate,
)
from scripts.chain_lab import chain_pool, chain_runner
from scripts.schedule_lab import (
    Config,
    Runner,
    batch_pool,
    bench_spec,
    build_contender,
    build_runner,
    interleave,
    load_config,
    median,
    profile_step,
    warm_up,
)

_COLOURS = {"F": "#4878a8", "B": "#d97b3f", "U": "#5b9a5b", "": "#b0b0b0"}
_STEPS = 4


def replay_spans(runner: Runner, pool: Sequence[Any], sms: int) -> tuple[list[Span], dict[str, Any]]:
    """Labelled spans of the last of several replays, and the trace of all of them."""
    device = runner.contender.device
    inputs = runner.contender.inputs
    static = inputs.allocate(pool[0])
    inputs.load(static, pool[0])
    eager = replace(runner, executor=StreamExecutor(device))
    with gemm_sms(sms or None):
        launched = load_spans(profile_step(eager, [static] * 4))
    trace = profile_step(runner, pool, _STEPS)
    spans = load_spans(trace)
    each = len(spans) // _STEPS
    return label_replay(spans[-each:], launched, runner.program), trace


def draw(rows: Sequence[tuple[str, list[Span]]], path: Path) -> None:
    """Lanes by time, one panel a schedule, forward, backward and update coloured."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.patches import Patch

    figure, axes = plt.subplots(len(rows), 1, figsize=(11, 5.6), sharex=True, constrained_layout=True)
    for axis, (title, spans) in zip(axes, rows, strict=True):
        spans = [s if "," not in s.part else replace(s, op="U:updates@0") for s in spans]
        lanes = sorted({s.part for s in spans if s.part}, key=lambda p: min(x.start for x in spans if x.part == p))
        at = {part: len(lanes) - 1 - i for i, part in enumerate(lanes)}
        begin = spans[0].start
        for span in spans:
            if span.part:
                axis.broken_barh([(span.start - begin, span.duration)], (at[span.part] - 0.4, 0.8),
                                 color=_COLOURS[span.phase], linewidth=0)  # fmt: skip
        axis.set_yticks(list(at.values()), list(at))
        axis.set_title(title, loc="left", fontsize=10)
        axis.tick_params(labelsize=8)
    axes[-1].set_xlabel("microseconds")
    names = {"F": "forward", "B": "backward", "U": "update"}
    axes[0].legend(handles=[Patch(color=_COLOURS[k], label=v) for k, v in names.items()], fontsize=8, loc="lower right")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Trace, measure and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="bench_proxy")
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--gemm-sms", type=int, default=44)
    parser.add_argument("--out", required=True)
    parser.add_argument("overrides", nargs="*")
    args = parser.parse_args()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda")
    cfg = load_config(args.experiment, [f"trainer.batch_size={args.batch_size}", *args.overrides])
    rows, pool = _chain_rows(cfg, args, device) if "chain" in cfg else _recommender_rows(cfg, args, device)
    for runner in rows.values():
        warm_up(runner, pool)
    interleave(list(rows.values()), pool, 2, 200)
    times = {name: median(r.times_ms) for name, r in rows.items()}
    spans: dict[str, list[Span]] = {}
    for name, runner in rows.items():
        spans[name], trace = replay_spans(runner, pool, args.gemm_sms if name == "erase" else 0)
        (out / f"{name}.json").write_text(json.dumps(trace))
    report = _report(rows, spans, times)
    (out / "overlap.json").write_text(json.dumps(report, indent=1))
    draw([(f"{rows[n].label}: {times[n]:.2f} ms a step", spans[n]) for n in rows], out / "timeline.png")
    print(json.dumps(report, indent=1))


def _recommender_rows(
    cfg: Config, args: argparse.Namespace, device: torch.device
) -> tuple[dict[str, Runner], list[Any]]:
    model = build_contender(cfg, bench_spec(), device)
    serial = ScheduleConfig("sequential_graph", strict=True)
    urgent = tuple(cfg["schedule"]["urgent"])
    erase = ScheduleConfig("erase_graph", gemm_sms=args.gemm_sms, urgent=urgent, early_update=True, strict=True)
    rows = {
        "serial": build_runner(model, serial, "erase + sequential_graph"),
        "erase": build_runner(model, erase, "erase + erase_graph"),
    }
    return rows, batch_pool(bench_spec(), args.batch_size, 16, device)


def _chain_rows(cfg: Config, args: argparse.Namespace, device: torch.device) -> tuple[dict[str, Runner], list[Any]]:
    cfg["trainer"]["precision"] = "bf16"
    name = cfg["name"]
    rows = {
        "serial": chain_runner(cfg, f"{name} + sequential_graph", device, cut=True, name="sequential_graph",
                               early_update=False),
        "erase": chain_runner(cfg, f"{name} + erase_graph", device, cut=True, name="erase_graph",
                              gemm_sms=args.gemm_sms),
    }  # fmt: skip
    return rows, chain_pool(cfg, 16, device)


def _report(rows: dict[str, Runner], spans: dict[str, list[Span]], times: dict[str, float]) -> dict[str, Any]:
    program = rows["erase"].program
    last_forward = max(i for i, op in enumerate(program.ops) if op.kind is Kind.FORWARD)
    detached = {op.part for op in program.ops[:last_forward] if op.kind is Kind.BACKWARD}
    alone = spans["serial"]
    gap = max(0.0, times["serial"] * 1e3 - sum(s.duration for s in alone)) / len(alone)
    times = {k: d + gap * n for k, (d, n) in op_durations(alone).items()}
    limit, path = critical_path(program, times)
    sms = torch.cuda.get_device_properties(0).multi_processor_count
    busy = op_saturations(alone, sms)
    return {
        "median_ms": times,
        "unlabelled": {n: sum(not s.op for s in found) for n, found in spans.items()},
        "overlap": asdict(measure_overlap(spans["erase"], detached, alone)),
        "critical_path_us": limit,
        "saturation_us": saturation_estimate(alone, sms),
        "ops": {k: {"us": us, "fill": min(1.0, busy[k] / us)} for k, us in times.items() if k != ":" and us > 0},
        "critical_path": path,
        "eta": achieved_fraction(times["serial"] * 1e3, times["erase"] * 1e3, limit),
        "timeline": {n: [[s.op, s.start - f[0].start, s.duration, s.stream] for s in f] for n, f in spans.items()},
    }


if __name__ == "__main__":
    main()
