"""What lies behind the embedding lookup, as one module of tensors: what ``torch.export`` takes."""

from __future__ import annotations

import torch
from torch import nn

from recsys.models.recommender import DENSE, OVER, SPARSE, TOKENS, Recommender


class DenseGraph(nn.Module):
    """Every part of a recommender but the tables.

    Args:
        model: in evaluation mode; its local heads are left out.
    """

    def __init__(self, model: Recommender) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({name: part for name, part in model.parts.items() if name != SPARSE})
        self.inputs = {part.name: [edge.source for edge in part.inputs] for part in model.graph.parts}

    def forward(self, dense_BN: torch.Tensor, sparse_BFD: torch.Tensor) -> torch.Tensor:
        """Logits ``(B,)`` from dense features ``(B, N)`` and pooled embeddings ``(B, F, D)``."""
        outputs = {SPARSE: sparse_BFD}
        for name, part in self.parts.items():
            inputs = [outputs[source] for source in self.inputs[name]]
            if name == TOKENS:
                outputs[name] = part.compute(*inputs).out  # type: ignore[operator]
            elif name == OVER:
                outputs[name] = part.arch(torch.cat([x.flatten(1) for x in inputs], dim=1))  # type: ignore[operator]
            else:
                outputs[name] = part.arch(dense_BN if name == DENSE else inputs[0])  # type: ignore[operator]
        return outputs[OVER]
