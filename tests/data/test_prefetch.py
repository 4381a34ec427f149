from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pytest

from recsys.data.prefetch import prefetch


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def numbers(count: int) -> Iterator[Callable[[], int]]:
    return (partial(int, number) for number in range(count))


@pytest.mark.parametrize("depth", [1, 3, 50])
def test_results_come_in_the_order_of_the_tasks(pool: ThreadPoolExecutor, depth: int) -> None:
    first_may_end = threading.Event()

    def slow() -> int:
        assert first_may_end.wait(60)
        return -1

    def release() -> int:
        first_may_end.set()
        return 10

    def tasks() -> Iterator[Callable[[], int]]:
        yield slow
        yield from numbers(10)
        yield release

    if depth < 50:
        first_may_end.set()
    assert list(prefetch(pool, tasks(), depth)) == [-1, *range(11)]


def test_no_more_than_depth_tasks_are_ahead(pool: ThreadPoolExecutor) -> None:
    drawn = 0

    def tasks() -> Iterator[Callable[[], int]]:
        nonlocal drawn
        for task in numbers(20):
            drawn += 1
            yield task

    for result in prefetch(pool, tasks(), 4):
        assert drawn <= result + 5


def test_an_exception_arrives_in_its_turn(pool: ThreadPoolExecutor) -> None:
    def fail() -> int:
        raise RuntimeError("disk on fire")

    def tasks() -> Iterator[Callable[[], int]]:
        yield from numbers(3)
        yield fail
        yield from numbers(3)

    seen = []
    with pytest.raises(RuntimeError, match="^disk on fire$"):
        for result in prefetch(pool, tasks(), 2):
            seen.append(result)
    assert seen == [0, 1, 2]


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, ValueError])
def test_tasks_not_begun_are_cancelled_when_the_consumer_stops(error: type[BaseException] | None) -> None:
    release, begun = threading.Event(), []

    def wait(number: int) -> int:
        begun.append(number)
        assert release.wait(60)
        return number

    def tasks() -> Iterator[Callable[[], int]]:
        yield lambda: -1
        yield from (partial(wait, number) for number in range(10))

    with ThreadPoolExecutor(1) as single:
        results = prefetch(single, tasks(), 8)
        assert next(results) == -1
        if error is None:
            with closing(results):  # type: ignore[type-var]
                pass
        else:
            with pytest.raises(error):
                results.throw(error())  # type: ignore[attr-defined]
        release.set()
        assert single.submit(int, 7).result(60) == 7, "the pool lives on"
    assert len(begun) <= 1
