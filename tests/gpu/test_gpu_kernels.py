"""Kernels of our own and compiled parts against float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from recsys.archs.base import TokenShape
from recsys.archs.mlp import MLPArch
from recsys.models.local_head import LocalHead
from recsys.models.parts import SubArchPart

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]


def test_compiled_head_and_loss_match_float64_autograd() -> None:
    torch.manual_seed(0)
    part = SubArchPart(MLPArch(TokenShape(5, 8), hidden=[16], out_features=12), LocalHead(12), 0.7).cuda()
    tokens = torch.randn(64, 5, 8, device="cuda", requires_grad=True)
    labels = (torch.rand(64, device="cuda") < 0.3).float()
    weights = (torch.rand(64, device="cuda") < 0.9).float()
    compiled = torch.compile(part.compute, dynamic=False)(tokens, labels, weights)
    assert part.head is not None and compiled.loss is not None
    compiled.loss.backward()
    got = [tokens.grad, *(p.grad for p in part.parameters())]

    double = tokens.detach().double().requires_grad_()
    part.double()
    part.zero_grad(set_to_none=True)
    logits = part.head.mlp(part.arch(double)).squeeze(1)
    bce = functional.binary_cross_entropy_with_logits(logits, labels.double(), weights.double(), reduction="sum")
    (0.7 * bce / weights.double().sum()).backward()
    want = [double.grad, *(p.grad for p in part.parameters())]
    for a, b in zip(got, want, strict=True):
        assert a is not None
        torch.testing.assert_close(a.double(), b, rtol=2e-5, atol=2e-7)


@pytest.mark.parametrize("decoupled", [False, True])
def test_triton_adam_matches_torch(decoupled: bool) -> None:
    from recsys.optim.triton_adam import adam_step

    torch.manual_seed(0)
    params = [torch.randn(s, device="cuda") for s in [(1000, 37), (5,), (64, 64), (1,)] * 5]
    twins = [p.clone().requires_grad_() for p in params]
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    twin = kind(twins, lr=1e-2, weight_decay=0.1, fused=True)
    first, second = [torch.zeros_like(p) for p in params], [torch.zeros_like(p) for p in params]
    steps = [torch.zeros((), device="cuda") for _ in params]
    copies = [p.bfloat16() if p.ndim > 1 else None for p in params]
    lr = torch.tensor(1e-2, device="cuda")
    for _ in range(10):
        grads = [torch.randn_like(p) if c is None else torch.randn_like(c) for p, c in zip(params, copies, strict=True)]
        adam_step(
            params, grads, first, second, steps, copies, lr,
            betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, decoupled=decoupled,
        )  # fmt: skip
        for t, g in zip(twins, grads, strict=True):
            t.grad = g.float()
        twin.step()
    for p, t, c in zip(params, twins, copies, strict=True):
        torch.testing.assert_close(p, t.detach(), rtol=1e-5, atol=1e-6)
        assert c is None or torch.equal(c, p.bfloat16())
