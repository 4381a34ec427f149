"""The rows that a run was evaluated on, one prediction each: what paired statistics are made of."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recsys.errors import DataError
from recsys.report.atomic import write_atomic

PREDICTIONS_NPZ = "test_predictions.npz"
BASELINE_PREDICTIONS_NPZ = "baseline_predictions.npz"
"""Beside it, of the baseline of the same run, where the run has one."""


@dataclass(frozen=True)
class Predictions:
    """R evaluated rows in the order of the test split; float32 ``(R,)`` each.

    Attributes:
        logits: of the main model.
        labels: 0 or 1.
        weights: above 0.
    """

    logits: NDArray[np.float32]
    labels: NDArray[np.float32]
    weights: NDArray[np.float32]

    def write(self, path: Path) -> None:
        """Write an ``npz`` file with an array for each attribute."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, logits=self.logits, labels=self.labels, weights=self.weights)
        write_atomic(path, buffer.getvalue())

    @classmethod
    def read(cls, path: Path) -> Predictions:
        """Read what ``write`` wrote.

        Raises:
            DataError: the file is missing or damaged; names it.
        """
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                found = cls(**{item.name: file[item.name] for item in fields(cls)})
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise DataError(
                f"{path}: the predictions cannot be read ({error}); delete its folder and run again"
            ) from error
        if not found.logits.shape == found.labels.shape == found.weights.shape:
            raise DataError(f"{path}: logits, labels and weights differ in length; delete its folder and run again")
        return found
