"""One optimizer a dense part, so that a part can be updated as soon as its gradients are there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from recsys.errors import ConfigError


@dataclass(frozen=True)
class DenseOptimConfig:
    """Optimizer of the dense parts (config group ``optim``).

    Attributes:
        name: ``adam``, ``adamw``, ``adagrad`` or ``sgd``.
        lr: learning rate.
        weight_decay: L2 for ``adam``, ``adagrad`` and ``sgd``; decoupled for ``adamw``.
        eps: of Adam and Adagrad.
        beta1: of Adam.
        beta2: of Adam.
        momentum: of SGD.
        clip_norm: greatest norm of the dense gradients of all parts together; None clips nothing.
    """

    name: str = "adam"
    lr: float = 1e-3
    weight_decay: float = 0.0
    eps: float = 1e-8
    beta1: float = 0.9
    beta2: float = 0.999
    momentum: float = 0.0
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        if self.name not in ("adam", "adamw", "adagrad", "sgd"):
            raise ConfigError(f"optim.name={self.name}: valid are adam, adamw, adagrad, sgd")
        if not self.lr > 0:
            raise ConfigError(f"optim.lr={self.lr}: must be above 0")
        for name in ("weight_decay", "eps", "momentum"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"optim.{name}={getattr(self, name)}: must be at least 0")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ConfigError(f"optim.clip_norm={self.clip_norm}: must be above 0, or null for no clipping")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"optim.{name}={getattr(self, name)}: must be in [0, 1)")

    def build(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """An optimizer over ``parameters``, with the fused kernel where torch has one."""
        p, lr, decay = list(parameters), self.lr, self.weight_decay
        if self.name == "sgd":
            return torch.optim.SGD(p, lr, momentum=self.momentum, weight_decay=decay, fused=True)
        if self.name == "adagrad":
            # torch has no fused Adagrad on CUDA.
            on_cpu = bool(p) and p[0].device.type == "cpu"
            return torch.optim.Adagrad(
                p, lr, weight_decay=decay, eps=self.eps, foreach=None if on_cpu else True, fused=on_cpu or None
            )
        kind = torch.optim.AdamW if self.name == "adamw" else torch.optim.Adam
        return kind(p, lr, betas=(self.beta1, self.beta2), eps=self.eps, weight_decay=decay, fused=True)
