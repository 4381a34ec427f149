"""An L2 penalty on pooled embeddings, as a gradient."""

from __future__ import annotations

from typing import Any

import torch


class PooledL2(torch.autograd.Function):
    """Gives its input back; the backward adds the gradient of ``sum_b w_b sum_c l2_c x_bc^2 / weight_sum``.

    The penalty is that of the loss over rows b, so a batch's mean of squared lengths: where a table's gradient enters
    once a step, the penalty does too, however many parts read the embeddings. Rows of weight 0 (padding) do not count.
    """

    @staticmethod
    def forward(
        ctx: Any, x_BFE: torch.Tensor, l2_E: torch.Tensor, weights_B: torch.Tensor, weight_sum: torch.Tensor | None
    ) -> torch.Tensor:
        """``(B, F, E)``, the penalty of each of E coordinates, and the rows' weights.

        ``weight_sum`` is that of the whole batch that these rows are a slice of; None: ``weights_B.sum()``.
        """
        ctx.save_for_backward(x_BFE, l2_E, weights_B, weights_B.sum() if weight_sum is None else weight_sum)
        return x_BFE.view_as(x_BFE)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        """Gradient of the input."""
        x_BFE, l2_E, weights_B, total = ctx.saved_tensors
        share_B = weights_B / torch.where(total > 0, total, torch.ones_like(total))
        return grads[0] + 2 * share_B[:, None, None] * l2_E * x_BFE, None, None, None
