"""A layer with ReLU, and a cut-off layer's loss and gradients, by few kernels where the device has them."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional


def linear_relu(x_BI: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """``relu(x @ weight.T + bias)``: ``(B, W)``.

    On a GPU with bfloat16 weights one kernel, and one for the backward's mask and bias gradient together.
    """
    if _has_kernels(weight):
        from recsys.chains.triton_layers import LinearReLU

        out: torch.Tensor = LinearReLU.apply(x_BI.to(weight.dtype), weight, bias)
        return out
    return functional.relu(functional.linear(x_BI, weight, bias))


def learn_layer(
    x_BI: torch.Tensor,
    h_BW: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    head_weight: torch.Tensor,
    head_bias: torch.Tensor,
    targets_B: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean cross-entropy (nats) of a linear head over ``h = relu(x @ weight.T + bias)``, and its logits, in float32.

    ``h`` is given, not computed again. Gradients of both layers are made together with the loss, all but the product
    for ``weight``, which the backward makes. They hold for an incoming gradient of 1: what the engine gives to a part's
    loss.

    Args:
        x_BI: ``(B, I)``, what the layer read; gets no gradient.
        h_BW: ``(B, W)``, what it gave; gets no gradient.
        weight: ``(W, I)``.
        bias: ``(W,)``.
        head_weight: ``(classes, W)``; on a GPU in bfloat16 up to 16 classes.
        head_bias: ``(classes,)``.
        targets_B: int64 ``(B,)``.
    """
    x_BI = x_BI.to(h_BW.dtype)
    loss, logits = _LearnLayer.apply(x_BI, h_BW, weight, bias, head_weight, head_bias, targets_B)
    return loss, logits


def _has_kernels(weight: torch.Tensor) -> bool:
    return weight.is_cuda and weight.dtype is torch.bfloat16


class _LearnLayer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_BI: torch.Tensor,
        h_BW: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        head_weight: torch.Tensor,
        head_bias: torch.Tensor,
        targets_B: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if _has_kernels(head_weight):
            from recsys.chains.triton_layers import head_gradients
        else:
            head_gradients = _head_gradients
        loss, logits, dh_BW, *grads = head_gradients(h_BW, head_weight, head_bias, targets_B)
        ctx.save_for_backward(x_BI, dh_BW, *grads)
        ctx.dtypes = [t.dtype for t in (weight, bias, head_weight, head_bias)]
        ctx.mark_non_differentiable(logits)
        return loss, logits

    @staticmethod
    def backward(ctx: Any, loss_grad: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x_BI, dh_BW, bias_grad, head_weight_grad, head_bias_grad = ctx.saved_tensors
        grads = (dh_BW.t() @ x_BI, bias_grad, head_weight_grad, head_bias_grad)
        return None, None, *(g.to(dtype) for g, dtype in zip(grads, ctx.dtypes, strict=True)), None


def _head_gradients(
    h_BW: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, targets_B: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Loss, logits, masked gradient of ``h``, and the gradients of the layer's bias, the head's weight and bias."""
    logits = functional.linear(h_BW, weight, bias).float()
    log_p = functional.log_softmax(logits, dim=1)
    loss = functional.nll_loss(log_p, targets_B)
    dlogits = (log_p.exp() - functional.one_hot(targets_B, logits.shape[1])) / len(targets_B)
    dlogits = dlogits.to(h_BW.dtype)
    dh_BW = torch.where(h_BW > 0, dlogits @ weight.to(h_BW.dtype), 0.0)
    return loss, logits, dh_BW, dh_BW.sum(0), dlogits.t() @ h_BW, dlogits.sum(0)
