"""What ranks do in tests; jobs are named by module, so that processes of their own can find them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from recsys.config.wire import Config, build_data, build_device, build_input, build_model, build_stepper
from recsys.data.source import BatchSource
from recsys.distributed.gather import gather_rows
from recsys.distributed.rank_batches import share_splits
from recsys.distributed.world import World
from recsys.errors import ConfigError
from recsys.metrics import EvalAccumulator, Metrics
from recsys.models.recommender import Recommender
from recsys.train.evaluator import evaluate
from recsys.types import Batch

CPU = torch.device("cpu")


@dataclass
class Trained:
    """What is compared between numbers of processes.

    Attributes:
        losses: of every step, by part, summed over ranks.
        parameters: dense ones, and whole tables put together from the ranks' pieces.
        ne: on the valid rows.
        positions: of the data after each step.
    """

    losses: list[dict[str, float]] = field(default_factory=list)
    parameters: dict[str, torch.Tensor] = field(default_factory=dict)
    ne: float | None = None
    rows: int = 0
    start: dict[str, torch.Tensor] = field(default_factory=dict)
    positions: list[dict[str, int]] = field(default_factory=list)


def train(world: World, cfg: Config, steps: int) -> Trained:
    """Train for ``steps`` steps, epoch after epoch, and evaluate."""
    device = build_device(cfg["trainer"]["device"])
    data = build_data(cfg, world)
    model = build_model(cfg, data.spec, device, world).train()
    stepper = build_stepper(cfg, model, device, steps, world)
    source = build_input(cfg, data.train, model, device)
    trained = Trained(start=whole_parameters(model, world))
    for batch in islice(endless(source), steps):
        losses = stepper(batch.to(device)).losses
        total = world.sum(torch.stack([losses[n].double() for n in losses]))
        trained.losses.append(dict(zip(losses, total.tolist(), strict=True)))
        trained.positions.append(source.state_dict())
    stepper.finish()
    evaluated = evaluate(model, data.valid, device, world=world)
    trained.ne, trained.rows = evaluated.compute().ne, evaluated.rows
    trained.parameters = whole_parameters(model, world)
    return trained


def endless(source: BatchSource) -> Any:
    """Epoch after epoch."""
    while True:
        yield from source


def whole_parameters(model: Recommender, world: World) -> dict[str, torch.Tensor]:
    """Dense parameters by name, and every table whole."""
    whole = {n: p.detach().cpu().clone() for n, p in model.named_parameters() if not n.startswith("parts.sparse")}
    for pieces in world.all_gather([p._replace(weight=p.weight.cpu().clone()) for p in model.sparse_arch.pieces()]):
        for p in pieces:
            table = whole.setdefault(f"table/{p.table}", torch.full((p.num_rows, p.width), torch.nan))
            rows, columns = p.weight.shape
            table[p.row : p.row + rows, p.column : p.column + columns] = p.weight
    return whole


def train_all(world: World, cfgs: dict[str, Config], steps: int) -> dict[str, Trained]:
    """Train several configurations in one go: processes are dear."""
    return {name: train(world, cfg, steps) for name, cfg in cfgs.items()}


class GivenBatches(BatchSource):
    """Batches from a list, in order."""

    def __init__(self, batches: list[Batch]) -> None:
        self.batch_size = max(b.num_rows for b in batches)
        self.num_rows = sum(b.num_rows for b in batches)
        self._batches, self._at = batches, 0

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Any:
        for at in range(self._at, len(self._batches)):
            self._at = (at + 1) % len(self._batches)
            yield self._batches[at]

    def state_dict(self) -> dict[str, int]:
        return {"epoch": 0, "batch": self._at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._at = state["batch"]


@dataclass
class Gathered:
    """Metrics of rows that were scored in slices, and the rows themselves."""

    metrics: Metrics
    heads: dict[str, Metrics]
    logits: list[float]


def collect(world: World, batches: list[Batch]) -> Gathered:
    """Score every row by a function of its own values alone, in this rank's slices, and gather."""
    from recsys.data.source import DataSplits

    source: Any = GivenBatches(batches)
    source.spec = None
    shared = share_splits(DataSplits(source, source, source, "given"), world).test
    accumulator = EvalAccumulator(expected_rows=shared.num_rows)
    for batch in shared:
        score = batch.dense_features[:, 0].round(decimals=1)  # ties
        accumulator.update(score, batch.labels, batch.weights, {"head": -score})
    gathered = gather_rows(accumulator, world)
    logits, _, _ = gathered.predictions()
    return Gathered(gathered.compute(), gathered.compute_heads(), logits.tolist())


def several(world: World, cfgs: dict[str, Config], steps: int, batches: list[Batch]) -> dict[str, Any]:
    """Everything that tests ask of one number of processes."""
    return {
        "trained": train_all(world, cfgs, steps),
        "gathered": collect(world, batches),
        "broadcast": world.broadcast(f"from {world.rank}"),
        "on_main": world.on_main(lambda: f"by {world.rank}"),
        "all": world.all_gather(world.rank),
        "refused": refusal(world, cfgs["row_wise"]),
    }


def refusal(world: World, cfg: Config) -> str:
    """How tables that cannot fit are refused."""
    tight = {**cfg, "sharding": {**cfg["sharding"], "memory_gib_per_rank": 1e-6}}
    data = build_data(cfg, world)
    try:
        build_model(tight, data.spec, CPU, world)
    except ConfigError as error:
        return str(error)
    except SystemExit:
        return "told by rank 0"
    return "not refused"


def die(world: World, cfg: Config) -> None:
    """Rank 1 ends without a word in the second step."""
    data = build_data(cfg, world)
    model = build_model(cfg, data.spec, CPU, world).train()
    stepper = build_stepper(cfg, model, CPU, 4, world)
    try:
        for number, batch in enumerate(data.train):
            if number == 1 and world.rank == 1:
                os._exit(9)
            stepper(batch)
    except RuntimeError as error:
        os._exit(7 if "by peer" in str(error) else 8)


@dataclass(frozen=True)
class Saved:
    """What a run that saves itself ends with: learning curve and the logits of the test rows."""

    curve: list[tuple[int, float | None]]
    logits: list[float]


def train_and_save(world: World, cfg: Config, folder: Path) -> Saved:
    """The experiment's model of ``train.py``, checkpoints and all."""
    from recsys.saves import EXPERIMENT, RunSaves
    from recsys.trial import Surroundings, train_trial

    with RunSaves(cfg, folder) as saves:
        around = Surroundings(build_data(cfg, world), CPU, saves, world)
        trial = train_trial(cfg, around, "0" * 16, EXPERIMENT, lambda _: None, folder / "model.safetensors")
    return Saved([(p.rows, p.ne) for p in trial.curve], trial.predictions.logits.tolist())


def train_and_resume(world: World, cfgs: dict[str, Config], root: Path) -> dict[str, Saved]:
    """Several runs after each other, each into a folder of its own; a later one may resume an earlier one."""
    return {name: train_and_save(world, cfg, root / name) for name, cfg in cfgs.items()}
