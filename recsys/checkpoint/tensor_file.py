"""Tensors of one rank in one safetensors file, hashed on their way out.

The format is eight bytes of header size, a JSON header and the tensors' bytes
(https://huggingface.co/docs/safetensors). The library's own writer gives no checksum of what it was handed, only
files whose bytes would have to be read back; its reader checks the header of a file from anywhere, and is used.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from recsys.checkpoint.files import Written, write_file
from recsys.errors import CheckpointError

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
BY_NAME = {name: dtype for dtype, name in DTYPES.items()}


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> Written:
    """Write ``tensors`` in their order.

    Raises:
        OSError: from the operating system.
    """
    return write_file(path, _chunks(tensors))


def _chunks(tensors: Mapping[str, torch.Tensor]) -> Iterator[bytes | memoryview]:
    header: dict[str, Any] = {}
    end = 0
    # Widest first: then every tensor begins at a multiple of its element's size.
    order = sorted(tensors, key=lambda key: -tensors[key].element_size())
    for key in order:
        tensor = tensors[key]
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[key] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for key in order:
        tensor = tensors[key]
        if tensor.numel():
            yield tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


class TensorFile:
    """A safetensors file opened for reading; a context manager.

    Args:
        path: the file.
        expected: key -> (dtype's name, shape) of every tensor in it.

    Raises:
        CheckpointError: it is no such file, or holds other tensors.
    """

    def __init__(self, path: Path, expected: Mapping[str, tuple[str, Sequence[int]]]) -> None:
        try:
            import safetensors
        except ImportError as error:
            raise CheckpointError("checkpoints need the package safetensors: pip install safetensors") from error
        self._path = path
        try:
            self._file: Any = safetensors.safe_open(str(path), "pt").__enter__()
            found = {key: self._file.get_slice(key) for key in self._file.keys()}  # noqa: SIM118
            held = {key: (piece.get_dtype(), tuple(piece.get_shape())) for key, piece in found.items()}
        except Exception as error:  # the library's own error shares no base with those of the system
            raise CheckpointError(f"{path}: is no safetensors file ({error})") from error
        if held != {key: (dtype, tuple(shape)) for key, (dtype, shape) in expected.items()}:
            odd = sorted(k for k in held.keys() | expected.keys() if k not in held or k not in expected)
            what = f"tensor {odd[0]!r}" if odd else "a tensor's shape or type"
            raise CheckpointError(f"{path}: holds other tensors than the manifest says: {what}")

    def read(self, key: str, index: tuple[slice, ...]) -> torch.Tensor:
        """A slice of a tensor, read from the file alone."""
        try:
            if not index:
                return self._file.get_tensor(key)
            return self._file.get_slice(key)[index]
        except Exception as error:
            raise CheckpointError(f"{self._path}: tensor {key!r} cannot be read ({error})") from error

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*(error or (None, None, None)))
