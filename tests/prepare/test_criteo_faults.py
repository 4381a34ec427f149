"""Every fault of a Criteo file gives one message with its file, its line and what to do."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recsys.errors import DataError
from recsys.prepare.criteo import COLUMN_NAMES
from recsys.prepare.criteo_kaggle import CriteoKaggle
from recsys.prepare.inputs import resolve
from recsys.prepare.schema import read_schema
from recsys.prepare.units import make_units, read_unit
from scripts.make_fixtures import fixture_text

SCHEMA = read_schema(Path(__file__).resolve().parents[2] / "data/schemas/criteo.yaml")

NUM_ROWS = 60


def good_text() -> bytes:
    return fixture_text(NUM_ROWS, seed=1).encode()


def with_field(line: int, column: str, value: str) -> bytes:
    lines = good_text().decode().splitlines()
    fields = lines[line - 1].split("\t")
    fields[COLUMN_NAMES.index(column)] = value
    lines[line - 1] = "\t".join(fields)
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def with_line(line: int, edit: Callable[[bytes], bytes]) -> bytes:
    lines = good_text().splitlines(keepends=True)
    lines[line - 1] = edit(lines[line - 1])
    return b"".join(lines)


def assert_refused(tmp_path: Path, path: Path, line: int | None, *patterns: str) -> None:
    with pytest.raises(DataError) as caught:
        CriteoKaggle(str(path), cache_dir=str(tmp_path / "cache")).splits(16, 0)
    message = str(caught.value)
    place = re.escape(str(path)) + ("" if line is None else f", line {line}") + ": "
    for pattern in (f"^{place}", *patterns):
        assert re.search(pattern, message), f"{pattern!r} is not in {message!r}"
    assert "\n" not in message
    assert not (tmp_path / "cache").exists(), "a refused file left a cache behind"


VALUE_FAULTS = [
    ("label", "2", r"column label: '2' is not 0 or 1; mend"),
    ("label", "", r"column label: '' is not 0 or 1; mend"),
    ("label", "1.0", r"column label: '1.0' is not 0 or 1; mend"),
    ("I3", "abc", r"column I3: 'abc' is not an integer .*; mend"),
    ("I1", "1.5", r"column I1: '1.5' is not an integer .*; mend"),
    ("I13", "1e3", r"column I13: '1e3' is not an integer .*; mend"),
    ("I2", "+4", r"column I2: '\+4' is not an integer .*; mend"),
    ("I2", "-", r"column I2: '-' is not an integer .*; mend"),
    ("I4", " 4", r"column I4: ' 4' is not an integer .*; mend"),
    ("I5", "NULL", r"column I5: 'NULL' is not an integer .*; mend"),
    ("I6", "9223372036854775808", r"column I6: '9223372036854775808' is beyond 64 bits; mend"),
    ("I6", "-9223372036854775809", r"column I6: .* is beyond 64 bits; mend"),
    ("C1", "68fd1e6g", r"column C1: '68fd1e6g' is not a token of 1 to 8 hexadecimal digits .*; mend"),
    ("C26", "168fd1e64", r"column C26: '168fd1e64' is not a token of 1 to 8 hexadecimal digits .*; mend"),
    ("C5", "0x12", r"column C5: '0x12' is not a token"),
    ("C7", '"68fd1e64"', r"column C7: '\"68fd1e64\"' is not a token"),
    ("C9", "z" * 500, r"column C9: 'z{40}\.\.\.' is not a token"),
]


@pytest.mark.parametrize(
    ("column", "value", "pattern"), VALUE_FAULTS, ids=[f"{c}={v[:12]}" for c, v, _ in VALUE_FAULTS]
)
@pytest.mark.parametrize("line", [1, 7, NUM_ROWS])
def test_value_fault(tmp_path: Path, column: str, value: str, pattern: str, line: int) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(with_field(line, column, value))
    assert_refused(tmp_path, path, line, pattern, "new copy")


LINE_FAULTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "39 columns": (lambda x: x[2:], r"has 39 columns, not 40 .*test\.txt has no labels: use .*train\.txt"),
    "41 columns": (lambda x: b"0\t" + x, r"has 41 columns, not 40 .*mend the line"),
    "commas": (lambda x: x.replace(b"\t", b","), r"has 1 columns, not 40 .*tabs.*mend the line"),
    "spaces": (lambda x: b"  \n", r"has 1 columns, not 40"),
    "blank": (lambda x: b"\n", r"is blank; remove it"),
    "CRLF": (lambda x: x[:-1] + b"\r\n", r"carriage return \(CRLF.*remove them: `tr -d '\\r' < FILE > NEW`"),
    "CR inside": (lambda x: x[:9] + b"\r" + x[9:], r"carriage return"),
    "NUL": (lambda x: x[:9] + b"\0" + x[9:], r"has a NUL byte; .*new copy"),
    "Latin-1": (lambda x: x[:9] + b"\xe9" + x[9:], r"byte 0xe9, which is not ASCII.*new copy"),
    "UTF-8": (lambda x: x[:9] + "é".encode() + x[9:], r"byte 0xc3, which is not ASCII.*new copy"),
}


@pytest.mark.parametrize("fault", LINE_FAULTS)
@pytest.mark.parametrize("line", [1, 7, NUM_ROWS])
def test_line_fault(tmp_path: Path, fault: str, line: int) -> None:
    edit, pattern = LINE_FAULTS[fault]
    path = tmp_path / "train.txt.gz"
    path.write_bytes(gzip.compress(with_line(line, edit)))
    assert_refused(tmp_path, path, line, pattern)


def test_earliest_line_is_named(tmp_path: Path) -> None:
    lines = with_field(9, "C1", "nope").splitlines(keepends=True)
    lines[4] = lines[4].replace(b"\n", b"\t\n")
    lines[2] = b"\n"
    path = tmp_path / "train.txt"
    path.write_bytes(b"".join(lines))
    assert_refused(tmp_path, path, 3, "is blank")


def test_earliest_bad_value_is_named(tmp_path: Path) -> None:
    lines = good_text().splitlines(keepends=True)
    # A later line's fault stands in an earlier column.
    lines[8] = b"7" + lines[8][1:]
    lines[4] = lines[4].rstrip(b"\n")[: lines[4].rindex(b"\t")] + b"\tnope\n"
    path = tmp_path / "train.txt"
    path.write_bytes(b"".join(lines))
    assert_refused(tmp_path, path, 5, "column C26: 'nope'")


def test_header(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes("\t".join(COLUMN_NAMES).encode() + b"\n" + good_text())
    assert_refused(tmp_path, path, 1, r"is a header \(its label is 'label'\); remove it: `tail -n \+2 FILE > NEW`")


def test_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(b"\xef\xbb\xbf" + good_text())
    assert_refused(tmp_path, path, 1, r"byte-order mark \(BOM\); remove it: `tail -c \+4")


def test_blank_line_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(good_text() + b"\n")
    assert_refused(tmp_path, path, NUM_ROWS + 1, "is blank; remove it")


def test_missing_path(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "train.txt"
    assert_refused(tmp_path, path, None, r"no such file; set data\.path")


def test_directory(tmp_path: Path) -> None:
    assert_refused(tmp_path, tmp_path, None, r"is a directory; name the TSV file in it")


def test_not_a_regular_file(tmp_path: Path) -> None:
    assert_refused(tmp_path, Path("/dev/null"), None, r"is not a regular file; save its content")


@pytest.mark.parametrize("name", ["dac.tar.gz", "criteo.zip"])
def test_archive(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(good_text()))
    assert_refused(tmp_path, path, None, r"is an archive; unpack it")


@pytest.mark.parametrize(
    ("name", "content"), [("t.txt", b""), ("t.txt.gz", b""), ("t.txt.gz", gzip.compress(b"", mtime=0))]
)
def test_empty_file(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert_refused(tmp_path, path, 1, r"the file is empty; get a new copy")


def test_truncated_gzip_names_the_line_where_it_ends(tmp_path: Path) -> None:
    # Stored, not deflated, so that the byte position of a line is known.
    packed = gzip.compress(good_text(), compresslevel=0)
    cut = packed.index(good_text().splitlines()[40])
    path = tmp_path / "train.txt.gz"
    path.write_bytes(packed[: cut + 10])
    assert_refused(tmp_path, path, 41, r"gzip data end too early \(truncated\); .*new copy.*`gzip -t`")


def test_gzip_that_lacks_only_its_trailer(tmp_path: Path) -> None:
    path = tmp_path / "train.txt.gz"
    path.write_bytes(gzip.compress(good_text())[:-1])
    assert_refused(tmp_path, path, NUM_ROWS + 1, r"end too early \(truncated\)")


def test_corrupt_gzip_checksum(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(good_text()))
    packed[-8] ^= 0xFF
    path = tmp_path / "train.txt.gz"
    path.write_bytes(packed)
    assert_refused(tmp_path, path, NUM_ROWS + 1, r"corrupt at or before this line \(.*CRC.*\); .*new copy")


def test_corrupt_gzip_stream(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(good_text()))
    packed[10:60] = b"\xff" * 50
    path = tmp_path / "train.txt.gz"
    path.write_bytes(packed)
    assert_refused(tmp_path, path, 1, r"corrupt at or before this line .*new copy")


def test_garbage_after_gzip(tmp_path: Path) -> None:
    path = tmp_path / "train.txt.gz"
    path.write_bytes(gzip.compress(good_text()) + b"garbage")
    assert_refused(tmp_path, path, NUM_ROWS + 1, r"corrupt at or before this line")


def test_gzip_without_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_bytes(gzip.compress(good_text()))
    assert_refused(tmp_path, path, 1, r"gzip-compressed but .* rename it to train\.txt\.gz$")


def test_suffix_without_gzip(tmp_path: Path) -> None:
    path = tmp_path / "train.txt.gz"
    path.write_bytes(good_text())
    assert_refused(tmp_path, path, 1, r"not gzip-compressed though .* rename it to train\.txt$")


def test_fault_in_test_path(tmp_path: Path) -> None:
    train, test = tmp_path / "train.txt", tmp_path / "test.txt"
    train.write_bytes(good_text())
    test.write_bytes(with_field(5, "C2", "xyz"))
    source = CriteoKaggle(str(train), test_path=str(test), cache_dir=str(tmp_path / "cache"))
    with pytest.raises(DataError, match=re.escape(f"{test}, line 5: column C2: 'xyz'")):
        source.splits(16, 0)


def read_to_the_end(path: Path, chunk_bytes: int) -> int:
    """Reads a file in blocks, up to its first fault; returns their number."""
    num_pieces = 0
    for unit in make_units("criteo_kaggle", resolve("criteo_kaggle", str(path)), SCHEMA, chunk_bytes):
        for piece in read_unit("criteo_kaggle", unit, SCHEMA, chunk_bytes):
            if piece.faults:
                raise DataError(f"{piece.places[0]}: {piece.faults[0].message}")
            num_pieces += 1
    return num_pieces


@pytest.mark.parametrize("packed", [False, True])
def test_line_numbers_hold_across_blocks(tmp_path: Path, packed: bool) -> None:
    lines = (fixture_text(1_000, seed=3) * 30).splitlines()
    path = tmp_path / ("train.txt.gz" if packed else "train.txt")

    def write() -> None:
        text = "\n".join(lines).encode()
        assert len(text) > 6 << 20, "needs several reads"
        path.write_bytes(gzip.compress(text, 1) if packed else text)

    write()
    assert read_to_the_end(path, 2 << 20) > 2
    lines[25_000] += "\t"
    write()
    with pytest.raises(DataError, match="line 25001: has 41 columns"):
        read_to_the_end(path, 2 << 20)


@pytest.mark.parametrize("packed", [False, True])
def test_endless_line(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("train.txt.gz" if packed else "train.txt")
    text = good_text() + b"x" * (5 << 20)
    path.write_bytes(gzip.compress(text, 1) if packed else text)
    with pytest.raises(DataError, match=f"line {NUM_ROWS + 1}: longer than 1048576 bytes"):
        read_to_the_end(path, 1 << 20)


@pytest.mark.parametrize("packed", [False, True])
def test_max_rows_stops_before_a_later_fault(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / ("train.txt.gz" if packed else "train.txt")
    text = with_field(31, "label", "7")
    path.write_bytes(gzip.compress(text) if packed else text)
    splits = CriteoKaggle(str(path), max_rows=30, cache_dir=str(tmp_path / "cache")).splits(16, 0)
    assert sum(splits.notes["rows"].values()) == 30
    with pytest.raises(DataError, match="line 31"):
        CriteoKaggle(str(path), max_rows=31, cache_dir=str(tmp_path / "cache")).splits(16, 0)


@pytest.mark.parametrize("chunk_bytes", [100, 5_000, 1 << 20])
@pytest.mark.parametrize("packed", [False, True])
def test_max_rows_holds_whatever_the_chunk(tmp_path: Path, packed: bool, chunk_bytes: int) -> None:
    path = tmp_path / ("train.txt.gz" if packed else "train.txt")
    path.write_bytes(gzip.compress(good_text()) if packed else good_text())
    for max_rows in (1, 37, NUM_ROWS, NUM_ROWS + 5):
        files = resolve("criteo_kaggle", str(path))
        units = make_units("criteo_kaggle", files, SCHEMA, chunk_bytes, max_rows)
        pieces = [piece for unit in units for piece in read_unit("criteo_kaggle", unit, SCHEMA, chunk_bytes)]
        read = [label for piece in pieces for label in piece.rows.label.tolist()]
        assert read == [int(line[:1]) for line in good_text().splitlines()][:max_rows]
