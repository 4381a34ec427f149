"""Layers that several architectures are made of."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from recsys.archs.dropout import KeyedDropout
from recsys.errors import ConfigError


def check_sizes(owner: str, **sizes: int) -> None:
    """Refuse a size that is not a whole number of at least 1.

    Args:
        owner: what the sizes belong to, named in the message.
        **sizes: field name -> size.

    Raises:
        ConfigError: names the owner, the field and its value.
    """
    for name, size in sizes.items():
        if not _is_size(size):
            raise ConfigError(f"{owner}: {name} must be a whole number of at least 1, got {size!r}")


def check_hidden(owner: str, hidden: Sequence[int]) -> None:
    """Refuse hidden widths that are not a list of whole numbers of at least 1; an empty list is fine.

    Raises:
        ConfigError: names the owner and the value.
    """
    is_list = isinstance(hidden, Sequence) and not isinstance(hidden, str)
    if not is_list or not all(_is_size(width) for width in hidden):
        raise ConfigError(
            f"{owner}: hidden must be a list of whole numbers of at least 1 such as [64,32], got {hidden!r}"
        )


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def linear(in_features: int, out_features: int, *, bias: bool = True) -> nn.Linear:
    """An ``nn.Linear`` with Glorot-uniform weights (Glorot and Bengio, 2010) and zero bias.

    torch's own initialisation has a third to a sixth of this variance, which tells: embeddings start
    small, and a tower of ReLU layers shrinks them again in every layer.
    """
    layer = nn.Linear(in_features, out_features, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def mlp(in_features: int, hidden: Sequence[int], out_features: int, *, dropout: float = 0.0) -> nn.Sequential:
    """``[Linear, ReLU, dropout]`` for each hidden width, then a Linear without activation.

    ``(..., in_features)`` to ``(..., out_features)``. Without hidden widths it is one Linear, and
    dropout has no place to act.
    """
    layers: list[nn.Module] = []
    width = in_features
    for next_width in hidden:
        layers += [linear(width, next_width), nn.ReLU(), KeyedDropout(dropout)]
        width = next_width
    return nn.Sequential(*layers, linear(width, out_features))


def to_logit(layer: nn.Linear, x_BO: torch.Tensor) -> torch.Tensor:
    """Apply a Linear of one output: ``(B, O)`` to ``(B,)``.

    Compiled, it is a product and a sum in float32, which fuse with what stands before and after; a
    matrix product of one column is a handful of small kernels.
    """
    if torch.compiler.is_compiling():
        return (x_BO.float() * layer.weight.float()).sum(dim=1) + layer.bias.float()
    logits_B1: torch.Tensor = layer(x_BO)
    return logits_B1.squeeze(1)


class BlockLinear(nn.Module):
    """``num_blocks`` independent Linear layers of one size, as one batched matrix product.

    Initialised block by block like ``linear``.
    """

    matmul_parameters = ("weight", "bias")

    def __init__(self, num_blocks: int, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_blocks, in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(num_blocks, 1, out_features))
        for block in self.weight:
            nn.init.xavier_uniform_(block)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``(num_blocks, B, in_features)`` to ``(num_blocks, B, out_features)``."""
        product = torch.bmm(x, self.weight)
        # Not baddbmm: on a GPU it writes the spread-out bias first, an extra pass over the output.
        return product + self.bias.to(product.dtype)
