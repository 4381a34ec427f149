"""What a preparation is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from recsys.errors import ConfigError
from recsys.prepare.schema import Schema, nearest

SPLITS = ("train", "valid", "test")
SOURCES = ("criteo_kaggle", "criteo_1tb", "csv", "parquet")
SPLIT_KINDS = ("random", "order", "time", "days")
# Part of the fingerprint: raise it when the same input and settings would give other files.
FORMAT_VERSION = 1


@dataclass(frozen=True)
class Split:
    """Which rows train, choose and are reported on.

    Attributes:
        kind: ``random`` (exact sizes, by seed and row), ``order`` (of files and lines), ``time`` (by the schema's time
            column; rows of one time stay together), ``days`` (the last file is halved to valid and test).
        shares: of train, valid and test; of train and valid where the test rows are given by a file or a fold.
        seed: of ``random``.
        folds, fold: of ``order`` and ``random``: cut the rows in that order into blocks, test on block ``fold``. The
            blocks of one seed are the same whatever the fold, so they are disjoint and together all rows.
    """

    kind: str = "random"
    shares: tuple[float, ...] | None = None
    seed: int = 2014
    folds: int | None = None
    fold: int = 0


@dataclass(frozen=True)
class Expected:
    """A published file: its MD5 and its rows."""

    md5: str
    rows: int


@dataclass(frozen=True)
class Engine:
    """Where the work is done; never changes the output.

    Attributes:
        name: ``local`` (a pool of processes) or ``dask`` (a cluster that reaches input and output by the same paths).
        workers: processes of ``local``; 1 works in this process, None is one a core.
        address: of the Dask scheduler.
        chunk_mib: MiB of input that are worked on at once by each worker.
    """

    name: str = "local"
    workers: int | None = None
    address: str | None = None
    chunk_mib: float = 16.0

    @property
    def chunk_bytes(self) -> int:
        """The same in bytes."""
        return max(1, int(self.chunk_mib * (1 << 20)))


@dataclass(frozen=True)
class Settings:
    """A whole preparation.

    Attributes:
        source: one of :data:`SOURCES`.
        inputs: a path, a folder, a glob or a list of these; or a mapping from ``train``, ``valid``, ``test`` to such.
        output: the folder to write.
        schema: the columns.
        split: the rows' splits.
        expected: what the given train, valid and test files must be, by split; empty checks nothing.
        max_rows: of text files, reads only so many rows from the start of each; None reads all.
        bad_rows: ``error`` or ``quarantine``.
        bad_rows_limit: with ``quarantine``, more bad rows than this stop the run.
        rows_per_part, rows_per_group: of the parquet files.
        compression: of the parquet files, ``zstd`` or ``lz4``.
        engine: where the work is done.
    """

    source: str
    inputs: Any
    output: str
    schema: Schema
    split: Split = field(default_factory=Split)
    expected: dict[str, Expected] = field(default_factory=dict)
    max_rows: int | None = None
    bad_rows: str = "error"
    bad_rows_limit: int = 1000
    rows_per_part: int = 1 << 20
    rows_per_group: int = 1 << 16
    compression: str = "lz4"
    engine: Engine = field(default_factory=Engine)

    def identity(self) -> dict[str, Any]:
        """What of the settings decides the output; plain JSON."""
        head = {} if self.max_rows is None else {"max_rows": self.max_rows}
        return {
            **head,
            "source": self.source,
            "schema": self.schema.to_plain(),
            "split": asdict(self.split),
            "bad_rows": self.bad_rows,
            "rows_per_part": self.rows_per_part,
            "rows_per_group": self.rows_per_group,
            "compression": self.compression,
        }


def check_settings(settings: Settings) -> None:
    """Refuse what cannot be carried out.

    Raises:
        ConfigError: names the key and the valid values.
    """
    _one_of("source", settings.source, SOURCES)
    _one_of("split.kind", settings.split.kind, SPLIT_KINDS)
    _one_of("bad_rows.policy", settings.bad_rows, ("error", "quarantine"))
    _one_of("engine.name", settings.engine.name, ("local", "dask"))
    _one_of("parts.compression", settings.compression, ("lz4", "zstd"))
    if settings.max_rows is not None:
        _at_least("max_rows", settings.max_rows, 1)
        if settings.source == "parquet":
            raise ConfigError(f"max_rows={settings.max_rows} is for text files; leave it out with source=parquet")
    _at_least("bad_rows.limit", settings.bad_rows_limit, 0)
    _at_least("parts.rows_per_group", settings.rows_per_group, 1)
    _at_least("parts.rows_per_part", settings.rows_per_part, 1)
    if settings.rows_per_part % settings.rows_per_group:
        raise ConfigError(
            f"parts.rows_per_part={settings.rows_per_part} must be a multiple of "
            f"parts.rows_per_group={settings.rows_per_group}"
        )
    if settings.engine.workers is not None:
        _at_least("engine.workers", settings.engine.workers, 1)
    if type(settings.engine.chunk_mib) not in (int, float) or not settings.engine.chunk_mib > 0:
        raise ConfigError(f"engine.chunk_mib={settings.engine.chunk_mib} must be above 0")
    if settings.engine.name == "dask" and not settings.engine.address:
        raise ConfigError("engine.address is not set; give the scheduler's, such as engine.address=tcp://HOST:8786")
    if not settings.output:
        raise ConfigError("output is not set; give the folder to write, such as output=data/prepared")
    if not settings.inputs:
        raise ConfigError("input is not set; give a file, a folder or a glob, such as input=train.txt")
    _check_split(settings)


def shares_of(settings: Settings) -> tuple[float, ...]:
    """The shares of the rows whose split no file and no fold settles: three, or two (train and valid)."""
    split = settings.split
    test_is_apart = isinstance(settings.inputs, dict) or split.folds is not None
    if split.shares is None or (isinstance(settings.inputs, dict) and len(split.shares) == 3):
        return (0.9, 0.1) if test_is_apart else (0.8, 0.1, 0.1)
    wanted = 2 if test_is_apart else 3
    good = all(isinstance(s, int | float) and s > 0 for s in split.shares)
    if len(split.shares) != wanted or not good or abs(sum(split.shares) - 1) > 1e-9:
        raise ConfigError(
            f"split.shares={list(split.shares)} must be {wanted} positive shares "
            f"({', '.join(SPLITS[:wanted])}) that sum to 1"
        )
    return split.shares


def _check_split(settings: Settings) -> None:
    split = settings.split
    _at_least("split.seed", split.seed, 0)
    if isinstance(settings.inputs, dict):
        for key in settings.inputs:
            if key not in SPLITS:
                raise ConfigError(f"input.{key}: there is no such split; valid: {', '.join(SPLITS)}")
        if not settings.inputs.get("train") or not settings.inputs.get("test"):
            raise ConfigError("input: give both train and test (valid is cut from train where it is not given)")
        if split.folds is not None:
            raise ConfigError("split.folds and input.test both choose the test rows; set one null")
    if split.kind == "time" and settings.schema.time is None:
        raise ConfigError("split.kind=time needs the time column: set `time` in the schema")
    if split.folds is None and split.fold != 0:
        raise ConfigError(f"split.fold={split.fold} needs split.folds, the number of blocks; set it too")
    if split.folds is not None:
        if split.kind not in ("order", "random"):
            raise ConfigError(f"split.folds={split.folds} needs split.kind=order or random")
        _at_least("split.folds", split.folds, 2)
        if not isinstance(split.fold, int) or not 0 <= split.fold < split.folds:
            raise ConfigError(f"split.fold={split.fold} must be from 0 to {split.folds - 1}, below split.folds")
    if split.kind != "days":
        shares_of(settings)


def _one_of(key: str, value: Any, valid: Sequence[str]) -> None:
    if value not in valid:
        raise ConfigError(f"{key}={value}: there is no such choice; {nearest(str(value), valid)}")


def _at_least(key: str, value: Any, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ConfigError(f"{key}={value} must be an integer of at least {low}")
