"""From a file of Criteo's Kaggle data to blocks of whole lines that are known to be clean text.

Every fault is a ``DataError`` that names file and line and says what to do; no byte is skipped.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import NoReturn

import numpy as np

from recsys.errors import DataError

NUM_COLUMNS = 40
_GZIP_MAGIC = b"\x1f\x8b"
_ARCHIVE_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".zip")
_READ_BYTES = 1 << 20
_BLOCK_BYTES = 16 << 20
# A row of the real data has about 240 bytes; a "line" this long means a file of another kind.
_MAX_LINE_BYTES = 1 << 20
_NEW_COPY = "the file is damaged: get a new copy of it"


@dataclass(frozen=True)
class Block:
    """Whole lines of a file.

    Attributes:
        first_line: number of the first line in the file, from 1.
        num_lines: lines in ``text``.
        text: ASCII without carriage returns, NULs and blank lines; every line has ``NUM_COLUMNS`` fields, tabs
            between them, and ends with a newline.
    """

    first_line: int
    num_lines: int
    text: bytes


def fail(path: Path, line: int, message: str) -> NoReturn:
    """Raise a ``DataError`` that begins with the place."""
    raise DataError(f"{path}, line {line}: {message}")


def content_hash(path: Path) -> str:
    """SHA-256 of the file as it lies on disk (compressed, if it is).

    Raises:
        DataError: the path is missing, a directory, unreadable, empty, an archive, or its name and its content
            disagree about gzip.
    """
    with _open(path) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise _unreadable(path, error) from error


def read_blocks(path: Path, max_rows: int | None = None, block_bytes: int = _BLOCK_BYTES) -> Iterator[Block]:
    """Yield the lines of a plain or gzip file in order, checked, until the end or for ``max_rows`` lines.

    Raises:
        DataError: as ``content_hash``; broken gzip data; a carriage return, NUL, byte-order mark, non-ASCII
            byte, blank line or wrong number of columns; no line at all.
    """
    num_lines = 0
    with _open(path) as file:
        for text in _whole_lines(path, file, block_bytes):
            lines_left = None if max_rows is None else max_rows - num_lines
            block = _checked(path, num_lines + 1, _first_lines(text, lines_left))
            num_lines += block.num_lines
            yield block
            if num_lines == max_rows:
                return
    if not num_lines:
        fail(path, 1, "the file is empty; get a new copy of it or name another file")


def _open(path: Path) -> BufferedReader:
    """The file's bytes as they lie on disk, from the start; its kind is checked."""
    if not path.exists():
        raise DataError(
            f"{path}: no such file; set data.path (or data.test_path) to an existing one "
            "(data/README.md tells how to obtain Criteo's)"
        )
    if path.is_dir():
        raise DataError(f"{path}: is a directory; name the TSV file in it, such as {path / 'train.txt'}")
    if not path.is_file():
        raise DataError(f"{path}: is not a regular file; save its content in one and name that")
    if path.name.endswith(_ARCHIVE_SUFFIXES):
        raise DataError(f"{path}: is an archive; unpack it and name the training file in it (train.txt)")
    try:
        file = path.open("rb")
        head = file.read(len(_GZIP_MAGIC))
        file.seek(0)
    except OSError as error:
        raise _unreadable(path, error) from error
    problem = None
    if not head:
        problem = "the file is empty; get a new copy of it or name another file"
    elif head == _GZIP_MAGIC and path.suffix != ".gz":
        problem = f"the file is gzip-compressed but its name does not end in .gz; rename it to {path.name}.gz"
    elif head != _GZIP_MAGIC and path.suffix == ".gz":
        problem = f"the file is not gzip-compressed though its name ends in .gz; rename it to {path.stem}"
    if problem:
        file.close()
        fail(path, 1, problem)
    return file


def _unreadable(path: Path, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be read ({error.strerror or error}); mend the file's access or name another file")


def _whole_lines(path: Path, file: BufferedReader, block_bytes: int) -> Iterator[bytes]:
    """Cut the decompressed bytes behind newlines; the last line gets one if it has none."""
    pieces: list[bytes] = []
    num_bytes = num_lines = 0
    for piece in _decompressed(path, file):
        cut = piece.rfind(b"\n") + 1
        num_bytes += len(piece)
        if cut and num_bytes >= block_bytes:
            text = b"".join([*pieces, piece[:cut]])
            num_lines += text.count(b"\n")
            pieces, num_bytes = [piece[cut:]], len(piece) - cut
            yield text
        else:
            pieces.append(piece)
        if num_bytes > block_bytes + _MAX_LINE_BYTES:
            num_lines += sum(piece.count(b"\n") for piece in pieces)
            fail(path, num_lines + 1, f"longer than {_MAX_LINE_BYTES} bytes: not a TSV of Criteo's; name another file")
    rest = b"".join(pieces)
    if rest:
        yield rest if rest.endswith(b"\n") else rest + b"\n"


def _decompressed(path: Path, file: BufferedReader) -> Iterator[bytes]:
    """Yield pieces of the text, in small reads so that a gzip fault is known to the line."""
    num_lines = 0
    with gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file as stream:
        while True:
            try:
                piece = stream.read1(_READ_BYTES)
            except EOFError:
                fail(path, num_lines + 1, f"the gzip data end too early (truncated); {_NEW_COPY}, `gzip -t` tests it")
            except (gzip.BadGzipFile, zlib.error) as error:
                fail(path, num_lines + 1, f"the gzip data are corrupt at or before this line ({error}); {_NEW_COPY}")
            except OSError as error:
                raise _unreadable(path, error) from error
            if not piece:
                return
            num_lines += piece.count(b"\n")
            yield piece


def _first_lines(text: bytes, num_lines: int | None) -> bytes:
    if num_lines is None:
        return text
    ends = np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
    return text if num_lines >= len(ends) else text[: int(ends[num_lines - 1]) + 1]


def _checked(path: Path, first_line: int, text: bytes) -> Block:
    """Refuse what is not clean text in ``NUM_COLUMNS`` columns; the earliest such line is named."""
    faults = [_bad_byte(text), _blank_line(text), _wrong_columns(text)]
    found = [fault for fault in faults if fault is not None]
    if found:
        line, message = min(found, key=lambda fault: fault[0])
        fail(path, first_line + line, message)
    return Block(first_line, text.count(b"\n"), text)


# A fault is (lines before it in the block, what it is and what to do).
_Fault = tuple[int, str]


def _bad_byte(text: bytes) -> _Fault | None:
    chars = np.frombuffer(text, np.uint8)
    bad = np.flatnonzero((chars >= 0x80) | (chars == 0) | (chars == ord("\r")))
    if not len(bad):
        return None
    at = int(bad[0])
    if text.startswith(b"\xef\xbb\xbf"):
        message = "begins with a byte-order mark (BOM); remove it: `tail -c +4 FILE > NEW`"
    elif text[at] == ord("\r"):
        message = "has a carriage return (CRLF line ends?); remove them: `tr -d '\\r' < FILE > NEW`"
    elif text[at] == 0:
        message = f"has a NUL byte; {_NEW_COPY}"
    else:
        message = f"has byte 0x{text[at]:02x}, which is not ASCII (a TSV of Criteo's is plain ASCII text); {_NEW_COPY}"
    return text.count(b"\n", 0, at), message


def _blank_line(text: bytes) -> _Fault | None:
    at = 0 if text.startswith(b"\n") else text.find(b"\n\n") + 1
    if at == 0 and not text.startswith(b"\n"):
        return None
    return text.count(b"\n", 0, at), "is blank; remove it (`sed -i '/^$/d' FILE` removes every blank line)"


def _wrong_columns(text: bytes) -> _Fault | None:
    chars = np.frombuffer(text, np.uint8)
    line_ends = np.flatnonzero(chars == ord("\n"))
    tabs_before = np.searchsorted(np.flatnonzero(chars == ord("\t")), line_ends)
    num_columns = np.diff(tabs_before, prepend=0) + 1
    wrong = np.flatnonzero(num_columns != NUM_COLUMNS)
    if not len(wrong):
        return None
    found = int(num_columns[wrong[0]])
    if found == NUM_COLUMNS - 1:
        hint = "Kaggle's test.txt has no labels: use (a part of) train.txt; if it is another file, mend this line"
    else:
        hint = "mend the line or get a new copy of the file"
    message = f"has {found} columns, not {NUM_COLUMNS} (label, I1..I13, C1..C26, tabs between them); {hint}"
    return int(wrong[0]), message
