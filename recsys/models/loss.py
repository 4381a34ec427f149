"""The loss of every prediction, global or local."""

from __future__ import annotations

import torch
from torch.nn import functional


def weighted_bce(
    logits_B: torch.Tensor, labels_B: torch.Tensor, weights_B: torch.Tensor, weight_sum: torch.Tensor | None = None
) -> torch.Tensor:
    """Weighted mean binary cross-entropy in nats: ``sum(w * bce) / weight_sum``, a float32 scalar.

    In float32 also under autocast. Rows of weight 0 (padding) do not count; without any row that
    counts, the loss and its gradient are 0. Reads no value on the host.

    Args:
        logits_B: ``(B,)``.
        labels_B: ``(B,)``, each 0 or 1.
        weights_B: ``(B,)``.
        weight_sum: scalar, of the whole batch that these rows are a slice of: losses and gradients of all slices
            then add up to those of the whole. None: ``weights_B.sum()``.
    """
    logits_B, labels_B, weights_B = logits_B.float(), labels_B.float(), weights_B.float()
    bce_sum = functional.binary_cross_entropy_with_logits(logits_B, labels_B, weights_B, reduction="sum")
    if weight_sum is None:
        weight_sum = weights_B.sum()
    return bce_sum / torch.where(weight_sum > 0, weight_sum, torch.ones_like(weight_sum))
