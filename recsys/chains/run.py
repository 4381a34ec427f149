"""One run of a chain: the cut model and the same one end to end, trained on the same rows, timed side by side."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from torch.nn import functional

from recsys.chains.base import Chain, ChainBatch, ChainData, ChainModel, check_at_least
from recsys.chains.report import ChainReport, ChainScore, ChainSide
from recsys.chains.wire import build_stepper, end_to_end_schedule
from recsys.config.target import build_target
from recsys.config.wire import Config, build_autocast, build_device
from recsys.distributed.launch import is_launched
from recsys.errors import ConfigError
from recsys.metrics import peak_memory_bytes, reset_peak_memory
from recsys.report import Speedup, describe_environment
from recsys.report.atomic import write_atomic
from recsys.schedule.infer import infer
from recsys.track import open_tracking
from recsys.train.finite import FiniteGuard
from recsys.train.stepper import Stepper

_CHECK_STEPS = 50
_WARMUP_STEPS = 8


@dataclass
class _Trial:
    cfg: Config
    heads: dict[str, ChainScore]
    peak: int


def run_chain(cfg: Config, folder: Path) -> ChainReport:
    """Train both models, score and time them; everything lands in ``folder``.

    Raises:
        UserError: anything that the person who ran it can mend.
    """
    if is_launched():
        raise ConfigError("a chain trains in one process; start it with python, not with torchrun")
    with open_tracking(cfg, folder) as tracking:
        report = _run(cfg, folder)
        rows = cfg["trainer"]["epochs"] * cfg["chain"]["train_rows"]
        for name, side in (("baseline", report.baseline), ("erase", report.erase)):
            scores = {f"_{part}": score for part, score in side.heads.items()} | {"": side.score}
            tracking.log({f"{name}/test_loss{part}": score.loss for part, score in scores.items()}, rows)
            tracking.log({f"{name}/test_accuracy{part}": score.accuracy for part, score in scores.items()}, rows)
            tracking.log({f"{name}/rows_per_s": side.rows_per_s}, rows)
        tracking.keep_files(folder)
    if not cfg["trainer"]["quiet"]:
        report.show()
        print(f"written to {folder}")
    return report


def _run(cfg: Config, folder: Path) -> ChainReport:
    device = build_device(cfg["trainer"]["device"])
    build_autocast(cfg, device)  # a wrong precision should not wait for the data
    chain = build_target(cfg["chain"], "chain")
    _check(cfg, chain)
    data: ChainData = chain.make_data(cfg["seed"])
    sides = [(end_to_end_schedule(cfg, device), False), (cfg, True)]
    trials = [_train(side, chain, data, device, cut=cut) for side, cut in sides]
    seconds = _time([_fresh(side, chain, data, device, cut=cut)[1] for side, cut in sides], cfg, data, device)
    report = ChainReport(
        baseline=_side(trials[0], seconds[0], cfg),
        erase=_side(trials[1], seconds[1], cfg),
        speedup=Speedup.from_pairs(*seconds),
        environment=describe_environment(device),
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "config.yaml", OmegaConf.to_yaml(OmegaConf.create(cfg)))
    report.write(folder)
    return report


def _check(cfg: Config, chain: Chain) -> None:
    trainer = cfg["trainer"]
    for name, value in {"epochs": trainer["epochs"], "batch_size": trainer["batch_size"],
                        **{f"timing.{k}": v for k, v in trainer["timing"].items()}}.items():  # fmt: skip
        if value < 1:
            raise ConfigError(f"trainer.{name}={value}: must be at least 1")
    check_at_least(trainer["batch_size"], train_rows=chain.train_rows)
    if chain.cut_every == 0 and not cfg["schedule"]["name"].startswith("sequential"):
        raise ConfigError("chain.cut_every=0: nothing is cut, so nothing can run early; use schedule=sequential")


def _fresh(
    cfg: Config, chain: Chain, data: ChainData, device: torch.device, *, cut: bool
) -> tuple[ChainModel, Stepper]:
    model = chain.build(data, cfg["seed"], cut=cut)
    model.modules.to(device).train()
    steps = cfg["trainer"]["epochs"] * (len(data.train.targets) // cfg["trainer"]["batch_size"])
    return model, build_stepper(cfg, model, device, steps)


def _train(cfg: Config, chain: Chain, data: ChainData, device: torch.device, *, cut: bool) -> _Trial:
    trainer = cfg["trainer"]
    reset_peak_memory(device)
    model, stepper = _fresh(cfg, chain, data, device, cut=cut)
    guard = FiniteGuard(1 if device.type == "cpu" else _CHECK_STEPS)
    show = _Shown(cfg["name"], trainer["quiet"])
    for epoch in range(trainer["epochs"]):
        for batch in data.batches(trainer["batch_size"], cfg["seed"], epoch):
            result = stepper(batch.to(device))
            guard.update(result.losses)
            show(stepper.step, stepper.total_steps)
    guard.check()
    stepper.finish()
    peak = peak_memory_bytes(device)
    return _Trial(cfg, _score(model, data.test, trainer["batch_size"], device, build_autocast(cfg, device)), peak)


class _Shown:
    """A line every ten seconds."""

    def __init__(self, name: str, quiet: bool) -> None:
        self._name, self._quiet, self._next = name, quiet, time.monotonic() + 10

    def __call__(self, step: int, total: int) -> None:
        if not self._quiet and (time.monotonic() >= self._next or step == total):
            self._next = time.monotonic() + 10
            print(f"{self._name}: {step} of {total} steps", file=sys.stderr)


@torch.no_grad()
def _score(
    model: ChainModel, test: ChainBatch, size: int, device: torch.device, autocast: Callable[[], Any] | None
) -> dict[str, ChainScore]:
    """Loss and accuracy of every head over every test row."""
    model.modules.eval()
    sums = {name: torch.zeros(2, dtype=torch.float64, device=device) for name in model.heads}
    for start in range(0, len(test.targets), size):
        rows = slice(start, start + size)
        batch = ChainBatch(test.inputs[rows], test.targets[rows]).to(device)
        result = infer(model.graph, dict(model.modules.items()), batch, autocast)
        for name, total in sums.items():
            logits, targets = result.logits[name].double().flatten(0, -2), batch.targets.flatten()
            total[0] += functional.cross_entropy(logits, targets, reduction="sum")
            total[1] += (logits.argmax(dim=1) == targets).sum()
    number = test.targets.numel()
    return {name: ChainScore(*(total / number).tolist()) for name, total in sums.items()}


def _time(
    steppers: Sequence[Stepper], cfg: Config, data: ChainData, device: torch.device
) -> tuple[list[float], list[float]]:
    """Seconds of each turn; the models take turns on the same batches, and the order flips every round."""
    timing, size = cfg["trainer"]["timing"], cfg["trainer"]["batch_size"]
    whole = [b.to(device) for b in data.batches(size, cfg["seed"], 0)]
    turn = [whole[i % len(whole)] for i in range(timing["steps"])]
    seconds: tuple[list[float], list[float]] = ([], [])
    for stepper in steppers:
        _turn(stepper, [whole[i % len(whole)] for i in range(_WARMUP_STEPS)], device)
    for number in range(timing["rounds"]):
        for index in (0, 1) if number % 2 == 0 else (1, 0):
            seconds[index].append(_turn(steppers[index], turn, device))
    return seconds


def _turn(stepper: Stepper, batches: Sequence[ChainBatch], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    for batch in batches:
        stepper(batch)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def _side(trial: _Trial, seconds: Sequence[float], cfg: Config) -> ChainSide:
    per_step = statistics.median(seconds) / cfg["trainer"]["timing"]["steps"]
    return ChainSide(
        name=trial.cfg["name"],
        schedule=trial.cfg["schedule"]["name"],
        heads=trial.heads,
        rows_per_s=cfg["trainer"]["batch_size"] / per_step,
        step_ms=per_step * 1e3,
        peak_memory_bytes=trial.peak,
    )
