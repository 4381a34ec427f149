"""Everything of a model in training that a checkpoint holds as tensors: weights, optimizer state, random states."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from recsys.checkpoint.peers import Peers
from recsys.checkpoint.read import Checkpoint
from recsys.checkpoint.shard import Shard, shards_of
from recsys.checkpoint.tensor_file import BY_NAME
from recsys.distributed.state import under_any_plan
from recsys.errors import CheckpointError
from recsys.models.recommender import Recommender
from recsys.seeding import keyed_seed
from recsys.train.best_state import Best

MODEL, OPTIM, FUSED, BEST, RANDOM = "model/", "optim/", "fused/", "best/", "random/"


class ModelState:
    """The tensors of ``model`` and of its optimizers, under names that no world size and no sharding plan changes.

    Args:
        model: weights, tables with fused optimizers, and generators of dropout.
        optimizers: of the dense parts, by part name.
        peers: the ranks.
    """

    def __init__(self, model: Recommender, optimizers: Mapping[str, torch.optim.Optimizer], peers: Peers) -> None:
        self._model, self._optimizers, self._peers = model, dict(optimizers), peers
        self._names = {parameter: under_any_plan(name) for name, parameter in model.named_parameters()}

    def shards(self, best: Best | None) -> list[Shard]:
        """This rank's pieces, the random states apart.

        Args:
            best: the state dict of the best model so far.
        """
        shards = [*_named(MODEL, self._model.state_dict()), *self._fused(), *self._dense_optimizers()]
        return shards if best is None else [*shards, *_named(BEST, best)]

    def random_states(self) -> list[Shard]:
        """Copies of the states of this rank's generators."""
        states = {name: generator.get_state() for name, generator in self._generators().items()}
        states["torch"] = torch.get_rng_state()
        if torch.cuda.is_available():
            states["cuda"] = torch.cuda.get_rng_state()
        # Each rank has its own, so these are whole tensors that are not replicated.
        return [
            Shard(f"{self._random}{name}", tuple(state.shape), (0,), state.clone()) for name, state in states.items()
        ]

    def restore(self, checkpoint: Checkpoint, best: Best | None, step: int) -> list[str]:
        """Write what ``checkpoint`` holds into the model, its optimizers and generators, and into ``best``.

        Returns:
            What a person should know: what could not be taken over as it was.

        Raises:
            CheckpointError: it was made of another model or other optimizers.
        """
        for name in checkpoint.names(OPTIM):
            self._allocate(name, checkpoint)
        shards = self.shards(best)
        converted = {s.name for s in shards if _is_columnwise(s, checkpoint)}
        plain = [s for s in shards if s.name not in converted]
        checkpoint.check_fit([*plain, *_as_saved(converted, checkpoint)], (MODEL, OPTIM, FUSED, BEST), self._peers)
        checkpoint.load(plain)
        for shard in shards:
            if shard.name in converted:
                _convert(shard, checkpoint)
        return self._restore_random(checkpoint, step)

    def _fused(self) -> Iterator[Shard]:
        state: Mapping[str, Mapping[str, torch.Tensor]]
        state = self._model.sparse_arch.fused_optimizer().state_dict()["state"]
        for table, values in state.items():
            name = table.rpartition("embedding_bags.")[2].removesuffix(".weight")
            for key, value in values.items():
                # momentum_1 or momentum1, as the tables lie in one piece or are sharded.
                kind = key.rpartition(".")[2].replace("_", "")
                yield from shards_of(f"{FUSED}{name}/{kind}", value)

    def _dense_optimizers(self) -> Iterator[Shard]:
        for optimizer in self._optimizers.values():
            for parameter, state in optimizer.state.items():
                assert isinstance(parameter, torch.nn.Parameter)
                for key, value in state.items():
                    if isinstance(value, torch.Tensor):
                        yield from shards_of(f"{OPTIM}{self._names[parameter]}/{key}", value)

    def _allocate(self, name: str, checkpoint: Checkpoint) -> None:
        """Make room for the state of a parameter that no step has touched yet."""
        of, _, key = name.removeprefix(OPTIM).rpartition("/")
        found = [(o, p) for o in self._optimizers.values() for g in o.param_groups for p in g["params"]]
        for optimizer, parameter in found:
            if self._names[parameter] == of and key not in optimizer.state[parameter]:
                saved = checkpoint.manifest.tensors[name]
                # Not whatever size a file asks for; what does not fit is told later, with all the rest.
                if saved.shape not in ((), tuple(parameter.shape)):
                    continue
                room = torch.empty(saved.shape, dtype=BY_NAME[saved.dtype], device=parameter.device)
                optimizer.state[parameter][key] = room

    @property
    def _random(self) -> str:
        return f"{RANDOM}{self._peers.rank:05}/"

    def _generators(self) -> dict[str, torch.Generator]:
        found: dict[str, torch.Generator] = {}
        for part, module in self._model.parts.items():
            for child in module.modules():
                if isinstance(generator := getattr(child, "generator", None), torch.Generator):
                    found[f"dropout/{part}"] = generator
        return found

    def _restore_random(self, checkpoint: Checkpoint, step: int) -> list[str]:
        if checkpoint.manifest.world_size != self._peers.size:
            for name, generator in self._generators().items():
                generator.manual_seed(keyed_seed(self._model.seed, f"{name}/step {step}/rank {self._peers.rank}"))
            return [
                f"made by {checkpoint.manifest.world_size} ranks and resumed by {self._peers.size}: "
                "dropout draws other numbers from here on"
            ]
        for name, generator in self._generators().items():
            _set_state(generator.set_state, checkpoint, f"{self._random}{name}")
        _set_state(torch.set_rng_state, checkpoint, f"{self._random}torch")
        on_gpu = f"{self._random}cuda" in checkpoint.manifest.tensors
        if torch.cuda.is_available() and on_gpu:
            _set_state(torch.cuda.set_rng_state, checkpoint, f"{self._random}cuda")
        return []


def _named(prefix: str, state: Mapping[str, Any]) -> Iterator[Shard]:
    for name, value in state.items():
        yield from shards_of(f"{prefix}{under_any_plan(name)}", value)


def _set_state(setter: Any, checkpoint: Checkpoint, name: str) -> None:
    try:
        setter(checkpoint.load_whole(name))
    except (RuntimeError, TypeError) as error:
        raise CheckpointError(f"{checkpoint.folder}: {name} is no state of this generator ({error})") from error


def _as_saved(names: set[str], checkpoint: Checkpoint) -> Iterator[Shard]:
    for name in names:
        saved = checkpoint.manifest.tensors[name]
        empty = torch.empty(0, dtype=BY_NAME[saved.dtype])
        yield Shard(name, saved.shape, (0,) * len(saved.shape), empty)


def _is_columnwise(shard: Shard, checkpoint: Checkpoint) -> bool:
    """Whether row-wise optimizer state was saved by column shards: one number a row for each of them."""
    saved = checkpoint.manifest.tensors.get(shard.name)
    if not shard.name.startswith(FUSED) or saved is None or len(shard.shape) != 1 or saved.shape == shard.shape:
        return False
    (here,), (there,) = shard.shape, saved.shape
    if here > there > 0 and here % there == 0:
        table = re.split("/", shard.name)[1]
        raise CheckpointError(
            f"{checkpoint.folder}: table {table!r} keeps {here // there} numbers a row in its optimizer here (column-"
            f"wise sharding) and {there and 1} in the checkpoint: how the squared gradients were spread over the "
            "columns is not in it; resume with the plan that the checkpoint was made with, or any other that is not "
            "column-wise"
        )
    return here > 0 and there % here == 0


def _convert(shard: Shard, checkpoint: Checkpoint) -> None:
    """The mean over columns of squared gradients, from the means over the columns of every column shard."""
    (rows,) = shard.shape
    saved = checkpoint.load_whole(shard.name).view(-1, rows)
    table = shard.name.removeprefix(FUSED).partition("/")[0]
    (weight,) = [n for n in checkpoint.names(MODEL) if n.endswith(f"embedding_bags.{table}.weight")]
    widths = {p.offset[1]: p.shape[1] for p in checkpoint.manifest.tensors[weight].pieces}
    if len(widths) != len(saved):
        raise CheckpointError(f"{checkpoint.folder}: {shard.name} does not go with the column shards of its table")
    share = torch.tensor([widths[at] for at in sorted(widths)], dtype=torch.float64)
    mean = (share / share.sum()) @ saved.double()
    (begin, end), *_ = shard.box
    shard.tensor.copy_(mean[begin:end])
