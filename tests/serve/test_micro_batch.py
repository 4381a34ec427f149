"""Requests that wait are predicted together, and each gets its own rows back."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from recsys.serve.micro_batch import MicroBatcher, Rows


def request(*values: int) -> Rows:
    return [{"x": value} for value in values]


def echo(rows: Rows) -> Any:
    return np.array([row["x"] for row in rows], np.float32)


def test_waiting_requests_form_a_batch() -> None:
    gate = threading.Event()
    sizes: list[int] = []

    def slow(rows: Rows) -> Any:
        gate.wait(10)
        return echo(rows)

    async def main() -> list[Any]:
        batcher = MicroBatcher(slow, 4, sizes.append)
        tasks = [asyncio.create_task(batcher(request(i, 10 * i))) for i in range(6)]
        while batcher.num_waiting != 4:  # two fit into the first batch
            await asyncio.sleep(0.001)
        gate.set()
        results = await asyncio.gather(*tasks)
        assert batcher.num_waiting == 0
        results.append(await batcher(request(7)))
        batcher.close()
        return results

    results = asyncio.run(main())
    assert [r.tolist() for r in results] == [*([i, 10 * i] for i in range(6)), [7]]
    assert sum(sizes) == 13 and max(sizes) == 4 and len(sizes) < 7


def test_a_large_request_is_a_batch_of_its_own_and_an_error_reaches_its_askers() -> None:
    sizes: list[int] = []

    def broken(rows: Rows) -> Any:
        if rows[0]["x"] < 0:
            raise ArithmeticError("negative")
        return echo(rows)

    async def main() -> None:
        batcher = MicroBatcher(broken, 2, sizes.append)
        assert (await batcher(request(1, 2, 3))).tolist() == [1, 2, 3]
        with pytest.raises(ArithmeticError, match="negative"):
            await batcher(request(-1))
        assert (await batcher(request(5))).tolist() == [5]
        batcher.close()

    asyncio.run(main())
    assert sizes == [3, 1, 1]
