"""The recommender's parts: what the engine calls, each a thin shell around a module that knows no schedule."""

from __future__ import annotations

import torch
from torch import nn

from recsys.archs.base import SubArch
from recsys.models.dense_arch import DenseArch
from recsys.models.local_head import LocalHead
from recsys.models.loss import weighted_bce
from recsys.models.over_arch import OverArch
from recsys.schedule.step import PartOutput
from recsys.sparse.arch import TableArch
from recsys.types import Batch


class SparsePart(nn.Module):
    """Embedding lookup: ``(B, F, D)``."""

    def __init__(self, arch: TableArch) -> None:
        super().__init__()
        self.arch = arch

    def forward(self, batch: Batch) -> PartOutput:
        """Look up the batch's ids."""
        return PartOutput(self.arch(batch.sparse_features))

    def frozen_values(self) -> tuple[float, ...]:
        """The tables' learning rate, which fbgemm hands to its kernel by value."""
        return (self.arch.lr,)


class DensePart(nn.Module):
    """Bottom MLP: ``(B, D)``."""

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
    """The dense vector in front of the embeddings: ``(B, T, D)``.

    A part of its own, so that its readers' gradients are summed once and split once; and so that under
    autocast the tokens are cast once, not by each reader.
    """

    def forward(self, batch: Batch, sparse_BFD: torch.Tensor, *dense_BD: torch.Tensor) -> PartOutput:
        """Concatenate along the token axis."""
        return self.compute(sparse_BFD, *dense_BD)

    def compute(self, sparse_BFD: torch.Tensor, *dense_BD: torch.Tensor) -> PartOutput:
        """The part on tensors alone, the form that ``torch.compile`` takes."""
        device, dtype = sparse_BFD.device.type, sparse_BFD.dtype
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
        tokens = [*(d.unsqueeze(1) for d in dense_BD), sparse_BFD]
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


class SubArchPart(nn.Module):
    """A sub-architecture with its local head, if it has one: ``(B, O)``.

    The local loss is ``weight * BCE(head(out), labels)``.
    """

    def __init__(self, arch: SubArch, head: LocalHead | None, loss_weight: float) -> None:
        super().__init__()
        self.arch = arch
        self.head = head
        self.loss_weight = loss_weight

    def forward(self, batch: Batch, tokens_BTD: torch.Tensor) -> PartOutput:
        """Run the arch, and the head with its loss."""
        return self.compute(tokens_BTD, batch.labels, batch.weights, batch.weight_sum)

    def compute(
        self,
        tokens_BTD: torch.Tensor,
        labels_B: torch.Tensor,
        weights_B: torch.Tensor,
        weight_sum: torch.Tensor | None = None,
    ) -> PartOutput:
        """The part on tensors alone, the form that ``torch.compile`` takes."""
        out_BO = self.arch(tokens_BTD)
        if self.head is None:
            return PartOutput(out_BO)
        logits_B = self.head(out_BO)
        loss = weighted_bce(logits_B, labels_B, weights_B, weight_sum)
        return PartOutput(out_BO, self.loss_weight * loss, logits_B)


class OverPart(nn.Module):
    """The over-arch and the main loss: logits ``(B,)``."""

    def __init__(self, arch: OverArch) -> None:
        super().__init__()
        self.arch = arch

    def forward(self, batch: Batch, *inputs: torch.Tensor) -> PartOutput:
        """Predict from the interaction arch's and the sub-architectures' outputs."""
        return self.compute(batch.labels, batch.weights, batch.weight_sum, *inputs)

    def compute(
        self, labels_B: torch.Tensor, weights_B: torch.Tensor, weight_sum: torch.Tensor | None, *inputs: torch.Tensor
    ) -> PartOutput:
        """The part on tensors alone, the form that ``torch.compile`` takes."""
        logits_B = self.arch(torch.cat([x.flatten(1) for x in inputs], dim=1))
        return PartOutput(logits_B, weighted_bce(logits_B, labels_B, weights_B, weight_sum), logits_B)
