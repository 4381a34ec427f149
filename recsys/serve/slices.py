"""Evaluation of a saved model on any labelled rows, in all and by slice."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from recsys.errors import ConfigError, DataError
from recsys.metrics.binary import Metrics, compute_metrics
from recsys.models.recommender import OVER
from recsys.prepare.convert import times
from recsys.report.atomic import write_atomic
from recsys.serve.pipeline import ScoredPiece, ScoreSettings, predict

FILE = ":file"
_DAY_S = 86_400
_MISSING = "(missing)"


@dataclass(frozen=True)
class SliceBy:
    """What rows are grouped by.

    Attributes:
        column: of the input; :data:`FILE` is the input file's name.
        per_day: group times by UTC day. Whole numbers are seconds, milliseconds or microseconds since 1970,
            whichever their size fits.
    """

    column: str
    per_day: bool = False

    @staticmethod
    def parse(text: str) -> SliceBy:
        """``COLUMN``, ``COLUMN:day`` or ``:file``."""
        if text == FILE:
            return SliceBy(FILE)
        column, _, unit = text.partition(":")
        if unit not in ("", "day") or not column:
            raise ConfigError(f"--by {text}: write COLUMN, COLUMN:day or :file")
        return SliceBy(column, unit == "day")

    @property
    def title(self) -> str:
        """As the user wrote it."""
        return f"{self.column}:day" if self.per_day else self.column


@dataclass(frozen=True)
class Slice:
    """Metrics of the rows of one value; ``num_values`` values where rare ones are pooled."""

    value: str
    metrics: Metrics
    num_values: int = 1


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found.

    Attributes:
        total: of all rows.
        heads: of each local head, all rows.
        slices: by title of the grouping; the slices with most rows first, days and files in order.
        quarantined: rows that were left out.
    """

    total: Metrics
    heads: dict[str, Metrics]
    slices: dict[str, list[Slice]]
    quarantined: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)

    def write(self, path: Path) -> None:
        """Write JSON."""
        write_atomic(path, json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")


@dataclass
class _Groups:
    """Codes of rows by value."""

    codes: list[NDArray[np.int64]] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def add(self, values: list[str], codes: NDArray[np.int64]) -> None:
        by_code = np.array([self.numbers.setdefault(value, len(self.numbers)) for value in values], np.int64)
        self.codes.append(by_code[codes] if len(values) else codes)


def evaluate_files(
    settings: ScoreSettings,
    by: tuple[SliceBy, ...] = (),
    *,
    top: int = 20,
    on_rows: Callable[[int], None] = lambda _: None,
) -> Evaluation:
    """Evaluate every row of the input. A row costs about 12 bytes of memory, 4 a local head, 8 a grouping.

    Args:
        settings: what is evaluated; labels are read whatever it says.
        by: groupings.
        top: slices of a grouping that stand for themselves; the others are pooled.
        on_rows: called with the number of rows after each piece.

    Raises:
        ConfigError: two groupings are one, or ``top`` is below 1.
        UserError: as :func:`recsys.serve.pipeline.predict`.
    """
    from dataclasses import replace

    if top < 1 or len(set(by)) < len(by):
        raise ConfigError("--top must be at least 1, and each --by another")
    columns = dict.fromkeys((*settings.carried, *(b.column for b in by if b.column != FILE)))
    groups = {b: _Groups() for b in by}
    logits: dict[str, list[Any]] = {}
    labels, weights, quarantined = [], [], 0
    for piece in predict(replace(settings, labelled=True, carried=tuple(columns))):
        for name, values in piece.logits.items():
            logits.setdefault(name, []).append(values)
        labels.append(piece.labels)
        weights.append(piece.weights)
        quarantined += len(piece.quarantined)
        for slice_by, group in groups.items():
            group.add(*_codes(slice_by, piece))
        on_rows(piece.num_input)
    y, w = np.concatenate(labels), np.concatenate(weights)
    all_logits = {name: np.concatenate(pieces) for name, pieces in logits.items()}
    main = all_logits.pop(OVER)
    return Evaluation(
        compute_metrics(main, y, w, len(y)),
        {name: compute_metrics(values, y, w, len(y)) for name, values in all_logits.items()},
        {b.title: _slices(b, group, main, y, w, top) for b, group in groups.items()},
        quarantined,
    )


def _codes(by: SliceBy, piece: ScoredPiece) -> tuple[list[str], NDArray[np.int64]]:
    """Distinct values of a piece, and each row's number among them."""
    if by.column == FILE:
        return [piece.file], np.zeros(len(piece.kept), np.int64)
    array = piece.carried[by.column]
    if by.per_day:
        array = _days(array, by.column)
    if pa.types.is_nested(array.type):
        raise ConfigError(f"--by {by.title}: a column of lists has no slices")
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    values = [_MISSING if v is None else str(v) for v in encoded.dictionary.to_pylist()]
    codes = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False).astype(np.int64)
    return [*values, _MISSING], codes


def _days(array: Any, column: str) -> Any:
    """Dates as texts; null where the time is."""
    present = array.is_valid().to_numpy(zero_copy_only=False)
    given = array.drop_null()
    (numbers, calendar), problems = times(given)
    if bad := next((text for mask, text in problems if mask.any()), None):
        raise DataError(f"column {column}: a value {bad}; --by {column}:day needs times")
    if calendar.any() and not calendar.all():
        raise DataError(f"column {column}: some times are whole numbers, others dates; write all of them in one way")
    largest = int(np.abs(numbers).max(initial=0))
    per_s = 1 if largest < 10**11 else 1_000 if largest < 10**14 else 1_000_000
    if calendar.any() or pa.types.is_temporal(given.type):
        per_s = 1_000_000
    days = np.zeros(len(array), np.int32)
    days[present] = numbers // (_DAY_S * per_s)
    return pa.array(days, pa.date32(), mask=~present).cast(pa.string())


def _slices(by: SliceBy, group: _Groups, z: Any, y: Any, w: Any, top: int) -> list[Slice]:
    codes = np.concatenate(group.codes)
    names = list(group.numbers)
    counts = np.bincount(codes, minlength=len(names))
    present = np.flatnonzero(counts)
    shown = present[np.argsort(-counts[present], kind="stable")][:top]
    if by.per_day or by.column == FILE:
        shown = np.array(sorted(shown, key=lambda code: names[code]), np.int64)
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(counts)
    result = []
    for code in shown.tolist():
        rows = order[ends[code] - counts[code] : ends[code]]
        result.append(Slice(names[code], compute_metrics(z[rows], y[rows], w[rows], len(rows))))
    if len(rest := np.setdiff1d(present, shown)):
        rows = np.flatnonzero(np.isin(codes, rest))
        result.append(Slice("(others)", compute_metrics(z[rows], y[rows], w[rows], len(rows)), len(rest)))
    return result
