"""A chain's hand-written kernels match autograd, and its schedules agree, on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from recsys.chains.layers import learn_layer, linear_relu
from scripts.chain_lab import chain_pool, chain_runner
from scripts.schedule_lab import Runner, load_config

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


@pytest.mark.parametrize(("rows", "width"), [(256, 512), (70, 48), (1500, 256)])
def test_layer_and_head_match_float64_autograd(rows: int, width: int) -> None:
    draw = torch.Generator(device="cuda").manual_seed(0)

    def leaf(*shape: int, scale: float = 1.0) -> torch.Tensor:
        values = scale * torch.randn(*shape, device="cuda", generator=draw)
        return values.to(torch.bfloat16).requires_grad_()

    leaves = [leaf(rows, 40), leaf(width, 40, scale=0.2), leaf(width), leaf(10, width, scale=0.1), leaf(10)]
    targets = torch.randint(0, 10, (rows,), device="cuda", generator=draw)
    x, w, b, wh, bh = leaves
    loss, logits = learn_layer(x, linear_relu(x, w, b).detach(), w, b, wh, bh, targets)
    loss.backward()
    upstream = torch.randn(rows, width, device="cuda", generator=draw).to(torch.bfloat16)
    layer = torch.autograd.grad(linear_relu(x, w, b), [x, w, b], upstream)

    exact = [t.detach().double().requires_grad_() for t in leaves]
    x, w, b, wh, bh = exact
    exact_logits = torch.relu(x @ w.t() + b) @ wh.t() + bh
    exact_loss = torch.nn.functional.cross_entropy(exact_logits, targets)
    exact_grads = torch.autograd.grad(exact_loss, [w, b, wh, bh])
    exact_layer = torch.autograd.grad(torch.relu(x @ w.t() + b), [x, w, b], upstream.double())

    found = [loss.detach(), logits, *(t.grad for t in leaves[1:]), *layer]
    expected = [exact_loss.detach(), exact_logits.detach(), *exact_grads, *exact_layer]
    for number, (a, e) in enumerate(zip(found, expected, strict=True)):
        assert a is not None
        assert float((a.double() - e).norm() / e.norm()) < 1e-2, number


@pytest.mark.parametrize("experiment", ["mlp30", "transformer"])
def test_schedules_of_a_chain_agree(experiment: str) -> None:
    overrides = ["trainer.batch_size=64", "trainer.precision=fp32", "optim=sgd", "optim.lr=0.01"]
    cfg = load_config(experiment, overrides)
    pool = chain_pool(cfg, 4, torch.device("cuda"))

    def trained(**schedule: Any) -> dict[str, torch.Tensor]:
        runner: Runner = chain_runner(cfg, "", torch.device("cuda"), cut=True, compile=False, **schedule)
        for step in range(20):
            runner(pool[step % len(pool)])
        runner.executor.finish()
        torch.cuda.synchronize()
        state = runner.contender.model.modules.state_dict()
        return {name: value.detach().clone() for name, value in state.items()}

    expected = trained(name="sequential")
    for name in ("sequential_graph", "erase_blocking", "erase_graph"):
        for key, value in trained(name=name, early_update=name == "erase_graph").items():
            assert torch.allclose(value, expected[key], rtol=1e-5, atol=1e-6), (name, key)
