"""Batches on their way to the device."""

from __future__ import annotations

import torch

from recsys.types import Batch


class DeviceFeed:
    """Copies batches to ``device``; to a GPU on a stream of its own, so that a copy runs beside the step before it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def __call__(self, batch: Batch) -> Batch:
        """``batch`` on the device, ready for the current stream."""
        if self._stream is None:
            return batch.to(self._device)
        with torch.cuda.stream(self._stream):
            moved = batch.to(self._device, non_blocking=True)
        current = torch.cuda.current_stream(self._device)
        current.wait_stream(self._stream)
        moved.record_stream(current)
        return moved
