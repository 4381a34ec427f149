"""Every experiment learns what a logistic model cannot."""

from __future__ import annotations

import pytest
import torch

from recsys.config.cli import CONFIGS
from recsys.config.wire import build_data, build_model, build_stepper
from recsys.data.source import DataSplits
from recsys.train.evaluator import evaluate
from tests.reference.logistic import logistic_ne
from tests.reference.tiny_run import tiny_config

CPU = torch.device("cpu")
# bench_* are frozen shapes for timing on a GPU: minutes on a CPU, and no quality is promised of them.
EXPERIMENTS = sorted(
    p.stem
    for p in (CONFIGS / "experiment").glob("*.yaml")
    if not p.stem.startswith("bench_") and "override /chain" not in p.read_text()
)
# A teacher that lives on pairs and on curves of the dense values, over few ids: the least that tells in seconds.
SMALL = (
    *("data.train_rows=16384", "data.test_rows=4096", "data.max_cardinality=10", "data.click_rate=0.5"),
    *("data.first_order=0.3", "data.pair=3.0", "data.triple=0", "data.dense=1.5"),
    *("trainer.batch_size=128", "optim.lr=5e-3", "sparse.lr=0.1"),
    "sparse.init_scale=1",  # the start is scaled by one over the root of the table's rows, and these tables have ten
)


@pytest.fixture(scope="module")
def data() -> DataSplits:
    return build_data(tiny_config(*SMALL))


@pytest.fixture(scope="module")
def logistic(data: DataSplits) -> float:
    return logistic_ne(data.train, data.test)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_one_pass_beats_a_logistic_model(experiment: str, data: DataSplits, logistic: float) -> None:
    cfg = tiny_config(f"+experiment={experiment}", *SMALL)
    model = build_model(cfg, data.spec, CPU).train()
    stepper = build_stepper(cfg, model, CPU, total_steps=len(data.train))
    data.train.load_state_dict({"epoch": 0, "batch": 0})
    for batch in data.train:
        stepper(batch)
    evaluated = evaluate(model, data.test, CPU)
    ne = evaluated.compute().ne
    assert ne is not None and data.notes["bayes_ne"] < ne < 0.95 * logistic < 0.95
    heads = {name: metrics.ne for name, metrics in evaluated.compute_heads().items()}
    assert all(head is not None and head < 1.0 for head in heads.values()), f"a local head learnt nothing: {heads}"
