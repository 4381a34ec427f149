"""How much memory a device has left."""

from __future__ import annotations

import re
from pathlib import Path

import torch

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def free_bytes(device: torch.device) -> int:
    """Bytes that may still be allocated: of a GPU, or of this node as far as its control group permits."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", _MEMINFO.read_text(), re.MULTILINE)
    assert found is not None, f"{_MEMINFO} shows no available memory"
    available = int(found[1]) * 1024
    try:
        limit, used = ((_CGROUP / f"memory.{name}").read_text().strip() for name in ("max", "current"))
    except OSError:
        return available
    return available if limit == "max" else max(0, min(available, int(limit) - int(used)))
