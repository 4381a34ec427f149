"""The manifest: which files a checkpoint has, their checksums, and where every piece of every tensor lies."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recsys.checkpoint.files import Written, read_small
from recsys.checkpoint.shard import Box, box_of, overlap, volume
from recsys.checkpoint.strict_json import dump, parse, take, take_count, take_counts
from recsys.checkpoint.tensor_file import BY_NAME
from recsys.errors import CheckpointError

MANIFEST = "manifest.json"
STATE = "state.json"
FORMAT = "recsys checkpoint"
VERSION = 1
_MAX_BYTES = 1 << 28
_MAX_PIECES = 1 << 14
_FILE_NAME = re.compile(r"rank_\d{5}\.safetensors|state\.json")
_HEX = re.compile(r"[0-9a-f]{64}")
_HEAD, _MIDDLE, _TAIL = b'{"sha256":"', b'","body":', b"}\n"


@dataclass(frozen=True)
class Piece:
    """Where a piece of a tensor lies: file, key in it, and place in the whole tensor."""

    file: str
    key: str
    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def box(self) -> Box:
        """The piece's place in the whole tensor."""
        return box_of(self.offset, self.shape)


@dataclass(frozen=True)
class SavedTensor:
    """A whole tensor: dtype's name in safetensors, shape, and pieces that tile it."""

    dtype: str
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Manifest:
    """See the module.

    Attributes:
        step: steps done.
        world_size: ranks that wrote it.
        valid_ne: NE of the latest evaluation, for ``keep_best``.
        files: name -> size and checksum.
        tensors: name -> where it is.
    """

    step: int
    world_size: int
    valid_ne: float | None
    files: dict[str, Written]
    tensors: dict[str, SavedTensor] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The file's content: a checksum over the rest, and the rest; no byte is outside of it."""
        tensors = {
            name: {
                "dtype": tensor.dtype,
                "shape": tensor.shape,
                "pieces": [{"file": p.file, "key": p.key, "offset": p.offset, "shape": p.shape} for p in tensor.pieces],
            }
            for name, tensor in self.tensors.items()
        }
        body = dump(
            {
                "format": FORMAT,
                "version": VERSION,
                "step": self.step,
                "world_size": self.world_size,
                "valid_ne": self.valid_ne,
                "files": {name: {"bytes": f.num_bytes, "sha256": f.sha256} for name, f in self.files.items()},
                "tensors": tensors,
            }
        )
        return b"".join((_HEAD, hashlib.sha256(body).hexdigest().encode(), _MIDDLE, body, _TAIL))

    def in_file(self, file: str) -> dict[str, tuple[str, tuple[int, ...]]]:
        """Key -> dtype's name and shape of every piece in ``file``."""
        return {p.key: (t.dtype, p.shape) for t in self.tensors.values() for p in t.pieces if p.file == file}


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest in ``folder``.

    Raises:
        CheckpointError: it is missing, damaged, of another version, or says what cannot be.
    """
    path = folder / MANIFEST
    data = read_small(path, _MAX_BYTES)
    start = len(_HEAD) + 64
    body = data[start + len(_MIDDLE) : -len(_TAIL)]
    framed = b"".join((_HEAD, hashlib.sha256(body).hexdigest().encode(), _MIDDLE, body, _TAIL))
    if data != framed:
        raise CheckpointError(f"{path}: does not match its own checksum: the file was damaged or changed")
    raw = parse(body, str(path))
    if raw.get("format") != FORMAT or raw.get("version") != VERSION:
        raise CheckpointError(
            f"{path}: format {raw.get('format')!r}, version {raw.get('version')!r}; this program reads "
            f"{FORMAT!r}, version {VERSION}"
        )
    files = {name: _file(name, f, path) for name, f in take(raw, "files", dict, str(path)).items()}
    if STATE not in files:
        raise CheckpointError(f"{path}: lists no {STATE}")
    tensors = {name: _tensor(name, t, files, path) for name, t in take(raw, "tensors", dict, str(path)).items()}
    _check_keys(tensors, path)
    ne = raw.get("valid_ne")
    if ne is not None and type(ne) is not float:
        raise CheckpointError(f"{path}: valid_ne is no number")
    return Manifest(take_count(raw, "step", str(path)), take_count(raw, "world_size", str(path)), ne, files, tensors)


def _file(name: str, raw: Any, path: Path) -> Written:
    if not _FILE_NAME.fullmatch(name) or not isinstance(raw, dict):
        raise CheckpointError(f"{path}: {name!r} is no file of a checkpoint")
    digest = take(raw, "sha256", str, f"{path}, {name}")
    if not _HEX.fullmatch(digest):
        raise CheckpointError(f"{path}, {name}: sha256 is no such checksum")
    return Written(take_count(raw, "bytes", f"{path}, {name}"), digest)


def _tensor(name: str, raw: Any, files: dict[str, Written], path: Path) -> SavedTensor:
    place = f"{path}, tensor {name!r}"
    if not isinstance(raw, dict):
        raise CheckpointError(f"{place}: is no object")
    dtype = take(raw, "dtype", str, place)
    if dtype not in BY_NAME:
        raise CheckpointError(f"{place}: there is no dtype {dtype!r}")
    shape = take_counts(raw, "shape", place)
    pieces = tuple(_piece(p, shape, files, place) for p in take(raw, "pieces", list, place)[: _MAX_PIECES + 1])
    if len(pieces) > _MAX_PIECES:
        raise CheckpointError(f"{place}: has more than {_MAX_PIECES} pieces")
    if sum(volume(p.box) for p in pieces) != volume(box_of((0,) * len(shape), shape)) or _any_overlap(pieces):
        raise CheckpointError(f"{place}: its pieces overlap or leave a gap")
    return SavedTensor(dtype, shape, pieces)


def _piece(raw: Any, whole: tuple[int, ...], files: dict[str, Written], place: str) -> Piece:
    if not isinstance(raw, dict):
        raise CheckpointError(f"{place}: a piece is no object")
    offset, shape = take_counts(raw, "offset", place), take_counts(raw, "shape", place)
    file = take(raw, "file", str, place)
    if file not in files or file == STATE:
        raise CheckpointError(f"{place}: a piece lies in {file!r}, which the manifest does not list")
    inside = len(offset) == len(shape) == len(whole)
    if not inside or any(o + s > w for o, s, w in zip(offset, shape, whole, strict=True)):
        raise CheckpointError(f"{place}: a piece lies outside of the tensor")
    return Piece(file, take(raw, "key", str, place), offset, shape)


def _any_overlap(pieces: tuple[Piece, ...]) -> bool:
    # Sorted by their begin, a piece can meet only those that begin before its end.
    boxes = sorted(p.box for p in pieces)
    return any(overlap(a, b) is not None for i, a in enumerate(boxes) for b in _up_to(boxes[i + 1 :], a))


def _up_to(boxes: list[Box], a: Box) -> Iterator[Box]:
    for b in boxes:
        if a and b[0][0] >= a[0][1]:
            return
        yield b


def _check_keys(tensors: dict[str, SavedTensor], path: Path) -> None:
    keys = [(p.file, p.key) for t in tensors.values() for p in t.pieces]
    if len(set(keys)) < len(keys):
        raise CheckpointError(f"{path}: two pieces share one place in a file")
