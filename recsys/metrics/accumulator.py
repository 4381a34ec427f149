"""Collect the predictions of an evaluation; metrics are computed once, over all rows together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from recsys.errors import NonFiniteError
from recsys.metrics.binary import Metrics, base_rate, compute_metrics, compute_ne, logloss

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[Any]


class EvalAccumulator:
    """Keeps the logits of the main model and of its local heads for every evaluated row.

    Nothing is averaged over batches: AUC and NE are those of all rows at once. A row costs 4 bytes of host
    memory for every predictor with float32 logits (or narrower; float64 stays), and 8 for label and weight.

    Args:
        expected_rows: rows that the source holds, for ``Metrics.coverage``.
    """

    def __init__(self, expected_rows: int | None = None) -> None:
        self._expected_rows = expected_rows
        self._labels: list[Array] = []
        self._weights: list[Array] = []
        self._logits: list[Array] = []
        self._heads: dict[str, list[Array]] = {}

    def update(
        self,
        logits_B: torch.Tensor,
        labels_B: torch.Tensor,
        weights_B: torch.Tensor,
        heads: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """Copy one batch to the host; rows of weight 0 are left out.

        Args:
            logits_B: ``(B,)``, of the main model.
            labels_B: ``(B,)``, each 0 or 1.
            weights_B: ``(B,)``; 0 marks padding.
            heads: part name -> logits ``(B,)``; the same parts in every batch.

        Raises:
            NonFiniteError: a logit of an evaluated row is NaN or infinite; names the part.
        """
        heads = heads or {}
        assert not self._labels or heads.keys() == self._heads.keys(), "every batch has the same heads"
        weights = _to_host(weights_B)
        # Indexing with a mask copies: the caller may overwrite its buffers with the next batch.
        keep = weights != 0
        logits = {name: _to_host(logits_B)[keep] for name, logits_B in heads.items()}
        main = _to_host(logits_B)[keep]
        for name, part in {"the model": main, **{f"the head of {n!r}": part for n, part in logits.items()}}.items():
            if not np.isfinite(part).all():
                raise NonFiniteError(
                    f"evaluation: {name} gave a logit that is NaN or infinite (in batch {len(self._labels)}, counted "
                    "from 0); lower optim's learning rates, or look for the first bad step with the training loss"
                )
        self._weights.append(weights[keep])
        self._labels.append(_to_host(labels_B)[keep])
        self._logits.append(main)
        for name, part in logits.items():
            self._heads.setdefault(name, []).append(part)

    @property
    def rows(self) -> int:
        """Rows collected so far, without those of weight 0."""
        return sum(len(labels) for labels in self._labels)

    @classmethod
    def interleave(cls, shares: Sequence[EvalAccumulator]) -> EvalAccumulator:
        """One accumulator with the rows of all: first those of every share's first update, then of the second, ...

        Args:
            shares: of consecutive slices of the same batches, in the order of the slices.
        """
        whole = cls(shares[0]._expected_rows)
        whole._labels = _in_turns([s._labels for s in shares])
        whole._weights = _in_turns([s._weights for s in shares])
        whole._logits = _in_turns([s._logits for s in shares])
        whole._heads = {name: _in_turns([s._heads[name] for s in shares]) for name in shares[0]._heads}
        return whole

    def predictions(self) -> tuple[Array, Array, Array]:
        """Logits of the main model, labels and weights of all rows collected, ``(R,)`` each, in their order."""
        return _concat(self._logits), _concat(self._labels), _concat(self._weights)

    def head_logits(self) -> dict[str, Array]:
        """Logits of every head, ``(R,)`` each, in the order of the rows."""
        return {name: _concat(logits) for name, logits in self._heads.items()}

    def compute(self) -> Metrics:
        """Metrics of the main model over all rows collected."""
        return self._compute(self._logits)

    def compute_heads(self) -> dict[str, Metrics]:
        """Metrics of every local head, in the order in which the heads first came; empty without heads."""
        return {name: self._compute(logits) for name, logits in self._heads.items()}

    def heads_ne(self) -> dict[str, float | None]:
        """NE of every local head, without the sorting that AUC takes; None where it is undefined."""
        labels, weights = _concat(self._labels), _concat(self._weights)
        p = base_rate(labels, weights)
        return {name: compute_ne(logloss(_concat(z), labels, weights), p) for name, z in self._heads.items()}

    def _compute(self, logits: list[Array]) -> Metrics:
        # More rows than the source holds would mean that some row was counted twice.
        assert self._expected_rows is None or self.rows <= self._expected_rows, (
            f"{self.rows} rows evaluated, but the source holds {self._expected_rows}"
        )
        return compute_metrics(_concat(logits), _concat(self._labels), _concat(self._weights), self._expected_rows)


def _to_host(tensor: torch.Tensor) -> Array:
    tensor = tensor.detach()
    if tensor.dtype.itemsize < 4:  # numpy has no bfloat16
        tensor = tensor.float()
    array: Array = tensor.cpu().numpy()
    return array


def _in_turns(columns: Sequence[list[Array]]) -> list[Array]:
    return [chunk for turn in zip(*columns, strict=True) for chunk in turn]


def _concat(chunks: list[Array]) -> Array:
    return np.concatenate(chunks) if chunks else np.zeros(0)
