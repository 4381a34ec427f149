"""Normalized entropy while training, cheap enough for every step."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from recsys.metrics.binary import compute_ne

if TYPE_CHECKING:
    import torch

_FLUSH_BATCHES = 32


class RunningNE:
    """NE of the latest rows, or of all rows so far, from sums that stay on the device.

    ``update`` launches one kernel, sums up every 32 batches, and never waits for the device; only ``compute``
    does. Fed with the logits of each training step it is progressive validation: every row is scored before it
    is learnt from.

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
        self._pending: list[torch.Tensor] = []

    def update(self, logits_B: torch.Tensor, labels_B: torch.Tensor, weights_B: torch.Tensor) -> None:
        """Add a batch: logits, labels and weights of shape ``(B,)`` on one device."""
        import torch

        # A copy, for a captured step overwrites its logits; a kernel of its own for each sum would cost more.
        dtype = torch.promote_types(logits_B.dtype, torch.float32)
        columns_3B = torch.stack([t.detach().to(dtype) for t in (logits_B, labels_B, weights_B)])
        if self._pending and self._pending[0].shape != columns_3B.shape:
            self._flush()
        self._pending.append(columns_3B)
        if len(self._pending) == _FLUSH_BATCHES:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        import torch

        rows = self._pending[0].shape[1]
        sums_S3 = _sums(torch.stack(self._pending))
        self._pending = []
        if self._window_rows is None:
            self._batches.append((rows, sums_S3.sum(dim=0)))
            if len(self._batches) > 1:
                self._batches[0][1].add_(self._batches.pop()[1])
            return
        for sums in sums_S3:
            self._batches.append((rows, sums))
            self._rows += rows
        # New sums each time, not running ones minus the oldest: a difference would gather rounding errors.
        while self._rows - self._batches[0][0] >= self._window_rows:
            self._rows -= self._batches.popleft()[0]

    def state(self) -> list[list[Any]]:
        """Rows and sums of every batch in the window, in JSON's types; waits for the device."""
        self._flush()
        return [[rows, sums.tolist()] for rows, sums in self._batches]

    def load_state(self, state: list[list[Any]], device: torch.device) -> None:
        """Go on from what ``state`` gave, with sums on ``device``.

        Raises:
            ValueError, TypeError: it is something else.
        """
        import torch

        self.reset()
        for rows, sums in state:
            tensor = torch.tensor(sums, dtype=torch.float64, device=device)
            if type(rows) is not int or tensor.shape != (3,):
                raise ValueError(f"no rows and sums: {rows!r}, {sums!r}")
            self._batches.append((rows, tensor))
            self._rows += rows

    def compute(self) -> float | None:
        """NE of the rows in the window; None where it is undefined. Waits for the device."""
        self._flush()
        if not self._batches:
            return None
        import torch

        total = torch.stack([sums for _, sums in self._batches]).sum(dim=0)
        loss, clicks, weight = total.tolist()
        return compute_ne(loss / weight, clicks / weight) if weight > 0 else None


def _sums(columns_S3B: torch.Tensor) -> torch.Tensor:
    """Float64 ``(S, 3)`` of S batches: sums of weight * loss (nats), weight * label, and weight."""
    import torch

    with torch.no_grad():
        z, y, w = columns_S3B.double().unbind(dim=1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(z, y, reduction="none")
        # A padding row may hold anything, also NaN, which a product with weight 0 would keep.
        loss = torch.where(w > 0, loss * w, 0.0)
        return torch.stack((loss, w * y, w), dim=1).sum(dim=2)
