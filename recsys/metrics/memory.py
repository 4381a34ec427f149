"""Peak memory of one model's run."""

from __future__ import annotations

import re
import resource
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc_pid_clear_refs(5): "reset the peak resident set size ("high water mark")"


def peak_memory_bytes(device: torch.device) -> int:
    """Most memory in use since the last reset, bytes.

    On CUDA: tensors allocated on ``device`` (``torch.cuda.max_memory_allocated``), without the CUDA context.
    On a CPU: resident memory of the whole process, interpreter and libraries included (``VmHWM``, or
    ``ru_maxrss`` where the kernel does not show it).
    """
    if device.type == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    shown = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE) if _STATUS.exists() else None
    kib = int(shown[1]) if shown else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kib * 1024


def reset_peak_memory(device: torch.device) -> bool:
    """Start a new peak, so that two models of one process can be told apart.

    On a CPU the new peak starts at what is resident now: release the first model before, and remember that
    memory which the allocator keeps for later use still counts.

    Returns:
        Whether the peak was reset; False where the kernel does not permit it, and then
        ``peak_memory_bytes`` stays the peak of the whole process.
    """
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True
