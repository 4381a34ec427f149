"""Adam over many tensors in one kernel that also reads and writes low-precision copies. Needs a GPU with Triton."""

# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

# Tensors a launch: a launch takes five pointers for each.
_GROUP = 12
_BLOCK = 2048


@triton.jit
def _adam_one(p_ptr, g_ptr, m_ptr, v_ptr, c_ptr, step_ptr, lr, log2_b1, log2_b2, b1, b2, eps, decay, block, numel,
              DECOUPLED: tl.constexpr, COPIED: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    at = block * BLOCK + tl.arange(0, BLOCK)
    inside = at < numel
    step = tl.load(step_ptr).to(tl.float64)
    # In float64: 1 - b2^t loses half of float32's digits in the first steps.
    correction1 = (1.0 - libdevice.exp2(step * log2_b1)).to(tl.float32)
    correction2 = tl.sqrt_rn((1.0 - libdevice.exp2(step * log2_b2)).to(tl.float32))
    p = tl.load(p_ptr + at, mask=inside, other=0.0)
    g = tl.load(g_ptr + at, mask=inside, other=0.0).to(tl.float32)
    m = tl.load(m_ptr + at, mask=inside, other=0.0)
    v = tl.load(v_ptr + at, mask=inside, other=0.0)
    if DECOUPLED:
        p -= lr * decay * p
    else:
        g += decay * p
    m += (1.0 - b1) * (g - m)
    v = b2 * v + (1.0 - b2) * g * g
    p -= (lr / correction1) * m / (tl.sqrt_rn(v) / correction2 + eps)
    tl.store(p_ptr + at, p, mask=inside)
    tl.store(m_ptr + at, m, mask=inside)
    tl.store(v_ptr + at, v, mask=inside)
    if COPIED:
        tl.store(c_ptr + at, p.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _adam_many(ps, gs, ms, vs, cs, steps, lr_ptr, log2_b1, log2_b2, b1, b2, eps, decay,
               FIRST: tl.constexpr, NUMEL: tl.constexpr, COPIED: tl.constexpr, DECOUPLED: tl.constexpr,
               BLOCK: tl.constexpr):  # fmt: skip
    pid = tl.program_id(0)
    lr = tl.load(lr_ptr)
    for i in tl.static_range(len(NUMEL)):
        if (pid >= FIRST[i]) & (pid < FIRST[i + 1]):
            _adam_one(ps[i], gs[i], ms[i], vs[i], cs[i], steps[i], lr, log2_b1, log2_b2, b1, b2, eps, decay,
                      pid - FIRST[i], NUMEL[i], DECOUPLED, COPIED[i], BLOCK)  # fmt: skip


def adam_step(
    params: Sequence[torch.Tensor],
    grads: Sequence[torch.Tensor],
    exp_avgs: Sequence[torch.Tensor],
    exp_avg_sqs: Sequence[torch.Tensor],
    steps: Sequence[torch.Tensor],
    copies: Sequence[torch.Tensor | None],
    lr: torch.Tensor,
    *,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    decoupled: bool,
) -> None:
    """One step of Adam (Kingma and Ba, 2015), or AdamW with ``decoupled``, in place.

    ``params``, ``exp_avgs`` and ``exp_avg_sqs`` are float32, gradients float32 or bfloat16; all contiguous.
    Where a parameter has a copy, the copy gets its new value. ``steps`` (float32 scalars) are counted up;
    they and ``lr`` stay on the device.
    """
    torch._foreach_add_(list(steps), 1)
    log2 = [torch.tensor(b, dtype=torch.float64).log2().item() for b in betas]
    for i in range(0, len(params), _GROUP):
        cut = slice(i, i + _GROUP)
        numels = tuple(p.numel() for p in params[cut])
        first = [0]
        for numel in numels:
            first.append(first[-1] + triton.cdiv(numel, _BLOCK))
        own = tuple(c is not None for c in copies[cut])
        targets = tuple(p if c is None else c for p, c in zip(params[cut], copies[cut], strict=True))
        _adam_many[(first[-1],)](
            tuple(params[cut]), tuple(g.contiguous() for g in grads[cut]), tuple(exp_avgs[cut]),
            tuple(exp_avg_sqs[cut]), targets, tuple(steps[cut]), lr, log2[0], log2[1], betas[0], betas[1], eps,
            weight_decay, tuple(first), numels, own, decoupled, _BLOCK, num_warps=8,
        )  # fmt: skip
