"""One run: an experiment and its baseline, trained on the same rows, timed side by side, and reported."""

from __future__ import annotations

import copy
import json
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from omegaconf import OmegaConf

from recsys.config.check import check_config
from recsys.config.cuts import resolve_cuts
from recsys.config.fingerprint import fingerprint
from recsys.config.wire import (
    Config,
    build_autocast,
    build_data,
    build_device,
    build_model,
    build_stepper,
    plan_tables,
    skips_nonfinite,
)
from recsys.data.source import DataSplits
from recsys.distributed.launch import is_launched
from recsys.distributed.world import ALONE, World, open_world
from recsys.errors import ConfigError
from recsys.report import (
    LearningCurve,
    ModelReport,
    RunReport,
    Speedup,
    describe_environment,
    print_report,
    write_run,
)
from recsys.report.atomic import write_atomic
from recsys.report.predictions import BASELINE_PREDICTIONS_NPZ, PREDICTIONS_NPZ
from recsys.saves import BASELINE, EXPERIMENT, RunSaves
from recsys.serve.model_files import WEIGHTS, forget, place_weights, require_safetensors, write_model_files
from recsys.track import Tracking, open_tracking
from recsys.train.timing import Timing, time_interleaved
from recsys.trial import Surroundings, Trial, cached_or_trained, trained

# The strongest schedule that needs no detach, by that of the experiment; on a CPU it is ``sequential``.
_BASELINE_SCHEDULE = {"erase": "branch_graph", "erase_graph": "branch_graph"} | dict.fromkeys(
    ("erase_blocking", "erase_threads"), "branch"
)


# Rows up to which products planned for a part of the device help lanes that detach nothing (docs/performance.md).
_SMALL_PRODUCTS = 1024


def baseline_config(cfg: Config, device: torch.device | None = None) -> Config:
    """The strongest model that needs no detach: the same architecture end to end, without local losses."""
    base = copy.deepcopy(cfg)
    base["model"].update(detach=[], local_losses=[], embedding_grad_from="undetached", loss_weights={})
    on_gpu = device is not None and device.type == "cuda"
    schedule = _BASELINE_SCHEDULE.get(cfg["schedule"]["name"], cfg["schedule"]["name"]) if on_gpu else "sequential"
    base["schedule"].update(name=schedule, trailing=False)
    if cfg["trainer"]["batch_size"] > _SMALL_PRODUCTS:
        base["schedule"].update(gemm_sms=0)
    if not on_gpu:  # one fingerprint, whatever the experiment's schedule
        base["schedule"].update(early_update=False, lanes={}, urgent=[], gemm_sms=0)
    base["name"] = "baseline6" if cfg["name"] == "erase6" else f"{cfg['name']} end to end"
    return base


def run(cfg: Config, folder: Path, data: DataSplits | None = None) -> RunReport:
    """Train, evaluate, time and report; everything lands in ``folder``.

    Under torchrun every rank runs this; rank 0 alone writes, into its own ``folder``.

    Args:
        cfg: a resolved configuration.
        folder: of the run.
        data: what ``build_data(cfg)`` gives, where the caller has it already.

    Raises:
        UserError: anything that the person who ran it can mend.
    """
    check_config(cfg)
    with open_world(cfg["trainer"]["device"], cfg["trainer"]["timeout_s"]) as world:
        device, folder = _check(cfg, world), world.broadcast(folder)
        told = cfg if world.is_main else {**cfg, "trackers": []}
        with open_tracking(told, folder) as tracking, RunSaves(cfg, folder) as saves:
            around = Surroundings(build_data(cfg, world) if data is None else data, device, saves, world)
            report = _run(cfg, folder, around, tracking)
        if world.is_main and not cfg["trainer"]["quiet"]:
            print_report(report)
            print(f"written to {folder}")
        return report


def _check(cfg: Config, world: World = ALONE) -> torch.device:
    """What is wrong should not wait for the data."""
    device = build_device(cfg["trainer"]["device"])
    build_autocast(cfg, device)
    skips_nonfinite(cfg, device, world)
    if cfg["trainer"]["save_model"]:
        require_safetensors()
    return device


def _run(cfg: Config, folder: Path, around: Surroundings, tracking: Tracking) -> RunReport:
    data, device, world = around.data, around.device, around.world
    _show_plan(cfg, around, folder)
    base_cfg = baseline_config(cfg, device)
    # One rank speaks for all: ranks may count cores or see packages differently.
    hashes = world.broadcast([fingerprint(c, data.fingerprint, device, world.size) for c in (cfg, base_cfg)])
    erase_hash, base_hash = hashes
    same = erase_hash == base_hash
    if world.is_main:
        forget(folder)
    on_base = tracking.on_point("erase" if same else "baseline")
    baseline = cached_or_trained(base_cfg, around, base_hash, BASELINE, on_base)
    erase = baseline if same else trained(cfg, around, erase_hash, EXPERIMENT, tracking.on_point("erase"))
    timing = time_models([cfg] if same else [base_cfg, cfg], data, device, world)
    report = replace(
        _join(base_cfg, cfg, baseline, erase, data, device, world),
        baseline=_with_speed(baseline.report, timing, 0),
        erase=_with_speed(erase.report, timing, -1),
        speedup=None if same else Speedup.from_pairs(*timing.seconds),
    )
    if world.is_main:
        other = {} if same else {"baseline": (base_cfg, baseline)}
        _write_models(folder, data, {"erase": (cfg, erase), **other})
        write_run(folder, report, _curve(baseline, erase))
    around.saves.finish()
    tracking.on_report(report, {"baseline": baseline.best_rows, "erase": erase.best_rows}, folder)
    return report


def _show_plan(cfg: Config, around: Surroundings, folder: Path) -> None:
    """Make the tables' plan once before training, print it and save it."""
    plan = plan_tables(cfg, around.data.spec, around.device, around.world)
    if plan is None or not around.world.is_main:
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "sharding_plan.json", json.dumps(plan.to_dict(), indent=1) + "\n")
    if not cfg["trainer"]["quiet"]:
        print(plan.render(), flush=True)


def train_model(cfg: Config, folder: Path, data: DataSplits | None = None) -> RunReport:
    """Train and evaluate one model, with no baseline beside it and no timing.

    ``folder`` becomes a run's folder, as ``run`` leaves it. Both sides of the report are this model, as where an
    experiment is its own baseline.

    Args:
        cfg: a resolved configuration.
        folder: ``report.json`` is written last, so that a folder which holds it is complete.
        data: what ``build_data(cfg)`` gives, where the caller has it already.

    Raises:
        UserError: anything that the person who ran it can mend.
    """
    check_config(cfg)
    if is_launched():
        raise ConfigError("this command trains in one process; start it with python, not with torchrun")
    device = _check(cfg)
    data = build_data(cfg) if data is None else data
    config_hash = fingerprint(cfg, data.fingerprint, device)
    with open_tracking(cfg, folder) as tracking, RunSaves(cfg, folder, auto_resume=True) as saves:
        forget(folder)
        trial = trained(cfg, Surroundings(data, device, saves), config_hash, EXPERIMENT, tracking.on_point("erase"))
        report = _join(cfg, cfg, trial, trial, data, device)
        _write_models(folder, data, {"erase": (cfg, trial)})
        write_run(folder, report, _curve(trial, trial))
        saves.finish()
        tracking.on_report(report, {"erase": trial.best_rows}, folder)
    return report


_PREDICTIONS = {"erase": PREDICTIONS_NPZ, "baseline": BASELINE_PREDICTIONS_NPZ}


def _write_models(folder: Path, data: DataSplits, sides: dict[str, tuple[Config, Trial]]) -> None:
    """Configuration, predictions and weights; by the side of the report."""
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(sides["erase"][0])))
    for side, (_, trial) in sides.items():
        trial.predictions.write(folder / _PREDICTIONS[side])
        if trial.weights is not None:
            place_weights(trial.weights, folder / WEIGHTS[side])
    if sides["erase"][1].weights is not None:
        write_model_files(folder, data, {side: (cfg, t.report.prediction) for side, (cfg, t) in sides.items()})


def _join(
    base_cfg: Config,
    cfg: Config,
    baseline: Trial,
    erase: Trial,
    data: DataSplits,
    device: torch.device,
    world: World = ALONE,
) -> RunReport:
    return RunReport(
        baseline=baseline.report,
        erase=erase.report,
        experiment=cfg["name"],
        baseline_name=base_cfg["name"],
        schedule=cfg["schedule"]["name"],
        baseline_schedule=base_cfg["schedule"]["name"],
        detached=sorted(resolve_cuts(cfg["model"]).detach),
        bayes_ne=data.notes.get("bayes_ne"),
        baseline_from_cache=baseline.from_cache,
        data_notes={k: v for k, v in data.notes.items() if k != "bayes_ne"},
        environment=describe_environment(device) | {"processes": world.size},
    )


def _curve(baseline: Trial, erase: Trial) -> LearningCurve:
    return LearningCurve(
        baseline=baseline.curve,
        erase=erase.curve,
        best_rows={"baseline": baseline.best_rows, "erase": erase.best_rows},
    )


def time_models(cfgs: Sequence[Config], data: DataSplits, device: torch.device, world: World = ALONE) -> Timing:
    """Speed of freshly made models that take turns on the same batches; the last one's ``trainer.timing`` rules."""
    timing = cfgs[-1]["trainer"]["timing"]
    models = [(c, build_model(c, data.spec, device, world).train()) for c in cfgs]
    steppers = [build_stepper(c, model, device, len(data.train), world) for c, model in models]
    return time_interleaved(steppers, data.train, device, rounds=timing["rounds"], steps=timing["steps"])


def _with_speed(report: ModelReport, timing: Timing, index: int) -> ModelReport:
    return replace(report, rows_per_s=timing.rows / statistics.median(timing.seconds[index]))
