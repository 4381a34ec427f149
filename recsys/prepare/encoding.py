"""How values become ids and numbers: fitted on train rows, stored with the data, applied alike everywhere."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recsys.errors import DataError
from recsys.features import FeatureSpec, SparseFeature
from recsys.prepare import target_mean
from recsys.prepare.convert import Rows, convert, text_hashes
from recsys.prepare.kernels import hash_numbers
from recsys.prepare.numeric import Float64, transform
from recsys.prepare.schema import (
    FLOAT32_MAX,
    STANDARDIZE,
    CategoricalColumn,
    DenseColumn,
    Schema,
    added_names,
    schema_from_plain,
)
from recsys.prepare.stage import encode_chunk
from recsys.prepare.work import write_json

ENCODING_VERSION = 1
OUT_OF_VOCABULARY = 0
MISSING = 1
NUM_RESERVED_IDS = 2


def fitted_values(column: DenseColumn, values: Float64) -> Float64:
    """The values that mean and deviation are fitted on: transformed, without the missing ones."""
    if not isinstance(column.missing, str):
        values = np.where(np.isnan(values), float(column.missing), values)
    return transform(values[~np.isnan(values)], column.pointwise, column.shift)


@dataclass(frozen=True)
class DenseEncoder:
    """A dense column's encoding.

    Attributes:
        column: what the schema says.
        mean, sd: of the transformed train values; 0 and 1 where there is none.
    """

    column: DenseColumn
    mean: float
    sd: float

    def encode(self, values: Float64) -> NDArray[np.float32]:
        """Encode ``(R,)`` values, NaN where missing, to finite float32."""
        missing = np.isnan(values)
        fill = 0.0 if isinstance(self.column.missing, str) else float(self.column.missing)
        encoded = transform(np.where(missing, fill, values), self.column.pointwise, self.column.shift)
        if self.column.missing == "mean":
            encoded = np.where(missing, self.mean, encoded)
        if STANDARDIZE in self.column.transform:
            encoded = (encoded - self.mean) / self.sd
        # A value of valid or test may be far from all train values: it saturates, it does not become infinite.
        return np.clip(encoded, -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32)


@dataclass(frozen=True)
class SparseEncoder:
    """A categorical column's encoding.

    Attributes:
        column: what the schema says.
        values: the vocabulary, an Arrow array; ``values[i]`` has id ``i + 2``.
        max_length: of a row's list; 1 for a column with one value a row.
        added: the dense features that the column adds, ``(features, blocks + 1, cardinality)``; None if it adds
            none, or where they are read elsewhere.
    """

    column: CategoricalColumn
    values: Any
    max_length: int
    added: NDArray[np.float32] | None = None

    @property
    def cardinality(self) -> int:
        """Rows of the embedding table: every id is below."""
        return NUM_RESERVED_IDS + len(self.values) + (self.column.hash_size or 0)

    @property
    def missing_id(self) -> int:
        """The id of a missing value."""
        return OUT_OF_VOCABULARY if self.column.missing == "oov" else MISSING

    def encode(self, values: Any) -> NDArray[np.int32]:
        """Ids of distinct or repeated values (an Arrow array of integers or strings, null where missing)."""
        return self.ids(values, self._index.positions(values))

    @cached_property
    def _index(self) -> VocabularyIndex:
        return VocabularyIndex(self.values)

    def ids(self, values: Any, positions: NDArray[np.int64]) -> NDArray[np.int32]:
        """Ids of values, given their positions in the vocabulary or behind it (-1 for none)."""
        known = (positions >= 0) & (positions < len(self.values))
        ids = np.where(known, positions + NUM_RESERVED_IDS, OUT_OF_VOCABULARY).astype(np.int32)
        if self.column.hash_size is not None and not known.all():
            rest = pa.array(~known)
            buckets = hashes(values.filter(rest)) % np.uint64(self.column.hash_size)
            ids[~known] = buckets.astype(np.int64) + NUM_RESERVED_IDS + len(self.values)
        if values.null_count:
            ids[values.is_null().to_numpy(zero_copy_only=False)] = self.missing_id
        return ids


class VocabularyIndex:
    """Where values stand in a vocabulary, made once: Arrow's ``index_in`` hashes the whole vocabulary at every call.

    Args:
        vocabulary: an Arrow array of distinct integers or strings.
    """

    def __init__(self, vocabulary: Any) -> None:
        self._vocabulary = vocabulary
        keys = self._keys(vocabulary)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        # Two texts of one hash: then the slow way is the exact one.
        self._is_exact = bool((self._sorted[1:] != self._sorted[:-1]).all())

    def _keys(self, values: Any) -> NDArray[Any]:
        if pa.types.is_string(values.type):
            return text_hashes(values.fill_null(""))
        keys: NDArray[Any] = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return keys

    def positions(self, values: Any) -> NDArray[np.int64]:
        """As :func:`positions_in`."""
        if not self._is_exact or values.type != self._vocabulary.type:
            return positions_in(values, self._vocabulary)
        if not len(values) or not len(self._sorted):
            return np.full(len(values), -1, np.int64)
        keys = self._keys(values)
        at = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        positions = self._order[at]
        found = self._sorted[at] == keys
        if pa.types.is_string(values.type):
            same = pc.equal(self._vocabulary.take(pa.array(positions)), values).fill_null(False)
            found &= same.to_numpy(zero_copy_only=False)
        if values.null_count:
            found &= values.is_valid().to_numpy(zero_copy_only=False)
        return np.where(found, positions, -1)


def positions_in(values: Any, vocabulary: Any) -> NDArray[np.int64]:
    """Where each value stands in the vocabulary, -1 where it does not."""
    if not len(vocabulary) or not len(values):
        return np.full(len(values), -1, np.int64)
    found = pc.index_in(values, value_set=vocabulary, skip_nulls=True)
    return found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)


def hashes(values: Any) -> NDArray[np.uint64]:
    """64-bit hashes of an Arrow array of integers or strings; those of nulls mean nothing."""
    if pa.types.is_string(values.type):
        return text_hashes(values.fill_null(""))
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    result = np.empty(len(numbers), np.uint64)
    hash_numbers(numbers, result)
    return result


@dataclass(frozen=True)
class Encoding:
    """The encoding of a data set.

    Attributes:
        schema: the columns.
        dense, sparse: an encoder for each column of the schema.
    """

    schema: Schema
    dense: tuple[DenseEncoder, ...]
    sparse: tuple[SparseEncoder, ...] = field(default=())

    @property
    def spec(self) -> FeatureSpec:
        """Names and cardinalities of the encoded columns; dense columns, their indicators, then added features."""
        indicators = [f"{e.column.name}_missing" for e in self.dense if e.column.indicator]
        sparse = tuple(SparseFeature(e.column.name, e.cardinality, e.max_length) for e in self.sparse)
        added = [name for e in self.sparse for name in added_names(e.column)]
        return FeatureSpec((*(e.column.name for e in self.dense), *indicators, *added), sparse)

    def encode_dense(self, columns: list[Float64]) -> list[NDArray[np.float32]]:
        """Encode raw dense columns (NaN where missing) to the dense features, indicators included."""
        encoded = [e.encode(values) for e, values in zip(self.dense, columns, strict=True)]
        pairs = zip(self.dense, columns, strict=True)
        return encoded + [np.isnan(values).astype(np.float32) for e, values in pairs if e.column.indicator]

    def encode_table(self, table: Any) -> dict[str, Any]:
        """Encode raw rows for scoring, as the splits were encoded.

        Args:
            table: Arrow table of the features' columns; label, weight, group and time are not needed.

        Returns:
            Arrow arrays by feature name: float32, int32, list<int32>.

        Raises:
            DataError: a column is not there or of another type than in training; a value that the schema does not
                allow. Names the column, and the row of a value.
        """
        schema = self.schema.for_scoring()
        names = table.column_names
        if lacking := [name for name in schema.sources if names.count(name) != 1]:
            raise DataError(f"column {lacking[0]}: stands {names.count(lacking[0])} times in the rows; once is needed")
        rows, faults = convert(table.select(schema.sources), schema)
        if faults:
            raise DataError(f"row {faults[0].index + 1}: {faults[0].message}")
        return self.encode_rows(rows)

    def encode_rows(self, rows: Rows) -> dict[str, Any]:
        """Encode checked rows; gives Arrow arrays by feature name: float32, int32, list<int32>."""
        encoded = self.encode_dense(rows.dense)
        result: dict[str, Any] = {}
        added: list[NDArray[np.float32]] = []
        for encoder, array in zip(self.sparse, rows.categorical, strict=True):
            codes, values = encode_chunk(array, encoder.column)
            if len(encoder.values) and len(values) - values.null_count and values.type != encoder.values.type:
                raise DataError(
                    f"column {encoder.column.source}: holds {values.type}, but held {encoder.values.type} in training; "
                    "convert it"
                )
            ids = np.append(encoder.encode(values), encoder.missing_id)
            result[encoder.column.name] = lookup(codes, ids, encoder)
            if encoder.column.adds_dense:
                assert encoder.added is not None, "read with the encoding"
                added += list(encoder.added[:, -1, result[encoder.column.name].to_numpy()])
        pairs = zip(self.spec.dense, [*encoded, *added], strict=True)
        return {name: pa.array(values) for name, values in pairs} | result

    def write(self, folder: Path) -> None:
        """Write ``features.json``; the vocabularies lie beside it."""
        sparse = [{"name": e.column.name, "vocabulary": len(e.values), "max_length": e.max_length} for e in self.sparse]
        encoding = {
            "version": ENCODING_VERSION,
            "schema": self.schema.to_plain(),
            "dense": [{"name": e.column.name, "mean": e.mean, "sd": e.sd} for e in self.dense],
            "sparse": sparse,
            "ids": {"out_of_vocabulary": OUT_OF_VOCABULARY, "missing": MISSING, "first_value": NUM_RESERVED_IDS},
        }
        write_json(folder / "features.json", asdict(self.spec) | {"encoding": encoding})

    @staticmethod
    def read(folder: Path) -> Encoding:
        """Read the encoding of a prepared folder, to score new rows with it.

        Raises:
            DataError: it is not there, damaged, or of another version.
        """
        path = folder / "features.json"
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))["encoding"]
            if raw["version"] != ENCODING_VERSION:
                raise ValueError(f"version {raw['version']}, not {ENCODING_VERSION}")
            schema = schema_from_plain(raw["schema"])
            pairs = zip(schema.dense, raw["dense"], strict=True)
            dense = tuple(DenseEncoder(c, e["mean"], e["sd"]) for c, e in pairs)
            sparse = tuple(
                _with_added(folder, SparseEncoder(c, _read_vocabulary(folder, c, e["vocabulary"]), e["max_length"]))
                for c, e in zip(schema.categorical, raw["sparse"], strict=True)
            )
            return Encoding(schema, dense, sparse)
        except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise DataError(f"{path}: cannot be read as an encoding ({error}); prepare the data again") from error


def _with_added(folder: Path, encoder: SparseEncoder) -> SparseEncoder:
    column = encoder.column
    if not column.adds_dense:
        return encoder
    return replace(
        encoder, added=target_mean.read(target_mean.path_of(folder, column.name), column, encoder.cardinality)
    )


def lookup(codes: Any, ids: NDArray[np.int32], encoder: SparseEncoder) -> Any:
    """Replace codes by ids; lists are cut to the encoder's length."""
    if not encoder.column.multi_hot:
        return pa.array(ids[codes.to_numpy(zero_copy_only=False)])
    offsets, flat = cut_lists(codes, encoder.max_length)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids[flat]))


def cut_lists(codes: Any, max_length: int) -> tuple[NDArray[np.int32], NDArray[Any]]:
    """Offsets and values of a list array without nulls, the lists cut to ``max_length``."""
    begins = codes.offsets.to_numpy()
    lengths = np.diff(begins)
    kept = np.minimum(lengths, max_length)
    offsets = np.zeros(len(kept) + 1, np.int32)
    np.cumsum(kept, out=offsets[1:])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], kept)
    flat = codes.values.to_numpy(zero_copy_only=False)
    return offsets, flat[np.repeat(begins[:-1], kept) + within]


def vocabulary_path(folder: Path, name: str) -> Path:
    """The file of a column's vocabulary."""
    return folder / "vocab" / f"{quote(name, safe='')}.parquet"


def _read_vocabulary(folder: Path, column: CategoricalColumn, size: int) -> Any:
    if column.min_count is None:
        return pa.array([], pa.int64())
    path = vocabulary_path(folder, column.name)
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read(use_threads=False)
    if table.num_rows != size:
        raise ValueError(f"{path} has {table.num_rows} values, not {size}")
    array = table["value"].combine_chunks()
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
