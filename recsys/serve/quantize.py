"""Embedding tables in fewer bits."""

from __future__ import annotations

import torch

from recsys.errors import ConfigError

# What an exported probability may differ from the trainer's by, at the most.
TOLERANCE = {"fp32": 1e-5, "fp16": 1e-3, "int8": 1e-2}


def check_precision(precision: str) -> None:
    """Refuse an unknown word.

    Raises:
        ConfigError: names the valid ones.
    """
    if precision not in TOLERANCE:
        raise ConfigError(f"--embeddings {precision}: valid are {', '.join(TOLERANCE)}")


def quantize(table_RD: torch.Tensor, precision: str) -> dict[str, torch.Tensor]:
    """A float32 table ``(R, D)`` as it is stored.

    ``int8`` is row-wise and affine, as in Guan et al., "Post-Training 4-bit Quantization on Embedding Tables" (2019),
    section 3 with 8 bits: ``value = q * scale + bias`` with the row's least value as bias. A value is off by half a
    scale at the most.

    Returns:
        ``weight`` ``(R, D)``, and for ``int8`` also ``scale`` and ``bias`` ``(R, 1)``.
    """
    check_precision(precision)
    if precision == "fp32":
        return {"weight": table_RD}
    if precision == "fp16":
        return {"weight": table_RD.half()}
    low, high = table_RD.amin(dim=1, keepdim=True), table_RD.amax(dim=1, keepdim=True)
    scale = (high - low) / 255
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    quantized = ((table_RD - low) / scale).round().clamp(0, 255).to(torch.uint8)
    return {"weight": quantized, "scale": scale, "bias": low}
