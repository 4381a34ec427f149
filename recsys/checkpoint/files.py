"""File operations that survive a power cut, and reads that nobody can lead astray."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from recsys.errors import CheckpointError

T = TypeVar("T")

_CHUNK = 1 << 24
_SMALL = 1 << 20


@dataclass(frozen=True)
class Written:
    """Size and SHA-256 (hex) of what was meant to be written, taken before it reached the disk."""

    num_bytes: int
    sha256: str


def write_file(path: Path, chunks: Iterable[bytes | memoryview]) -> Written:
    """Write a new file and wait until the disk has it.

    Raises:
        OSError: from the operating system.
    """
    digest, total = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        for chunk in _gathered(chunks):
            view = memoryview(chunk).cast("B")
            digest.update(view)
            total += len(view)
            while view:  # the system may take less than it was given
                view = view[os.write(descriptor, view[:_CHUNK]) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return Written(total, digest.hexdigest())


def _gathered(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The same bytes with small chunks put together: a model has hundreds of biases."""
    small = bytearray()
    for chunk in chunks:
        if len(small) >= _SMALL:
            yield bytes(small)
            small.clear()
        if memoryview(chunk).nbytes < _SMALL:
            small += chunk
            continue
        if small:
            yield bytes(small)
            small.clear()
        yield chunk
    yield bytes(small)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in ``folder``."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(folder: Path) -> None:
    """Remove a folder so that at no moment a half-removed one carries its name."""
    trash = folder.with_name(f".{folder.name}.trash")
    shutil.rmtree(trash, ignore_errors=True)
    os.rename(folder, trash)
    shutil.rmtree(trash)


def open_regular(path: Path) -> int:
    """A descriptor to read ``path``, which must be a regular file and no link.

    Raises:
        CheckpointError: it is missing or something else; a pipe would block for ever, a link leads elsewhere.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointError(f"{path}: is no regular file")
    return descriptor


def read_small(path: Path, limit: int) -> bytes:
    """All bytes of a regular file of at most ``limit``.

    Raises:
        CheckpointError: as :func:`open_regular`, or it is larger.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        data = _checked(path, lambda: file.read(limit + 1))
    if len(data) > limit:
        raise CheckpointError(f"{path}: is larger than {limit} bytes, which no such file is")
    return data


def check_content(path: Path, expected: Written) -> None:
    """Compare size and SHA-256 of a file with what was written.

    Raises:
        CheckpointError: as :func:`open_regular`, or they differ.
    """
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size != expected.num_bytes:
            raise CheckpointError(f"{path}: has {size} bytes, but {expected.num_bytes} were written")
        digest = _checked(path, lambda: hashlib.file_digest(file, "sha256")).hexdigest()
    if digest != expected.sha256:
        raise CheckpointError(f"{path}: its SHA-256 is not that of what was written: the file was damaged or changed")


def _checked(path: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror})") from error
