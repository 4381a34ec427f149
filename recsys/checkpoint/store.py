"""The checkpoints of one model in one folder: which are there, which is the newest sound one, which go."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from recsys.checkpoint.files import discard
from recsys.checkpoint.manifest import read_manifest
from recsys.checkpoint.peers import Peers
from recsys.checkpoint.read import Checkpoint
from recsys.errors import CheckpointError

_STEP = re.compile(r"step_(\d{8,18})")
_LEFT_OVER = re.compile(r"\.step_\d{8,18}(\.tmp|(\.damaged)?\.trash)")
DAMAGED = ".damaged"


def step_of(folder: Path) -> int | None:
    """The step that a folder's name says, or None if it is no checkpoint's name."""
    found = _STEP.fullmatch(folder.name)
    return int(found[1]) if found else None


class Store:
    """Checkpoints ``step_*`` in ``folder``, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def checkpoints(self) -> list[Path]:
        """The folders by step, the newest last."""
        try:
            found = [(step, p) for p in self.folder.iterdir() if (step := step_of(p)) is not None]
        except FileNotFoundError:
            return []
        return [path for _, path in sorted(found)]

    def newest_sound(self, peers: Peers) -> Checkpoint | None:
        """The newest checkpoint that is whole, after telling of damaged newer ones; None if there is none at all.

        A damaged one is renamed to ``*.damaged``: training will come to its step again. Every rank calls this.

        Raises:
            CheckpointError: there are checkpoints, but every one is damaged.
        """
        paths = peers.gather("\n".join(p.name for p in reversed(self.checkpoints())))[0].split("\n")
        names = [name for name in paths if name]
        told: list[str] = []
        for name in names:
            # Every rank is going to read it, but one look at each byte is enough.
            problem = problem_of(self.folder / name) if peers.rank == 0 else ""
            problem = peers.gather(problem)[0]
            if not problem:
                return Checkpoint(self.folder / name)
            told.append(problem)
            if peers.rank == 0:
                following = names[names.index(name) + 1 :]
                then = f"using {following[0]}, the one before it" if following else "there is none before it"
                print(f"damaged checkpoint: {problem}; {then}", flush=True)
                self._set_aside(self.folder / name)
        if told:
            raise CheckpointError(f"{self.folder}: every checkpoint is damaged; the last one: {told[-1]}")
        return None

    def _set_aside(self, path: Path) -> None:
        aside = path.with_name(path.name + DAMAGED)
        try:
            shutil.rmtree(aside, ignore_errors=True)
            os.rename(path, aside)
        except OSError as error:
            print(f"{path}: cannot be renamed to {aside.name} ({error.strerror})", flush=True)

    def remove_left_overs(self) -> None:
        """Remove what a process left that died while it wrote or removed a checkpoint."""
        if self.folder.is_dir():
            for path in self.folder.iterdir():
                if _LEFT_OVER.fullmatch(path.name):
                    shutil.rmtree(path, ignore_errors=True)

    def prune(self, keep_last: int, keep_best: int) -> None:
        """Remove all but the newest ``keep_last`` and the ``keep_best`` with the lowest valid NE.

        Raises:
            OSError: a folder cannot be removed.
        """
        paths = self.checkpoints()
        kept = set(paths[-keep_last:])
        if keep_best:
            by_ne = sorted((ne, path) for path in paths if (ne := _valid_ne(path)) is not None)
            kept |= {path for _, path in by_ne[:keep_best]}
        for path in paths:
            if path not in kept:
                discard(path)


def problem_of(path: Path) -> str:
    """What is wrong with a checkpoint; empty if it is whole."""
    try:
        Checkpoint(path).verify()
    except CheckpointError as error:
        return str(error)
    return ""


def _valid_ne(path: Path) -> float | None:
    try:
        return read_manifest(path).valid_ne
    except CheckpointError:
        return None
