"""Made-up grey pictures of ten signs, in the shape of MNIST."""

from __future__ import annotations

import torch
from torch.nn import functional

from recsys.chains.base import ChainBatch

SIDE = 28
CLASSES = 10
_STROKES = 3
_MAX_SHIFT = 3
_NOISE = 0.4


def draw_pictures(rows: int, seed: int) -> ChainBatch:
    """Signs that are shifted, dimmed, blended with another sign, and noisy.

    The signs themselves are the same for every seed, so that rows of two seeds belong together.

    Args:
        rows: number of pictures.
        seed: of everything but the signs.

    Returns:
        float32 ``(rows, SIDE * SIDE)`` of mean about 0, and the signs' numbers.
    """
    draw = torch.Generator().manual_seed(seed)
    signs = _signs()
    targets = torch.randint(0, CLASSES, (rows,), generator=draw)
    others = torch.randint(0, CLASSES, (rows,), generator=draw)
    blend = 0.3 * torch.rand(rows, 1, 1, generator=draw)
    pictures = (1 - blend) * _shifted(signs[targets], draw) + blend * _shifted(signs[others], draw)
    pictures = pictures * (0.6 + 0.4 * torch.rand(rows, 1, 1, generator=draw))
    pictures = pictures + _NOISE * torch.randn(rows, SIDE, SIDE, generator=draw)
    return ChainBatch(pictures.reshape(rows, SIDE * SIDE) - 0.1, targets)


def _signs() -> torch.Tensor:
    """``(CLASSES, SIDE, SIDE)`` in [0, 1]: a few thick strokes each."""
    draw = torch.Generator().manual_seed(1998)
    along = torch.linspace(0, 1, 50)
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    signs = torch.zeros(CLASSES, SIDE, SIDE)
    for sign in signs:
        for _ in range(_STROKES):
            ends = 5 + (SIDE - 10) * torch.rand(2, 2, generator=draw)
            points = ends[0] + along.unsqueeze(1) * (ends[1] - ends[0])
            distance = torch.hypot(y.unsqueeze(-1) - points[:, 0], x.unsqueeze(-1) - points[:, 1]).amin(dim=-1)
            torch.maximum(sign, torch.exp(-((distance / 1.5) ** 2)), out=sign)
    return signs


def _shifted(pictures: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    rows = len(pictures)
    padded = functional.pad(pictures, (_MAX_SHIFT,) * 4)
    dy, dx = torch.randint(0, 2 * _MAX_SHIFT + 1, (2, rows, 1), generator=draw)
    at = torch.arange(SIDE)
    return padded[torch.arange(rows).view(-1, 1, 1), (dy + at).unsqueeze(2), (dx + at).unsqueeze(1)]
