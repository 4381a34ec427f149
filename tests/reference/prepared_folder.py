"""A prepared folder (format version 1) written plainly, as a reference for loaders and their tests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recsys.features import FeatureSpec, SparseFeature

ONE_HOT = FeatureSpec(("d0", "d1"), (SparseFeature("s0", 5000), SparseFeature("s1", 11), SparseFeature("s2", 7)))
MULTI_HOT = FeatureSpec(("d0",), (SparseFeature("s0", 5000), SparseFeature("m0", 13, 4), SparseFeature("s1", 11)))


def numbered_rows(spec: FeatureSpec, first: int, num_rows: int, *, weight: bool = False) -> pa.Table:
    """Rows whose every value follows from their number; the first dense and one-hot columns are the number."""
    row = np.arange(first, first + num_rows, dtype=np.int64)
    columns: dict[str, Any] = {"label": (row % 3 == 0).astype(np.float32)}
    if weight:
        columns["weight"] = (1 + row % 4).astype(np.float32)
    columns["row"] = row
    for n, name in enumerate(spec.dense):
        columns[name] = (row + 0.25 * n).astype(np.float32)
    for f, feature in enumerate(spec.sparse):
        ids = ((row * (f + 1) + f) % feature.cardinality).astype(np.int32)
        if feature.max_length == 1:
            columns[feature.name] = ids
        else:
            lengths = (row + f) % (feature.max_length + 1)
            offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            values = (np.repeat(ids - offsets[:-1], lengths) + np.arange(offsets[-1])) % feature.cardinality
            columns[feature.name] = pa.ListArray.from_arrays(offsets, values.astype(np.int32))
    return pa.table(columns)


def write_prepared(
    folder: Path,
    spec: FeatureSpec,
    splits: Mapping[str, Sequence[pa.Table]],
    *,
    group_rows: int = 65_536,
    notes: Mapping[str, Any] | None = None,
) -> Path:
    """Write every table of every split as a file; the manifest comes last."""
    for name, tables in splits.items():
        (folder / name).mkdir(parents=True)
        for number, table in enumerate(tables):
            write_shard(folder / name / f"part-{number:05}.parquet", table, group_rows)
    spec.write(folder / "features.json")
    write_manifest(folder, notes)
    return folder


def write_shard(path: Path, table: pa.Table, group_rows: int = 65_536) -> None:
    """One parquet file with page checksums."""
    pq.write_table(
        table, path, row_group_size=group_rows, compression="zstd", use_dictionary=False, write_page_checksum=True
    )


def write_manifest(folder: Path, notes: Mapping[str, Any] | None = None) -> None:
    """The manifest of the files that are there."""
    splits: dict[str, Any] = {}
    for name in ("train", "valid", "test"):
        shards = [_file(folder, path) for path in sorted((folder / name).glob("*.parquet"))]
        splits[name] = {"files": shards, "rows": sum(shard["rows"] for shard in shards)}
    fingerprint = hashlib.sha256(json.dumps(splits).encode()).hexdigest()
    manifest: dict[str, Any] = {
        "version": 1,
        "fingerprint": fingerprint,
        "splits": splits,
        "source": {},
        "settings": {},
    }
    features = (folder / "features.json").read_bytes()
    sha256 = hashlib.sha256(features).hexdigest()
    files = [{"name": "features.json", "bytes": len(features), "sha256": sha256}]
    manifest |= {"files": files, "notes": dict(notes or {})}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def _file(folder: Path, path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {
        "name": str(path.relative_to(folder)),
        "rows": pq.read_metadata(path).num_rows,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
