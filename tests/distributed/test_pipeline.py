"""What is prepared ahead, in which order, and where the data stands meanwhile."""

from __future__ import annotations

from typing import Any

import torch

from recsys.data.memory_source import MemorySource
from recsys.distributed.pipeline import PipelinedBatches
from recsys.features import FeatureSpec
from tests.reference.toy import CPU, SPEC


class Log:
    """An exchange that writes down who comes when."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def start(self, features: Any) -> None:
        self.events.append(f"start {number(features)}")

    def send(self, features: Any) -> None:
        self.events.append(f"send {number(features)}")

    def settle(self) -> None:
        self.events.append("settle")


def number(features: Any) -> int:
    """The batch's number: all its ids are that."""
    return int(features.values()[0])


def source(batches: int) -> MemorySource:
    rows = batches * 2
    ids = torch.arange(rows).div(2, rounding_mode="floor").int().expand(len(SPEC.sparse), rows).numpy().copy()
    dense = torch.zeros(rows, len(SPEC.dense)).numpy()
    assert isinstance(SPEC, FeatureSpec)
    return MemorySource(SPEC, dense, ids, torch.zeros(rows).numpy(), batch_size=2)


def test_ids_travel_one_batch_ahead_and_their_numbers_two() -> None:
    log = Log()
    batches = iter(PipelinedBatches(source(5), CPU, log))
    assert number(next(batches).sparse_features) == 0
    assert log.events == ["start 0", "send 0", "start 1", "send 1", "start 2"]
    log.events.clear()
    assert number(next(batches).sparse_features) == 1
    assert log.events == ["send 2", "start 3"]
    assert [number(b.sparse_features) for b in batches] == [2, 3, 4]
    assert log.events[2:] == ["send 3", "start 4", "send 4"]  # nothing is left under way


def test_the_position_is_that_of_the_batch_handed_out() -> None:
    piped = PipelinedBatches(source(5), CPU, Log())
    batches = iter(piped)
    positions = [(next(batches), piped.state_dict())[1] for _ in range(5)]
    assert positions == [{"epoch": 0, "batch": i} for i in (1, 2, 3, 4)] + [{"epoch": 1, "batch": 0}]
    again = PipelinedBatches(source(5), CPU, None)
    again.load_state_dict(positions[1])
    assert again.state_dict() == positions[1]
    assert [number(b.sparse_features) for b in again] == [2, 3, 4]


def test_what_is_under_way_arrives_when_the_consumer_stops() -> None:
    log = Log()
    batches = iter(PipelinedBatches(source(5), CPU, log))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert log.events[-1] == "settle"
