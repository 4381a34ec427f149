"""Random numbers keyed by (seed, name): what one part draws never depends on another part."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def keyed_seed(seed: int, name: str) -> int:
    """A 63-bit seed for ``name`` under ``seed``."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


@contextmanager
def keyed_init(seed: int, name: str) -> Iterator[None]:
    """Initialise modules from the global CPU generator, seeded by (seed, name) and put back afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed(seed, name))
        yield


def keyed_generator(seed: int, name: str, device: torch.device) -> torch.Generator:
    """A generator on ``device`` for (seed, name)."""
    return torch.Generator(device=device).manual_seed(keyed_seed(seed, name))
