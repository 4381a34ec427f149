"""Read a checkpoint: everything is checked before anything is used."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from recsys.checkpoint.files import check_content, read_small
from recsys.checkpoint.manifest import STATE, Manifest, SavedTensor, read_manifest
from recsys.checkpoint.peers import Peers, agree
from recsys.checkpoint.shard import Shard, overlap, relative
from recsys.checkpoint.strict_json import parse
from recsys.checkpoint.tensor_file import BY_NAME, DTYPES, TensorFile
from recsys.errors import CheckpointError

_MAX_STATE_BYTES = 1 << 28
_SHOWN = 8


class Checkpoint:
    """A folder that :func:`write_checkpoint` wrote.

    Attributes:
        folder: where it lies.
        manifest: what it says it holds; its own checksum is right.

    Raises:
        CheckpointError: there is no sound manifest.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest: Manifest = read_manifest(folder)

    def verify(self) -> None:
        """Compare every file with its checksum, and every tensor in it with the manifest.

        Raises:
            CheckpointError: names the first file that is not what was written.
        """
        for name, written in self.manifest.files.items():
            check_content(self.folder / name, written)
            if name != STATE:
                with TensorFile(self.folder / name, self.manifest.in_file(name)):
                    pass
        self.state()

    def state(self) -> dict[str, Any]:
        """What is no tensor.

        Raises:
            CheckpointError: the file is damaged.
        """
        path = self.folder / STATE
        check_content(path, self.manifest.files[STATE])
        return parse(read_small(path, _MAX_STATE_BYTES), str(path))

    def names(self, prefix: str) -> list[str]:
        """Names of the tensors that begin with ``prefix``, sorted."""
        return sorted(n for n in self.manifest.tensors if n.startswith(prefix))

    def check_fit(self, shards: Iterable[Shard], prefixes: tuple[str, ...], peers: Peers) -> None:
        """See that the ranks' ``shards`` and the tensors whose names begin with a prefix are the same tensors.

        Raises:
            CheckpointError: names tensors that are missing, left over, or of another shape or type.
        """
        wanted = {s.name: s for s in shards}
        saved = {n: t for n, t in self.manifest.tensors.items() if n.startswith(prefixes)}
        problems = [_mismatch(here, saved[name]) for name, here in wanted.items() if name in saved]
        problems += [f"{n}: is not in the checkpoint" for n in wanted if n not in saved]
        # A rank need not hold a piece of every tensor.
        here_or_elsewhere = {name for text in peers.gather("\n".join(wanted)) for name in text.split("\n")}
        problems += [f"{n}: is in the checkpoint alone" for n in saved if n not in here_or_elsewhere]
        problems = [problem for problem in problems if problem]
        message = ""
        if problems:
            more = f" (and {len(problems) - _SHOWN} more)" if len(problems) > _SHOWN else ""
            message = (
                f"{self.folder}: does not fit the model and its optimizers; use the settings that it was made with: "
                f"{'; '.join(problems[:_SHOWN])}{more}"
            )
        agree(peers, message)

    @torch.no_grad()
    def load(self, shards: Iterable[Shard]) -> None:
        """Write the saved values into ``shards``, however they were cut when they were saved.

        Call :meth:`verify` and :meth:`check_fit` before.

        Raises:
            CheckpointError: a file cannot be read.
        """
        with ExitStack() as stack:
            files: dict[str, TensorFile] = {}
            for shard in shards:
                for piece in self.manifest.tensors[shard.name].pieces:
                    common = overlap(shard.box, piece.box)
                    if common is None:
                        continue
                    if piece.file not in files:
                        expected = self.manifest.in_file(piece.file)
                        files[piece.file] = stack.enter_context(TensorFile(self.folder / piece.file, expected))
                    values = files[piece.file].read(piece.key, relative(common, piece.offset))
                    target = shard.tensor[relative(common, shard.offset)] if common else shard.tensor
                    target.copy_(values)

    def load_whole(self, name: str) -> torch.Tensor:
        """A whole tensor on the CPU, put together from its pieces.

        Raises:
            CheckpointError: there is no such tensor, or a file cannot be read.
        """
        if name not in self.manifest.tensors:
            raise CheckpointError(f"{self.folder}: holds no tensor {name!r}")
        saved = self.manifest.tensors[name]
        whole = torch.empty(saved.shape, dtype=BY_NAME[saved.dtype])
        self.load([Shard(name, saved.shape, (0,) * len(saved.shape), whole)])
        return whole


def _mismatch(here: Shard, there: SavedTensor) -> str:
    if here.shape != there.shape:
        return f"{here.name}: {_size(there.shape)} in the checkpoint, {_size(here.shape)} here"
    dtype = DTYPES.get(here.tensor.dtype)
    return "" if dtype == there.dtype else f"{here.name}: {there.dtype} in the checkpoint, {dtype} here"


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a number"
