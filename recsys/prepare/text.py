"""Text files to blocks of whole lines: byte ranges of plain files, and streams of gzip and zstd files."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys.errors import DataError
from recsys.prepare.faults import NEW_COPY

MAX_LINE_BYTES = 1 << 20
PACKED = (".gz", ".zst")
BOM = b"\xef\xbb\xbf"
_READ_BYTES = 1 << 20
_NEWLINE = ord("\n")


def fail(path: Path, line: int, message: str) -> NoReturn:
    """Raise a ``DataError`` that begins with the place."""
    raise DataError(f"{path}, line {line}: {message}")


def unreadable(path: Path, error: Exception) -> DataError:
    """The error of a file that the system does not give."""
    reason = getattr(error, "strerror", None) or " ".join(str(error).split())
    return DataError(f"{path}: cannot be read ({reason}); mend the file's access or name another file")


def range_block(path: Path, start: int, stop: int) -> bytes:
    """Lines of a plain file that begin in bytes ``[start, stop)``, whole; the last gets a newline if it lacks one."""
    try:
        with path.open("rb") as file:
            file.seek(max(start - 1, 0))
            # The byte before tells whether a line begins at `start`.
            text = file.read(stop - max(start - 1, 0))
            if not text.endswith(b"\n"):
                text += file.readline(MAX_LINE_BYTES + 1)
    except OSError as error:
        raise unreadable(path, error) from error
    if start:
        cut = text.find(b"\n") + 1
        # Without a newline the whole range is inside a line that begins before it.
        text = text[cut:] if cut and start - 1 + cut < stop else b""
    return text if not text or text.endswith(b"\n") else text + b"\n"


def lines_before(path: Path, offset: int) -> int:
    """Lines that begin before byte ``offset``."""
    num_lines = 0
    last = b"\n"
    with path.open("rb") as file:
        while offset > 0 and (piece := file.read(min(offset, 16 << 20))):
            num_lines += piece.count(b"\n")
            offset -= len(piece)
            last = piece[-1:]
    return num_lines + (last != b"\n")


def lines_end(path: Path, offset: int, num_lines: int) -> int:
    """The byte behind ``num_lines`` lines that begin at byte ``offset``; the file's size if there are fewer."""
    with path.open("rb") as file:
        file.seek(offset)
        while piece := file.read(16 << 20):
            found = piece.count(b"\n")
            if found >= num_lines:
                return offset + len(first_lines(piece, num_lines))
            num_lines -= found
            offset += len(piece)
    return offset


def first_lines(text: bytes, num_lines: int) -> bytes:
    """So many lines of a text, or all if it has fewer."""
    ends = line_ends(text)
    return text if num_lines >= len(ends) else text[: int(ends[num_lines - 1]) + 1]


def stream_blocks(path: Path, block_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines) of a compressed file, blocks of about ``block_bytes``.

    Raises:
        DataError: the compressed data are truncated or damaged; names the line up to which they can be read.
    """
    pieces: list[bytes] = []
    num_bytes, line = 0, 1
    for piece in _decompressed(path):
        cut = piece.rfind(b"\n") + 1
        num_bytes += len(piece)
        if cut and num_bytes >= block_bytes:
            text = b"".join([*pieces, piece[:cut]])
            pieces, num_bytes = [piece[cut:]], len(piece) - cut
            yield line, text
            line += text.count(b"\n")
        else:
            pieces.append(piece)
        if num_bytes > block_bytes + MAX_LINE_BYTES:
            fail(path, line + sum(p.count(b"\n") for p in pieces), too_long())
    rest = b"".join(pieces)
    if rest:
        yield line, rest if rest.endswith(b"\n") else rest + b"\n"


def too_long() -> str:
    """The message about an endless line."""
    return f"longer than {MAX_LINE_BYTES} bytes: not a text file of rows; name another file"


def _decompressed(path: Path) -> Iterator[bytes]:
    """Yield pieces of the text, in small reads so that a fault is known to the line."""
    kind = "gzip" if path.suffix == ".gz" else "zstd"
    num_lines = 0
    with _open_packed(path) as stream:
        while True:
            try:
                piece: bytes = stream.read1(_READ_BYTES) if kind == "gzip" else stream.read(_READ_BYTES)
            except (EOFError, gzip.BadGzipFile, zlib.error, OSError) as error:
                _refuse_packed(path, num_lines + 1, kind, error)
            if not piece:
                return
            num_lines += piece.count(b"\n")
            yield piece


@contextmanager
def _open_packed(path: Path) -> Iterator[Any]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from error
    with file:
        if path.suffix == ".gz":
            with gzip.GzipFile(fileobj=file) as stream:
                yield stream
        else:
            yield pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd")


def _refuse_packed(path: Path, line: int, kind: str, error: Exception) -> NoReturn:
    if isinstance(error, OSError) and error.errno and not isinstance(error, gzip.BadGzipFile):
        raise unreadable(path, error) from error
    test = "`gzip -t` tests it" if kind == "gzip" else "`zstd -t` tests it"
    if isinstance(error, EOFError) or "Truncated" in str(error):
        fail(path, line, f"the {kind} data end too early (truncated); {NEW_COPY}, {test}")
    reason = " ".join(str(error).split())
    fail(path, line, f"the {kind} data are corrupt at or before this line ({reason}); {NEW_COPY}")


def zstd_has_checksum(path: Path) -> bool:
    """Whether the first zstd frame of a file carries a checksum of its content (RFC 8878, frame header)."""
    with path.open("rb") as file:
        head = file.read(5)
    return len(head) == 5 and bool(head[4] & 0x04)


def line_ends(text: bytes) -> NDArray[np.int64]:
    """Where the newlines of a block stand, ``(L,)``."""
    return np.flatnonzero(np.frombuffer(text, np.uint8) == _NEWLINE)


def line_of(text: bytes, ends: NDArray[np.int64], i: int) -> bytes:
    """Line ``i`` of a block, without its newline."""
    return text[int(ends[i - 1]) + 1 if i else 0 : int(ends[i])]


def byte_fault(line: bytes, number: int, *, ascii_only: bool) -> str | None:
    """What makes the bytes of a line (without its newline) unusable as text, and what to do; None if nothing does."""
    if len(line) > MAX_LINE_BYTES:
        return too_long()
    if number == 1 and line.startswith(BOM):
        return "begins with a byte-order mark (BOM); remove it: `tail -c +4 FILE > NEW`"
    bad = [(line.find(b"\r"), "\r"), (line.find(b"\0"), "\0"), (_first_bad_char(line, ascii_only), "char")]
    at, kind = min(((at, kind) for at, kind in bad if at >= 0), default=(-1, ""))
    if kind == "\r":
        return "has a carriage return (CRLF line ends?); remove them: `tr -d '\\r' < FILE > NEW`"
    if kind == "\0":
        return f"has a NUL byte; {NEW_COPY}"
    if kind and ascii_only:
        return f"has byte 0x{line[at]:02x}, which is not ASCII (a TSV of Criteo's is plain ASCII text); {NEW_COPY}"
    if kind:
        return f"has byte 0x{line[at]:02x}, which is not UTF-8; convert it: `iconv -f LATIN1 -t UTF-8 FILE > NEW`"
    if not line:
        return "is blank; remove it (`sed -i '/^$/d' FILE` removes every blank line)"
    return None


def _first_bad_char(line: bytes, ascii_only: bool) -> int:
    try:
        line.decode("ascii" if ascii_only else "utf-8")
    except UnicodeDecodeError as error:
        return error.start
    return -1
