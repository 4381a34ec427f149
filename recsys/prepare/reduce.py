"""The reduce steps between the passes: sums over chunks, what is fitted from them, and what is checked of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from recsys.errors import DataError
from recsys.prepare.count import Counted
from recsys.prepare.encoding import DenseEncoder, Encoding, SparseEncoder
from recsys.prepare.engine import Pool, run_tasks
from recsys.prepare.fit import Fitted
from recsys.prepare.inputs import Digest, InputFile
from recsys.prepare.moments import Moments
from recsys.prepare.parts import Part
from recsys.prepare.schema import Schema
from recsys.prepare.settings import SPLITS, Settings
from recsys.prepare.split import BINS, histogram
from recsys.prepare.stage import Chunk


@dataclass
class Figures:
    """Sums over all chunks; see :class:`recsys.prepare.count.Counted`.

    Attributes:
        rows_of_chunks: rows of each split, chunk by chunk.
    """

    rows_of_chunks: list[tuple[int, ...]] = field(default_factory=list)
    clicks: list[int] = field(default_factory=lambda: [0] * len(SPLITS))
    moments: list[Moments] = field(default_factory=list)
    missing: list[list[int]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    @property
    def rows(self) -> list[int]:
        """Rows of each split."""
        return [sum(rows[i] for rows in self.rows_of_chunks) for i in range(len(SPLITS))]


def add_up(counted: Iterable[Counted]) -> Figures:
    """Sum the figures of the chunks."""
    total = Figures()
    for one in counted:
        if not total.rows_of_chunks:
            total.moments = [Moments()] * len(one.moments)
            total.missing = [[0] * len(one.moments) for _ in SPLITS]
            total.lengths = [0] * len(one.lengths)
        total.rows_of_chunks.append(one.rows)
        total.clicks = [a + b for a, b in zip(total.clicks, one.clicks, strict=True)]
        total.moments = [a + b for a, b in zip(total.moments, one.moments, strict=True)]
        total.missing = [
            [a + b for a, b in zip(x, y, strict=True)] for x, y in zip(total.missing, one.missing, strict=True)
        ]
        total.lengths = [max(a, b) for a, b in zip(total.lengths, one.lengths, strict=True)]
    return total


class SplitsError(DataError):
    """The rows of the splits are nothing to train with.

    Args:
        message: for the user.
        rows: of train, valid and test.
        clicks: of train.
    """

    def __init__(self, message: str, rows: Sequence[int], clicks: int) -> None:
        super().__init__(message)
        self.rows = tuple(rows)
        self.clicks = clicks


def check_splits(settings: Settings, figures: Figures) -> None:
    """Refuse an empty split, and train rows of one label."""
    rows = figures.rows
    place = settings.output
    for name, num_rows in zip(SPLITS, rows, strict=True):
        if num_rows == 0:
            raise SplitsError(
                f"{place}: too few rows: of {sum(rows)} rows the {name} split gets none (split.kind="
                f"{settings.split.kind}); give more rows, or change split",
                rows,
                figures.clicks[0],
            )
    if figures.clicks[0] in (0, rows[0]):
        raise SplitsError(
            f"{place}: every train row has label {int(figures.clicks[0] > 0)}, so there is nothing to learn; give more "
            "rows, or change split",
            rows,
            figures.clicks[0],
        )


def check_clocks(schema: Schema, files: Sequence[InputFile], chunks: Sequence[Chunk]) -> None:
    """Refuse times that are whole numbers in some rows and dates in others: they have no common order."""
    clocks: set[str] = set()
    for chunk in chunks:
        clocks |= chunk.clocks
        if len(clocks) > 1:
            raise DataError(
                f"{files[chunk.file].path}: column {schema.time}: some times are whole numbers, others dates such as "
                "2014-06-01 12:00:00; write all of them in one way"
            )


def check_copies(files: Sequence[InputFile], digests: Sequence[Digest]) -> None:
    """Refuse two files of one content in different splits: rows to report on would be trained on."""
    seen: dict[str, InputFile] = {}
    for file, found in zip(files, digests, strict=True):
        other = seen.setdefault(found.sha256, file)
        if other.split != file.split:
            raise DataError(
                f"{file.path}: has the same content as {other.path}, which is of another split; name different files"
            )


def check_shared_copies(files: Sequence[InputFile], digests: Sequence[Digest], with_rows: Collection[int]) -> None:
    """Refuse a file and its copy whose rows are shared out: one's rows would train, the same rows of the other test."""
    seen: dict[str, InputFile] = {}
    for i in sorted(with_rows):
        other = seen.setdefault(digests[i].sha256, files[i])
        if files[i].split is None and other is not files[i]:
            raise DataError(
                f"{files[i].path}: has the same content as {other.path}, so rows of the one would be trained on and "
                "the same rows of the other tested on; name one of the two"
            )


def check_rows(settings: Settings, files: Sequence[InputFile], sources: Sequence[dict[str, Any]]) -> None:
    """Compare the rows of published files."""
    if not isinstance(settings.inputs, dict):
        return
    for file, source in zip(files, sources, strict=True):
        wanted = settings.expected.get(SPLITS[file.split or 0])
        if wanted is not None and wanted.rows != source["rows"]:
            raise DataError(f"{file.path}: has {source['rows']} rows, but the published file has {wanted.rows}")


def encoding_of(schema: Schema, figures: Figures, fitted: Sequence[Fitted]) -> Encoding:
    """The encoding, its vocabularies by size only (their ids are looked up in pass 3)."""
    dense = tuple(DenseEncoder(c, m.mean, m.sd) for c, m in zip(schema.dense, figures.moments, strict=True))
    sparse = []
    for i, column in enumerate(schema.categorical):
        # Two at least: a length of 1 would promise exactly one id in every row.
        longest = max(2, column.max_length or figures.lengths[i]) if column.multi_hot else 1
        sparse.append(SparseEncoder(column, pa.nulls(fitted[i].vocabulary, pa.null()), longest))
    return Encoding(schema, dense, tuple(sparse))


def id_offsets(chunks: Sequence[Chunk]) -> list[tuple[int, ...]]:
    """Where each chunk's ids begin in the ids of each categorical column."""
    if not chunks:
        return []
    sizes = np.array([chunk.sizes for chunk in chunks], np.int64).reshape(len(chunks), -1) + 1
    return [tuple(row) for row in (np.cumsum(sizes, axis=0) - sizes).tolist()]


def notes_of(schema: Schema, figures: Figures, fitted: Sequence[Fitted], parts: Sequence[Part]) -> dict[str, Any]:
    """Figures for the report; plain JSON."""
    names = [c.name for c in schema.categorical]
    with_vocabulary = [i for i, c in enumerate(schema.categorical) if c.min_count is not None]
    cut = np.sum([part.cut_lists for part in parts], axis=0).astype(int).tolist() if names else []
    rows = figures.rows
    return {
        "rows": dict(zip(SPLITS, rows, strict=True)),
        "click_rate": {name: figures.clicks[i] / rows[i] for i, name in enumerate(SPLITS)},
        "unseen_ids": {s: {names[i]: fitted[i].unseen[k] for i in with_vocabulary} for k, s in enumerate(SPLITS) if k},
        "out_of_vocabulary": {
            s: {names[i]: fitted[i].out_of_vocabulary[k] for i in with_vocabulary} for k, s in enumerate(SPLITS)
        },
        "missing": {
            s: {c.name: figures.missing[k][i] for i, c in enumerate(schema.dense)} for k, s in enumerate(SPLITS)
        },
        "constant": [c.name for c, m in zip(schema.dense, figures.moments, strict=True) if m.low >= m.high],
        "cut_lists": {n: cut[i] for i, n in enumerate(names) if schema.categorical[i].multi_hot},
    }


@dataclass(frozen=True)
class _HistogramJob:
    folder: str
    chunk: Chunk
    low: int
    width: int


def _histogram(job: _HistogramJob) -> Any:
    return histogram(job.folder, job.chunk, job.low, job.width)


def time_cut(pool: Pool, folder: str, chunks: Sequence[Chunk], files: Sequence[InputFile], at_least: int) -> int:
    """The least time that at least so many rows are not later than, by histograms of ever finer bins."""
    timed = [c for c in chunks if c.num_rows and files[c.file].split is None]
    if not timed:
        return 0
    low, high = min(c.times[0] for c in timed), max(c.times[1] for c in timed)
    before = 0
    while low < high:
        width = -(-(high - low + 1) // BINS)
        jobs = [_HistogramJob(folder, chunk, low, width) for chunk in timed if chunk.times[1] >= low]
        bins = sum(run_tasks(pool, _histogram, jobs), np.zeros(BINS + 1, np.int64))
        at = int(np.searchsorted(before + np.cumsum(bins), at_least))
        before += int(bins[:at].sum())
        low, high = low + at * width, min(high, low + (at + 1) * width - 1)
    return low
