"""Every schedule trains the same model on a GPU."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys.features import FeatureSpec, SparseFeature
from recsys.models.recommender import SPARSE
from recsys.optim.device_lr import LearningRates
from recsys.schedule.executors.cuda_graph import GraphExecutor
from recsys.schedule.factory import NAMES, ScheduleConfig
from recsys.types import Batch
from scripts.schedule_lab import (
    Contender,
    Runner,
    baseline_of,
    batch_pool,
    bench_spec,
    build_contender,
    build_runner,
    load_config,
)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SMALL = ["sparse.embedding_dim=16", "model.over_arch.hidden=[64,64]", "trainer.precision=fp32"]
SGD = [*SMALL, "optim=sgd", "sparse.optimizer=sgd"]
ROWS = 2000


@pytest.fixture(scope="module")
def device() -> torch.device:
    return torch.device("cuda")


def contender(device: torch.device, overrides: Sequence[str], spec: FeatureSpec | None = None, **kw: Any) -> Contender:
    return build_contender(
        load_config("bench_proxy", overrides), spec or bench_spec(ROWS), device, compiled=False, **kw
    )


def parameters(runner: Runner) -> dict[str, torch.Tensor]:
    runner.executor.finish()
    torch.cuda.synchronize()
    state = runner.contender.model.state_dict()
    return {name: value.detach().clone() for name, value in state.items() if value.is_floating_point()}


def assert_agree(runner: Runner, expected: dict[str, torch.Tensor]) -> None:
    for name, value in parameters(runner).items():
        assert torch.allclose(value, expected[name], rtol=1e-5, atol=1e-6), name


def train(device: torch.device, overrides: Sequence[str], pool: Sequence[Batch], **schedule: Any) -> Runner:
    runner = build_runner(contender(device, overrides), ScheduleConfig(strict=True, **schedule))
    for batch in pool:
        runner(batch)
    return runner


@pytest.fixture(scope="module")
def pool(device: torch.device) -> list[Batch]:
    return batch_pool(bench_spec(ROWS), 256, 20, device)


@pytest.fixture(scope="module")
def expected(device: torch.device, pool: list[Batch]) -> dict[str, torch.Tensor]:
    return parameters(train(device, SGD, pool, name="sequential"))


SCHEDULES = [
    *(pytest.param({"name": n, "early_update": early}, id=f"{n}-{early}") for n in NAMES for early in (False, True)),
    pytest.param({"name": "erase_graph", "early_update": True, "trailing": True}, id="trailing"),
    pytest.param({"name": "erase_graph", "lanes": {"mlp": 2, "cross": 2, "dot": 3, "masknet": 3}}, id="shared-lanes"),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_twenty_sgd_steps_agree(
    device: torch.device, pool: list[Batch], expected: dict[str, torch.Tensor], schedule: dict[str, Any]
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runner = train(device, SGD, pool, **schedule)
        assert_agree(runner, expected)
    assert not [w for w in caught if "AccumulateGrad" in str(w.message)]
    if isinstance(runner.executor, GraphExecutor):
        assert runner.executor.report.replays == 17
        assert runner.executor.report.kernels > 100


def losses(runner: Runner, pool: Sequence[Batch]) -> torch.Tensor:
    curve = torch.stack([torch.stack(list(runner(batch).losses.values())) for batch in pool])
    runner.executor.finish()
    return curve


def test_products_for_fewer_multiprocessors_only_round_differently(device: torch.device, pool: list[Batch]) -> None:
    # cuBLAS takes other kernels, which sum in another order; training itself then lets the difference grow.
    curves = [
        losses(build_runner(contender(device, SGD), ScheduleConfig("erase_graph", gemm_sms=sms)), pool)
        for sms in (0, 44)
    ]
    torch.testing.assert_close(curves[0][:6], curves[1][:6], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "schedule", [{"name": "erase_graph"}, {"name": "erase_graph", "trailing": True}, {"name": "erase_threads"}]
)
def test_losses_overlay_over_200_adam_steps(device: torch.device, schedule: dict[str, Any]) -> None:
    pool = batch_pool(bench_spec(ROWS), 128, 200, device, seed=1)
    configs = ({"name": "sequential"}, {"early_update": True, **schedule})
    curves = [losses(build_runner(contender(device, SMALL), ScheduleConfig(strict=True, **c)), pool) for c in configs]
    torch.testing.assert_close(curves[0], curves[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("schedule", [{}, {"trailing": True}])
def test_2000_random_steps_do_not_diverge(device: torch.device, schedule: dict[str, Any]) -> None:
    pool = batch_pool(bench_spec(ROWS), 64, 500, device, seed=2)
    runs = [
        train(device, SMALL, pool * 4, name=name, **options)
        for name, options in (("sequential_graph", {}), ("erase_graph", {"early_update": True, **schedule}))
    ]
    first, second = parameters(runs[0]), parameters(runs[1])
    for name, value in first.items():
        assert torch.allclose(value, second[name], rtol=1e-4, atol=1e-5), name


def test_learning_rate_schedule_acts_under_replay(device: torch.device, pool: list[Batch]) -> None:
    def run(name: str, outside: frozenset[str]) -> Runner:
        c = contender(device, SMALL)
        rates = LearningRates(c.optimizers)
        runner = build_runner(c, ScheduleConfig(name, early_update=True, strict=True), outside=outside)
        for i, batch in enumerate(pool):
            factor = 1.0 / (1 + i)
            rates.set_factor(factor)
            c.model.sparse_arch.set_lr_factor(factor)
            runner(batch)
        return runner

    replayed = run("erase_graph", frozenset({SPARSE}))
    assert isinstance(replayed.executor, GraphExecutor)
    # The tables' rate is frozen by a capture; outside of it, it acts without another capture.
    assert replayed.executor.report.captures == 1
    assert_agree(replayed, parameters(run("sequential", frozenset())))


def test_another_batch_size_is_captured_again(device: torch.device) -> None:
    pool = batch_pool(bench_spec(ROWS), 256, 8, device) + batch_pool(bench_spec(ROWS), 96, 12, device, seed=3)
    graph = train(device, SGD, pool, name="erase_graph")
    assert isinstance(graph.executor, GraphExecutor)
    assert graph.executor.report.captures == 2
    assert_agree(graph, parameters(train(device, SGD, pool, name="sequential")))


def test_moved_parameters_are_captured_again(device: torch.device, pool: list[Batch]) -> None:
    runner = train(device, SGD, pool[:8], name="erase_graph")
    for parameter in runner.contender.model.parts["over"].parameters():
        parameter.data = parameter.data.clone()
    for batch in pool[8:]:
        runner(batch)
    assert isinstance(runner.executor, GraphExecutor)
    assert runner.executor.report.captures == 2
    assert_agree(runner, parameters(train(device, SGD, pool, name="sequential")))


def jagged_pool(spec: FeatureSpec, size: int, number: int, device: torch.device) -> list[Batch]:
    generator = torch.Generator(device=device).manual_seed(4)
    pool = batch_pool(spec, size, number, device)
    for batch in pool:
        lengths = torch.randint(0, 4, (len(spec.sparse) * size,), device=device, generator=generator)
        values = torch.randint(0, ROWS, (int(lengths.sum()),), device=device, generator=generator)
        batch.sparse_features = KeyedJaggedTensor(spec.sparse_names, values, lengths=lengths, stride=size)
    return pool


def test_varying_lengths_leave_the_tables_outside_of_the_graph(device: torch.device) -> None:
    plain = bench_spec(ROWS, 6)
    spec = FeatureSpec(plain.dense, tuple(SparseFeature(f.name, f.cardinality, 3) for f in plain.sparse))
    pool = jagged_pool(spec, 128, 20, device)
    results = []
    for name in ("sequential", "erase_graph"):
        runner = build_runner(contender(device, SMALL, spec), ScheduleConfig(name, early_update=True, strict=True))
        for batch in pool:
            runner(batch)
        results.append(runner)
    assert isinstance(results[1].executor, GraphExecutor)
    assert results[1].executor.report.captures == 1
    assert_agree(results[1], parameters(results[0]))


def test_dropout_draws_the_same_masks_in_a_replay(device: torch.device, pool: list[Batch]) -> None:
    dropout = [*SGD, "model.archs.mlp.dropout=0.2", "model.archs.masknet.dropout=0.2", "model.over_arch.dropout=0.1"]
    eager = train(device, dropout, pool, name="sequential")
    assert_agree(train(device, dropout, pool, name="erase_graph", early_update=True), parameters(eager))


def test_baseline_branches_agree(device: torch.device, pool: list[Batch]) -> None:
    results = []
    for name in ("sequential", "branch_graph"):
        cfg = baseline_of(load_config("bench_proxy", SGD))
        runner = build_runner(
            build_contender(cfg, bench_spec(ROWS), device, compiled=False),
            ScheduleConfig(name, early_update=True, strict=True),
        )
        for batch in pool:
            runner(batch)
        results.append(runner)
    assert_agree(results[1], parameters(results[0]))


SANITIZED = """
import torch
import torch.cuda._sanitizer as sanitizer
sanitizer.enable_cuda_sanitizer()
from recsys.schedule.factory import ScheduleConfig
from scripts.schedule_lab import *
device = torch.device("cuda")
spec = bench_spec(500)
cfg = load_config("bench_proxy", {overrides!r})
schedule = ScheduleConfig("erase_blocking", early_update=True)
runner = build_runner(build_contender(cfg, spec, device, compiled=False), schedule)
for batch in batch_pool(spec, 64, 3, device):
    runner(batch)
torch.cuda.synchronize()
print("clean")
"""


def test_sanitizer_finds_no_race() -> None:
    run = subprocess.run(
        [sys.executable, "-c", SANITIZED.format(overrides=SGD)],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.strip().endswith("clean"), run.stdout[-2000:] + run.stderr[-3000:]
