"""Where tasks run: this process, a pool of processes, or a Dask cluster, all behind ``concurrent.futures``."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, TypeVar

from recsys.errors import ConfigError, DataError
from recsys.prepare.settings import Engine
from recsys.prepare.work import atomic

_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


class SerialExecutor(Executor):
    """Runs a task when it is submitted, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn``; the future is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass(frozen=True)
class Pool:
    """An executor and how many tasks it works on at once."""

    executor: Executor
    width: int


def num_workers(engine: Engine) -> int:
    """Processes of the local engine."""
    return engine.workers or len(os.sched_getaffinity(0))


@contextmanager
def open_pool(engine: Engine) -> Iterator[Pool]:
    """Start the engine.

    Raises:
        ConfigError: Dask is not installed, or there is no scheduler at the address.
    """
    if engine.name == "dask":
        with _dask(engine) as pool:
            yield pool
        return
    workers = num_workers(engine)
    if workers == 1:
        yield Pool(SerialExecutor(), 1)
        return
    # Spawned, not forked: this process has threads of Arrow's.
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_begin_worker)
    try:
        yield Pool(executor, workers)
    except BrokenProcessPool as error:
        raise DataError(
            "a worker process died (killed, or out of memory?); start again, what is done is kept; with fewer "
            "engine.workers or a smaller engine.chunk_mib it needs less memory"
        ) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _begin_worker() -> None:
    """Leave Ctrl-C to the parent, and end with it: a pool's workers would outlive a parent that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


@contextmanager
def _dask(engine: Engine) -> Iterator[Pool]:
    try:
        from distributed import Client
    except ImportError as error:
        raise ConfigError("engine=dask needs the package `distributed`; install it: pip install distributed") from error
    try:
        client = Client(engine.address, timeout="10s", set_as_default=False)
    except ValueError as error:
        raise ConfigError(
            f"engine.address={engine.address}: is no address such as tcp://HOST:8786 ({error})"
        ) from error
    except OSError as error:
        raise ConfigError(f"engine.address={engine.address}: no Dask scheduler answers there ({error})") from error
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise ConfigError(f"engine.address={engine.address}: the scheduler has no workers; start some")
        with client.get_executor() as executor:
            yield Pool(executor, threads)


def run_tasks(
    pool: Pool, task: Callable[[_Job], _Result], jobs: Sequence[_Job], done: Callable[[int], Path] | None = None
) -> Iterator[_Result]:
    """Yield the result of every job, in the jobs' order, so that of several errors always the same one is told.

    Args:
        pool: where they run.
        task: a function of a module.
        jobs: its arguments, one each.
        done: where the result of job ``i`` is kept; what is there is not done again.
    """
    waiting: deque[Future[_Result]] = deque()
    # A window over the jobs, so that neither results nor arguments of a huge input pile up.
    ahead = iter(range(len(jobs)))
    try:
        for _ in jobs:
            while len(waiting) < 2 * pool.width and (i := next(ahead, None)) is not None:
                waiting.append(pool.executor.submit(remembered, task, jobs[i], done(i) if done else None))
                if isinstance(pool.executor, SerialExecutor):
                    break
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def remembered(task: Callable[[_Job], _Result], job: _Job, path: Path | None) -> _Result:
    """The result of an earlier run, or the task's, which is kept in a file."""
    if path is not None and path.exists():
        result: _Result = pickle.loads(path.read_bytes())
        return result
    result = task(job)
    if path is not None:
        with atomic(path) as draft:
            draft.write_bytes(pickle.dumps(result))
    return result
