"""Which files are read, in which order, and what each is: resolved and checked before any work begins."""

from __future__ import annotations

import glob
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsys.errors import DataError
from recsys.prepare.settings import SPLITS
from recsys.prepare.text import PACKED, fail, unreadable

_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip", ".7z")
_MAGIC = {".gz": b"\x1f\x8b", ".zst": b"\x28\xb5\x2f\xfd"}
_KIND = {".gz": "gzip", ".zst": "zstd"}
# Beginnings of files that are no plain text, and what to do with such a file.
_NO_TEXT = {
    b"BZh": "is bzip2-compressed; recompress it: `bzcat FILE | gzip > NEW.gz`",
    b"\xfd7zX": "is xz-compressed; recompress it: `xzcat FILE | gzip > NEW.gz`",
    b"PK\x03\x04": "is a zip archive; unpack it",
    b"\xff\xfe": "is UTF-16 text; convert it: `iconv -f UTF-16 -t UTF-8 FILE > NEW`",
    b"\xfe\xff": "is UTF-16 text; convert it: `iconv -f UTF-16 -t UTF-8 FILE > NEW`",
}
# What a folder holds that is named as input.
_IN_FOLDER = {
    "criteo_1tb": ("day_*",),
    "csv": ("*.csv", "*.tsv", "*.txt", "*.csv.gz", "*.tsv.gz", "*.txt.gz", "*.csv.zst", "*.tsv.zst", "*.txt.zst"),
    "parquet": ("**/*.parquet", "**/*.parq"),
}
_HOW_TO_GET = {
    "criteo_kaggle": " (data/README.md tells how to obtain Criteo's)",
    "criteo_1tb": " (data/README.md tells how to obtain Criteo's)",
}


@dataclass(frozen=True)
class InputFile:
    """A file of the input.

    Attributes:
        path: as it is opened.
        split: index in ``SPLITS`` when the input says so; None if the rows are shared out.
        num_bytes, mtime_ns: when the preparation began.
    """

    path: str
    split: int | None
    num_bytes: int
    mtime_ns: int


@dataclass(frozen=True)
class Digest:
    """Hashes of a file as it lies on disk; ``md5`` only where a published one is compared."""

    sha256: str
    md5: str | None


def resolve(source: str, inputs: Any) -> list[InputFile]:
    """The files of the input in order: natural order within a folder or glob, so that day_2 is before day_10.

    Raises:
        DataError: a file is missing, of the wrong kind, named twice, or its name and content disagree.
    """
    if isinstance(inputs, dict):
        # Without a valid file, the train files are cut.
        given = {name: None if name == "train" and not inputs.get("valid") else i for i, name in enumerate(SPLITS)}
        found = [(path, given[name]) for name in SPLITS for path in _expand(source, inputs.get(name))]
    else:
        found = [(path, None) for path in _expand(source, inputs)]
    files: list[InputFile] = []
    seen: dict[str, Path] = {}
    for path, split in found:
        twin = seen.setdefault(str(path.with_suffix("") if path.suffix in PACKED else path), path)
        if twin == path and any(file.path == str(path) for file in files):
            raise DataError(f"{path}: named twice in the input; name it once")
        if twin != path:
            # In different splits its rows would be both trained on and reported on.
            raise DataError(f"{path}: the same file as {twin}, packed and unpacked; name one of the two")
        check_file(source, path)
        stat = path.stat()
        files.append(InputFile(str(path), split, stat.st_size, stat.st_mtime_ns))
    return files


def check_unchanged(files: Iterable[InputFile]) -> None:
    """Refuse an input that was written to while it was read."""
    for file in files:
        try:
            stat = Path(file.path).stat()
        except OSError as error:
            raise unreadable(Path(file.path), error) from error
        if (stat.st_size, stat.st_mtime_ns) != (file.num_bytes, file.mtime_ns):
            raise DataError(f"{file.path}: changed while it was read; leave it alone and start again")


def digest(path: str, with_md5: bool) -> Digest:
    """Hash a file's content."""
    sha, md5 = hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    try:
        with open(path, "rb") as file:
            while piece := file.read(1 << 22):
                sha.update(piece)
                if with_md5:
                    md5.update(piece)
    except OSError as error:
        raise unreadable(Path(path), error) from error
    return Digest(sha.hexdigest(), md5.hexdigest() if with_md5 else None)


def natural(path: Path) -> list[Any]:
    """A sort key that compares the numbers in a name as numbers."""
    return [(1, int(piece), "") if piece.isdigit() else (0, 0, piece) for piece in re.split(r"(\d+)", str(path))]


def _expand(source: str, inputs: Any) -> list[Path]:
    if inputs is None:
        return []
    if isinstance(inputs, list | tuple):
        return [path for one in inputs for path in _expand(source, one)]
    path = Path(str(inputs)).expanduser()
    if path.is_dir():
        return _folder(source, path)
    if not path.exists() and glob.has_magic(str(path)):
        matches = sorted((Path(p) for p in glob.glob(str(path), recursive=True)), key=natural)
        if not matches:
            raise DataError(f"{path}: no file matches; set input to existing files")
        return [p for p in matches if not p.is_dir()]
    return [path]


def _folder(source: str, path: Path) -> list[Path]:
    if source not in _IN_FOLDER:
        raise DataError(f"{path}: is a directory; name the TSV file in it, such as {path / 'train.txt'}")
    found = {file for pattern in _IN_FOLDER[source] for file in path.glob(pattern) if file.is_file()}
    files = [file for file in found if not file.name.startswith((".", "_"))]
    if not files:
        raise DataError(f"{path}: holds no {' or '.join(_IN_FOLDER[source][:3])}; name another folder or a file")
    return sorted(files, key=natural)


def check_file(source: str, path: Path) -> None:
    """Refuse a file that is missing, empty or of another kind than the source reads."""
    if not path.exists():
        raise DataError(f"{path}: no such file; set input to an existing one{_HOW_TO_GET.get(source, '')}")
    if not path.is_file():
        raise DataError(f"{path}: is not a regular file; save its content in one and name that")
    if path.name.endswith(_ARCHIVES):
        raise DataError(f"{path}: is an archive; unpack it and name the training file in it (train.txt)")
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise unreadable(path, error) from error
    if not head:
        fail(path, 1, "the file is empty; get a new copy of it or name another file")
    if source != "parquet":
        _check_magic(path, head)


def _check_magic(path: Path, head: bytes) -> None:
    for suffix, magic in _MAGIC.items():
        kind = _KIND[suffix]
        if head.startswith(magic) and path.suffix != suffix:
            fail(
                path,
                1,
                f"the file is {kind}-compressed but its name does not end in {suffix}; rename it to "
                f"{path.name}{suffix}",
            )
        if not head.startswith(magic) and path.suffix == suffix:
            fail(
                path, 1, f"the file is not {kind}-compressed though its name ends in {suffix}; rename it to {path.stem}"
            )
    for magic, words in _NO_TEXT.items():
        if head.startswith(magic):
            raise DataError(f"{path}: {words}")
    if head == b"PAR1":
        raise DataError(f"{path}: is a parquet file; use source=parquet")


def begins_as_parquet(path: Path) -> bool:
    """Whether a file begins as parquet files do, whatever its name; false if it is not there."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PAR1"
    except OSError:
        return False


def is_packed(path: str) -> bool:
    """Whether a text file is compressed."""
    return path.endswith(PACKED)
