"""Saves a model in training when it is time, and takes it up again from where it was saved."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from recsys.checkpoint.peers import Peers
from recsys.checkpoint.read import Checkpoint
from recsys.checkpoint.saver import Saver
from recsys.checkpoint.strict_json import take, take_count
from recsys.checkpoint.write import Snapshot
from recsys.errors import CheckpointError
from recsys.metrics import RunningNE
from recsys.models.recommender import Recommender
from recsys.train.best_state import Best, copy_state
from recsys.train.fit_state import FitState
from recsys.train.model_state import BEST, ModelState
from recsys.train.stepper import Stepper

_POLL_STEPS = 8
"""Ranks ask each other this often whether to save or to stop; they would not all know at the same step."""


@dataclass(frozen=True)
class Checkpointing:
    """What a training loop needs to save and to resume.

    Attributes:
        saver: where to and when.
        peers: the ranks.
        facts: what a checkpoint tells about its run, such as its configuration; in JSON's types.
        resume: the checkpoint to go on from; its files are verified.
        saves_best: whether a new best state is saved at once.
    """

    saver: Saver
    peers: Peers
    facts: Mapping[str, Any]
    resume: Checkpoint | None = None
    saves_best: bool = False

    @property
    def place(self) -> str:
        """The checkpoint that is resumed, for messages."""
        return "" if self.resume is None else str(self.resume.folder)

    def restore(
        self, model: Recommender, stepper: Stepper, running: RunningNE, device: torch.device
    ) -> tuple[FitState, Best | None]:
        """Where the run stood, after writing the saved values into model, optimizers and generators.

        Returns:
            The loop's state, and the best model so far; fresh ones where there is nothing to resume.

        Raises:
            CheckpointError: the checkpoint is of another model.
        """
        if self.resume is None:
            return FitState(), None
        place = str(self.resume.folder / "state.json")
        raw = self.resume.state()
        state = FitState.from_dict(take(raw, "fit", dict, place), place)
        best: Best | None = None
        if self.resume.names(BEST):
            best = copy_state(model)
        notes = ModelState(model, stepper.optimizers, self.peers).restore(self.resume, best, state.step)
        stepper.step = take_count(raw, "schedule_step", place)
        model.sparse_arch.set_iteration(take_count(raw, "table_steps", place))
        try:
            running.load_state(take(raw, "running_ne", list, place), device)
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"{place}: running_ne is not what was written ({error})") from error
        _restore_host_random(take(raw, "random", dict, place), place)
        self.saver.resumed_at(state.step)
        if self.peers.rank == 0:
            print("; ".join([f"resumed from {self.resume.folder}", *notes]), flush=True)
        return state, best

    def save(
        self,
        state: FitState,
        model: Recommender,
        stepper: Stepper,
        running: RunningNE,
        best: Best | None,
        *,
        wait: bool = False,
    ) -> None:
        """Save the run as it stands.

        Raises:
            CheckpointError: as :meth:`Saver.save`.
        """

        def make() -> Snapshot:
            tensors = ModelState(model, stepper.optimizers, self.peers)
            other = {
                **self.facts,
                "fit": state.to_dict(),
                "schedule_step": stepper.step,
                "table_steps": model.sparse_arch.iteration(),
                "running_ne": running.state(),
                "random": _host_random(),
                "world_size": self.peers.size,
            }
            ne = next((p.ne for p in reversed(state.curve)), None)
            return Snapshot(state.step, [*tensors.shards(best), *tensors.random_states()], other, ne)

        self.saver.save(make, state.step, wait=wait)

    def wants(self, step: int, stop: bool) -> tuple[bool, bool]:
        """Whether to save and whether to stop now, the same on every rank."""
        if self.peers.size == 1:
            self.saver.poll()
            return self.saver.is_due(step), stop
        due = self.saver.is_due(step)
        if step % _POLL_STEPS and not (due and self.saver.by_steps(step)):
            return False, False
        answers = [text.split() for text in self.peers.gather(f"{int(due)} {int(stop)}")]
        return answers[0][0] == "1", any(stops == "1" for _, stops in answers)


def _host_random() -> dict[str, Any]:
    version, words, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state()
    return {
        "python": [version, list(words), gauss],
        "numpy": [kind, [int(k) for k in keys], position, has_gauss, cached],
    }


def _restore_host_random(raw: Mapping[str, Any], place: str) -> None:
    try:
        version, words, gauss = raw["python"]
        kind, keys, position, has_gauss, cached = raw["numpy"]
        random.setstate((version, tuple(words), gauss))
        np.random.set_state((kind, np.array(keys, np.uint32), position, has_gauss, cached))
    except (KeyError, ValueError, TypeError, OverflowError) as error:
        raise CheckpointError(f"{place}: holds no state of random or numpy.random ({error})") from error
