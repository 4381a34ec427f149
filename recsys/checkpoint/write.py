"""Write a checkpoint: under a name of its own first, then renamed in one go."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recsys.checkpoint.files import Written, discard, sync_folder, write_file
from recsys.checkpoint.manifest import MANIFEST, STATE, Manifest, Piece, SavedTensor
from recsys.checkpoint.peers import Peers, agree
from recsys.checkpoint.shard import Shard
from recsys.checkpoint.strict_json import dump
from recsys.checkpoint.tensor_file import DTYPES, write_tensors
from recsys.errors import CheckpointError

TEMPORARY = ".tmp"


def step_folder(step: int) -> str:
    """Name of the folder of ``step``."""
    return f"step_{step:08}"


@dataclass(frozen=True)
class Snapshot:
    """What a checkpoint holds, on one rank.

    Attributes:
        step: steps done.
        shards: this rank's pieces of all tensors.
        state: everything else, in JSON's types; that of rank 0 is saved.
        valid_ne: NE of the latest evaluation.
    """

    step: int
    shards: list[Shard]
    state: Mapping[str, Any]
    valid_ne: float | None = None

    def copy_to_host(self) -> Snapshot:
        """The same in memory that training does not write to."""
        return Snapshot(self.step, [s.copy_to_host() for s in self.shards], self.state, self.valid_ne)


def write_checkpoint(folder: Path, snapshot: Snapshot, peers: Peers) -> Path:
    """Write ``snapshot`` into a new folder of ``folder``; every rank calls it.

    Until the last rename the new folder has another name, so that it is there with all it holds or not at all.

    Raises:
        CheckpointError: a rank could not write, such as on a full disk; on every rank, and nothing is left.
    """
    final = folder / step_folder(snapshot.step)
    temporary = folder / f".{final.name}{TEMPORARY}"
    leads = peers.rank == 0
    try:
        agree(peers, _problem(lambda: _make(temporary)) if leads else "")
        own: dict[str, Any] = {}
        problem = _problem(lambda: own.update(_write_rank(temporary, snapshot.shards, peers.rank)))
        parts = [json.loads(text) for text in peers.gather(json.dumps(own | {"problem": problem}))]
        agree(peers, problem)
        agree(peers, _problem(lambda: _commit(temporary, final, snapshot, parts)) if leads else "")
    except CheckpointError:
        if leads:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


def _problem(action: Callable[[], object]) -> str:
    try:
        action()
    except OSError as error:
        return f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")
    return ""


def _make(temporary: Path) -> None:
    temporary.parent.mkdir(parents=True, exist_ok=True)
    if temporary.exists():
        shutil.rmtree(temporary)
    temporary.mkdir()


def _write_rank(folder: Path, shards: Iterable[Shard], rank: int) -> dict[str, Any]:
    """Write what this rank owns; what the manifest has to say about it, in JSON's types."""
    file = f"rank_{rank:05}.safetensors"
    own = {_key(s): s for s in shards if rank == 0 or not s.replicated}
    written = write_tensors(folder / file, {key: shard.tensor for key, shard in own.items()})
    pieces = [
        {
            "name": s.name,
            "dtype": DTYPES[s.tensor.dtype],
            "whole": s.shape,
            "piece": asdict(Piece(file, key, s.offset, tuple(s.tensor.shape))),
        }
        for key, s in own.items()
    ]
    return {"file": file, "written": asdict(written), "pieces": pieces}


def _key(shard: Shard) -> str:
    return shard.name if shard.is_whole else f"{shard.name}@{','.join(map(str, shard.offset))}"


def _commit(temporary: Path, final: Path, snapshot: Snapshot, parts: list[dict[str, Any]]) -> None:
    files = {part["file"]: Written(**part["written"]) for part in parts}
    files[STATE] = write_file(temporary / STATE, [dump(snapshot.state)])
    manifest = Manifest(snapshot.step, len(parts), snapshot.valid_ne, files, _join(parts))
    write_file(temporary / MANIFEST, [manifest.encode()])
    sync_folder(temporary)
    if final.exists():
        discard(final)
    os.rename(temporary, final)
    sync_folder(final.parent)


def _join(parts: list[dict[str, Any]]) -> dict[str, SavedTensor]:
    pieces: dict[str, list[Piece]] = {}
    kinds: dict[str, tuple[str, tuple[int, ...]]] = {}
    for item in (item for part in parts for item in part["pieces"]):
        raw = item["piece"]
        piece = Piece(raw["file"], raw["key"], tuple(raw["offset"]), tuple(raw["shape"]))
        pieces.setdefault(item["name"], []).append(piece)
        kind = kinds.setdefault(item["name"], (item["dtype"], tuple(item["whole"])))
        assert kind == (item["dtype"], tuple(item["whole"])), f"{item['name']} differs between ranks"
    return {name: SavedTensor(*kinds[name], tuple(pieces[name])) for name in pieces}
