"""A run means the same on any number of processes: losses, parameters, quality, position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from recsys.config.wire import Config
from recsys.distributed.world import ALONE
from recsys.types import Batch
from tests.distributed.jobs import Gathered, Trained, collect, die, several, train
from tests.distributed.ranks import run_ranks
from tests.reference.tiny_run import tiny_config
from tests.reference.toy import make_batch

STEPS = 20
# 3 batches an epoch, the last one with a single row: on two processes and more some rank has none of it.
ROWS, BATCH = 109, 54
COMMON = (
    "+experiment=erase6",
    *(f"~model.archs.{name}" for name in ("mlp", "wukong", "attention", "masknet")),
    f"data.train_rows={ROWS}",
    f"trainer.batch_size={BATCH}",
    "model.over_arch.dropout=0",
    "model.over_arch.hidden=[16]",
    "model.dense_arch.hidden=[16]",
    "sparse.embedding_dim=8",
    "sparse.optimizer=sgd",
    "optim=sgd",
    "optim.lr_schedule.warmup_steps=6",
    "optim.lr_schedule.decay=cosine",
)
PLANS = ("table_wise", "row_wise", "table_row_wise", "data_parallel")


def config(*overrides: str) -> Config:
    return tiny_config(*COMMON, *overrides)


CONFIGS = {
    **{plan: config(f"sharding={plan}") for plan in PLANS},
    # Some tables of their own kind, everything else by the planner; one reduction at the end; nothing ahead of time.
    "mixed": config(
        "+sharding.tables.C3=data_parallel",
        "+sharding.tables.C1=row_wise",
        "schedule.reduce=joint",
        "schedule.early_update=false",
        "trainer.overlap_input=false",
    ),
    "clipped": config("sharding=table_wise", "optim.clip_norm=0.05", "schedule.early_update=false"),
    "accumulated": config("sharding=data_parallel", "trainer.accumulate_steps=3"),
}
# What each is compared with: the same configuration in one process without torchrun.
ALONE_AS = {"accumulated": config("sharding=data_parallel"), "mixed": config(), **{p: config() for p in PLANS}}


def scored_batches() -> list[Batch]:
    return [make_batch(rows, seed=rows) for rows in (13, 13, 2, 1)]


@pytest.fixture(scope="module")
def alone() -> dict[str, Trained]:
    plain = train(ALONE, config(), STEPS)
    clipped = train(ALONE, CONFIGS["clipped"], STEPS)
    return {name: clipped if name == "clipped" else plain for name in CONFIGS}


# Two processes show most; one shows that sharding alone changes nothing, four that slices may be empty.
ON = {1: ("row_wise", "mixed"), 2: tuple(CONFIGS), 4: PLANS}


@pytest.fixture(scope="module", params=sorted(ON))
def ranks(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return run_ranks(
        request.param, several, {name: CONFIGS[name] for name in ON[request.param]}, STEPS, scored_batches()
    )


def runs(ranks: list[dict[str, Any]]) -> Iterator[tuple[str, Trained]]:
    """Every configuration on every rank."""
    for rank in ranks:
        yield from rank["trained"].items()


def test_losses_of_twenty_steps_are_those_of_one_process(
    ranks: list[dict[str, Any]], alone: dict[str, Trained]
) -> None:
    for name, got in runs(ranks):
        assert len(got.losses) == STEPS
        for mine, reference in zip(got.losses, alone[name].losses, strict=True):
            assert mine == pytest.approx(reference, abs=1e-6), name


def test_parameters_start_and_end_as_on_one_process(ranks: list[dict[str, Any]], alone: dict[str, Trained]) -> None:
    for name, got in runs(ranks):
        assert got.parameters.keys() == alone[name].parameters.keys()
        for key, value in alone[name].start.items():
            assert torch.equal(got.start[key], value), key
        for key, value in alone[name].parameters.items():
            torch.testing.assert_close(got.parameters[key], value, rtol=1e-5, atol=1e-7, msg=f"{name} {key}")


def test_every_part_and_every_table_moves(ranks: list[dict[str, Any]]) -> None:
    for _, trained in runs(ranks):
        still = [k for k, v in trained.parameters.items() if torch.equal(v, trained.start[k])]
        assert still == []


def test_quality_is_that_of_one_process_and_every_row_counts_once(
    ranks: list[dict[str, Any]], alone: dict[str, Trained]
) -> None:
    for name, got in runs(ranks):
        assert got.ne == pytest.approx(alone[name].ne, abs=1e-6), name
        assert got.rows == 64


def test_metrics_of_given_predictions_are_equal(ranks: list[dict[str, Any]]) -> None:
    reference = collect(ALONE, scored_batches())
    for rank in ranks:
        gathered: Gathered = rank["gathered"]
        assert gathered.logits == reference.logits
        assert gathered.metrics == reference.metrics and gathered.heads == reference.heads


def test_the_position_is_of_the_whole_and_not_of_what_was_read_ahead(
    ranks: list[dict[str, Any]], alone: dict[str, Trained]
) -> None:
    for name, got in runs(ranks):
        assert got.positions == alone[name].positions, name


def test_ranks_share_objects(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert (rank["broadcast"], rank["on_main"]) == ("from 0", "by 0")
        assert rank["all"] == list(range(len(ranks)))


def test_tables_that_cannot_fit_are_refused_with_need_and_capacity(ranks: list[dict[str, Any]]) -> None:
    message = ranks[0]["refused"]
    assert message.startswith("sharding: no plan fits: the tables' weights alone are")
    assert f"each of {len(ranks)} ranks may use" in message and "sharding.reserve=0.15" in message
    assert [rank["refused"] for rank in ranks[1:]] == ["told by rank 0"] * (len(ranks) - 1)


def test_a_rank_that_dies_ends_the_others_with_an_error() -> None:
    # 7: the other rank saw an error of the connection, and not the timeout of a collective or none at all.
    assert run_ranks(2, die, config("sharding=row_wise"), exit_codes=[7, 9]) == [None, None]
