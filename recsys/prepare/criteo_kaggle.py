"""Criteo's Kaggle data (display advertising challenge, 2014) from its own TSV, prepared once into a cache folder.

The folder is keyed by the content of the files and the settings; later runs load it. Encodings see the train rows
only.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from recsys.data.parquet_manifest import read_manifest
from recsys.data.parquet_source import PreparedData
from recsys.data.source import DataSplits
from recsys.errors import ConfigError, DataError
from recsys.prepare.criteo import INTEGER_NAMES, TOKEN_NAMES
from recsys.prepare.inputs import digest, resolve
from recsys.prepare.manifest import MANIFEST, verify
from recsys.prepare.progress import Silent
from recsys.prepare.reduce import SplitsError
from recsys.prepare.run import prepare
from recsys.prepare.schema import CategoricalColumn, DenseColumn, Schema
from recsys.prepare.settings import FORMAT_VERSION, SPLITS, Engine, Settings, Split
from recsys.prepare.work import LOCK, WORK, BusyError, OutputError, locked

_log = logging.getLogger(__name__)
_SOURCE = "criteo_kaggle"
# Files below this size are prepared sooner in this process than a pool of processes starts.
_POOL_BYTES = 64 << 20
_NOTES = ("rows", "click_rate", "unseen_ids")


class CriteoKaggle:
    """The Kaggle training file, cut in file order; or that file and a separate one to test on.

    Args:
        path: TSV, plain, .gz or .zst; nothing is downloaded.
        test_path: a second such file, all of it the test rows. None takes them from the end of ``path``.
        split: shares of ``path`` in file order. None is 0.8 train, 0.1 valid, 0.1 test, or with ``test_path``
            or ``folds`` 0.9 train, 0.1 valid.
        folds: cut ``path`` into so many blocks in file order, for cross-fitting; None does not.
        fold: the block, counted from 0, that is the test rows. ``split`` cuts the others, read from the one after
            it round to the one before it, into train and valid.
        min_count: categorical values seen less often in the train rows share the out-of-vocabulary id.
        dense_as_categorical: adds the logarithmic bin of each of the 13 integers as a categorical feature
            (``I1_bin`` ...), which makes F = 39.
        target_mean: adds the smoothed target mean of each categorical feature, fitted out of fold, as a dense feature.
        count: adds the log count of each of the 26 categorical columns as a dense feature.
        smoothing: rows at the click rate that every target mean starts from.
        max_rows: reads only this many rows from the start of each file; None reads all.
        cache_dir: where prepared rows are kept.
    """

    def __init__(
        self,
        path: str | None,
        *,
        test_path: str | None = None,
        split: Sequence[float] | None = None,
        folds: int | None = None,
        fold: int = 0,
        min_count: int = 2,
        dense_as_categorical: bool = True,
        target_mean: bool = False,
        count: bool = False,
        smoothing: float = 20.0,
        max_rows: int | None = None,
        cache_dir: str = "data/cache",
    ) -> None:
        self.path = path
        self.test_path = test_path
        self.split = split
        self.folds = folds
        self.fold = fold
        self.min_count = min_count
        self.dense_as_categorical = dense_as_categorical
        self.target_mean = target_mean
        self.count = count
        self.smoothing = smoothing
        self.max_rows = max_rows
        self.cache_dir = cache_dir

    def splits(self, batch_size: int, seed: int) -> DataSplits:
        """Prepare the rows, or load them from the cache.

        Args:
            batch_size: rows of a batch.
            seed: of the order of the train rows.

        Raises:
            ConfigError: a setting is missing or impossible; names the key.
            DataError: a file or a row that cannot be used; names file and line.
        """
        settings = self._settings()
        fingerprint = self._fingerprint(settings)
        folder = Path(self.cache_dir).expanduser() / fingerprint[:16]
        _fill(folder, replace(settings, output=str(folder)))
        # The checksums of all files have just been compared.
        splits = PreparedData(str(folder), verify="size").splits(batch_size, seed)
        notes = read_manifest(folder).notes
        return replace(splits, fingerprint=fingerprint, notes={key: notes[key] for key in _NOTES})

    def _settings(self) -> Settings:
        """What to prepare; no output yet."""
        if not self.path or self.path == "???":
            raise ConfigError(
                "data.path is not set; give Criteo's Kaggle training file (TSV, plain, .gz or .zst): "
                "data.path=FILE (data/README.md tells how to obtain it)"
            )
        if not _is_count(self.min_count):
            raise ConfigError(f"data.min_count={self.min_count} must be an integer of at least 1 (1 keeps every value)")
        if self.max_rows is not None and not _is_count(self.max_rows):
            raise ConfigError(f"data.max_rows={self.max_rows} must be an integer of at least 1, or null for all rows")
        if not isinstance(self.dense_as_categorical, bool):
            raise ConfigError(f"data.dense_as_categorical={self.dense_as_categorical} must be true or false")
        for key in ("target_mean", "count"):
            if not isinstance(getattr(self, key), bool):
                raise ConfigError(f"data.{key}={getattr(self, key)} must be true or false")
        if isinstance(self.smoothing, bool) or not isinstance(self.smoothing, int | float) or not self.smoothing > 0:
            raise ConfigError(f"data.smoothing={self.smoothing} must be a number of rows above 0")
        if not self.cache_dir:
            raise ConfigError("data.cache_dir is not set; give the folder for prepared rows, such as data/cache")
        self._check_folds()
        split = Split("order", self._checked_shares(), folds=self.folds, fold=self.fold if self.folds else 0)
        train, test = (str(Path(p).expanduser()) if p else None for p in (self.path, self.test_path))
        inputs = {"train": train, "test": test} if test else train
        return Settings(_SOURCE, inputs, "", self._schema(), split, max_rows=self.max_rows)

    def _checked_shares(self) -> tuple[float, ...]:
        test_is_apart = bool(self.test_path) or self.folds is not None
        names = SPLITS[:2] if test_is_apart else SPLITS
        if self.split is None:
            return (0.9, 0.1) if test_is_apart else (0.8, 0.1, 0.1)
        shares = tuple(self.split) if isinstance(self.split, Sequence) else ()
        are_shares = all(isinstance(share, int | float) and share > 0 for share in shares)
        if len(shares) != len(names) or not are_shares or abs(sum(shares) - 1) > 1e-9:
            raise ConfigError(
                f"data.split={self.split} must be {len(names)} positive shares ({', '.join(names)}) that sum to 1"
            )
        return shares

    def _check_folds(self) -> None:
        if self.folds is None:
            if self.fold != 0:
                raise ConfigError(f"data.fold={self.fold} needs data.folds, the number of blocks; set it too")
            return
        if self.test_path:
            raise ConfigError(f"data.folds={self.folds} and data.test_path both choose the test rows; set one null")
        if not _is_count(self.folds) or self.folds < 2:
            raise ConfigError(f"data.folds={self.folds} must be an integer of at least 2, or null for one split")
        if isinstance(self.fold, bool) or not isinstance(self.fold, int) or not 0 <= self.fold < self.folds:
            raise ConfigError(f"data.fold={self.fold} must be an integer from 0 to {self.folds - 1}, below data.folds")

    def _schema(self) -> Schema:
        column = partial(
            CategoricalColumn, min_count=self.min_count, target_mean=self.target_mean, smoothing=self.smoothing
        )
        categorical = [column(name, count=self.count) for name in TOKEN_NAMES]
        if self.dense_as_categorical:
            categorical += [column(f"{name}_bin", column=name, transform="log_bins") for name in INTEGER_NAMES]
        return Schema("label", tuple(DenseColumn(name) for name in INTEGER_NAMES), tuple(categorical))

    def _fingerprint(self, settings: Settings) -> str:
        paths = settings.inputs.values() if isinstance(settings.inputs, dict) else [settings.inputs]
        for path in paths:
            if not Path(path).exists():
                raise DataError(
                    f"{path}: no such file; set data.path (or data.test_path) to an existing one "
                    "(data/README.md tells how to obtain Criteo's)"
                )
        files = resolve(_SOURCE, settings.inputs)
        loader = PreparedData(None)
        identity = {
            "version": FORMAT_VERSION,
            "files": [digest(file.path, False).sha256 for file in files],
            "order": [loader.mix_groups, loader.last_batch],
            **settings.identity(),
        }
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


class _Log(Silent):
    def say(self, text: str) -> None:
        _log.info("%s", text)


def _fill(folder: Path, settings: Settings) -> None:
    """See to it that the folder holds the rows; waits while another process prepares them."""
    is_told = False
    while True:
        try:
            return _fill_alone(folder, settings)
        except BusyError as error:
            if not is_told:
                _log.warning("waiting: %s", error)
            is_told = True
            time.sleep(0.5)
        except (OutputError, OSError) as error:
            reason = error.__cause__ if isinstance(error, OutputError) else error
            raise DataError(
                f"{folder}: cannot write the prepared rows ({getattr(reason, 'strerror', None) or reason}); "
                "set data.cache_dir to a writable folder with enough room"
            ) from error


def _fill_alone(folder: Path, settings: Settings) -> None:
    if (folder / MANIFEST).exists() and _problem(folder) is None:
        return
    _clear_damage(folder)
    start = time.perf_counter()
    path = _train_path(settings)
    _log.info("%s: preparing the rows (once; kept in %s)", path, folder)
    had_cache = folder.parent.exists()
    num_bytes = sum(file.num_bytes for file in resolve(settings.source, settings.inputs))
    engine = Engine(workers=1 if num_bytes < _POOL_BYTES else None)
    try:
        content = prepare(replace(settings, engine=engine), _Log())
    except BusyError:
        raise
    except DataError as error:
        if not isinstance(error.__cause__, OSError | BrokenProcessPool):
            # These files will never give rows: what is done would not be taken up again.
            shutil.rmtree(folder, ignore_errors=True)
            if not had_cache:
                with suppress(OSError):
                    folder.parent.rmdir()
        if isinstance(error, SplitsError):
            raise _bad_splits(path, error) from error
        raise
    rows = sum(content["notes"]["rows"].values())
    _log.info("%s: %d rows prepared in %.1f s", path, rows, time.perf_counter() - start)


def _problem(folder: Path) -> str | None:
    """What makes a cache folder unusable; None if it holds whole rows, is being worked on, or is empty."""
    names = {path.name for path in folder.iterdir()} - {LOCK} if folder.exists() else set()
    if MANIFEST not in names:
        return f"it holds {min(names)} but no {MANIFEST}" if names and WORK not in names else None
    try:
        read_manifest(folder)
        verify(folder)
        return None
    except DataError as error:
        return str(error)


def _clear_damage(folder: Path) -> None:
    """Empty a damaged folder; work that was cut off stays, for the preparation to go on with."""
    if _problem(folder) is None:
        if (folder / WORK).exists():
            _log.warning("%s: the cache is unfinished; preparing it to the end", folder)
        return
    with locked(folder):
        # Another process may have mended it since.
        problem = _problem(folder)
        if problem is None:
            return
        _log.warning("%s: the cache is damaged (%s); preparing it again", folder, problem)
        for path in sorted(folder.iterdir(), key=lambda p: p.name != MANIFEST):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()


def _train_path(settings: Settings) -> str:
    return str(settings.inputs["train"] if isinstance(settings.inputs, dict) else settings.inputs)


def _bad_splits(path: str, error: SplitsError) -> DataError:
    rows = error.rows
    for name, num_rows in zip(SPLITS, rows, strict=True):
        if num_rows == 0:
            return DataError(
                f"{path}, line {sum(rows)} (the last): too few rows, the {name} split is empty; give a larger file, "
                "or change data.split or data.max_rows"
            )
    return DataError(
        f"{path}, lines 1 to {rows[0]}: every train row has label {int(error.clicks > 0)}, so there is nothing to "
        "learn; shuffle the file's lines (`shuf`), give more rows, or change data.split"
    )
