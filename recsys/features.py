"""What the columns of a data set are: the contract between data and model."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from recsys.errors import DataError


@dataclass(frozen=True)
class SparseFeature:
    """A categorical feature and the size of its embedding table.

    Attributes:
        name: column name, unique in the spec.
        cardinality: rows of the table; every id is in ``[0, cardinality)``.
        max_length: ids per row at the most; 1 means exactly one id in every row (one-hot).
    """

    name: str
    cardinality: int
    max_length: int = 1


@dataclass(frozen=True)
class FeatureSpec:
    """Names, kinds and cardinalities of the columns of an encoded data set.

    Attributes:
        dense: names of the N dense features, in the order of ``Batch.dense_features``.
        sparse: the F sparse features, in the order of the keys of ``Batch.sparse_features``.
    """

    dense: tuple[str, ...]
    sparse: tuple[SparseFeature, ...]

    def __post_init__(self) -> None:
        names = [*self.dense, *(f.name for f in self.sparse)]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise DataError(f"feature names must be unique, but {twice} stand more than once; rename them")
        for feature in self.sparse:
            if feature.cardinality < 1 or feature.max_length < 1:
                raise DataError(
                    f"feature {feature.name!r}: cardinality {feature.cardinality} and max_length "
                    f"{feature.max_length} must be at least 1"
                )

    @property
    def sparse_names(self) -> list[str]:
        """Keys of ``Batch.sparse_features``, in order."""
        return [f.name for f in self.sparse]

    @property
    def is_one_hot(self) -> bool:
        """Whether every row has exactly one id of every feature (constant lengths)."""
        return all(f.max_length == 1 for f in self.sparse)

    def write(self, path: Path) -> None:
        """Write ``features.json``."""
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def read(path: Path) -> FeatureSpec:
        """Read ``features.json``.

        Raises:
            DataError: the file is missing or is not a feature spec.
        """
        try:
            raw = json.loads(path.read_text())
            return FeatureSpec(tuple(raw["dense"]), tuple(SparseFeature(**f) for f in raw["sparse"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: cannot be read as a feature spec ({error}); prepare the data again") from error
