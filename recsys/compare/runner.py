"""Carry out the runs of a plan: each once, several at a time, none lost when the comparison is stopped."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from recsys.compare.plan import Cell, Plan
from recsys.compare.rows import largest_difference
from recsys.errors import DataError, UserError
from recsys.report.predictions import PREDICTIONS_NPZ, Predictions
from recsys.report.record import RunRecord

Item = TypeVar("Item")
Result = TypeVar("Result")
Key = tuple[str, int, int]


@dataclass(frozen=True)
class Finished:
    """A run that is there.

    Attributes:
        folder: of the run.
        from_cache: whether an earlier comparison, or an interrupted one, had made it.
        seconds: that it took now.
    """

    folder: Path
    from_cache: bool
    seconds: float


def train_once(cfg: dict[str, Any], store: Path, threads: int) -> Finished:
    """The run of ``cfg`` in ``store/<fingerprint>``, trained only if it is not there, whole, already.

    Args:
        cfg: a resolved configuration.
        store: folder of runs by fingerprint.
        threads: of this process; part of the fingerprint.
    """
    import torch

    from recsys.config.fingerprint import fingerprint
    from recsys.config.wire import build_data, build_device
    from recsys.run import train_model

    start = time.perf_counter()
    torch.set_num_threads(threads)
    data = build_data(cfg)
    config_hash = fingerprint(cfg, data.fingerprint, build_device(cfg["trainer"]["device"]))
    folder = store / config_hash
    cached = _is_whole(folder, config_hash)
    if not cached:
        train_model(cfg, folder, data)
    return Finished(folder, cached, time.perf_counter() - start)


def _is_whole(folder: Path, config_hash: str) -> bool:
    """Whether the run is finished and readable. ``report.json`` is written last."""
    try:
        Predictions.read(folder / PREDICTIONS_NPZ)
        return RunRecord(folder).fingerprint == config_hash
    except DataError:
        return False


def run_plan(
    plan: Plan,
    store: Path,
    *,
    jobs: int,
    threads: int,
    exact: bool,
    on_done: Callable[[Cell, Finished], None],
) -> dict[Key, Finished]:
    """Make every run of ``plan`` that is not in ``store`` yet.

    Args:
        plan: the runs.
        store: folder of runs by fingerprint, shared by all comparisons.
        jobs: processes at a time; 1 runs in this process.
        threads: of each.
        exact: whether experiments that differ in their schedule only must agree bit for bit (on a CPU they must).
        on_done: called after each run.

    Raises:
        DataError: two of those disagree; as soon as both are there.
        UserError: a run failed; those that are finished stay.
    """
    finished: dict[Key, Finished] = {}
    same = _group_equal(plan.cells)
    work = partial(train_once, store=store, threads=threads)
    with closing(run_all(work, [cells[0].cfg for cells in same], jobs)) as results:
        for cell, done in ((cell, done) for number, done in results for cell in same[number]):
            finished[cell.key] = done
            on_done(cell, done)
            if exact:
                _check_twins(plan, cell, finished)
    return finished


def _group_equal(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells whose configurations differ in nothing but the name: one run serves them all."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(json.dumps({**cell.cfg, "name": ""}, sort_keys=True), []).append(cell)
    return list(groups.values())


def _check_twins(plan: Plan, cell: Cell, finished: dict[Key, Finished]) -> None:
    for pair in plan.twins():
        runs = [finished.get((label, cell.fold, cell.index)) for label in pair]
        if cell.label not in pair or runs[0] is None or runs[1] is None:
            continue
        if difference := largest_difference(runs[0].folder, runs[1].folder):
            raise DataError(
                f"{pair[0]} and {pair[1]} differ in their schedule only and must predict the same bits, but in fold "
                f"{cell.fold} with seed {cell.cfg['seed']} their logits differ by up to {difference:.3g} "
                f"({runs[0].folder}, {runs[1].folder}); one of the schedules is wrong"
            )


def run_all(
    work: Callable[[Item], Result], items: Iterable[Item], jobs: int
) -> Generator[tuple[int, Result], None, None]:
    """``(position, work(item))`` of every item, in the order in which they end.

    The next item is asked for only when a process is free for it and the result before it was taken, so that ``items``
    may choose by the results so far. ``work`` and the items travel to fresh processes, which end with this one, however
    it ends.

    Raises:
        UserError: a process died. Whatever ``work`` raises; what has not begun by then is not begun.
    """
    if jobs <= 1:
        for number, item in enumerate(items):
            yield number, work(item)
        return
    # Spawned, not forked: threads of torch and a CUDA context do not survive a fork.
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), initializer=_end_with_parent)
    waiting = iter(enumerate(items))
    try:
        running = _submit(pool, work, waiting, jobs)
        # Never more than are at work: what is stopped must not go on with items that the pool had fetched ahead.
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
                running.update(_submit(pool, work, waiting, jobs - len(running)))
    except BrokenProcessPool as error:
        raise UserError(
            "a training process was killed (out of memory?); finished runs are kept, so run the same command again, "
            "with --jobs 1 if memory is short"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _submit(
    pool: ProcessPoolExecutor, work: Callable[[Item], Result], waiting: Iterator[tuple[int, Item]], num: int
) -> dict[Future[Result], int]:
    return {pool.submit(work, item): number for number, item in itertools.islice(waiting, num)}


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None, "called in a worker only"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
