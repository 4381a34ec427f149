"""On what a figure was measured."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_PACKAGES = ("torch", "torchrec", "fbgemm-gpu", "fbgemm-gpu-cpu")
_ROOT = Path(__file__).resolve().parents[2]


def describe_environment(device: torch.device) -> dict[str, str | int | None]:
    """Versions, device and git commit; None for what is not there.

    Returns:
        ``python``, one key for each package (``torch``, ``torchrec``, ``fbgemm-gpu`` or its CPU build),
        ``device`` (its name), ``cpus`` (cores this process may use), ``git_commit``.
    """
    return {
        "python": platform.python_version(),
        **{name: version for name in _PACKAGES if (version := _version(name)) is not None},
        "device": _device_name(device),
        "cpus": len(os.sched_getaffinity(0)),
        "git_commit": git_commit(_ROOT),
    }


def git_commit(root: Path) -> str | None:
    """The commit checked out at ``root``, with ``-dirty`` behind it if tracked files differ; None without git."""
    try:
        top = _git(root, "rev-parse", "--show-toplevel")
        # An installed copy may lie inside somebody else's repository, whose commit says nothing.
        if Path(top).resolve() != root.resolve():
            return None
        return _git(root, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.exists() else None
    return model[1] if model else platform.machine()
