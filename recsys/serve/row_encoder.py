"""From checked raw columns to ids and numbers, as in training: by the fitted encoding, or ids as they stand."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys.errors import DataError
from recsys.features import FeatureSpec, SparseFeature
from recsys.prepare.convert import Rows, whole_numbers
from recsys.prepare.encoding import OUT_OF_VOCABULARY, Encoding, SparseEncoder
from recsys.prepare.schema import CategoricalColumn, DenseColumn, Schema

Mask = NDArray[np.bool_]
_NO_ID = "is not a whole number"


@dataclass
class Encoded:
    """Encoded rows.

    Attributes:
        columns: Arrow arrays by feature name: float32, int32, list<int32>.
        faults: (mask of the bad rows, column, what is wrong); the rows mean nothing then.
        out_of_vocabulary: values without an id of their own, by column; those that share hash buckets not counted.
    """

    columns: dict[str, Any]
    faults: list[tuple[Mask, str, str]] = field(default_factory=list)
    out_of_vocabulary: dict[str, int] = field(default_factory=dict)


class RowEncoder(Protocol):
    """How the rows of one model become features."""

    @property
    def spec(self) -> FeatureSpec:
        """The encoded columns."""

    @property
    def schema(self) -> Schema:
        """The raw columns."""

    def encode(self, rows: Rows, source: str) -> Encoded:
        """Encode checked rows of files of kind ``source``; ``json`` for rows of a request."""


@dataclass(frozen=True)
class FittedEncoder:
    """The encoding that was fitted on the train rows.

    Attributes:
        encoding: of the prepared data.
        trained_on: kind of the files that it was fitted on.
    """

    encoding: Encoding
    trained_on: str

    @cached_property
    def spec(self) -> FeatureSpec:
        """The encoded columns."""
        return self.encoding.spec

    @property
    def schema(self) -> Schema:
        """The raw columns."""
        return self.encoding.schema

    def encode(self, rows: Rows, source: str) -> Encoded:
        """Encode checked rows.

        Raises:
            DataError: a column holds values of another type than in training.
        """
        result = Encoded({})
        categorical = []
        for encoder, array in zip(self.encoding.sparse, rows.categorical, strict=True):
            values, bad = self._matched(array, encoder, source)
            if bad is not None and bad.any():
                result.faults.append((bad, encoder.column.source, _NO_ID))
            categorical.append(values)
        result.columns = self.encoding.encode_rows(replace(rows, categorical=categorical))
        for encoder in self.encoding.sparse:
            if encoder.column.hash_size is None:
                ids = result.columns[encoder.column.name]
                flat = ids.values if encoder.column.multi_hot else ids
                result.out_of_vocabulary[encoder.column.name] = int(
                    (flat.to_numpy(zero_copy_only=False) == OUT_OF_VOCABULARY).sum()
                )
        return result

    def _matched(self, array: Any, encoder: SparseEncoder, source: str) -> tuple[Any, Mask | None]:
        """The values in the type of the vocabulary, and which are not of it."""
        is_list = pa.types.is_list(array.type)
        kind = array.type.value_type if is_list else array.type
        wants_text = self._wants_text(encoder, source)
        if wants_text is None or pa.types.is_string(kind) == wants_text:
            return array, None
        target = pa.string() if wants_text else pa.int64()
        flat = array.flatten() if is_list else array
        if flat.null_count == len(flat):
            return array.cast(pa.list_(target)) if is_list else pa.nulls(len(array), target), None
        name = encoder.column.source
        if wants_text:
            raise DataError(f"column {name}: holds numbers, but texts in training; convert it to text first")
        if is_list:
            try:
                return array.cast(pa.list_(target)), None
            except pa.ArrowInvalid as error:
                raise DataError(f"column {name}: {error}; it held whole numbers in training") from error
        numbers, problems = whole_numbers(array)
        bad = np.logical_or.reduce([mask for mask, _ in problems]) if problems else None
        return pa.array(numbers, mask=array.is_null().to_numpy(zero_copy_only=False)), bad

    def _wants_text(self, encoder: SparseEncoder, source: str) -> bool | None:
        """Whether training saw texts; None takes the values as they are."""
        if encoder.column.transform is not None:
            return False
        if encoder.column.min_count is not None:
            return bool(pa.types.is_string(encoder.values.type)) if len(encoder.values) else None
        if self.trained_on != "parquet":
            return self.trained_on == "csv"
        if source not in ("parquet", "json"):
            raise DataError(
                f"column {encoder.column.source}: is hashed, and training read it from parquet, where a number and its "
                f"text have different hashes; score parquet too"
            )
        return None


@dataclass(frozen=True)
class IdentityEncoder:
    """Rows that hold ids and encoded numbers already, in columns named as in the feature spec.

    Attributes:
        spec: the columns.
    """

    spec: FeatureSpec

    @cached_property
    def schema(self) -> Schema:
        """The raw columns are the encoded ones; each must be there in every row."""
        dense = tuple(DenseColumn(name, transform=(), missing="error") for name in self.spec.dense)
        sparse = tuple(
            CategoricalColumn(f.name, missing="error", multi_hot=f.max_length > 1, separator=" ")
            if f.max_length > 1
            else CategoricalColumn(f.name, missing="error")
            for f in self.spec.sparse
        )
        return Schema("label", dense, sparse)

    def encode(self, rows: Rows, source: str) -> Encoded:
        """Check ids against their tables."""
        del source
        result = Encoded({n: pa.array(v.astype(np.float32)) for n, v in zip(self.spec.dense, rows.dense, strict=True)})
        for feature, array in zip(self.spec.sparse, rows.categorical, strict=True):
            values, bad, text = _ids(array, feature) if feature.max_length == 1 else _id_lists(array, feature)
            if bad.any():
                result.faults.append((bad, feature.name, text))
            result.columns[feature.name] = values
        return result


def _ids(array: Any, feature: SparseFeature) -> tuple[Any, Mask, str]:
    numbers, problems = whole_numbers(array)
    bad = (numbers < 0) | (numbers >= feature.cardinality)
    for mask, _ in problems:
        bad |= mask
    ids = np.where(bad, 0, numbers).astype(np.int32)
    return pa.array(ids), bad, f"is no id of the table of {feature.cardinality} rows"


def _id_lists(array: Any, feature: SparseFeature) -> tuple[Any, Mask, str]:
    lengths = np.diff(array.offsets.to_numpy())
    numbers, problems = whole_numbers(array.flatten())
    wrong = (numbers < 0) | (numbers >= feature.cardinality)
    for mask, _ in problems:
        wrong |= mask
    bad = lengths > feature.max_length
    bad[np.repeat(np.arange(len(lengths)), lengths)[wrong]] = True
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    ids = pa.array(np.where(wrong, 0, numbers).astype(np.int32))
    text = f"is no list of at most {feature.max_length} ids of the table of {feature.cardinality} rows"
    return pa.ListArray.from_arrays(pa.array(offsets), ids), bad, text


def read_encoder(folder: Path, trained_on: str | None, *, encoded: bool = False) -> RowEncoder:
    """The encoder of a run's folder or an exported package.

    Args:
        folder: holds ``features.json`` and the vocabularies.
        trained_on: kind of the files of training; None where the rows had ids to begin with.
        encoded: take rows that are encoded already, whatever training read.

    Raises:
        DataError: the files are missing or damaged.
    """
    if encoded or trained_on is None:
        return IdentityEncoder(FeatureSpec.read(folder / "features.json"))
    return FittedEncoder(Encoding.read(folder), trained_on)
