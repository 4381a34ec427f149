"""What lies behind the embedding lookup, as one module of tensors: what ``torch.export`` takes."""

from __future__ import annotations

import torch
from torch import nn

from recsys.models.recommender import DENSE, FIRST_ORDER, OVER, SPARSE, TOKENS, Recommender
from recsys.train.prediction import PLAIN, Prediction


class DenseGraph(nn.Module):
    """Every part of a recommender but the tables.

    Args:
        model: in evaluation mode; local heads that the prediction does not read are left out.
        prediction: makes the final logit.
    """

    def __init__(self, model: Recommender, prediction: Prediction = PLAIN) -> None:
        super().__init__()
        self.parts = nn.ModuleDict({name: part for name, part in model.parts.items() if name != SPARSE})
        self.inputs = {part.name: [edge.source for edge in part.inputs] for part in model.graph.parts}
        self.prediction = prediction
        self.heads = [name for name in model.heads if prediction.weights.get(name)]

    def forward(self, dense_BN: torch.Tensor, sparse_BFE: torch.Tensor) -> torch.Tensor:
        """Logits ``(B,)`` from dense features ``(B, N)`` and looked-up vectors ``(B, F, width of the tables)``."""
        outputs, logits = {SPARSE: sparse_BFE}, {}
        for name, part in self.parts.items():
            inputs = [outputs[source] for source in self.inputs[name]]
            outputs[name] = self._run(name, part, dense_BN, inputs)
            if name in self.heads:
                logits[name] = part.predict(outputs[name], *inputs[1:])  # type: ignore[operator]
        logits[OVER] = outputs[OVER]
        return self.prediction.combine(logits)

    def _run(self, name: str, part: nn.Module, dense_BN: torch.Tensor, inputs: list[torch.Tensor]) -> torch.Tensor:
        if name == DENSE:
            out = part.arch(dense_BN)  # type: ignore[operator]
        elif name == FIRST_ORDER:
            out = part.module(*inputs, dense_BN)  # type: ignore[operator]
        elif name == TOKENS:
            out = part.compute(*inputs).out  # type: ignore[operator]
        elif name == OVER:
            out = part.predict(*inputs)  # type: ignore[operator]
        else:
            out = part.arch(inputs[0])  # type: ignore[operator]
        result: torch.Tensor = out
        return result
