"""Several ranks save and load together: any number of them, and any cut of the tensors, reads any other's."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from recsys.checkpoint.peers import Alone, GroupPeers, Peers
from recsys.checkpoint.read import Checkpoint
from recsys.checkpoint.saver import CheckpointConfig, Saver
from recsys.checkpoint.shard import Shard
from recsys.checkpoint.store import Store
from recsys.checkpoint.write import Snapshot, write_checkpoint
from recsys.errors import CheckpointError
from scripts.damage_checkpoints import edit_manifest

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

TABLE = torch.arange(7 * 12, dtype=torch.float32).view(7, 12)
DENSE = torch.arange(5, dtype=torch.float64)
SIZES = (1, 2, 4)


def ranks(size: int, folder: Path, work: Callable[[Peers], None]) -> None:
    """Run ``work`` on ``size`` processes that reach each other by gloo."""
    folder.mkdir(parents=True, exist_ok=True)
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                meeting = f"file://{folder / f'store-{size}'}"
                dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
                work(GroupPeers())
                dist.barrier()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * size
    (folder / f"store-{size}").unlink(missing_ok=True)


def cut(peers: Peers, how: str) -> list[Shard]:
    """This rank's pieces: rows or columns of ``TABLE``, or the whole of it on the last rank, and ``DENSE`` on all."""
    dim = 1 if how == "columns" else 0
    if how == "whole":
        own = [TABLE.clone()] if peers.rank == peers.size - 1 else []
        shards = [Shard("table", (7, 12), (0, 0), piece) for piece in own]
    else:
        pieces = TABLE.tensor_split(peers.size, dim)
        at = sum(p.shape[dim] for p in pieces[: peers.rank])
        offset = (0, at) if dim else (at, 0)
        shards = [Shard("table", (7, 12), offset, pieces[peers.rank].clone())]
    return [*shards, Shard("dense", (5,), (0,), DENSE.clone(), replicated=True)]


def test_every_number_of_ranks_reads_what_every_other_wrote(tmp_path: Path) -> None:
    hows = ("rows", "columns", "whole")

    def save(peers: Peers) -> None:
        for how in hows:
            snapshot = Snapshot(3, cut(peers, how), {"ranks": peers.size})
            write_checkpoint(tmp_path / f"{how}-{peers.size}", snapshot, peers)

    def load(peers: Peers) -> None:
        for size in SIZES:
            for saved in hows:
                checkpoint = Store(tmp_path / f"{saved}-{size}").newest_sound(peers)
                assert checkpoint is not None and checkpoint.manifest.world_size == size
                assert checkpoint.state() == {"ranks": size}
                for how in hows:
                    wanted = cut(peers, how)
                    found = [Shard(s.name, s.shape, s.offset, torch.full_like(s.tensor, -1)) for s in wanted]
                    checkpoint.check_fit(found, ("",), peers)
                    checkpoint.load(found)
                    assert all(torch.equal(a.tensor, b.tensor) for a, b in zip(found, wanted, strict=True))

    for work in (save, load):
        for size in SIZES:
            ranks(size, tmp_path / "meet", work)
    assert {p.name for p in (tmp_path / "rows-2" / "step_00000003").iterdir()} == {
        *("manifest.json", "state.json", "rank_00000.safetensors", "rank_00001.safetensors")
    }


def test_a_rank_that_cannot_write_stops_all_with_its_number_and_nothing_is_left(tmp_path: Path) -> None:
    def work(peers: Peers) -> None:
        store = Store(tmp_path / "store")
        saver = Saver(store, CheckpointConfig(every_steps=1, keep_last=1), peers)
        saver.save(lambda: Snapshot(1, cut(peers, "rows"), {}), 1)
        saver.settle()
        if peers.rank == 1:  # its file is there already
            real = os.open

            def no_room(path: object, *args: int) -> int:
                if str(path).endswith("rank_00001.safetensors"):
                    raise OSError(28, "No space left on device", str(path))
                return real(path, *args)  # type: ignore[arg-type]

            os.open = no_room  # type: ignore[assignment]
        saver.save(lambda: Snapshot(2, cut(peers, "rows"), {}), 2)
        with pytest.raises(CheckpointError, match=r"rank 1: .*rank_00001\.safetensors: No space left on device"):
            saver.close()

    ranks(2, tmp_path / "meet", work)
    assert [p.name for p in (tmp_path / "store").iterdir()] == ["step_00000001"]


def test_what_a_manifest_of_one_rank_says_of_gaps_is_believed_by_none(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, Snapshot(1, cut(Alone(), "rows"), {}), Alone())
    edit_manifest(path, lambda body: body["tensors"]["table"]["pieces"][0].update(shape=[6, 12]))
    with pytest.raises(CheckpointError, match=r"tensor 'table': its pieces overlap or leave a gap"):
        Checkpoint(path)
    assert json.loads((path / "state.json").read_text()) == {}
