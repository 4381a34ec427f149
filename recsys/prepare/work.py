"""Files that are whole or absent, results that survive a kill, and the lock of an output folder."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from recsys.errors import DataError

LOCK = ".lock"
WORK = ".work"


class BusyError(DataError):
    """Another process prepares into the folder."""


class OutputError(DataError):
    """The folder cannot be written."""


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A name to write to; afterwards the file has its own name, or is gone if the writing failed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two workers may do the same task at once (a cluster repeats what it takes for lost).
    draft = path.with_name(f".{path.name}.{socket.gethostname()}-{os.getpid()}.tmp")
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def write_json(path: Path, content: Any) -> None:
    """Write plain JSON atomically."""
    with atomic(path) as draft:
        draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def write_batches(path: Path, batches: list[Any]) -> str:
    """Write Arrow record batches, each readable on its own; returns the SHA-256 of the file.

    An Arrow stream has one schema, so each batch is a stream of its own, and where they begin and end stands behind
    them.
    """
    sink = pa.BufferOutputStream()
    spans: list[int] = []
    for batch in batches:
        sink.write(b"\0" * (-sink.tell() % 64))
        spans.append(sink.tell())
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
            writer.write_batch(batch)
        spans.append(sink.tell())
    sink.write(np.array([*spans, len(batches)], "<i8").tobytes())
    content = memoryview(sink.getvalue())
    with atomic(path) as draft:
        draft.write_bytes(content)
    return hashlib.sha256(content).hexdigest()


class Batches:
    """Reads what :func:`write_batches` wrote; memory-mapped.

    Args:
        path: the file.
        sha256: what it must hash to; None leaves it unread.

    Raises:
        DataError: the file is not what was written.
    """

    def __init__(self, path: Path, sha256: str | None = None) -> None:
        self._path = path
        try:
            with pa.memory_map(str(path)) as file:
                self._buffer = file.read_buffer()
        except OSError as error:
            raise _lost(path) from error
        if sha256 is not None and hashlib.sha256(memoryview(self._buffer)).hexdigest() != sha256:
            raise _lost(path)
        count = int(self._numbers(8, 0)[0])
        self._spans = self._numbers(16 * count, 8).tolist()

    def __getitem__(self, i: int) -> Any:
        begin, end = self._spans[2 * i : 2 * i + 2]
        try:
            return pa.ipc.open_stream(self._buffer.slice(begin, end - begin)).read_next_batch()
        except (pa.ArrowException, OSError) as error:
            raise _lost(self._path) from error

    def _numbers(self, num_bytes: int, behind: int) -> Any:
        return np.frombuffer(self._buffer.slice(self._buffer.size - num_bytes - behind, num_bytes), "<i8")


def _lost(path: Path) -> DataError:
    return DataError(f"{path}: an intermediate file is missing or damaged; delete {path.parent} and start again")


@contextmanager
def locked(output: Path) -> Iterator[None]:
    """Hold the output folder's lock; the system lets go of it when the process dies, so a lock is never stale.

    Raises:
        BusyError: another process prepares into the folder.
        OutputError: it cannot be written.
    """
    path = output / LOCK
    while True:
        try:
            output.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise cannot_write(output, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise BusyError(
                f"{output}: {holder} is preparing into this folder; wait for it, or choose another output"
            ) from error
        # The one before may have removed the file between our opening and locking it.
        with suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                break
        os.close(descriptor)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
        yield
    finally:
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def cannot_write(output: Path, error: OSError) -> OutputError:
    """The error of a folder that cannot be written."""
    if "No space left" in str(error) or "Disk quota" in str(error):
        with suppress(OSError):
            free = shutil.disk_usage(output).free / 2**20
            return OutputError(
                f"{output}: the disk is full ({free:,.0f} MiB are free); make room and start again, what is done is "
                "kept, or choose another output"
            )
    reason = error.strerror or " ".join(str(error).split())
    return OutputError(f"{output}: cannot be written ({reason}); set output to a writable folder")
