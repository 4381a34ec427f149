"""The loss of every prediction, global or local."""

from __future__ import annotations

import torch
from torch.nn import functional


def weighted_bce(logits_B: torch.Tensor, labels_B: torch.Tensor, weights_B: torch.Tensor) -> torch.Tensor:
    """Weighted mean binary cross-entropy in nats: ``sum(w * bce) / sum(w)``, a float32 scalar.

    In float32 also under autocast. Rows of weight 0 (padding) do not count; without any row that
    counts, the loss and its gradient are 0. Reads no value on the host.
    """
    logits_B, labels_B, weights_B = logits_B.float(), labels_B.float(), weights_B.float()
    bce_sum = functional.binary_cross_entropy_with_logits(logits_B, labels_B, weights_B, reduction="sum")
    weight_sum = weights_B.sum()
    return bce_sum / torch.where(weight_sum > 0, weight_sum, torch.ones_like(weight_sum))
