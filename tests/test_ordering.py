"""One teacher separates the product's own models: logistic > DLRM > six sub-architectures > floor, in NE."""

from __future__ import annotations

import torch

from recsys.config.wire import build_data, build_model, build_stepper
from recsys.data.source import DataSplits
from recsys.train.evaluator import evaluate
from tests.reference.logistic import logistic_ne
from tests.reference.tiny_run import tiny_config

CPU = torch.device("cpu")
# Pairs and triples over very few ids, so that two hundred steps show who can learn which.
TEACHER = (
    *("data.train_rows=24576", "data.test_rows=8192", "data.max_cardinality=5", "data.click_rate=0.5"),
    *("data.first_order=0.5", "data.pair=2.0", "data.triple=2.0", "data.dense=0.5"),
    *("trainer.batch_size=128", "optim.lr=5e-3", "sparse.lr=0.1"),
)


def trained_ne(experiment: str, data: DataSplits, seed: int) -> float:
    cfg = tiny_config(f"+experiment={experiment}", *TEACHER, f"seed={seed}")
    model = build_model(cfg, data.spec, CPU).train()
    stepper = build_stepper(cfg, model, CPU, total_steps=len(data.train))
    data.train.load_state_dict({"epoch": 0, "batch": 0})
    for batch in data.train:
        stepper(batch)
    ne = evaluate(model, data.test, CPU).compute().ne
    assert ne is not None
    return ne


def test_logistic_dlrm_six_floor() -> None:
    data = build_data(tiny_config(*TEACHER))
    logistic, floor = logistic_ne(data.train, data.test), data.notes["bayes_ne"]
    for seed in (0, 1):
        dlrm, six = (trained_ne(name, data, seed) for name in ("dlrm", "baseline6"))
        told = f"seed {seed}: logistic {logistic:.4f}, dlrm {dlrm:.4f}, baseline6 {six:.4f}, floor {floor:.4f}"
        assert logistic - dlrm > 0.06, told
        assert dlrm - six > 0.02, told
        assert six - floor > 0.05, told
