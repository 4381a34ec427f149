"""Peak memory sees an allocation, and forgets it after a reset."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
import torch

from recsys.metrics import memory, peak_memory_bytes, reset_peak_memory

CPU = torch.device("cpu")
MIB = 2**20


def touch(num_bytes: int) -> None:
    """Make so many bytes resident, and give them back to the system at once."""
    with mmap.mmap(-1, num_bytes) as pages:
        for offset in range(0, num_bytes, mmap.PAGESIZE):
            pages[offset] = 1


def test_two_models_of_one_process_can_be_told_apart() -> None:
    if not reset_peak_memory(CPU):
        pytest.skip("this kernel does not permit writing /proc/self/clear_refs")
    before = peak_memory_bytes(CPU)
    touch(200 * MIB)
    large = peak_memory_bytes(CPU)
    assert large >= before + 150 * MIB
    assert reset_peak_memory(CPU)
    touch(20 * MIB)
    assert peak_memory_bytes(CPU) <= large - 100 * MIB


def test_kernel_that_shows_and_permits_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "status")
    monkeypatch.setattr(memory, "_CLEAR_REFS", tmp_path / "absent" / "clear_refs")
    assert not reset_peak_memory(CPU)
    assert peak_memory_bytes(CPU) > 50 * MIB
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t  2048 kB\n")
    assert peak_memory_bytes(CPU) == 2 * MIB
