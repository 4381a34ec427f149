"""Blocks of whole lines, whatever the cut; compressed files that are truncated or damaged."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys.errors import DataError
from recsys.prepare.inputs import resolve
from recsys.prepare.text import MAX_LINE_BYTES, lines_before, range_block, stream_blocks, zstd_has_checksum
from tests.reference.clicks import zstd_packed

TEXT = b"".join(b"%d:%s\n" % (i, b"x" * (i % 40)) for i in range(300))


@given(st.lists(st.sampled_from([b"\n", b"a", b"bcd"]), max_size=30).map(b"".join), st.integers(1, 20))
def test_ranges_give_every_line_once(tmp_path_factory: pytest.TempPathFactory, text: bytes, step: int) -> None:
    path = tmp_path_factory.getbasetemp() / "ranges.txt"
    path.write_bytes(text)
    blocks = [range_block(path, a, min(a + step, len(text))) for a in range(0, len(text), step)]
    assert b"".join(blocks) == (text if not text or text.endswith(b"\n") else text + b"\n")
    seen = 0
    for a, block in zip(range(0, len(text), step), blocks, strict=True):
        if block:
            assert lines_before(path, a) == seen
        seen += block.count(b"\n")


@pytest.mark.parametrize("block_bytes", [1, 700, 1 << 20])
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_streams_give_every_line_once(tmp_path: Path, suffix: str, block_bytes: int) -> None:
    path = tmp_path / f"t{suffix}"
    path.write_bytes(gzip.compress(TEXT) if suffix == ".gz" else zstd_packed(TEXT))
    line, texts = 1, []
    for first, text in stream_blocks(path, block_bytes):
        assert first == line and text.endswith(b"\n")
        line += text.count(b"\n")
        texts.append(text)
    assert b"".join(texts) == TEXT


def test_several_members_and_frames(tmp_path: Path) -> None:
    for path, packed in ((tmp_path / "a.gz", gzip.compress(TEXT)), (tmp_path / "a.zst", zstd_packed(TEXT))):
        path.write_bytes(packed + packed)
        assert b"".join(text for _, text in stream_blocks(path, 1000)) == TEXT + TEXT


def test_damaged_streams_are_refused(tmp_path: Path) -> None:
    r = random.Random(3)
    text = bytes(r.choice(b"0123456789abcdef\t\n") for _ in range(4000))
    for suffix, packed in ((".gz", gzip.compress(text, mtime=0)), (".zst", zstd_packed(text))):
        path = tmp_path / f"t{suffix}"
        whole = b"".join(t for _, t in stream_blocks(_put(path, packed), 500))
        refused = 0
        damaged = [packed[: r.randrange(5, len(packed))] for _ in range(20)] + [packed + b"garbage"]
        for _ in range(100):
            flipped = bytearray(packed)
            flipped[r.randrange(len(flipped))] ^= 1 << r.randrange(8)
            damaged.append(bytes(flipped))
        for copy in damaged:
            try:
                got = b"".join(t for _, t in stream_blocks(_put(path, copy), 500))
            except DataError as error:
                assert f"{path}, line " in str(error) and "\n" not in str(error)
                refused += 1
            else:
                assert got == whole, "damage was read as data"
        assert refused > 100


def _put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_truncated_zstd_names_the_line_and_the_remedy(tmp_path: Path) -> None:
    path = _put(tmp_path / "t.zst", zstd_packed(TEXT)[:-1])
    with pytest.raises(DataError, match=r"line \d+: the zstd data .*get a new copy of it, `zstd -t` tests it"):
        list(stream_blocks(path, 1000))


def test_zstd_without_checksum_is_known(tmp_path: Path) -> None:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(TEXT)
    assert not zstd_has_checksum(_put(tmp_path / "a.zst", sink.getvalue().to_pybytes()))
    assert zstd_has_checksum(_put(tmp_path / "b.zst", zstd_packed(TEXT)))


def test_endless_line(tmp_path: Path) -> None:
    path = _put(tmp_path / "t.gz", gzip.compress(b"a\n" + b"x" * (3 * MAX_LINE_BYTES)))
    with pytest.raises(DataError, match=f"line 2: longer than {MAX_LINE_BYTES} bytes"):
        list(stream_blocks(path, 1000))


def test_name_and_content_disagree(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"zstd-compressed but its name does not end in \.zst; rename it to a\.txt\.zst"
    ):
        resolve("csv", str(_put(tmp_path / "a.txt", zstd_packed(TEXT))))
    with pytest.raises(DataError, match=r"is a parquet file; use source=parquet"):
        resolve("csv", str(_put(tmp_path / "b.csv", b"PAR1....PAR1")))


def test_days_come_in_natural_order_and_once(tmp_path: Path) -> None:
    for i in (10, 2, 0, 1):
        _put(tmp_path / f"day_{i}", b"x")
    names = [Path(f.path).name for f in resolve("criteo_1tb", str(tmp_path))]
    assert names == ["day_0", "day_1", "day_2", "day_10"]
    with pytest.raises(DataError, match="named twice"):
        resolve("criteo_1tb", [str(tmp_path), str(tmp_path / "day_2")])
    with pytest.raises(DataError, match="no such file; set input to an existing one"):
        resolve("csv", str(tmp_path / "nowhere.csv"))
    with pytest.raises(DataError, match="no file matches"):
        resolve("csv", str(tmp_path / "*.csv"))
