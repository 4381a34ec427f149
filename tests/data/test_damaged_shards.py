"""Damaged copies of a prepared folder: none is read silently wrong."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsys.data.parquet_manifest import read_manifest
from recsys.data.parquet_shard import open_shard
from recsys.data.parquet_source import PreparedData
from recsys.errors import DataError
from recsys.features import FeatureSpec, SparseFeature
from tests.reference.prepared_folder import MULTI_HOT, numbered_rows, write_prepared

ROOT = Path(__file__).resolve().parents[2]
COPIES = 40  # of each kind of damage
SHARDS = ("train/part-00000", "train/part-00001", "train/part-00002", "valid/part-00000", "test/part-00000")

Damage = Callable[[bytes, random.Random], bytes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"train": [30, 30, 17], "valid": [12], "test": [12]}
    first, splits = 0, dict[str, list[Any]]()
    for name, rows in sizes.items():
        splits[name] = []
        for size in rows:
            splits[name].append(numbered_rows(MULTI_HOT, first, size, weight=True))
            first += size
    return write_prepared(tmp_path_factory.mktemp("damaged") / "p", MULTI_HOT, splits, group_rows=10)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Iterator[Path]:
    shutil.copytree(folder, tmp_path / "copy")
    yield tmp_path / "copy"


def read(folder: Path, verify: str) -> dict[str, Any]:
    """Every value of every split by row number, and the columns."""
    data = PreparedData(str(folder), verify=verify, workers=1).splits(16, 0)
    rows: dict[str, Any] = {"sparse": data.spec.sparse_names, "dense": data.spec.dense}
    for name, source in (("train", data.train), ("valid", data.valid), ("test", data.test)):
        rows[name] = [
            (
                batch.dense_features.tolist(),
                batch.labels.tolist(),
                batch.weights.tolist(),
                {key: value.to_dense() for key, value in batch.sparse_features.to_dict().items()},
            )
            for batch in source
        ]
    return json.loads(json.dumps(rows, default=lambda tensor: tensor.tolist()))


def flip_bit(content: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :]


def truncate(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def swap_blocks(content: bytes, draw: random.Random) -> bytes:
    size = min(draw.choice([1, 8, 64, 256]), len(content) // 2)
    a, b = sorted(draw.sample(range(0, len(content) - size, size), 2))
    return content[:a] + content[b : b + size] + content[a + size : b] + content[a : a + size] + content[b + size :]


def overwrite(content: bytes, draw: random.Random) -> bytes:
    size = min(draw.choice([4, 64, 512]), len(content) // 2)
    at = draw.randrange(len(content) - size)
    return content[:at] + bytes(size) + content[at + size :]


@pytest.mark.parametrize("damage", [flip_bit, truncate, swap_blocks, overwrite])
def test_any_change_of_a_shard_is_refused(copy: Path, damage: Damage) -> None:
    for number in range(COPIES):
        draw = random.Random(f"{damage.__name__} {number}")
        path = copy / f"{draw.choice(SHARDS)}.parquet"
        content = path.read_bytes()
        damaged = damage(content, draw)
        if damaged == content:
            continue
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=rf"{path.parent.name}/{path.name}: .*(restore|prepare)"):
            read(copy, "full")
        path.write_bytes(content)


@pytest.mark.parametrize("damage", [flip_bit, truncate, swap_blocks, overwrite])
def test_without_hashes_no_damaged_shard_is_read_wrong(folder: Path, copy: Path, damage: Damage) -> None:
    """Sizes, footers, page checksums and value checks are left; what they let pass has to be harmless."""
    good, errors = read(folder, "full"), 0
    for number in range(COPIES):
        draw = random.Random(f"size {damage.__name__} {number}")
        path = copy / f"{draw.choice(SHARDS)}.parquet"
        content = path.read_bytes()
        path.write_bytes(damage(content, draw))
        errors += not _is_good_or_refused(copy, "size", good)
        path.write_bytes(content)
    assert errors >= COPIES / 4, "damage must not pass unnoticed as a rule"


@pytest.mark.parametrize("column", ["label", "weight", *MULTI_HOT.dense, *MULTI_HOT.sparse_names])
def test_page_checksums_find_a_flipped_bit_of_a_value(copy: Path, column: str) -> None:
    path = copy / "valid" / "part-00000.parquet"
    content, group = bytearray(path.read_bytes()), pq.read_metadata(path).row_group(1)
    chunks = [group.column(i) for i in range(group.num_columns)]
    chunk = next(c for c in chunks if c.path_in_schema.split(".")[0] == column)
    content[chunk.data_page_offset + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"valid/part-00000\.parquet, row group 1: cannot be read \(.*CRC checksum"):
        read(copy, "size")


def test_no_flipped_bit_of_a_footer_changes_a_row_group_unnoticed(tmp_path: Path) -> None:
    spec = FeatureSpec((), (SparseFeature("s0", 50),))
    tables = [numbered_rows(spec, 0, 10)]
    splits = {"train": tables, "valid": tables, "test": tables}
    shard = read_manifest(write_prepared(tmp_path / "p", spec, splits, group_rows=4)).shards["train"][0]
    content = shard.path.read_bytes()
    footer_bytes = int.from_bytes(content[-8:-4], "little") + 8
    good, harmful = open_shard(shard, spec, full=False).group_rows, 0
    for bit in range(8 * footer_bytes):
        at = len(content) - 1 - bit // 8
        damaged = content[:at] + bytes([content[at] ^ 1 << bit % 8]) + content[at + 1 :]
        try:
            footer = pq.read_metadata(pa.BufferReader(damaged))
            rows = [footer.row_group(group).num_rows for group in range(footer.num_row_groups)]
        except (pa.ArrowException, OSError, ValueError):
            continue  # unreadable, so certainly refused
        if rows != good:
            harmful += 1
            shard.path.write_bytes(damaged)
            with pytest.raises(DataError):
                open_shard(shard, spec, full=False)
    assert harmful >= len(good), "some flips change the rows of a group"


@pytest.mark.parametrize("name", ["manifest.json", "features.json"])
@pytest.mark.parametrize("damage", [flip_bit, truncate, overwrite])
def test_damaged_json_is_refused_or_harmless(folder: Path, copy: Path, name: str, damage: Damage) -> None:
    good, content = read(folder, "full"), (copy / name).read_bytes()
    for number in range(COPIES // 2):
        (copy / name).write_bytes(damage(content, random.Random(f"{damage.__name__} {number}")))
        if _is_good_or_refused(copy, "size", good):
            assert name == "manifest.json", "every change of features.json is refused"


def _is_good_or_refused(folder: Path, verify: str, good: dict[str, Any]) -> bool:
    """Whether the rows are the good ones; False where they are refused."""
    try:
        rows = read(folder, verify)
    except DataError:
        return False
    assert rows == good
    return True


@pytest.mark.parametrize(("left", "right"), [(0, 1), (0, 2), (3, 4), (1, 3)])
def test_exchanged_files_are_refused(copy: Path, left: int, right: int) -> None:
    paths = [copy / f"{SHARDS[i]}.parquet" for i in (left, right)]
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"parquet: .*manifest"):
        read(copy, "full")


def test_exchanged_entries_of_the_manifest_are_refused(copy: Path) -> None:
    raw = json.loads((copy / "manifest.json").read_text())
    splits = raw["splits"]
    for a, b in (("train", "test"), ("valid", "test"), ("train", "valid")):
        edited = {**raw, "splits": {**splits, a: splits[b], b: splits[a]}}
        (copy / "manifest.json").write_text(json.dumps(edited))
        with pytest.raises(DataError, match="is no file of the split"):
            read(copy, "full")
    files = splits["train"]["files"]
    files[0]["name"], files[1]["name"] = files[1]["name"], files[0]["name"]
    files.reverse()
    (copy / "manifest.json").write_text(json.dumps(raw))
    with pytest.raises(DataError, match="manifest"):
        read(copy, "full")


def test_ctrl_c_ends_the_process(folder: Path) -> None:
    code = (
        "import sys\n"
        "from recsys.data.parquet_source import PreparedData\n"
        "train = PreparedData(sys.argv[1], workers=2, prefetch_batches=3).splits(4, 0).train\n"
        "while True:\n"
        "    for number, _ in enumerate(train):\n"
        "        print(number, flush=True)\n"
    )
    command = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(30)], "several epochs"
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=100)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT, errors
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
