"""The advisor: measure parts, predict sets, measure the best few, recommend one."""

from __future__ import annotations

import copy
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from recsys.advise.costs import Costs, mix
from recsys.advise.measure import clock_for, profile_operations, time_operations
from recsys.advise.predict import Prediction, predict
from recsys.advise.recommend import DetachSet, Gain, Recommendation, gain, recommend
from recsys.config.check import check_config
from recsys.config.cuts import resolve_cuts
from recsys.config.wire import Config, build_data, build_device, build_model, build_program, build_stepper
from recsys.data.source import DataSplits
from recsys.errors import ConfigError
from recsys.models.recommender import build_graph
from recsys.report import describe_environment
from recsys.run import baseline_config
from recsys.schedule.program import Program
from recsys.train.stepper import Stepper
from recsys.train.timing import time_interleaved

_MOST_PARTS = 12  # 4096 sets


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        op_steps: steps in which operations are timed one by one.
        rounds, steps: turns of each measured set, and training steps a turn.
        top: how many of the sets that are predicted best are measured.
    """

    op_steps: int = 20
    rounds: int = 15
    steps: int = 5
    top: int = 3


@dataclass(frozen=True)
class Candidate:
    """A set of detached parts; ``measured`` and ``step_ms`` are None where only predicted."""

    detach: DetachSet
    prediction: Prediction
    predicted_gain: float
    measured: Gain | None = None
    step_ms: float | None = None


@dataclass(frozen=True)
class Advice:
    """Everything that the advisor found.

    Attributes:
        parts: those that can be detached.
        attached, detached: costs of the model's operations with none and with all of them detached.
        baseline: prediction of the end-to-end baseline; ``baseline_ms`` its measured step.
        candidates: every set, the best predicted first.
        serial: whether the device runs operations one after the other, so that a gain is work removed.
        clock: ``cpu`` or ``wall``; see ``clock_for``.
    """

    experiment: str
    batch_size: int
    parts: tuple[str, ...]
    attached: Costs
    detached: Costs
    baseline: Prediction
    baseline_ms: float
    candidates: list[Candidate]
    recommendation: Recommendation
    serial: bool
    clock: str
    environment: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        raw = asdict(self)
        for candidate in (*raw["candidates"], raw["recommendation"]):
            candidate["detach"] = sorted(candidate["detach"])
        return raw


def advise(cfg: Config, effort: Effort, data: DataSplits | None = None, traced: Costs | None = None) -> Advice:
    """Measure, predict, measure again, recommend.

    Args:
        cfg: a resolved configuration; its own ``model.detach`` is measured, too.
        effort: how long to measure.
        data: what ``build_data(cfg)`` gives, where the caller has it already.
        traced: costs with everything detached from an earlier trace, taken instead of a profile.

    Raises:
        ConfigError: a model without parts to detach, or with too many.
    """
    if "chain" in cfg:
        raise ConfigError("chain: the advisor knows recommenders; scripts/bench_chains.py measures the cuts of a chain")
    check_config(cfg)
    device = build_device(cfg["trainer"]["device"])
    data = build_data(cfg) if data is None else data
    parts = _parts(cfg)
    models = {
        "baseline": baseline_config(cfg, device),
        "attached": with_detached(cfg, frozenset()),
        "detached": with_detached(cfg, frozenset(parts)),
    }
    costs = _measure_costs(models, data, device, effort)
    if traced is not None:
        costs["detached"] = traced
    serial = device.type != "cuda"
    has_dense = bool(data.spec.dense)
    baseline = predict(_program(models["baseline"], has_dense), costs["baseline"], serial=serial)
    candidates = [
        _candidate(cfg, detach, parts, costs, baseline, has_dense, serial)
        for size in range(1, len(parts) + 1)
        for detach in map(frozenset, itertools.combinations(parts, size))
    ]
    candidates.sort(key=lambda c: (-c.predicted_gain, len(c.detach)))
    own = resolve_cuts(cfg["model"]).detach
    chosen = [c.detach for c in candidates[: effort.top]]
    chosen += [s for s in dict.fromkeys((own, frozenset(parts))) if s and s not in chosen]
    baseline_s, seconds = _measure_steps(models["baseline"], cfg, chosen, data, device, effort)
    candidates = [_with_measured(c, baseline_s, seconds, effort.steps) for c in candidates]
    return Advice(
        experiment=cfg["name"],
        batch_size=cfg["trainer"]["batch_size"],
        parts=parts,
        attached=costs["attached"],
        detached=costs["detached"],
        baseline=baseline,
        baseline_ms=1000 * statistics.median(baseline_s) / effort.steps,
        candidates=candidates,
        recommendation=recommend(baseline_s, seconds, {c.detach: c.predicted_gain for c in candidates}),
        serial=serial,
        clock=clock_for(device)[0],
        environment=dict(describe_environment(device)),
    )


def with_detached(cfg: Config, detach: DetachSet) -> Config:
    """``cfg`` with another ``model.detach``."""
    changed = copy.deepcopy(cfg)
    changed["model"]["detach"] = sorted(detach)
    return changed


def _parts(cfg: Config) -> tuple[str, ...]:
    """Sub-architectures that can be detached: with a local loss, or one that comes with the detach."""
    parts = []
    for name in cfg["model"]["archs"]:
        cuts = resolve_cuts({**cfg["model"], "detach": [name]})
        if name in cuts.local_losses:
            parts.append(name)
    if not parts:
        raise ConfigError("model.archs: no sub-architecture that could be detached; use +experiment=erase6, say")
    if len(parts) > _MOST_PARTS:
        raise ConfigError(f"model.archs: {len(parts)} sub-architectures make too many sets; {_MOST_PARTS} at most")
    return tuple(parts)


def _program(cfg: Config, has_dense: bool) -> Program:
    graph = build_graph(list(cfg["model"]["archs"]), resolve_cuts(cfg["model"]), has_dense=has_dense)
    return build_program(cfg, graph)


def _candidate(
    cfg: Config,
    detach: DetachSet,
    parts: Sequence[str],
    costs: dict[str, Costs],
    baseline: Prediction,
    has_dense: bool,
    serial: bool,
) -> Candidate:
    mixed = mix(costs["attached"], costs["detached"], detach, parts)
    prediction = predict(_program(with_detached(cfg, detach), has_dense), mixed, serial=serial)
    return Candidate(detach, prediction, baseline.step_us / prediction.step_us)


def _measure_costs(
    models: dict[str, Config], data: DataSplits, device: torch.device, effort: Effort
) -> dict[str, Costs]:
    batches, (_, clock) = _batches(data, device), clock_for(device)
    if device.type != "cuda":
        return time_operations(
            {n: _stepper(c, data, device) for n, c in models.items()}, batches, effort.op_steps, clock
        )
    costs = {}
    for name, cfg in models.items():
        graph = _stepper(_scheduled(cfg, "sequential_graph"), data, device)
        timing = time_interleaved([graph], data.train, device, rounds=effort.rounds, steps=effort.op_steps)
        replay_us = 1e6 * statistics.median(timing.seconds[0]) / effort.op_steps
        costs[name] = profile_operations(_stepper(_scheduled(cfg, "sequential"), data, device), batches, replay_us)
    return costs


def _scheduled(cfg: Config, name: str) -> Config:
    changed = copy.deepcopy(cfg)
    changed["schedule"].update(name=name, trailing=False, lanes={})
    return changed


def _stepper(cfg: Config, data: DataSplits, device: torch.device) -> Stepper:
    return build_stepper(cfg, build_model(cfg, data.spec, device).train(), device, len(data.train))


def _batches(data: DataSplits, device: torch.device) -> list[Any]:
    data.train.load_state_dict({"epoch": 0, "batch": 0})
    batches = [batch.to(device) for batch in itertools.islice(iter(data.train), 8)]
    return [batch for batch in batches if batch.num_rows == batches[0].num_rows]


def _measure_steps(
    base: Config, cfg: Config, chosen: Sequence[DetachSet], data: DataSplits, device: torch.device, effort: Effort
) -> tuple[list[float], dict[DetachSet, list[float]]]:
    steppers = [_stepper(c, data, device) for c in (base, *(with_detached(cfg, detach) for detach in chosen))]
    _, clock = clock_for(device)
    timing = time_interleaved(steppers, data.train, device, rounds=effort.rounds, steps=effort.steps, clock=clock)
    return timing.seconds[0], dict(zip(chosen, timing.seconds[1:], strict=True))


def _with_measured(
    candidate: Candidate, baseline_s: Sequence[float], seconds: dict[DetachSet, list[float]], steps: int
) -> Candidate:
    if candidate.detach not in seconds:
        return candidate
    own = seconds[candidate.detach]
    return replace(
        candidate, measured=gain(baseline_s, own, len(seconds)), step_ms=1000 * statistics.median(own) / steps
    )
