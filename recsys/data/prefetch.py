"""Results of background threads, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

T = TypeVar("T")


def prefetch(pool: Executor, tasks: Iterator[Callable[[], T]], depth: int) -> Iterator[T]:
    """Run ``tasks`` in ``pool`` and yield their results in the order of the tasks, whoever ends first.

    ``tasks`` is drawn from in the consumer's thread only. When the consumer stops, by ``close``, by an exception or
    by Ctrl-C, tasks that no thread has begun are cancelled.

    Args:
        pool: threads that outlive the iteration.
        tasks: what to run.
        depth: tasks under way or done while the consumer has the result of an earlier one; the bound on memory.

    Raises:
        Exception: what a task raised, when its turn comes.
    """
    pending: deque[Future[T]] = deque()
    try:
        for task in tasks:
            pending.append(pool.submit(task))
            if len(pending) > depth:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
