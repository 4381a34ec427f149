"""Made-up clicks, and a slow preparation in plain Python to compare the real one with."""

from __future__ import annotations

import math
import random
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys.prepare.run import prepare
from recsys.prepare.schema import Schema, parse_schema
from recsys.prepare.settings import Engine, Settings, Split

IN_PROCESS = Engine(workers=1)


def click_table(num_rows: int, seed: int = 0) -> Any:
    """Columns ``click``, ``price`` and ``age`` (some missing), ``user``, ``shop``, lists ``tags``, ``at``, ``w``."""
    r = random.Random(seed)
    rows = [
        {
            "click": r.random() < 0.3,
            "price": None if r.random() < 0.1 else round(r.expovariate(0.1), 3),
            "age": None if r.random() < 0.2 else r.randrange(18, 70),
            "user": r.randrange(1, 12) ** 2,
            "shop": None if r.random() < 0.05 else r.choice("abcdefg") * r.randrange(1, 3),
            "tags": None if r.random() < 0.1 else [r.choice("xyz") for _ in range(r.randrange(4))],
            "at": i // 3 * 10,
            "w": r.choice([0.5, 1.0, 2.0]),
        }
        for i in range(num_rows)
    ]
    kinds = [
        pa.bool_(),
        pa.float64(),
        pa.int32(),
        pa.int64(),
        pa.string(),
        pa.list_(pa.string()),
        pa.int64(),
        pa.float32(),
    ]
    return pa.Table.from_pylist(rows, pa.schema(list(zip(rows[0], kinds, strict=True))))


def click_schema(**more: Any) -> Schema:
    raw = {
        "label": "click",
        "weight": "w",
        "time": "at",
        "group": "user",
        "dense": ["price", {"name": "age", "transform": ["standardize"], "indicator": True}],
        "categorical": [{"name": "user_id", "column": "user", "min_count": 3}, {"name": "shop", "min_count": 2}],
        "multi_hot": ["tags"],
    }
    return parse_schema(raw | more, "schema")


def write_clicks(path: Path, num_rows: int, seed: int = 0, **options: Any) -> Path:
    pq.write_table(click_table(num_rows, seed), path, **options)
    return path


def run_prepare(source: str, inputs: Any, output: Path, schema: Schema, **more: Any) -> dict[str, Any]:
    small: dict[str, Any] = {"engine": IN_PROCESS, "split": Split("order"), "rows_per_group": 64, "rows_per_part": 128}
    return prepare(Settings(source, inputs, str(output), schema, **(small | more)))


def read_split(folder: Path, split: str) -> Any:
    return pa.concat_tables([pq.read_table(p, use_threads=False) for p in sorted((folder / split).glob("*.parquet"))])


def folder_bytes(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def slow_ids(train: Sequence[Any], values: Sequence[Any], min_count: int) -> list[int]:
    """0 out of vocabulary, 1 missing, then by falling count and value."""
    counts = Counter(v for v in train if v is not None)
    order = sorted((v for v in counts if counts[v] >= min_count), key=lambda v: (-counts[v], v))
    ids = {v: i + 2 for i, v in enumerate(order)}
    return [1 if v is None else ids.get(v, 0) for v in values]


def slow_dense(train: Sequence[float | None], values: Sequence[float | None], log: bool) -> list[float]:
    """Standardised, missing values at the mean."""

    def one(x: float) -> float:
        return math.copysign(math.log1p(abs(x)), x) if log else x

    present = [one(x) for x in train if x is not None]
    mean = math.fsum(present) / len(present) if present else 0.0
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in present) / len(present)) if len(set(present)) > 1 else 1.0
    return [0.0 if x is None else (one(x) - mean) / sd for x in values]


def zstd_packed(text: bytes) -> bytes:
    """As the command line tool packs it, with a checksum."""
    try:
        return subprocess.run(["zstd", "-q", "-c"], input=text, capture_output=True, check=True).stdout
    except FileNotFoundError:
        pytest.skip("needs the zstd command, for files with checksums")
