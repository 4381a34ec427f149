"""A layer and a classification head with their gradients in few kernels, in bfloat16. Needs a GPU with Triton."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

# Rows that one program sums up: short batches need no second pass, long ones fill the device.
_ROWS = 512
_COLUMNS = 32
_CHUNK = 128
_PADDED = 16  # classes, at least what a matrix product of the device takes


@triton.jit
def _mask_and_sum(g_ptr, h_ptr, out_ptr, sum_ptr, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
                  CHUNK: tl.constexpr):  # fmt: skip
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1) * ROWS
    total = tl.zeros((COLUMNS,), tl.float32)
    for start in range(first, min(first + ROWS, rows), CHUNK):
        row = start + tl.arange(0, CHUNK)
        at = row[:, None] * width + column[None, :]
        inside = (row[:, None] < rows) & (column[None, :] < width)
        g = tl.load(g_ptr + at, mask=inside, other=0.0)
        h = tl.load(h_ptr + at, mask=inside, other=0.0)
        g = tl.where(h > 0, g, 0.0)
        tl.store(out_ptr + at, g, mask=inside)
        total += tl.sum(g.to(tl.float32), axis=0)
    tl.store(sum_ptr + tl.program_id(1) * width + column, total, mask=column < width)


@triton.jit
def _head_rows(h_ptr, w_ptr, b_ptr, target_ptr, logit_ptr, loss_ptr, dlogit_ptr, dh_ptr, rows, width, classes,
               ROWS: tl.constexpr, COLUMNS: tl.constexpr, PADDED: tl.constexpr):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, PADDED)
    real = k < classes
    logits = tl.zeros((ROWS, PADDED), tl.float32)
    for start in range(0, width, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = (row[:, None] < rows) & (column[None, :] < width)
        h = tl.load(h_ptr + row[:, None] * width + column[None, :], mask=inside, other=0.0)
        w_mask = real[None, :] & (column[:, None] < width)
        w = tl.load(w_ptr + k[None, :] * width + column[:, None], mask=w_mask, other=0.0)
        logits = tl.dot(h, w, logits)
    logits += tl.load(b_ptr + k, mask=real, other=0.0).to(tl.float32)[None, :]
    kept = (row[:, None] < rows) & real[None, :]
    tl.store(logit_ptr + row[:, None] * classes + k[None, :], logits, mask=kept)
    logits = tl.where(real[None, :], logits, float("-inf"))
    top = tl.max(logits, axis=1)
    exps = tl.exp(logits - top[:, None])
    total = tl.sum(exps, axis=1)
    target = tl.load(target_ptr + row, mask=row < rows, other=0)
    hit = k[None, :] == target[:, None].to(tl.int32)
    picked = tl.sum(tl.where(hit, logits, 0.0), axis=1)
    tl.store(loss_ptr + row, (tl.log(total) + top - picked) / rows, mask=row < rows)
    dlogits = (exps / total[:, None] - tl.where(hit, 1.0, 0.0)) / rows
    dlogits = tl.where(kept, dlogits, 0.0).to(h_ptr.dtype.element_ty)
    tl.store(dlogit_ptr + row[:, None] * PADDED + k[None, :], dlogits, mask=row[:, None] < rows)
    for start in range(0, width, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        w_mask = real[:, None] & (column[None, :] < width)
        w = tl.load(w_ptr + k[:, None] * width + column[None, :], mask=w_mask, other=0.0)
        dh = tl.dot(dlogits, w)
        inside = (row[:, None] < rows) & (column[None, :] < width)
        h = tl.load(h_ptr + row[:, None] * width + column[None, :], mask=inside, other=0.0)
        dh = tl.where(h > 0, dh, 0.0)
        tl.store(dh_ptr + row[:, None] * width + column[None, :], dh.to(h_ptr.dtype.element_ty), mask=inside)


@triton.jit
def _head_sums(h_ptr, dh_ptr, dlogit_ptr, loss_ptr, sum_ptr, total_ptr, rows, width, ROWS: tl.constexpr,
               COLUMNS: tl.constexpr, CHUNK: tl.constexpr, PADDED: tl.constexpr):  # fmt: skip
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1) * ROWS
    k = tl.arange(0, PADDED)
    dw = tl.zeros((PADDED, COLUMNS), tl.float32)
    bias = tl.zeros((COLUMNS,), tl.float32)
    head_bias = tl.zeros((PADDED,), tl.float32)
    loss = tl.zeros((CHUNK,), tl.float32)
    for start in range(first, min(first + ROWS, rows), CHUNK):
        row = start + tl.arange(0, CHUNK)
        at = row[:, None] * width + column[None, :]
        inside = (row[:, None] < rows) & (column[None, :] < width)
        h = tl.load(h_ptr + at, mask=inside, other=0.0)
        d = tl.load(dlogit_ptr + k[:, None] + row[None, :] * PADDED, mask=row[None, :] < rows, other=0.0)
        dw = tl.dot(d, h, dw)
        bias += tl.sum(tl.load(dh_ptr + at, mask=inside, other=0.0).to(tl.float32), axis=0)
        head_bias += tl.sum(d.to(tl.float32), axis=1)
        loss += tl.load(loss_ptr + row, mask=row < rows, other=0.0)
    base = sum_ptr + tl.program_id(1) * (PADDED * width + width + PADDED)
    tl.store(base + k[:, None] * width + column[None, :], dw, mask=column[None, :] < width)
    tl.store(base + PADDED * width + column, bias, mask=column < width)
    if tl.program_id(0) == 0:
        tl.store(base + PADDED * width + width + k, head_bias)
        tl.store(total_ptr + tl.program_id(1), tl.sum(loss, axis=0))


class LinearReLU(torch.autograd.Function):
    """``relu(x @ weight.T + bias)`` in bfloat16: x ``(B, I)``, weight ``(W, I)``, bias ``(W,)``."""

    @staticmethod
    def forward(ctx: Any, x_BI: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """One product with the bias and the ReLU in its last step."""
        h_BW = torch._addmm_activation(bias, x_BI, weight.t())
        ctx.save_for_backward(x_BI, weight, h_BW)
        return h_BW

    @staticmethod
    def backward(ctx: Any, grad_BW: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Mask and sum in one kernel, and two products."""
        x_BI, weight, h_BW = ctx.saved_tensors
        rows, width = h_BW.shape
        grad_BW = grad_BW.contiguous()
        masked = torch.empty_like(h_BW)
        splits = triton.cdiv(rows, _ROWS)
        sums = torch.empty(splits, width, device=h_BW.device, dtype=torch.float32 if splits > 1 else h_BW.dtype)
        grid = (triton.cdiv(width, _COLUMNS), splits)
        _mask_and_sum[grid](grad_BW, h_BW, masked, sums, rows, width, _ROWS, _COLUMNS, _CHUNK)
        bias_grad = sums[0] if splits == 1 else sums.sum(0).to(h_BW.dtype)
        return masked @ weight if ctx.needs_input_grad[0] else None, masked.t() @ x_BI, bias_grad


def head_gradients(
    h_BW: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, targets_B: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Loss and gradients of a linear head over ``h``, the output of a ReLU, in two kernels.

    Args:
        h_BW: bfloat16 ``(B, W)``.
        weight: bfloat16 ``(classes, W)``, up to 16 classes.
        bias: bfloat16 ``(classes,)``.
        targets_B: int64 ``(B,)``.

    Returns:
        Mean cross-entropy in nats, logits, the gradient before the ReLU ``(B, W)``, its sum over rows ``(W,)``, and the
        gradients of ``weight`` and ``bias``. Loss and logits are float32, the others bfloat16.
    """
    rows, width = h_BW.shape
    classes, device = len(weight), h_BW.device
    assert classes <= _PADDED, "the kernel takes up to 16 classes"
    logits = torch.empty(rows, classes, device=device)
    losses = torch.empty(rows, device=device)
    dlogits = torch.empty(rows, _PADDED, device=device, dtype=h_BW.dtype)
    dh = torch.empty_like(h_BW)
    _head_rows[(triton.cdiv(rows, 16),)](h_BW, weight, bias, targets_B, logits, losses, dlogits, dh,
                                         rows, width, classes, 16, _CHUNK, _PADDED)  # fmt: skip
    splits = triton.cdiv(rows, _ROWS)
    length = _PADDED * width + width + _PADDED
    sums = torch.empty(splits, length, device=device, dtype=torch.float32 if splits > 1 else h_BW.dtype)
    total = torch.empty(splits, device=device)
    grid = (triton.cdiv(width, _COLUMNS), splits)
    _head_sums[grid](h_BW, dh, dlogits, losses, sums, total, rows, width, _ROWS, _COLUMNS, _CHUNK, _PADDED)
    grads, loss = (sums[0], total[0]) if splits == 1 else (sums.sum(0).to(h_BW.dtype), total.sum())
    head_weight = grads[: classes * width].view(classes, width)
    after = _PADDED * width + width
    return loss, logits, dh, grads[_PADDED * width : after], head_weight, grads[after : after + classes]
