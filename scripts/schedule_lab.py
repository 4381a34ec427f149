"""What the schedule benchmark, the tracer and the GPU tests share: models, batches and timed steps on one GPU."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.config.cli import compose, to_plain
from recsys.config.wire import build_autocast, build_model
from recsys.features import FeatureSpec, SparseFeature
from recsys.models.recommender import DENSE, MAIN_PATH, SPARSE, Recommender
from recsys.optim.dense import DenseOptimConfig
from recsys.optim.device_lr import make_capturable
from recsys.optim.fused_updates import FusedUpdates
from recsys.run import baseline_config
from recsys.schedule.compile import compile_parts
from recsys.schedule.executors.base import Executor
from recsys.schedule.executors.cuda_graph import GraphExecutor
from recsys.schedule.factory import ScheduleConfig, build_executor, build_program
from recsys.schedule.program import Program
from recsys.schedule.step import Add, ModuleParts, StepResult, add_in_order
from recsys.schedule.updates import OptimizerUpdates
from recsys.schedule.weights import CastWeights
from recsys.train.static_batch import StaticBatches
from recsys.types import Batch

Config = dict[str, Any]

NUM_DENSE = 13
NUM_TABLES = 26


def bench_spec(rows: int = 1_000_000, tables: int = NUM_TABLES) -> FeatureSpec:
    """13 dense features and ``tables`` one-hot features of ``rows`` rows each."""
    dense = tuple(f"I{i + 1}" for i in range(NUM_DENSE))
    return FeatureSpec(dense, tuple(SparseFeature(f"C{i + 1}", rows) for i in range(tables)))


def load_config(experiment: str, overrides: Sequence[str] = ()) -> Config:
    """The resolved configuration of ``+experiment=<experiment>``."""
    return to_plain(compose([f"+experiment={experiment}", *overrides]))


def baseline_of(cfg: Config) -> Config:
    """``baseline6``: the same architecture, nothing detached, no local losses."""
    return baseline_config(cfg) | {"name": "baseline6"}


def batch_pool(spec: FeatureSpec, size: int, number: int, device: torch.device, seed: int = 0) -> list[Batch]:
    """``number`` distinct batches on the device, ids skewed like click logs (density falling as id^-3/4)."""
    generator = torch.Generator(device=device).manual_seed(seed)
    rows = torch.tensor([f.cardinality for f in spec.sparse], device=device).unsqueeze(1)
    num = len(spec.sparse) * size
    pool: list[Batch] = []
    for _ in range(number):
        skew = torch.rand(len(spec.sparse), size, device=device, generator=generator, dtype=torch.float64) ** 4
        values = (skew * rows).long().reshape(-1)
        sparse = KeyedJaggedTensor(
            keys=spec.sparse_names,
            values=values,
            lengths=torch.ones(num, dtype=torch.int64, device=device),
            offsets=torch.arange(num + 1, dtype=torch.int64, device=device),
            stride=size,
        )
        dense = torch.randn(size, len(spec.dense), device=device, generator=generator)
        labels = (torch.rand(size, device=device, generator=generator) < 0.25).float()
        pool.append(Batch(dense, sparse, labels, torch.ones(size, device=device)))
    return pool


@dataclass
class Contender:
    """A model with its parts, ready to be driven by any schedule.

    Attributes:
        label: name in tables.
    """

    label: str
    cfg: Config
    spec: FeatureSpec
    model: Recommender
    parts: ModuleParts
    optimizers: dict[str, torch.optim.Optimizer]
    device: torch.device

    @property
    def inputs(self) -> StaticBatches:
        """How batches get to static addresses."""
        return StaticBatches(self.spec)


def build_contender(
    cfg: Config,
    spec: FeatureSpec,
    device: torch.device,
    *,
    compiled: bool = True,
    options: Config | None = None,
    tables: nn.Module | None = None,
) -> Contender:
    """Build the model of ``cfg`` with optimizers whose state lives on the device, and compile its parts.

    ``tables`` is another model's sparse part to share.
    """
    model = build_model(cfg, spec if tables is None else bench_spec(2, len(spec.sparse)), device).train()
    if tables is not None:
        model.parts[SPARSE] = tables
    optim = DenseOptimConfig(**{k: v for k, v in cfg["optim"].items() if k != "lr_schedule"})
    optimizers = {n: optim.build(p) for n in model.graph.names if (p := model.dense_parameters(n))}
    make_capturable(optimizers, device)
    modules = dict(model.parts.items())
    weights: CastWeights | None = None
    add: Add = add_in_order
    if compiled:
        if cfg["trainer"]["precision"] == "bf16":
            weights = CastWeights({n: m for n, m in modules.items() if n != SPARSE}, torch.bfloat16)
        add = compile_parts(model.graph, modules, weights=weights, options=options)
    updates = FusedUpdates(optimizers, weights) if compiled else OptimizerUpdates(optimizers)
    parts = ModuleParts(
        model.graph,
        modules,
        optimizers,
        autocast=build_autocast(cfg, device),
        add=add,
        weights=weights,
        updates=updates,
    )
    return Contender(cfg["name"], cfg, spec, model, parts, optimizers, device)


@dataclass
class Runner:
    """A contender under one schedule.

    Attributes:
        contender: a :class:`Contender`, or a chain's with the same ``parts``, ``device`` and ``inputs``.
        times_ms: per-step times gathered so far.
    """

    label: str
    contender: Any
    program: Program
    executor: Executor
    times_ms: list[float] = field(default_factory=list)

    def __call__(self, batch: Any) -> StepResult:
        """Train one step."""
        return self.executor.run(self.program, self.contender.parts, batch)


def build_runner(
    contender: Contender, config: ScheduleConfig, label: str | None = None, *, outside: frozenset[str] = frozenset()
) -> Runner:
    """Put a contender under the schedule of ``config``."""
    program = build_program(config, contender.model.graph, MAIN_PATH - {DENSE})
    inputs = contender.inputs
    if not inputs.has_static_ids:
        outside |= {SPARSE}
    executor = build_executor(config, program, contender.device, inputs, outside=outside)
    return Runner(label or f"{contender.label} + {config.name}", contender, program, executor)


def warm_up(runner: Runner, pool: Sequence[Any], steps: int = 8) -> None:
    """Steps that compile, capture and settle.

    Raises:
        RuntimeError: a graph schedule did not capture.
    """
    for i in range(steps):
        runner(pool[i % len(pool)])
    torch.cuda.synchronize()
    if isinstance(runner.executor, GraphExecutor) and not runner.executor.report.replays:
        raise RuntimeError(f"{runner.label}: no step was replayed ({runner.executor.report})")


def timed_turn(step: Callable[[Any], Any], pool: Sequence[Any], steps: int, offset: int = 0) -> list[float]:
    """Milliseconds from the start of each step to the start of the next, on the device's clock."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    for i in range(steps):
        events[i].record()
        step(pool[(offset + i) % len(pool)])
    events[steps].record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in itertools.pairwise(events)]


def interleave(runners: Sequence[Runner], pool: Sequence[Any], rounds: int, steps: int) -> None:
    """Let the runners take turns; the order flips every round, and a turn's first steps are not counted."""
    lead_in = 10
    for number in range(rounds):
        order = runners if number % 2 == 0 else list(reversed(runners))
        for runner in order:
            runner.times_ms += timed_turn(runner, pool, steps + lead_in, number * steps)[lead_in:]


def percentile(values: Sequence[float], q: float) -> float:
    """The ``q`` quantile (0 to 1) of ``values``."""
    return float(torch.tensor(values, dtype=torch.float64).quantile(q))


median = partial(percentile, q=0.5)


def step_memory(runner: Runner, pool: Sequence[Any]) -> int:
    """Bytes allocated above the step's start at the peak of one eager step."""
    for batch in pool[:3]:
        runner(batch)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_allocated()
    runner(pool[0])
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - start


def profile_step(runner: Runner, pool: Sequence[Any], steps: int = 1) -> dict[str, Any]:
    """The Chrome trace of ``steps`` steps."""
    for batch in pool[:3]:
        runner(batch)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        for batch in pool[:steps]:
            runner(batch)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        trace: dict[str, Any] = json.loads(path.read_text())
    return trace
