"""One run: an experiment and its baseline, trained on the same rows, timed side by side, and reported."""

from __future__ import annotations

import copy
import gc
import json
import statistics
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from recsys.config.cuts import resolve_cuts
from recsys.config.fingerprint import fingerprint
from recsys.config.wire import Config, build_autocast, build_data, build_device, build_model, build_stepper
from recsys.data.source import DataSplits
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
from recsys.train.evaluator import evaluate
from recsys.train.loop import Fit, LoopConfig
from recsys.train.timing import Timing, time_interleaved

_BASELINE_NAME = "baseline6"


@dataclass(frozen=True)
class Trial:
    """A trained model's quality and curve, without speed."""

    report: ModelReport
    curve: list[CurvePoint]
    from_cache: bool = False


def baseline_config(cfg: Config) -> Config:
    """The strongest model that needs no detach: the same architecture end to end, without local losses."""
    base = copy.deepcopy(cfg)
    base["model"].update(detach=[], local_losses=[], embedding_grad_from="undetached", loss_weights={})
    base["schedule"].update(name="sequential", lanes={})
    base["name"] = _BASELINE_NAME if len(cfg["model"]["archs"]) == 6 else f"{cfg['name']} end to end"
    return base


def run(cfg: Config, folder: Path) -> RunReport:
    """Train, evaluate, time and report; everything lands in ``folder``.

    Raises:
        UserError: anything that the person who ran it can mend.
    """
    device = build_device(cfg["trainer"]["device"])
    resolve_cuts(cfg["model"])  # a wrong name should not wait for the data
    data = build_data(cfg)
    base_cfg = baseline_config(cfg)
    erase_hash, base_hash = (fingerprint(c, data.fingerprint, device) for c in (cfg, base_cfg))
    baseline = _cached_or_trained(base_cfg, data, device, base_hash)
    same = erase_hash == base_hash
    erase = baseline if same else _train(cfg, data, device, erase_hash)
    timing = _time(base_cfg, cfg, data, device)
    report = RunReport(
        baseline=_with_speed(baseline.report, timing, 0),
        erase=_with_speed(erase.report, timing, 1),
        experiment=cfg["name"],
        baseline_name=base_cfg["name"],
        schedule=cfg["schedule"]["name"],
        baseline_schedule=base_cfg["schedule"]["name"],
        detached=sorted(resolve_cuts(cfg["model"]).detach),
        speedup=Speedup.from_pairs(*timing.seconds),
        bayes_ne=data.notes.get("bayes_ne"),
        baseline_from_cache=baseline.from_cache,
        data_notes={k: v for k, v in data.notes.items() if k != "bayes_ne"},
        environment=describe_environment(device),
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_run(folder, report, LearningCurve(baseline=baseline.curve, erase=erase.curve))
    if not cfg["trainer"]["quiet"]:
        print_report(report)
        print(f"written to {folder}")
    return report


def _cached_or_trained(cfg: Config, data: DataSplits, device: torch.device, config_hash: str) -> Trial:
    path = Path(cfg["trainer"]["cache_dir"]) / "baselines" / f"{config_hash}.json"
    if cfg["trainer"]["reuse_baseline"] and path.exists() and (cached := _read_trial(path)) is not None:
        return cached
    trial = _train(cfg, data, device, config_hash)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, json.dumps({"report": asdict(trial.report), "curve": [asdict(p) for p in trial.curve]}) + "\n")
    return trial


def _read_trial(path: Path) -> Trial | None:
    try:
        raw = json.loads(path.read_text())
        return Trial(ModelReport.from_dict(raw["report"]), [CurvePoint(**p) for p in raw["curve"]], from_cache=True)
    except (ValueError, KeyError, TypeError):
        print(f"{path}: damaged; the baseline is trained again", flush=True)
        return None


def _train(cfg: Config, data: DataSplits, device: torch.device, config_hash: str) -> Trial:
    trainer = cfg["trainer"]
    gc.collect()
    reset_peak_memory(device)
    model = build_model(cfg, data.spec, device)
    stepper = build_stepper(cfg, model, device, trainer["epochs"] * len(data.train))
    loop = LoopConfig(**{k: trainer[k] for k in ("epochs", "evals_per_epoch", "keep_best", "patience", "quiet")})
    autocast = build_autocast(cfg, device)
    fitted = Fit(model, stepper, data, device, loop, autocast).run(cfg["name"])
    peak = peak_memory_bytes(device)
    test = evaluate(model, data.test, device, autocast)
    report = ModelReport.from_metrics(
        test.compute(),
        rows_per_s=None,
        peak_memory_bytes=peak,
        seed=cfg["seed"],
        config_hash=config_hash,
        heads=test.compute_heads(),
    )
    return Trial(report, fitted.curve)


def _time(base_cfg: Config, cfg: Config, data: DataSplits, device: torch.device) -> Timing:
    timing = cfg["trainer"]["timing"]
    steppers = [
        build_stepper(c, build_model(c, data.spec, device).train(), device, len(data.train)) for c in (base_cfg, cfg)
    ]
    return time_interleaved(steppers, data.train, device, rounds=timing["rounds"], steps=timing["steps"])


def _with_speed(report: ModelReport, timing: Timing, index: int) -> ModelReport:
    return replace(report, rows_per_s=timing.rows / statistics.median(timing.seconds[index]))
