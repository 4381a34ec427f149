"""Batch scoring: a parquet file with a prediction for every row of the input."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recsys.errors import ConfigError
from recsys.models.recommender import OVER
from recsys.prepare.work import atomic
from recsys.serve.pipeline import ScoredPiece, ScoreSettings, predict
from recsys.serve.trained import probability

ROW, PROBABILITY = "row", "probability"


@dataclass
class ScoreSummary:
    """Figures of a scoring.

    Attributes:
        rows: scored.
        quarantined: left out, see ``quarantine``.
        seconds: from the first byte to the last.
        out_of_vocabulary: values without an id of their own, by column; they got the id that training gave rare ones.
        output, quarantine: the files; the latter only where a row was bad.
    """

    output: Path
    rows: int = 0
    quarantined: int = 0
    seconds: float = 0.0
    out_of_vocabulary: dict[str, int] = field(default_factory=dict)
    quarantine: Path | None = None

    @property
    def rows_per_s(self) -> float:
        """Rows a second, the start of processes and the loading of the model included."""
        return self.rows / self.seconds if self.seconds else 0.0


def score(
    settings: ScoreSettings,
    output: Path,
    *,
    heads: bool = False,
    on_rows: Callable[[int], None] = lambda _: None,
) -> ScoreSummary:
    """Score every row of the input.

    The output has the columns ``row`` (number of the row in the input, counted from 0 over all files), those of
    ``settings.carried``, ``probability`` and with ``heads`` ``probability_<part>`` for every local head. It appears
    whole or not at all.

    Args:
        settings: what is scored.
        output: the parquet file.
        heads: also the local heads.
        on_rows: called with the number of rows after each piece.

    Raises:
        ConfigError: a column to carry has a name of the output.
        UserError: as :func:`recsys.serve.pipeline.predict`.
    """
    if taken := [name for name in settings.carried if name == ROW or name.startswith(PROBABILITY)]:
        raise ConfigError(f"--keep {taken[0]}: the output has a column of this name; rename it in the input")
    side_file = output.with_name(f"{output.name}.quarantine.jsonl")
    start, first_row = time.perf_counter(), 0
    summary = ScoreSummary(output)
    with ExitStack() as stack:
        draft = stack.enter_context(atomic(output))
        bad_rows = stack.enter_context(draft.with_suffix(".jsonl").open("w+", encoding="utf-8"))
        stack.callback(draft.with_suffix(".jsonl").unlink)
        writer = None
        for piece in predict(settings):
            table = _table(piece, first_row, heads)
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(draft, table.schema, compression="zstd"))
            writer.write_table(table.cast(writer.schema))
            bad_rows.writelines(f"{row.to_json()}\n" for row in piece.quarantined)
            first_row += piece.num_input
            summary.rows += table.num_rows
            summary.quarantined += len(piece.quarantined)
            for name, count in piece.out_of_vocabulary.items():
                summary.out_of_vocabulary[name] = summary.out_of_vocabulary.get(name, 0) + count
            on_rows(piece.num_input)
        assert writer is not None and first_row == summary.rows + summary.quarantined, "rows were lost"
        writer.close()
        if summary.quarantined:
            bad_rows.seek(0)
            with atomic(side_file) as target:
                target.write_text(bad_rows.read(), encoding="utf-8")
            summary.quarantine = side_file
    summary.seconds = time.perf_counter() - start
    return summary


def _table(piece: ScoredPiece, first_row: int, heads: bool) -> Any:
    columns: dict[str, Any] = {ROW: pa.array(piece.kept.astype(np.int64) + first_row)}
    columns |= piece.carried
    columns[PROBABILITY] = pa.array(probability(piece.logits[OVER]))
    if heads:
        parts = [name for name in piece.logits if name != OVER]
        columns |= {f"{PROBABILITY}_{name}": pa.array(probability(piece.logits[name])) for name in parts}
    return pa.table(columns)
