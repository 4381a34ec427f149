"""Requests that wait for the model are predicted together; none waits for others to come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = list[dict[str, Any]]
Array = NDArray[np.float32]


class MicroBatcher:
    """One thread that predicts; while it does, requests pile up and form the next batch.

    An idle model takes a request at once, so nobody pays for batching with latency.

    Args:
        predict: gives a probability a row.
        max_rows: of a batch, unless one request alone has more; 1 predicts every request by itself.
        on_batch: told the rows of each batch.
    """

    def __init__(
        self, predict: Callable[[Rows], Array], max_rows: int, on_batch: Callable[[int], None] = lambda _: None
    ) -> None:
        self._predict, self._max_rows, self._on_batch = predict, max_rows, on_batch
        self._waiting: list[tuple[Rows, asyncio.Future[Array]]] = []
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="predict")
        self._is_busy = False

    @property
    def num_waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    async def __call__(self, rows: Rows) -> Array:
        """Probabilities of a request's rows."""
        future: asyncio.Future[Array] = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, future))
        if not self._is_busy:
            self._is_busy = True
            self._task = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch = self._take()
                rows = [row for request, _ in batch for row in request]
                self._on_batch(len(rows))
                try:
                    result = await loop.run_in_executor(self._thread, self._predict, rows)
                except Exception as error:
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                    continue
                ends = np.cumsum([len(request) for request, _ in batch])
                for piece, (_, future) in zip(np.split(result, ends[:-1]), batch, strict=True):
                    if not future.done():  # a client that went away has cancelled it
                        future.set_result(piece)
        finally:
            self._is_busy = False

    def _take(self) -> list[tuple[Rows, asyncio.Future[Array]]]:
        """The first requests that fit into a batch, at least one."""
        count, total = 0, 0
        for rows, _ in self._waiting:
            if count and total + len(rows) > self._max_rows:
                break
            count, total = count + 1, total + len(rows)
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True)
