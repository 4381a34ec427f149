"""Optimizers of the dense parts, against their formulas."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from recsys.errors import ConfigError
from recsys.optim.dense import DenseOptimConfig

START, GRADS = 2.0, (1.0, -0.5, 0.25)


def run(config: DenseOptimConfig) -> float:
    p = nn.Parameter(torch.tensor([START], dtype=torch.float64))
    optimizer = config.build(iter([p]))
    for grad in GRADS:
        p.grad = torch.tensor([grad], dtype=torch.float64)
        optimizer.step()
    return p.item()


def sgd(lr: float, momentum: float, decay: float) -> float:
    w, v = START, None
    for g in GRADS:
        g += decay * w
        v = g if v is None else momentum * v + g
        w -= lr * v
    return w


def adam(lr: float, beta1: float, beta2: float, eps: float, decay: float, decoupled: bool) -> float:
    w, m, v = START, 0.0, 0.0
    for t, g in enumerate(GRADS, start=1):
        if decoupled:
            w -= lr * decay * w
        else:
            g += decay * w
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        w -= lr * (m / (1 - beta1**t)) / ((v / (1 - beta2**t)) ** 0.5 + eps)
    return w


def adagrad(lr: float, eps: float, decay: float) -> float:
    w, total = START, 0.0
    for g in GRADS:
        g += decay * w
        total += g * g
        w -= lr * g / (total**0.5 + eps)
    return w


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (DenseOptimConfig("sgd", lr=0.1, momentum=0.9, weight_decay=0.01), sgd(0.1, 0.9, 0.01)),
        (DenseOptimConfig("adam", lr=0.1), adam(0.1, 0.9, 0.999, 1e-8, 0.0, False)),
        (
            DenseOptimConfig("adam", lr=0.1, beta1=0.5, beta2=0.8, eps=0.1, weight_decay=0.3),
            adam(0.1, 0.5, 0.8, 0.1, 0.3, False),
        ),
        (DenseOptimConfig("adamw", lr=0.1, weight_decay=0.3), adam(0.1, 0.9, 0.999, 1e-8, 0.3, True)),
        (DenseOptimConfig("adagrad", lr=0.1, eps=0.1, weight_decay=0.3), adagrad(0.1, 0.1, 0.3)),
    ],
    ids=["sgd", "adam", "adam, all fields", "adamw", "adagrad"],
)
def test_the_update_follows_the_formula(config: DenseOptimConfig, expected: float) -> None:
    assert run(config) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adagrad"])
def test_the_fused_kernel_is_used(name: str) -> None:
    optimizer = DenseOptimConfig(name).build([nn.Parameter(torch.zeros(2))])
    assert optimizer.param_groups[0]["fused"] is True


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "adamm"}, r"optim\.name=adamm: valid are adam, adamw, adagrad, sgd"),
        ({"lr": 0.0}, r"optim\.lr=0\.0: must be above 0"),
        ({"lr": float("nan")}, r"optim\.lr=nan"),
        ({"weight_decay": -1.0}, r"optim\.weight_decay=-1\.0: must be at least 0"),
        ({"eps": -1.0}, r"optim\.eps=-1\.0"),
        ({"momentum": -0.1}, r"optim\.momentum=-0\.1"),
        ({"beta1": 1.0}, r"optim\.beta1=1\.0: must be in \[0, 1\)"),
    ],
)
def test_a_value_that_cannot_work_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        DenseOptimConfig(**changes)  # type: ignore[arg-type]
