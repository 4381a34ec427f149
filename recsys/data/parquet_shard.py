"""One prepared parquet file: opened and verified once, then read row group by row group."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from recsys.data.parquet_manifest import Shard
from recsys.errors import DataError
from recsys.features import FeatureSpec

LABEL, WEIGHT, ROW = "label", "weight", "row"


@dataclass(frozen=True)
class Layout:
    """Which columns of a shard are read, and what they must be.

    Attributes:
        spec: the columns of the batches.
        has_weight: whether there is a column of weights.
    """

    spec: FeatureSpec
    has_weight: bool

    @property
    def columns(self) -> list[str]:
        """Names of the columns that a batch needs."""
        return [LABEL, *([WEIGHT] if self.has_weight else []), *self.spec.dense, *self.spec.sparse_names]


@dataclass(frozen=True)
class OpenShard:
    """A verified shard.

    Attributes:
        path: where it lies.
        stamp: size, time of change and inode when it was verified.
        metadata: its footer.
        has_weight: whether it has a column of weights.
    """

    path: Path
    stamp: tuple[int, int, int]
    metadata: Any
    has_weight: bool

    @property
    def group_rows(self) -> list[int]:
        """Rows of every row group."""
        return [self.metadata.row_group(g).num_rows for g in range(self.metadata.num_row_groups)]


def open_shard(shard: Shard, spec: FeatureSpec, *, full: bool) -> OpenShard:
    """Compare a shard with the manifest and with ``features.json``.

    Args:
        shard: what the manifest says.
        spec: what ``features.json`` says.
        full: also hash the content.

    Raises:
        DataError: the file is not the one that was written, or has other columns.
    """
    stamp = _stamp(shard.path)
    if stamp[0] != shard.num_bytes:
        raise DataError(
            f"{shard.path}: {stamp[0]} bytes, but the manifest says {shard.num_bytes}; "
            "restore the file or prepare the data again"
        )
    if full and _sha256(shard.path) != shard.sha256:
        raise DataError(
            f"{shard.path}: the content is not the one that was written (its sha256 differs from the manifest's); "
            "restore the file or prepare the data again"
        )
    with _reading(shard.path):
        metadata = pq.read_metadata(shard.path)
        schema = metadata.schema.to_arrow_schema()
    opened = OpenShard(shard.path, stamp, metadata, WEIGHT in schema.names)
    rows = opened.group_rows
    if not metadata.num_rows == sum(rows) == shard.rows or min(rows, default=0) < 0:
        raise DataError(
            f"{shard.path}: {metadata.num_rows} rows, {sum(rows)} in its row groups, but the manifest says "
            f"{shard.rows}; restore the file or prepare the data again"
        )
    _check_schema(shard.path, schema, spec)
    return opened


def read_group(shard: OpenShard, group: int, layout: Layout) -> Any:
    """The columns of ``layout`` in a row group, as an Arrow table; page checksums are compared on the way.

    Raises:
        DataError: the file went away, changed since it was verified, or is damaged.
    """
    _compare_stamp(shard)
    # A reader of its own: pyarrow's are not made to be shared between threads. The footer is the verified one.
    with (
        _reading(shard.path, f", row group {group}"),
        pq.ParquetFile(shard.path, metadata=shard.metadata, page_checksum_verification=True) as file,
    ):
        table = file.read_row_group(group, columns=layout.columns, use_threads=False)
    _compare_stamp(shard)
    rows = shard.metadata.row_group(group).num_rows
    if table.num_rows != rows or table.column_names != layout.columns:
        raise DataError(f"{shard.path}, row group {group}: not the {rows} rows or the columns of its footer; damaged")
    return table


def flat_values(table: Any, name: str, place: str) -> NDArray[Any]:
    """A column without nulls as one array, mostly without a copy.

    Raises:
        DataError: a null; names ``place`` and row.
    """
    array = _array(table, name, place)
    values: NDArray[Any] = array.to_numpy(zero_copy_only=True)
    return values


def list_values(table: Any, name: str, place: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """A list column as values of all rows and offsets ``(R + 1,)`` into them.

    Raises:
        DataError: a null list or a null in a list.
    """
    array = _array(table, name, place)
    if array.values.null_count:
        raise DataError(f"{place}: column {name!r}: a list holds a null; prepare the data again")
    return array.values.to_numpy(zero_copy_only=True), array.offsets.to_numpy(zero_copy_only=True)


def _array(table: Any, name: str, place: str) -> Any:
    column = table.column(name)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if array.null_count:
        row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{place}, row {row}: column {name!r} is null; prepare the data again")
    return array


def _check_schema(path: Path, schema: Any, spec: FeatureSpec) -> None:
    wanted: dict[str, Callable[[Any], bool]] = {LABEL: pa.types.is_float32, ROW: pa.types.is_int64}
    wanted |= dict.fromkeys(spec.dense, pa.types.is_float32)
    wanted |= {f.name: pa.types.is_int32 if f.max_length == 1 else _is_list_of_int32 for f in spec.sparse}
    names = schema.names
    if len(set(names)) < len(names) or not wanted.keys() <= set(names):
        raise DataError(f"{path}: has the columns {names}, but features.json needs {list(wanted)}; prepare again")
    for name in names:
        kind = schema.field(name).type
        # What features.json does not name can only be a weight, or a group or time column.
        fits = wanted.get(name, pa.types.is_float32 if name == WEIGHT else pa.types.is_int64)
        if not fits(kind):
            raise DataError(
                f"{path}: column {name!r} is {kind}, which does not fit features.json (ids are int32, with max_length "
                "above 1 list<int32>, dense values float32); prepare the data again"
            )


def _is_list_of_int32(kind: Any) -> bool:
    return pa.types.is_list(kind) and pa.types.is_int32(kind.value_type)


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        stat = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); restore it or prepare the data again") from error
    return stat.st_size, stat.st_mtime_ns, stat.st_ino


def _compare_stamp(shard: OpenShard) -> None:
    if _stamp(shard.path) != shard.stamp:
        raise DataError(f"{shard.path}: changed while it was in use; leave prepared data alone, and start again")


def _sha256(path: Path) -> str:
    with _reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _reading(path: Path, where: str = "") -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path}{where}: cannot be read ({reason}); the file is damaged, restore it or prepare the data again"
        ) from error
