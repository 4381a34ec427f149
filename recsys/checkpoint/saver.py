"""When checkpoints are written, and by whom."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from recsys.checkpoint.peers import Peers
from recsys.checkpoint.store import Store
from recsys.checkpoint.write import Snapshot, write_checkpoint
from recsys.errors import CheckpointError, ConfigError


@dataclass(frozen=True)
class CheckpointConfig:
    """The config group ``checkpoint``.

    Attributes:
        folder: where checkpoints go; None: ``checkpoints`` in the run's folder.
        every_steps: steps from one to the next; 0: not by steps.
        every_seconds: seconds from one to the next; 0: not by time.
        keep_last: newest ones to keep.
        keep_best: ones with the lowest valid NE to keep beside them; more than 0 also saves at each new best.
        async_save: copy to host memory and write in a thread; training waits only for the copy.
        on_error: ``stop`` ends training where a write fails, ``continue`` tells and goes on.
        auto_resume: resume if the folder holds checkpoints, start if not: for jobs that are started again.
        allow_changes: config keys that may differ from the checkpoint's; ``all`` for any.
    """

    folder: str | None = None
    every_steps: int = 0
    every_seconds: float = 600.0
    keep_last: int = 3
    keep_best: int = 0
    async_save: bool = True
    on_error: str = "stop"
    auto_resume: bool = False
    allow_changes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, least in (("every_steps", 0), ("every_seconds", 0), ("keep_last", 1), ("keep_best", 0)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"checkpoint.{name}={getattr(self, name)}: must be at least {least}")
        if self.on_error not in ("stop", "continue"):
            raise ConfigError(f"checkpoint.on_error={self.on_error}: valid are stop, continue")


class Saver:
    """Writes snapshots into a store, at most one at a time.

    Args:
        store: where to.
        config: when and how.
        peers: the ranks; every one makes the same calls.
        on_saved: called after every write that succeeded, on rank 0.
        clock: seconds, monotonic: a wall clock that is set back must not keep checkpoints away.
    """

    def __init__(
        self,
        store: Store,
        config: CheckpointConfig,
        peers: Peers,
        *,
        on_saved: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._on_saved = on_saved
        self._store, self._config, self._peers, self._clock = store, config, peers, clock
        self._last_time = clock()
        self._last_step = -1
        self._pool: ThreadPoolExecutor | None = None
        self._writing: Future[Path] | None = None

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is due after ``step`` steps; by time, rank 0's answer is the one that counts."""
        seconds = self._config.every_seconds
        return self.by_steps(step) or (seconds > 0 and self._clock() - self._last_time >= seconds)

    def by_steps(self, step: int) -> bool:
        """Whether one is due by the count of steps."""
        return self._config.every_steps > 0 and step % self._config.every_steps == 0

    def resumed_at(self, step: int) -> None:
        """Say that a checkpoint of ``step`` is there; removes what a process that died left to be removed."""
        self._last_step = step
        self._tidy_up(lambda: None)

    def save(self, make: Callable[[], Snapshot], step: int, *, wait: bool = False) -> None:
        """Write what ``make`` gives, unless ``step`` has been saved already.

        Args:
            make: gives the snapshot, whose tensors may live on.
            step: of the snapshot.
            wait: return when it is written, whatever the configuration says.

        Raises:
            CheckpointError: this write failed, or with ``async_save`` the one before, and ``on_error`` is ``stop``.
        """
        self.settle()
        if step == self._last_step:
            return
        self._last_time, self._last_step = self._clock(), step
        snapshot = make()
        if self._config.async_save and not wait:
            copy = snapshot.copy_to_host()
            self._pool = self._pool or ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
            self._writing = self._pool.submit(self._write, copy)
            return
        self._told(lambda: self._write(snapshot))

    def settle(self) -> None:
        """Wait for the write that is under way.

        Raises:
            CheckpointError: it failed, and ``on_error`` is ``stop``.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            self._told(writing.result)

    def poll(self) -> None:
        """As :meth:`settle` if the write has ended; returns at once."""
        if self._writing is not None and self._writing.done():
            self.settle()

    def close(self) -> None:
        """Wait for the write that is under way and end the thread."""
        try:
            self.settle()
        finally:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None

    def _write(self, snapshot: Snapshot) -> Path:
        path = write_checkpoint(self._store.folder, snapshot, self._peers)
        self._tidy_up(self._on_saved)
        return path

    def _tidy_up(self, first: Callable[[], None]) -> None:
        if self._peers.rank == 0:
            try:
                first()
                self._store.prune(self._config.keep_last, self._config.keep_best)
            except OSError as error:
                print(f"{self._store.folder}: tidying up after a checkpoint failed ({error})", flush=True)

    def _told(self, write: Callable[[], Path]) -> None:
        try:
            write()
        except CheckpointError as error:
            message = f"{self._store.folder}: no checkpoint was written ({error}); older ones are as they were"
            if self._config.on_error == "stop":
                raise CheckpointError(f"{message}. checkpoint.on_error=continue would have trained on") from error
            if self._peers.rank == 0:
                print(f"{message}; training goes on", flush=True)
            self._last_step = -1
