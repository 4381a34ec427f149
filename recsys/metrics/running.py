"""Normalized entropy while training, cheap enough for every step."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from recsys.metrics.binary import compute_ne

if TYPE_CHECKING:
    import torch


class RunningNE:
    """NE of the latest rows, or of all rows so far, from sums that stay on the device.

    ``update`` launches a few kernels and never waits for the device; only ``compute`` does. Fed with the
    logits of each training step it is progressive validation: every row is scored before it is learnt from.

    Args:
        window_rows: how many of the latest rows count, rounded up to whole batches (padding rows fill the
            window too, but never count in NE); None: all rows since ``reset``.
    """

    def __init__(self, window_rows: int | None = None) -> None:
        assert window_rows is None or window_rows > 0, "an empty window has no NE"
        self._window_rows = window_rows
        self.reset()

    def reset(self) -> None:
        """Forget all rows."""
        self._batches: deque[tuple[int, torch.Tensor]] = deque()
        self._rows = 0

    def update(self, logits_B: torch.Tensor, labels_B: torch.Tensor, weights_B: torch.Tensor) -> None:
        """Add a batch: logits, labels and weights of shape ``(B,)`` on one device."""
        rows = logits_B.shape[0]
        sums = _sums(logits_B, labels_B, weights_B)
        if self._window_rows is None and self._batches:
            self._batches[0][1].add_(sums)
        else:
            self._batches.append((rows, sums))
        self._rows += rows
        # New sums each time, not running ones minus the oldest: a difference would gather rounding errors.
        while self._window_rows is not None and self._rows - self._batches[0][0] >= self._window_rows:
            self._rows -= self._batches.popleft()[0]

    def compute(self) -> float | None:
        """NE of the rows in the window; None where it is undefined. Waits for the device."""
        if not self._batches:
            return None
        import torch

        total = torch.stack([sums for _, sums in self._batches]).sum(dim=0)
        loss, clicks, weight = total.tolist()
        return compute_ne(loss / weight, clicks / weight) if weight > 0 else None


def _sums(logits_B: torch.Tensor, labels_B: torch.Tensor, weights_B: torch.Tensor) -> torch.Tensor:
    """Float64 ``(3,)``: sums of weight * loss (nats), weight * label, and weight."""
    import torch

    with torch.no_grad():
        z, y, w = logits_B.detach().double(), labels_B.double(), weights_B.double()
        loss_B = torch.nn.functional.binary_cross_entropy_with_logits(z, y, reduction="none")
        # A padding row may hold anything, also NaN, which a product with weight 0 would keep.
        loss_B = torch.where(w > 0, loss_B * w, 0.0)
        return torch.stack((loss_B.sum(), torch.dot(w, y), w.sum()))
