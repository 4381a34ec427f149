"""A training job of a few steps that is saved after each of them: what the scripts about faults train.

The job is the product's own loop, model, data and checkpoints; nothing in it knows of faults.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import torch

from recsys.checkpoint.peers import Alone
from recsys.checkpoint.saver import CheckpointConfig, Saver
from recsys.checkpoint.store import Store
from recsys.config.cli import compose, to_plain
from recsys.config.wire import build_data, build_loop, build_model, build_stepper
from recsys.data.source import DataSplits
from recsys.report.curve import CurvePoint
from recsys.train.checkpointing import Checkpointing
from recsys.train.loop import Fit, FitResult
from recsys.train.model_state import ModelState

CPU = torch.device("cpu")
OVERRIDES = (
    "+experiment=erase6",
    *(f"~model.archs.{name}" for name in ("mlp", "wukong", "attention", "masknet")),
    "model.over_arch.dropout=0.3",
    "optim.lr_schedule.warmup_steps=2",
    "optim.lr_schedule.decay=cosine",
    "data.train_rows=176",
    "data.valid_rows=64",
    "data.test_rows=64",
    "data.max_cardinality=40",
    "trainer.device=cpu",
    "trainer.batch_size=64",
    "trainer.epochs=2",
    "trainer.evals_per_epoch=2",
    "trainer.quiet=true",
)


@cache
def job_config(*overrides: str) -> dict[str, Any]:
    """The job's configuration; later overrides win."""
    return to_plain(compose([*OVERRIDES, *overrides]))


@cache
def job_data() -> DataSplits:
    """The job's rows: three batches an epoch, the last one short."""
    return build_data(job_config())


class Job:
    """One model in training, whose checkpoints are in ``folder``.

    Args:
        folder: checkpoints that are there are gone on from.
        cfg: of the model and the loop; the job's own by default.
        data: the rows; the job's own by default.
        checkpoint: when to save; after each step, in the foreground, by default.
    """

    def __init__(
        self,
        folder: Path,
        cfg: dict[str, Any] | None = None,
        data: DataSplits | None = None,
        checkpoint: CheckpointConfig | None = None,
    ) -> None:
        torch.manual_seed(0)
        cfg, data = cfg or job_config(), data or job_data()
        trainer, peers, store = cfg["trainer"], Alone(), Store(folder)
        self.model = build_model(cfg, data.spec, CPU)
        self.stepper = build_stepper(cfg, self.model, CPU, trainer["epochs"] * len(data.train))
        store.remove_left_overs()
        every_step = CheckpointConfig(every_steps=1, every_seconds=0, keep_last=2, async_save=False)
        saver = Saver(store, checkpoint or every_step, peers)
        self.checkpointing = Checkpointing(saver, peers, {}, store.newest_sound(peers))
        self.fit = Fit(self.model, self.stepper, data, CPU, build_loop(cfg), None, self.checkpointing)

    def run(self) -> str:
        """Train to the end; a SHA-256 over the curve and every bit of weights, tables and optimizer state."""
        result: FitResult = self.fit.run("job")
        return digest(self.state(), result.curve)

    def state(self) -> dict[str, torch.Tensor]:
        """Every tensor of the model and its optimizers, and its random states."""
        state = ModelState(self.model, self.stepper.optimizers, Alone())
        return {shard.name: shard.tensor for shard in (*state.shards(None), *state.random_states())}


def digest(state: dict[str, torch.Tensor], curve: list[CurvePoint]) -> str:
    """SHA-256 over names, bytes and points."""
    total = hashlib.sha256(repr([(p.rows, p.ne) for p in curve]).encode())
    for name in sorted(state):
        total.update(name.encode() + state[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
