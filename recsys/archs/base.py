"""The interface of a dense sub-architecture."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class TokenShape:
    """Shape of the tokens that a sub-architecture reads: ``(B, num_tokens, dim)``."""

    num_tokens: int
    dim: int

    @property
    def flat(self) -> int:
        """Width of the flattened tokens, T * D."""
        return self.num_tokens * self.dim


class SubArch(nn.Module, ABC):
    """A dense architecture over the tokens of one sample.

    A subclass is final and takes ``(shape: TokenShape, *, <its own fields>, out_features: int, dropout: float)``.
    Row i of the output depends on row i of the input only; the input is never written in place; every
    parameter gets a gradient. ``tests/archs/test_contract.py`` holds these for every yaml in ``configs/arch``.
    """

    out_features: int

    @abstractmethod
    def forward(self, tokens_BTD: torch.Tensor) -> torch.Tensor:
        """Map tokens ``(B, T, D)`` to ``(B, out_features)``."""
