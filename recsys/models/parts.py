"""The recommender's parts: what the engine calls, each a thin shell around a module that knows no schedule."""

from __future__ import annotations

import torch
from torch import nn

from recsys.archs.base import SubArch
from recsys.models.dense_arch import DenseArch
from recsys.models.first_order import FirstOrder
from recsys.models.local_head import LocalHead
from recsys.models.loss import weighted_bce
from recsys.models.over_arch import OverArch
from recsys.schedule.step import PartOutput
from recsys.sparse.arch import TableArch
from recsys.sparse.pooled_l2 import PooledL2
from recsys.types import Batch


class SparsePart(nn.Module):
    """Embedding lookup: ``(B, F, D)``, with first-order coordinates behind the D if the tables have them.

    Args:
        arch: the tables.
        l2: penalty of the embeddings' squared length.
        first_order_l2: the same of the ids' first-order weights.
    """

    l2_E: torch.Tensor

    def __init__(self, arch: TableArch, *, l2: float = 0.0, first_order_l2: float = 0.0) -> None:
        super().__init__()
        self.arch = arch
        self.is_penalised = bool(l2 or first_order_l2)
        num_first_order = arch.width - arch.dim
        # The coordinates are equal, and their mean is the weight that is penalised.
        per_coordinate = [l2] * arch.dim + [first_order_l2 / max(num_first_order, 1)] * num_first_order
        self.register_buffer("l2_E", torch.tensor(per_coordinate), persistent=False)

    def forward(self, batch: Batch) -> PartOutput:
        """Look up the batch's ids."""
        pooled_BFE = self.arch(batch.sparse_features)
        if self.is_penalised and torch.is_grad_enabled():
            pooled_BFE = PooledL2.apply(pooled_BFE, self.l2_E, batch.weights, batch.weight_sum)
        return PartOutput(pooled_BFE)

    def frozen_values(self) -> tuple[float, ...]:
        """The tables' learning rate, which fbgemm hands to its kernel by value."""
        return (self.arch.lr,)


class DensePart(nn.Module):
    """Bottom MLP: ``(B, D)``, or ``(B, tokens * D)``."""

    def __init__(self, arch: DenseArch) -> None:
        super().__init__()
        self.arch = arch

    def forward(self, batch: Batch) -> PartOutput:
        """Embed the batch's dense features."""
        return self.compute(batch.dense_features)

    def compute(self, dense_BN: torch.Tensor) -> PartOutput:
        """The part on tensors alone, the form that ``torch.compile`` takes."""
        return PartOutput(self.arch(dense_BN))


class TokensPart(nn.Module):
    """The dense vector, or several, in front of the embeddings: ``(B, T, D)``.

    A part of its own, so that its readers' gradients are summed once and split once; and so that under
    autocast the tokens are cast once, not by each reader.

    Args:
        dim: D; whatever stands behind it in the looked-up vectors is no token's.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, batch: Batch, sparse_BFD: torch.Tensor, *dense_BD: torch.Tensor) -> PartOutput:
        """Concatenate along the token axis."""
        return self.compute(sparse_BFD, *dense_BD)

    def compute(self, sparse_BFD: torch.Tensor, *dense_BD: torch.Tensor) -> PartOutput:
        """The part on tensors alone, the form that ``torch.compile`` takes."""
        device, dtype = sparse_BFD.device.type, sparse_BFD.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        rows = sparse_BFD.shape[0]
        tokens = [*(d.view(rows, -1, self.dim) for d in dense_BD), sparse_BFD[..., : self.dim]]
        return PartOutput(torch.cat([t.to(dtype) for t in tokens], dim=1))


class InteractionPart(nn.Module):
    """The interaction arch of the main path: ``(B, O)``."""

    def __init__(self, arch: SubArch) -> None:
        super().__init__()
        self.arch = arch

    def forward(self, batch: Batch, tokens_BTD: torch.Tensor) -> PartOutput:
        """Let the tokens interact."""
        return self.compute(tokens_BTD)

    def compute(self, tokens_BTD: torch.Tensor) -> PartOutput:
        """The part on tensors alone, the form that ``torch.compile`` takes."""
        return PartOutput(self.arch(tokens_BTD))


class FirstOrderPart(nn.Module):
    """The first-order term: a logit ``(B,)`` from the looked-up vectors and the dense features."""

    def __init__(self, module: FirstOrder) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Batch, sparse_BFE: torch.Tensor) -> PartOutput:
        """Sum the weights."""
        return self.compute(sparse_BFE, batch.dense_features)

    def compute(self, sparse_BFE: torch.Tensor, dense_BN: torch.Tensor) -> PartOutput:
        """The part on tensors alone, the form that ``torch.compile`` takes."""
        return PartOutput(self.module(sparse_BFE, dense_BN))


class SubArchPart(nn.Module):
    """A sub-architecture with its local head, if it has one: ``(B, O)``.

    The local loss is ``weight * BCE(head(out), labels)``. With a first-order term it is
    ``weight * BCE(head(out) + sg[first order], labels)``: what single ids say is the main path's to learn, and the
    head learns what is left.
    """

    def __init__(self, arch: SubArch, head: LocalHead | None, loss_weight: float) -> None:
        super().__init__()
        self.arch = arch
        self.head = head
        self.loss_weight = loss_weight

    def forward(self, batch: Batch, tokens_BTD: torch.Tensor, *first_order_B: torch.Tensor) -> PartOutput:
        """Run the arch, and the head with its loss."""
        return self.compute(tokens_BTD, batch.labels, batch.weights, batch.weight_sum, *first_order_B)

    def compute(
        self,
        tokens_BTD: torch.Tensor,
        labels_B: torch.Tensor,
        weights_B: torch.Tensor,
        weight_sum: torch.Tensor | None = None,
        *first_order_B: torch.Tensor,
    ) -> PartOutput:
        """The part on tensors alone, the form that ``torch.compile`` takes."""
        out_BO = self.arch(tokens_BTD)
        if self.head is None:
            return PartOutput(out_BO)
        logits_B = self.predict(out_BO, *first_order_B)
        loss = weighted_bce(logits_B, labels_B, weights_B, weight_sum)
        return PartOutput(out_BO, self.loss_weight * loss, logits_B)

    def predict(self, out_BO: torch.Tensor, *first_order_B: torch.Tensor) -> torch.Tensor:
        """The local head's logits ``(B,)`` from the arch's output."""
        assert self.head is not None, "this part has no local head"
        logits_B: torch.Tensor = self.head(out_BO)
        for offset_B in first_order_B:
            logits_B = logits_B.float() + offset_B
        return logits_B


class OverPart(nn.Module):
    """The over-arch and the main loss: logits ``(B,)``.

    Args:
        arch: of the interaction arch's and the sub-architectures' outputs.
        has_first_order: whether the last input is a logit ``(B,)`` to add.
    """

    def __init__(self, arch: OverArch, *, has_first_order: bool = False) -> None:
        super().__init__()
        self.arch = arch
        self.has_first_order = has_first_order

    def forward(self, batch: Batch, *inputs: torch.Tensor) -> PartOutput:
        """Predict from the interaction arch's and the sub-architectures' outputs."""
        return self.compute(batch.labels, batch.weights, batch.weight_sum, *inputs)

    def compute(
        self, labels_B: torch.Tensor, weights_B: torch.Tensor, weight_sum: torch.Tensor | None, *inputs: torch.Tensor
    ) -> PartOutput:
        """The part on tensors alone, the form that ``torch.compile`` takes."""
        logits_B = self.predict(*inputs)
        return PartOutput(logits_B, weighted_bce(logits_B, labels_B, weights_B, weight_sum), logits_B)

    def predict(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Logits ``(B,)``."""
        read = inputs[:-1] if self.has_first_order else inputs
        logits_B: torch.Tensor = self.arch(torch.cat([x.flatten(1) for x in read], dim=1))
        return logits_B.float() + inputs[-1] if self.has_first_order else logits_B
