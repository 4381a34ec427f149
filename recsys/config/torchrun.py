"""A job that asks for several processes, started again through torchrun."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig


def under_torchrun(processes: int, folder: Path) -> int:
    """Run this Hydra job as so many processes of this node, into the same folder; the exit status."""
    overrides = [o for o in HydraConfig.get().overrides.task if not o.startswith("hydra.")]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    # Said outright, or torchrun gives every process one thread and tells so.
    threads = str(max(1, len(os.sched_getaffinity(0)) // processes))
    environment = {"OMP_NUM_THREADS": threads} | os.environ
    arguments = [sys.argv[0], *overrides, f"hydra.run.dir={quoted(str(folder))}"]
    return subprocess.run([*command, *arguments], env=environment, check=False).returncode


def quoted(text: str) -> str:
    """``text`` as a string of Hydra's override grammar."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
