"""Files of rows to logits: read, checked, encoded and predicted unit by unit, in several processes, in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys.errors import ConfigError, DataError
from recsys.prepare.engine import Pool, SerialExecutor, open_pool
from recsys.prepare.faults import QuarantinedRow, bad_value
from recsys.prepare.inputs import check_unchanged, resolve
from recsys.prepare.schema import Schema
from recsys.prepare.settings import Engine
from recsys.prepare.stage import refuse
from recsys.prepare.units import Piece, Unit, make_units, read_stream, read_text, read_unit
from recsys.serve.batches import EncodedRows
from recsys.serve.model_files import MODEL_JSON, read_model_json
from recsys.serve.row_encoder import read_encoder
from recsys.serve.trained import TrainedModel

FORMATS = ("criteo", "csv", "tsv", "parquet")
_PARQUET = (".parquet", ".parq")


@dataclass(frozen=True)
class ScoreSettings:
    """What is predicted, and how.

    Attributes:
        run: folder of the run.
        inputs: a file, a folder, a glob, or a list of these.
        side: ``erase`` (the experiment's model) or ``baseline``.
        format: one of :data:`FORMATS`; None goes by the file's name, and else by what the model was trained on.
        encoded: the rows hold ids and encoded numbers, in columns named as in ``features.json``.
        labelled: read labels and weights.
        carried: columns to hand on as they stand.
        bad_rows: ``error`` or ``quarantine``.
        bad_rows_limit: with ``quarantine``, more bad rows than this stop the work.
        device: ``auto``, ``cpu`` or ``cuda``.
        workers: processes; each holds the model.
        chunk_mib: MiB of input that a worker has in hand.
        batch_size: rows of a forward; None is that of training.
    """

    run: Path
    inputs: Any
    side: str = "erase"
    format: str | None = None
    encoded: bool = False
    labelled: bool = False
    carried: tuple[str, ...] = ()
    bad_rows: str = "error"
    bad_rows_limit: int = 1000
    device: str = "cpu"
    workers: int = 1
    chunk_mib: float = 8.0
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise ConfigError(f"--format {self.format}: valid are {', '.join(FORMATS)}")
        if self.bad_rows not in ("error", "quarantine"):
            raise ConfigError(f"--bad-rows {self.bad_rows}: valid are error, quarantine")
        if self.workers < 1 or self.bad_rows_limit < 0 or not self.chunk_mib > 0:
            raise ConfigError("--workers must be at least 1, --limit at least 0, --chunk-mib above 0")
        if self.batch_size is not None and self.batch_size < 1:
            raise ConfigError(f"--batch-size {self.batch_size}: must be at least 1")

    @property
    def limit(self) -> int:
        """As in a preparation: -1 is the policy ``error``."""
        return self.bad_rows_limit if self.bad_rows == "quarantine" else -1


@dataclass
class ScoredPiece:
    """Predictions of some rows.

    Attributes:
        file: name of the input file.
        num_input: rows of the input, with the bad ones.
        kept: int64, the index in ``0 .. num_input`` of each row that was predicted.
        logits: float32, by part: ``over`` for the model, and its local heads.
        labels, weights: of the rows; 0 and 1 if they were not asked for.
        carried: Arrow columns.
        quarantined: the bad rows.
        out_of_vocabulary: values without an id of their own, by column.
    """

    file: str
    num_input: int
    kept: NDArray[np.int64]
    logits: dict[str, NDArray[np.float32]]
    labels: NDArray[np.float32]
    weights: NDArray[np.float32]
    carried: dict[str, Any]
    quarantined: list[QuarantinedRow] = field(default_factory=list)
    out_of_vocabulary: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Job:
    """A unit, or some lines of a compressed one."""

    settings: ScoreSettings
    source: str
    schema: Schema
    unit: Unit
    text: bytes | None = None
    first_line: int | None = None


def predict(settings: ScoreSettings, told: Callable[[int], None] = lambda _: None) -> Iterator[ScoredPiece]:
    """Yield predictions of all rows, in the order of files and rows.

    Args:
        settings: what and how.
        told: called with the number of rows in all units together, as far as it is known (0 for text).

    Raises:
        DataError: input or model damaged, a bad row under the policy ``error``, too many of them under ``quarantine``.
    """
    content = read_model_json(settings.run)
    schema = read_encoder(settings.run, content["source"], encoded=settings.encoded).schema
    source, schema = _source(settings, content["source"], schema)
    schema = schema.for_scoring(labelled=settings.labelled)
    files = resolve(source, settings.inputs)
    chunk_bytes = Engine(chunk_mib=settings.chunk_mib).chunk_bytes
    units = make_units(source, files, schema, chunk_bytes, carried=settings.carried)
    told(len(units))
    quarantined: list[QuarantinedRow] = []
    num_rows = 0
    with open_pool(Engine(workers=settings.workers)) as pool:
        jobs = (job for unit in units for job in _jobs(settings, source, schema, unit, chunk_bytes))
        for pieces in _in_order(pool, jobs):
            for piece in pieces:
                quarantined += piece.quarantined
                if len(quarantined) > max(settings.limit, 0):
                    refuse(quarantined, settings.limit)
                num_rows += piece.num_input
                yield piece
    if not num_rows:
        raise DataError(f"{files[0].path}: there is no row in the input; name files with rows")
    check_unchanged(files)


def _source(settings: ScoreSettings, trained_on: str | None, schema: Schema) -> tuple[str, Schema]:
    """How the files are read."""
    form = settings.format
    first = settings.inputs[0] if isinstance(settings.inputs, list | tuple) else settings.inputs
    if form is None and Path(str(first)).suffix in _PARQUET:
        form = "parquet"
    if form is None and (settings.encoded or trained_on is None):
        raise ConfigError("--format: say csv, tsv or parquet for rows that hold ids")
    if form is None:
        return (trained_on or ""), schema
    if form == "criteo":
        if trained_on is None or not trained_on.startswith("criteo") or settings.encoded:
            raise ConfigError("--format criteo: the model was not trained on Criteo's columns")
        return trained_on, schema
    if form == "tsv":
        return "csv", replace(schema, csv=replace(schema.csv, delimiter="\t"))
    return form, schema


def _jobs(settings: ScoreSettings, source: str, schema: Schema, unit: Unit, chunk_bytes: int) -> Iterator[_Job]:
    job = _Job(settings, source, schema, unit)
    if unit.kind != "stream":
        yield job
        return
    # A compressed file has one reader; its lines are shared out.
    for line, text in read_stream(source, unit, schema, chunk_bytes):
        yield replace(job, text=text, first_line=line)


def _in_order(pool: Pool, jobs: Iterator[_Job]) -> Iterator[list[ScoredPiece]]:
    """Results in the jobs' order, with a window over them, so that neither jobs nor results pile up."""
    waiting: deque[Future[list[ScoredPiece]]] = deque()
    width = 1 if isinstance(pool.executor, SerialExecutor) else 2 * pool.width
    try:
        for job in jobs:
            waiting.append(pool.executor.submit(_predict_unit, job))
            if len(waiting) >= width:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


@lru_cache(maxsize=1)
def _loaded(run: Path, side: str, device: str, encoded: bool, workers: int, stamp: tuple[int, int]) -> TrainedModel:
    """The model of this process; ``stamp`` tells a folder that was written anew."""
    del stamp
    import torch

    if workers > 1:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // workers))
    return TrainedModel.load(run, side, device, encoded=encoded)


def _predict_unit(job: _Job) -> list[ScoredPiece]:
    settings = job.settings
    stat = (settings.run / MODEL_JSON).stat()
    stamp = (stat.st_mtime_ns, stat.st_size)
    model = _loaded(settings.run, settings.side, settings.device, settings.encoded, settings.workers, stamp)
    chunk_bytes = Engine(chunk_mib=settings.chunk_mib).chunk_bytes
    if job.text is not None:
        pieces = iter([read_text(job.source, job.unit, job.schema, job.text, job.first_line, settings.carried)])
    else:
        pieces = read_unit(job.source, job.unit, job.schema, chunk_bytes, settings.carried)
    return [_predict_piece(model, job, piece) for piece in pieces]


def _predict_piece(model: TrainedModel, job: _Job, piece: Piece) -> ScoredPiece:
    settings = job.settings
    try:
        encoded = model.encoder.encode(piece.rows, job.source)
    except DataError as error:
        raise DataError(f"{job.unit.path}: {error}") from error
    faults = zip(piece.places, piece.faults, strict=True)
    quarantined = [QuarantinedRow(place, fault.message, fault.text) for place, fault in faults]
    rows, keep = piece.rows, np.ones(piece.rows.num_rows, np.bool_)
    columns, carried = encoded.columns, piece.carried
    for bad, name, text in encoded.faults:
        for i in np.flatnonzero(bad & keep).tolist():
            quarantined.append(
                QuarantinedRow(piece.place(int(piece.kept[i])), bad_value(name, _shown(rows, model, name, i), text), "")
            )
        keep &= ~bad
    if not keep.all():
        mask = pa.array(keep)
        columns = {name: array.filter(mask) for name, array in columns.items()}
        carried = {name: array.filter(mask) for name, array in carried.items()}
        rows = rows.keep(keep)
    arrays = EncodedRows.of(model.encoder.spec, columns, rows.num_rows)
    logits = model.logits(arrays, settings.batch_size or model.batch_size)
    weights = rows.roles.get("weight", np.ones(rows.num_rows))
    result = ScoredPiece(
        Path(job.unit.path).name,
        piece.num_input,
        piece.kept[keep],
        logits,
        rows.label.astype(np.float32),
        weights.astype(np.float32),
        carried,
        quarantined,
        encoded.out_of_vocabulary,
    )
    assert piece.num_input == len(result.kept) + len(quarantined), "rows were lost on the way to the predictions"
    return result


def _shown(rows: Any, model: TrainedModel, name: str, row: int) -> str:
    index = next(i for i, c in enumerate(model.encoder.schema.categorical) if c.source == name)
    return str(rows.categorical[index][row].as_py())
