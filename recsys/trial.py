"""One trained model of a run: its training, its evaluation, and the files by which it need not be trained again."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch

from recsys.config.wire import Config, build_autocast, build_input, build_loop, build_model, build_stepper
from recsys.data.source import DataSplits
from recsys.distributed.state import whole_state
from recsys.distributed.world import ALONE, World
from recsys.errors import ConfigError, DataError
from recsys.metrics import EvalAccumulator, peak_memory_bytes, reset_peak_memory
from recsys.models.recommender import OVER
from recsys.report import CurvePoint, ModelReport
from recsys.report.atomic import write_atomic
from recsys.report.predictions import Predictions
from recsys.saves import RunSaves
from recsys.serve.model_files import place_weights, write_weights
from recsys.train.evaluator import evaluate
from recsys.train.loop import Fit
from recsys.train.prediction import Prediction, fit_prediction, starting_prediction

OnPoint = Callable[[CurvePoint], None]


@dataclass(frozen=True)
class Trial:
    """A trained model's quality and curve, without speed.

    Attributes:
        best_rows: training rows that the reported state had seen.
        predictions: of the test rows.
        weights: file of the reported state, where it is kept.
    """

    report: ModelReport
    curve: list[CurvePoint]
    best_rows: int
    predictions: Predictions
    weights: Path | None = None
    from_cache: bool = False


@dataclass(frozen=True)
class Surroundings:
    """What the models of one run share.

    Attributes:
        data: the rows.
        device: where they train.
        saves: checkpoints, and results of models that an earlier process finished.
        world: the ranks; rank 0 writes and reads for all.
    """

    data: DataSplits
    device: torch.device
    saves: RunSaves
    world: World = ALONE


def cached_or_trained(cfg: Config, around: Surroundings, config_hash: str, role: str, on_point: OnPoint) -> Trial:
    """The baseline: from the cache if ``trainer.reuse_baseline``, else trained and put there."""
    path = Path(cfg["trainer"]["cache_dir"]) / "baselines" / f"{config_hash}.json"
    cached = around.world.on_main(lambda: _cached(cfg, path, config_hash))
    if cached is not None:
        for point in cached.curve:
            on_point(point)
        return cached
    trial = trained(cfg, around, config_hash, role, on_point)
    if around.world.is_main:
        if trial.weights is not None:
            place_weights(trial.weights, path.with_suffix(".safetensors"))
        write_trial(path, trial)
    return trial


def _cached(cfg: Config, path: Path, config_hash: str) -> Trial | None:
    try:  # before hours of training, not after them
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        cache = path.parent.parent
        raise ConfigError(f"trainer.cache_dir={cache}: cannot be made ({error}); name a writable folder") from error
    if not cfg["trainer"]["reuse_baseline"] or not path.exists():
        return None
    return read_trial(path, config_hash, cfg["trainer"]["save_model"])


def trained(cfg: Config, around: Surroundings, config_hash: str, role: str, on_point: OnPoint) -> Trial:
    """Train a model, unless an earlier process of this run has finished it.

    Args:
        cfg: of the model.
        around: what surrounds it.
        config_hash: its fingerprint.
        role: its folder's name among the checkpoints.
        on_point: called with each point of the learning curve.
    """
    note, save = around.saves.trial_path(role), cfg["trainer"]["save_model"]
    finished = around.saves.finished_trial(role)

    def read() -> Trial | None:
        return None if finished is None else read_trial(finished, config_hash, save)

    if (earlier := around.world.on_main(read)) is not None:
        return replace(earlier, from_cache=False)
    weights = note.with_suffix(".safetensors") if save else None
    trial = train_trial(cfg, around, config_hash, role, on_point, weights)
    if around.world.is_main:
        write_trial(note, trial)
    return trial


def train_trial(
    cfg: Config, around: Surroundings, config_hash: str, role: str, on_point: OnPoint, weights: Path | None
) -> Trial:
    """Train and evaluate; the reported state goes to ``weights``."""
    data, device, world = around.data, around.device, around.world
    gc.collect()
    reset_peak_memory(device)
    model = build_model(cfg, data.spec, device, world)
    stepper = build_stepper(cfg, model, device, cfg["trainer"]["epochs"] * len(data.train), world)
    piped = replace(data, train=build_input(cfg, data.train, model, device))
    autocast = build_autocast(cfg, device)
    checkpoints = around.saves.checkpointing(role, cfg, data.fingerprint, config_hash)
    start = starting_prediction(cfg["trainer"]["blend"], model.heads)
    fit = Fit(model, stepper, piped, device, build_loop(cfg, world), autocast, checkpoints, on_point, start, world)
    fitted = fit.run(cfg["name"])
    peak = peak_memory_bytes(device)
    if weights is not None:
        state = whole_state(model, world)
        if world.is_main:
            write_weights(weights, state)
    prediction = _fit_prediction(cfg, start, partial(evaluate, model, data.valid, device, autocast, world=world))
    test = evaluate(model, data.test, device, autocast, prediction, world)
    report = ModelReport.from_metrics(
        test.compute(),
        rows_per_s=None,
        peak_memory_bytes=peak,
        seed=cfg["seed"],
        config_hash=config_hash,
        heads=test.compute_heads(),
        prediction=_describe(prediction, test),
    )
    return Trial(report, fitted.curve, fitted.best_rows, Predictions(*test.predictions()), weights)


def _fit_prediction(cfg: Config, start: Prediction, evaluate_valid: Callable[..., EvalAccumulator]) -> Prediction:
    trainer = cfg["trainer"]
    if trainer["blend"] != "fitted" and not trainer["calibrate"]:
        return start
    valid = evaluate_valid(prediction=start)
    logits, labels, weights = valid.predictions()
    parts = {OVER: logits} if start.is_plain else valid.head_logits()
    return fit_prediction(start, parts, labels, weights, blend=trainer["blend"], calibrate=trainer["calibrate"])


def _describe(prediction: Prediction, test: EvalAccumulator) -> dict[str, float | None]:
    """The final prediction, and beside it what the over-arch alone would have given."""
    if prediction.is_plain:
        return {}
    raw = test.compute_heads()[OVER]
    return {**prediction.to_plain(), "raw_ne": raw.ne, "raw_calibration": raw.calibration}


def write_trial(path: Path, trial: Trial) -> None:
    """Write ``path`` (JSON, last, so that it stands for the whole) and the predictions beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    trial.predictions.write(path.with_suffix(".npz"))
    plain = {"report": asdict(trial.report), "curve": [asdict(p) for p in trial.curve], "best_rows": trial.best_rows}
    write_atomic(path, json.dumps(plain) + "\n")


def read_trial(path: Path, config_hash: str, with_weights: bool) -> Trial | None:
    """What ``write_trial`` wrote; None, with a message, if it is damaged or lacks the weights that are wanted."""
    weights = path.with_suffix(".safetensors")
    if with_weights and not weights.exists():
        return None
    try:
        raw = json.loads(path.read_text())
        report, curve = ModelReport.from_dict(raw["report"]), [CurvePoint(**p) for p in raw["curve"]]
        if report.config_hash != config_hash:
            raise ValueError("of another fingerprint")
        predictions = Predictions.read(path.with_suffix(".npz"))
        kept = weights if with_weights else None
        return Trial(report, curve, raw["best_rows"], predictions, kept, from_cache=True)
    except (DataError, ValueError, KeyError, TypeError):
        print(f"{path}: damaged; the model is trained again", flush=True)
        return None
