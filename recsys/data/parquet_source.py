"""Batches from prepared parquet shards of any size: a few row groups are in memory at a time."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recsys.data.parquet_block import BatchMaker, Block
from recsys.data.parquet_manifest import MANIFEST_JSON, SPLITS, Manifest, fold_folder, read_manifest
from recsys.data.parquet_shard import Layout, OpenShard, open_shard, read_group
from recsys.data.parquet_window import BlockWindow
from recsys.data.prefetch import prefetch
from recsys.data.shuffle import EpochOrder, Piece, Rows, Span, rank_share
from recsys.data.source import BatchSource, DataSplits, EncodingFiles
from recsys.errors import ConfigError, DataError
from recsys.features import FeatureSpec
from recsys.types import Batch


@dataclass(frozen=True)
class LoadSettings:
    """How prepared rows become batches; see :class:`PreparedData`."""

    batch_size: int
    mix_groups: int = 8
    drop_last: bool = False
    prefetch_batches: int = 8
    rank: int = 0
    world_size: int = 1
    pin_memory: bool = False


class ParquetSource(BatchSource):
    """The rows of one split that belong to one rank.

    Every rank yields equally many batches of equal sizes; a rank with one row less than others pads its last batch
    by a row of weight 0. ``num_rows`` counts the rank's rows without padding.

    Args:
        spec: the columns.
        shards: the files, in order.
        settings: batch size and so on.
        pool: threads that read and gather; they must begin tasks in the order in which they were submitted, as
            ``ThreadPoolExecutor`` does.
        shuffle_seed: with None the order is that of the files, else one drawn from (seed, epoch).

    Raises:
        DataError: while iterating, a shard cannot be read or holds what it must not.
    """

    def __init__(
        self,
        spec: FeatureSpec,
        shards: Sequence[OpenShard],
        settings: LoadSettings,
        pool: Executor,
        shuffle_seed: int | None = None,
    ) -> None:
        self.spec = spec
        self.batch_size = settings.batch_size
        self._settings, self._pool, self._seed = settings, pool, shuffle_seed
        self._groups = [(shard, group) for shard in shards for group in range(shard.metadata.num_row_groups)]
        self._group_rows = np.array([rows for shard in shards for rows in shard.group_rows], np.int64)
        self.total_rows = int(self._group_rows.sum())
        first, last = rank_share(self.total_rows, settings.rank, settings.world_size)
        self.num_rows = last - first
        self._layout = Layout(spec, has_weight=any(shard.has_weight for shard in shards))
        self._make_batch = BatchMaker(self._layout, settings.pin_memory)

    @property
    def rows_per_epoch(self) -> int:
        """Rows in the batches of an epoch of this rank, padding included."""
        each, more = divmod(self.total_rows, self._settings.world_size)
        if self._settings.drop_last:
            return each // self.batch_size * self.batch_size
        return each + (more > 0)

    def __len__(self) -> int:
        """Batches in a whole epoch, on every rank; the last may be short."""
        return (self.rows_per_epoch + self.batch_size - 1) // self.batch_size

    def __iter__(self) -> Iterator[Batch]:
        """Yield the rest of this epoch; the position moves on before a batch is handed out."""
        epoch, first = self._epoch, self._batch
        order = self._order(epoch)
        assert order.num_rows == self.num_rows, f"{order.num_rows} rows in order, {self.num_rows} in the shards"
        window = BlockWindow(order, self._pool, partial(Block, self._layout), self._fill)
        batches = prefetch(self._pool, self._tasks(order, window, first), self._settings.prefetch_batches)
        seen = min(first * self.batch_size, self.num_rows)
        try:
            for batch, (result, real_rows) in enumerate(batches, start=first):
                seen += real_rows
                self._move_past(epoch, batch)
                yield result
        finally:
            batches.close()  # type: ignore[attr-defined]
            window.close()
        whole = min(self.rows_per_epoch, self.num_rows)
        assert seen == whole, f"{seen} rows in the batches of epoch {epoch}, but {whole} are due"

    def _order(self, epoch: int) -> EpochOrder:
        return EpochOrder(
            self._group_rows,
            mix_groups=self._settings.mix_groups,
            seed=self._seed,
            epoch=epoch,
            rank=self._settings.rank,
            world_size=self._settings.world_size,
        )

    def _tasks(self, order: EpochOrder, window: BlockWindow, first: int) -> Iterator[Callable[[], tuple[Batch, int]]]:
        for batch in range(first, len(self)):
            start = batch * self.batch_size
            stop = min(start + self.batch_size, self.rows_per_epoch)
            pieces = order.pieces(start, min(stop, order.num_rows))
            yield partial(self._gather, [(window.get(p.block), p) for p in pieces], stop - start)
            if pieces:
                window.prepare_next(pieces[-1].block, pieces[-1].stop)

    def _gather(self, pieces: Sequence[tuple[Future[Block], Piece]], num_rows: int) -> tuple[Batch, int]:
        batch = self._make_batch([(block.result(), p.start, p.stop) for block, p in pieces], num_rows)
        return batch, sum(p.stop - p.start for _, p in pieces)

    def _fill(self, block: Block, at: int, span: Span, order: Rows | None) -> None:
        shard, group = self._groups[span.group]
        table = read_group(shard, group, self._layout)
        rows = slice(span.start, span.stop) if order is None else order
        block.fill(at, rows, table, f"{shard.path}, row group {group}")


class PreparedData:
    """A folder that ``prepare.py`` wrote (config group ``data=prepared``).

    Args:
        path: the folder; with ``folds`` the one that holds ``fold-0``, ``fold-1`` and so on.
        folds: number of folds below ``path``, each prepared by itself: encodings see the train rows of their fold only.
        fold: which of them is read, counted from 0.
        verify: ``full`` hashes every shard at the start and compares it with the manifest; ``size`` compares sizes,
            row counts and columns only, for sets that are too large to be read twice. Page checksums, id ranges,
            labels and dense values are checked at every reading in both.
        last_batch: ``keep`` trains on the rows that are left at the end of an epoch as a short batch, ``drop`` leaves
            them out of that epoch. Valid and test rows are never dropped.
        mix_groups: row groups whose rows are shuffled together; three times as many are in memory at the most.
        workers: threads that read, check and gather; they live as long as the sources, epoch after epoch.
        prefetch_batches: batches made ahead of the training step.
        rank: this process, of ``world_size``.
        world_size: processes that share the rows.
        pin_memory: put batches into page-locked memory; None does where there is a GPU.
    """

    def __init__(
        self,
        path: str | None,
        *,
        folds: int | None = None,
        fold: int = 0,
        verify: str = "full",
        last_batch: str = "keep",
        mix_groups: int = 8,
        workers: int = 2,
        prefetch_batches: int = 8,
        rank: int = 0,
        world_size: int = 1,
        pin_memory: bool | None = None,
    ) -> None:
        self.path = path
        self.folds = folds
        self.fold = fold
        self.verify = verify
        self.last_batch = last_batch
        self.mix_groups = mix_groups
        self.workers = workers
        self.prefetch_batches = prefetch_batches
        self.rank = rank
        self.world_size = world_size
        self.pin_memory = pin_memory

    def splits(self, batch_size: int, seed: int) -> DataSplits:
        """Verify the shards and open them.

        Args:
            batch_size: rows of a batch of one rank.
            seed: of the order of the train rows.

        Raises:
            ConfigError: a setting is missing or impossible; names the key.
            DataError: the folder is not what was written; names the file.
        """
        folder, settings = self._checked_settings(batch_size)
        manifest = read_manifest(folder)
        spec = manifest.spec
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="load")
        sources = {}
        for name in SPLITS:
            is_train = name == "train"
            shards = list(pool.map(partial(open_shard, spec=spec, full=self.verify == "full"), manifest.shards[name]))
            _check_split(folder, name, shards)
            own = settings if is_train else LoadSettings(**{**vars(settings), "drop_last": False})
            sources[name] = ParquetSource(spec, shards, own, pool, seed if is_train else None)
        if len(sources["train"]) == 0:
            raise ConfigError(
                f"data.last_batch=drop: {sources['train'].total_rows} train rows over {self.world_size} ranks do not "
                f"fill a batch of {batch_size}; use data.last_batch=keep or a smaller trainer.batch_size"
            )
        fingerprint = self._fingerprint(manifest, spec)
        return DataSplits(
            **sources,
            fingerprint=fingerprint,
            notes=_notes(manifest, sources, settings),
            encoding=EncodingFiles(folder, manifest.source) if manifest.source else None,
        )

    def _checked_settings(self, batch_size: int) -> tuple[Path, LoadSettings]:
        if not self.path or self.path == "???" or not isinstance(self.path, str):
            raise ConfigError("data.path is not set; give the folder that prepare.py wrote: data.path=FOLDER")
        if batch_size < 1:
            raise ConfigError(f"the batch size is {batch_size}; it must be at least 1")
        _check_word("verify", self.verify, ("full", "size"))
        _check_word("last_batch", self.last_batch, ("keep", "drop"))
        for key in ("mix_groups", "workers", "prefetch_batches", "world_size"):
            value = getattr(self, key)
            if type(value) is not int or value < 1:
                raise ConfigError(f"data.{key}={value}: must be an integer of at least 1")
        if type(self.rank) is not int or not 0 <= self.rank < self.world_size:
            raise ConfigError(f"data.rank={self.rank}: must be in [0, {self.world_size}), of data.world_size")
        has_gpu = torch.cuda.is_available()
        if self.pin_memory and not has_gpu:
            raise ConfigError("data.pin_memory=true: torch sees no GPU; use null, which pins where there is one")
        settings = LoadSettings(
            batch_size=batch_size,
            mix_groups=self.mix_groups,
            drop_last=self.last_batch == "drop",
            prefetch_batches=self.prefetch_batches,
            rank=self.rank,
            world_size=self.world_size,
            pin_memory=has_gpu if self.pin_memory is None else self.pin_memory,
        )
        return self._folder(Path(self.path).expanduser()), settings

    def _folder(self, path: Path) -> Path:
        if self.folds is None:
            if self.fold != 0:
                raise ConfigError(f"data.fold={self.fold}: needs data.folds, the number of folds; set it too")
            if not (path / MANIFEST_JSON).exists() and (path / "fold-0").is_dir():
                raise ConfigError(f"data.path={self.path}: holds folds; set data.folds to their number")
            return path
        if type(self.folds) is not int or self.folds < 2:
            raise ConfigError(f"data.folds={self.folds}: must be an integer of at least 2, or null")
        if type(self.fold) is not int or not 0 <= self.fold < self.folds:
            raise ConfigError(f"data.fold={self.fold}: must be in [0, {self.folds}), of data.folds")
        return fold_folder(path, self.folds, self.fold)

    def _fingerprint(self, manifest: Manifest, spec: FeatureSpec) -> str:
        facts = {
            "prepared": manifest.fingerprint,
            "shards": {name: [shard.sha256 for shard in shards] for name, shards in manifest.shards.items()},
            "spec": repr(spec),
            "order": [self.mix_groups, self.last_batch, self.world_size],
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _check_word(key: str, value: str, valid: tuple[str, ...]) -> None:
    if value not in valid:
        raise ConfigError(f"data.{key}={value}: valid are {', '.join(valid)}")


def _check_split(folder: Path, name: str, shards: Sequence[OpenShard]) -> None:
    if not any(shard.metadata.num_rows for shard in shards):
        raise DataError(f"{folder}: the split {name} has no rows; prepare the data with a larger share for it")
    with_rows = {shard.has_weight for shard in shards}
    if len(with_rows) > 1:
        plain = next(shard.path for shard in shards if not shard.has_weight)
        raise DataError(f"{plain}: has no column 'weight' but other files of {name} do; prepare the data again")


def _notes(manifest: Manifest, sources: dict[str, ParquetSource], settings: LoadSettings) -> dict[str, Any]:
    train = sources["train"]
    notes: dict[str, Any] = {f"{name} rows": source.total_rows for name, source in sources.items()}
    if settings.world_size > 1:
        notes["rows of this rank"] = train.num_rows
    if settings.drop_last:
        notes["last train batch"] = f"dropped, {train.num_rows - train.rows_per_epoch} rows of every epoch"
    else:
        left = train.rows_per_epoch % train.batch_size
        notes["last train batch"] = f"kept, {left or train.batch_size} of {train.batch_size} rows"
    return {**{key: _totals(value) for key, value in manifest.notes.items()}, **notes}


def _totals(note: Any) -> Any:
    """Counts of a column, split by split, as one sum a split: a report has no room for every column."""
    if isinstance(note, dict) and note and all(isinstance(counts, dict) for counts in note.values()):
        return {split: sum(counts.values()) for split, counts in note.items()}
    return note
