"""The final prediction: the over-arch's logit, or a blend with those of the local heads, perhaps corrected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from recsys.errors import ConfigError
from recsys.models.recommender import OVER

_WEIGHT = "weight of "
BLENDS = ("none", "mean", "fitted")
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """``scale * sum_p weight_p * logit_p + bias`` over parts p that give a logit.

    Attributes:
        weights: part name -> weight; they sum to 1.
        scale, bias: Platt's correction (Platt, 1999); 1 and 0 correct nothing.
    """

    weights: Mapping[str, float]
    scale: float = 1.0
    bias: float = 0.0

    def combine(self, logits: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The final logits ``(B,)`` from those of the parts."""
        if self.is_plain:
            return logits[OVER]
        blended = sum(weight * logits[name].float() for name, weight in self.weights.items() if weight)
        assert isinstance(blended, torch.Tensor), "the weights sum to 1"
        return self.scale * blended + self.bias

    @property
    def is_plain(self) -> bool:
        """Whether this is the over-arch's logit as it is."""
        return dict(self.weights) == {OVER: 1.0} and (self.scale, self.bias) == (1.0, 0.0)

    def to_plain(self) -> dict[str, float]:
        """Plain numbers for a report; empty if there is nothing to tell."""
        if self.is_plain:
            return {}
        named = {f"{_WEIGHT}{name}": float(weight) for name, weight in self.weights.items()}
        return {**named, "scale": self.scale, "bias": self.bias}

    @classmethod
    def from_plain(cls, raw: Mapping[str, float | None]) -> Prediction:
        """Back from what ``to_plain`` gave, whatever else stands beside it."""
        weights = {key.removeprefix(_WEIGHT): float(v or 0) for key, v in raw.items() if key.startswith(_WEIGHT)}
        if not weights:
            return PLAIN
        return cls(weights, float(raw["scale"] or 0), float(raw["bias"] or 0))


PLAIN = Prediction({OVER: 1.0})


def starting_prediction(blend: str, heads: Sequence[str]) -> Prediction:
    """What the valid rows are scored with while training: the mean of all logits, or the over-arch's alone.

    Raises:
        ConfigError: an unknown word.
    """
    if blend not in BLENDS:
        raise ConfigError(f"trainer.blend={blend}: valid are {', '.join(BLENDS)}")
    if blend == "none":
        return PLAIN
    parts = [OVER, *heads]
    return Prediction(dict.fromkeys(parts, 1 / len(parts)))


def fit_prediction(
    start: Prediction,
    logits: Mapping[str, NDArray[Any]],
    labels_R: NDArray[Any],
    weights_R: NDArray[Any],
    *,
    blend: str,
    calibrate: bool,
) -> Prediction:
    """Fit what the settings ask for on rows that the report does not use: the valid rows.

    Args:
        start: of ``starting_prediction``.
        logits: part name -> ``(R,)``.
        labels_R, weights_R: of the same rows.
        blend: ``fitted`` finds weights of at least 0 that sum to 1 by their cross-entropy.
        calibrate: finds scale and bias likewise.
    """
    found = start
    names = list(start.weights)
    logits_PR = np.stack([np.asarray(logits[name], np.float64) for name in names])
    if blend == "fitted" and len(names) > 1:
        shares = softmax(_minimum(np.zeros(len(names)), lambda v: softmax(v) @ logits_PR, labels_R, weights_R))
        found = replace(found, weights=dict(zip(names, shares.tolist(), strict=True)))
    if calibrate:
        blended_R = np.array([found.weights[name] for name in names]) @ logits_PR
        scale, bias = _minimum(np.array([1.0, 0.0]), lambda v: v[0] * blended_R + v[1], labels_R, weights_R)
        found = replace(found, scale=float(scale), bias=float(bias))
    return found


def _minimum(start: Floats, logits_of: Any, labels_R: NDArray[Any], weights_R: NDArray[Any]) -> Floats:
    signs_R, shares_R = np.where(labels_R == 1, -1.0, 1.0), weights_R / weights_R.sum()

    def loss(v: Floats) -> float:
        return float(shares_R @ np.logaddexp(0.0, signs_R * logits_of(v)))

    result: Floats = minimize(loss, start, method="BFGS", options={"gtol": 1e-7}).x
    return result
