"""Sharded tables and reductions on GPUs: NCCL, a captured step with reductions inside, a cache of rows."""

from __future__ import annotations

import pytest
import torch

from tests.distributed.jobs import train_all
from tests.distributed.ranks import run_ranks
from tests.reference.tiny_run import tiny_config

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

COMMON = (
    "+experiment=erase6",
    *(f"~model.archs.{name}" for name in ("mlp", "wukong", "attention", "masknet")),
    "trainer.device=cuda",
    "model.over_arch.dropout=0",
    "sparse.optimizer=sgd",
    "optim=sgd",
)
CONFIGS = {
    "sequential": tiny_config(*COMMON, "schedule=sequential", "trainer.overlap_input=false"),
    # Exchanges of ids stay outside of the graph, reductions of dense parts are inside.
    "graph": tiny_config(*COMMON, "schedule=erase_graph", "schedule.strict=true"),
    "lanes": tiny_config(*COMMON, "schedule=erase_blocking", "schedule.early_update=true"),
    "joint": tiny_config(*COMMON, "schedule=erase_blocking", "schedule.reduce=joint"),
    "cache": tiny_config(*COMMON, "schedule=erase_graph", "sharding=uvm_caching", "sharding.cache_load_factor=0.5"),
}


def test_every_schedule_and_kernel_gives_the_numbers_of_the_sequential_step() -> None:
    size = min(2, torch.cuda.device_count())
    for rank in run_ranks(size, train_all, CONFIGS, 12, device="cuda"):
        reference = rank["sequential"]
        for name, trained in rank.items():
            for mine, losses in zip(trained.losses, reference.losses, strict=True):
                assert mine == pytest.approx(losses, abs=1e-5), name
            for key, value in reference.parameters.items():
                torch.testing.assert_close(trained.parameters[key], value, rtol=1e-4, atol=1e-6, msg=f"{name} {key}")
