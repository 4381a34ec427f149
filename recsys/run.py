"""One run: an experiment and its baseline, trained on the same rows, timed side by side, and reported."""

from __future__ import annotations

import copy
import gc
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
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
    build_input,
    build_model,
    build_stepper,
    plan_tables,
)
from recsys.data.source import DataSplits
from recsys.distributed.launch import is_launched
from recsys.distributed.world import ALONE, World, open_world
from recsys.errors import ConfigError
from recsys.metrics import peak_memory_bytes, reset_peak_memory
from recsys.report import (
    CurvePoint,
    LearningCurve,
    ModelReport,
    RunReport,
    Speedup,
    describe_environment,
    print_report,
    write_run,
)
from recsys.report.atomic import write_atomic
from recsys.report.predictions import PREDICTIONS_NPZ, Predictions
from recsys.train.evaluator import evaluate
from recsys.train.loop import Fit, LoopConfig
from recsys.train.timing import Timing, time_interleaved


@dataclass(frozen=True)
class Trial:
    """A trained model's quality and curve, without speed.

    Attributes:
        best_rows: training rows that the reported state had seen.
    """

    report: ModelReport
    curve: list[CurvePoint]
    best_rows: int
    from_cache: bool = False


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


def run(cfg: Config, folder: Path) -> RunReport:
    """Train, evaluate, time and report; everything lands in ``folder``.

    Under torchrun every rank runs this; rank 0 alone writes, into its own ``folder``.

    Raises:
        UserError: anything that the person who ran it can mend.
    """
    check_config(cfg)
    with open_world(cfg["trainer"]["device"], cfg["trainer"]["timeout_s"]) as world:
        return _run(cfg, world.broadcast(folder), world)


def _run(cfg: Config, folder: Path, world: World) -> RunReport:
    device = build_device(cfg["trainer"]["device"])
    build_autocast(cfg, device)  # a wrong precision should not wait for the data
    data = build_data(cfg, world)
    _show_plan(cfg, data, device, folder, world)
    base_cfg = baseline_config(cfg, device)
    # One rank speaks for all: ranks may count cores or see packages differently.
    hashes = world.broadcast([fingerprint(c, data.fingerprint, device, world.size) for c in (cfg, base_cfg)])
    erase_hash, base_hash = hashes
    baseline = _cached_or_trained(base_cfg, data, device, base_hash, world)
    same = erase_hash == base_hash
    erase = baseline if same else _train(cfg, data, device, erase_hash, world)
    timing = time_models([cfg] if same else [base_cfg, cfg], data, device, world)
    report = replace(
        _join(base_cfg, cfg, baseline, erase, data, device, world),
        baseline=_with_speed(baseline.report, timing, 0),
        erase=_with_speed(erase.report, timing, -1),
        speedup=None if same else Speedup.from_pairs(*timing.seconds),
    )
    if world.is_main:
        folder.mkdir(parents=True, exist_ok=True)
        _write_config(cfg, folder)
        write_run(folder, report, _curve(baseline, erase))
        if not cfg["trainer"]["quiet"]:
            print_report(report)
            print(f"written to {folder}")
    return report


def _show_plan(cfg: Config, data: DataSplits, device: torch.device, folder: Path, world: World) -> None:
    """Make the tables' plan once before training, print it and save it."""
    plan = plan_tables(cfg, data.spec, device, world)
    if plan is None or not world.is_main:
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "sharding_plan.json", json.dumps(plan.to_dict(), indent=1) + "\n")
    if not cfg["trainer"]["quiet"]:
        print(plan.render(), flush=True)


def train_model(cfg: Config, folder: Path, data: DataSplits | None = None) -> RunReport:
    """Train and evaluate one model, with no baseline beside it and no timing.

    ``folder`` becomes a run's folder: beside what ``run`` leaves, ``config.yaml`` and the predictions of the test
    rows. Both sides of the report are this model, as where an experiment is its own baseline.

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
    device = build_device(cfg["trainer"]["device"])
    data = build_data(cfg) if data is None else data
    trial, predictions = _train_and_predict(cfg, data, device, fingerprint(cfg, data.fingerprint, device))
    report = _join(cfg, cfg, trial, trial, data, device)
    folder.mkdir(parents=True, exist_ok=True)
    _write_config(cfg, folder)
    predictions.write(folder / PREDICTIONS_NPZ)
    write_run(folder, report, _curve(trial, trial))
    return report


def _write_config(cfg: Config, folder: Path) -> None:
    write_atomic(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(cfg)))


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


def _cached_or_trained(cfg: Config, data: DataSplits, device: torch.device, config_hash: str, world: World) -> Trial:
    path = Path(cfg["trainer"]["cache_dir"]) / "baselines" / f"{config_hash}.json"
    if (cached := world.on_main(lambda: _cached(cfg, path))) is not None:
        return cached
    trial = _train(cfg, data, device, config_hash, world)
    if world.is_main:
        write_atomic(path, json.dumps(asdict(trial)) + "\n")
    return trial


def _cached(cfg: Config, path: Path) -> Trial | None:
    _make_baselines(path.parent)
    return _read_trial(path) if cfg["trainer"]["reuse_baseline"] and path.exists() else None


def _make_baselines(folder: Path) -> None:
    try:  # before hours of training, not after them
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"trainer.cache_dir={folder.parent}: cannot be made ({error}); name a writable folder"
        ) from error


def _read_trial(path: Path) -> Trial | None:
    try:
        raw = json.loads(path.read_text())
        report, curve = ModelReport.from_dict(raw["report"]), [CurvePoint(**p) for p in raw["curve"]]
        if report.config_hash != path.stem:
            raise ValueError("of another fingerprint")
        return Trial(report, curve, raw["best_rows"], from_cache=True)
    except (ValueError, KeyError, TypeError):
        print(f"{path}: damaged; the baseline is trained again", flush=True)
        return None


def _train(cfg: Config, data: DataSplits, device: torch.device, config_hash: str, world: World) -> Trial:
    return _train_and_predict(cfg, data, device, config_hash, world)[0]


def _train_and_predict(
    cfg: Config, data: DataSplits, device: torch.device, config_hash: str, world: World = ALONE
) -> tuple[Trial, Predictions]:
    trainer = cfg["trainer"]
    gc.collect()
    reset_peak_memory(device)
    model = build_model(cfg, data.spec, device, world)
    stepper = build_stepper(cfg, model, device, trainer["epochs"] * len(data.train), world)
    own = {k: trainer[k] for k in ("epochs", "evals_per_epoch", "keep_best", "patience")}
    loop = LoopConfig(**own, quiet=trainer["quiet"] or not world.is_main, window_rows=cfg["metrics"]["window_rows"])
    autocast = build_autocast(cfg, device)
    piped = replace(data, train=build_input(cfg, data.train, model, device))
    fitted = Fit(model, stepper, piped, device, loop, autocast, world).run(cfg["name"])
    peak = peak_memory_bytes(device)
    test = evaluate(model, data.test, device, autocast, world)
    report = ModelReport.from_metrics(
        test.compute(),
        rows_per_s=None,
        peak_memory_bytes=peak,
        seed=cfg["seed"],
        config_hash=config_hash,
        heads=test.compute_heads(),
    )
    return Trial(report, fitted.curve, fitted.best_rows), Predictions(*test.predictions())


def time_models(cfgs: Sequence[Config], data: DataSplits, device: torch.device, world: World = ALONE) -> Timing:
    """Speed of freshly made models that take turns on the same batches; the last one's ``trainer.timing`` rules."""
    timing = cfgs[-1]["trainer"]["timing"]
    models = [(c, build_model(c, data.spec, device, world).train()) for c in cfgs]
    steppers = [build_stepper(c, model, device, len(data.train), world) for c, model in models]
    return time_interleaved(steppers, data.train, device, rounds=timing["rounds"], steps=timing["steps"])


def _with_speed(report: ModelReport, timing: Timing, index: int) -> ModelReport:
    return replace(report, rows_per_s=timing.rows / statistics.median(timing.seconds[index]))
