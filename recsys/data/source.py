"""Where batches come from: the interface between data and training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recsys.errors import DataError
from recsys.features import FeatureSpec
from recsys.types import Batch


class BatchSource(ABC):
    """An ordered set of rows, cut into batches.

    ``iter(source)`` yields the batches from the current position to the end of the epoch, then
    moves to the start of the next epoch. Position is state: with the same ``state_dict`` the
    remaining batches are the same, bit for bit.
    """

    spec: FeatureSpec
    num_rows: int
    batch_size: int
    _epoch = 0
    _batch = 0

    @abstractmethod
    def __len__(self) -> int:
        """Batches in a whole epoch; the last may be short."""

    @abstractmethod
    def __iter__(self) -> Iterator[Batch]:
        """Yield the rest of this epoch."""

    def state_dict(self) -> dict[str, int]:
        """Position: ``{"epoch": e, "batch": b}``, where batch ``b`` of epoch ``e`` comes next."""
        return {"epoch": self._epoch, "batch": self._batch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Move to a position that ``state_dict`` gave.

        Raises:
            DataError: these rows and this batch size have no such position.
        """
        epoch, batch = state.get("epoch"), state.get("batch")
        if type(epoch) is not int or type(batch) is not int:
            raise DataError(f"cannot resume at {state}: a position has the whole numbers epoch and batch")
        if epoch < 0 or not 0 <= batch < max(len(self), 1):
            raise DataError(
                f"cannot resume at epoch {epoch}, batch {batch}: an epoch has {len(self)} batches here; "
                "resume with the data and the batch size that the position was saved with"
            )
        self._epoch, self._batch = epoch, batch

    def _move_past(self, epoch: int, batch: int) -> None:
        """Set the position behind a batch that is about to be handed out."""
        is_last = batch + 1 == len(self)
        self._epoch, self._batch = (epoch + 1, 0) if is_last else (epoch, batch + 1)


@dataclass(frozen=True)
class EncodingFiles:
    """Where the encoding of the rows lies, so that a saved model can take it along.

    Attributes:
        folder: holds ``features.json`` and the vocabularies.
        source: kind of the files that the rows were prepared from.
    """

    folder: Path
    source: str


@dataclass(frozen=True)
class DataSplits:
    """Disjoint rows to train on, to choose by, and to report on.

    Attributes:
        train: shuffled by seed and epoch.
        valid: in file order; the only rows that early stopping and tuning may see.
        test: in file order; read once, at the end.
        fingerprint: what identifies the rows and their encoding (content hashes, generator settings).
        notes: figures about the data that the report shows, such as ``bayes_ne``.
        encoding: of rows that were prepared from files; None where rows have ids to begin with.
    """

    train: BatchSource
    valid: BatchSource
    test: BatchSource
    fingerprint: str
    notes: dict[str, Any] = field(default_factory=dict)
    encoding: EncodingFiles | None = None

    @property
    def spec(self) -> FeatureSpec:
        """The columns, the same in every split."""
        return self.train.spec
