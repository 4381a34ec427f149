"""An exported package as a service uses it: rows of requests in, probabilities out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys.errors import ConfigError
from recsys.prepare.convert import convert
from recsys.serve.batches import EncodedRows
from recsys.serve.export import COMPILED, load_package, predict_with, read_package
from recsys.serve.request_rows import RowError, check_rows, fields_of, table_of
from recsys.serve.row_encoder import read_encoder


class Predictor:
    """A package with its encoding.

    Args:
        package: an exported folder.
        compiled: use the dense graph that was compiled ahead of time; None does where there is one.

    Raises:
        ConfigError: ``compiled``, and there is none.
        DataError: this is no package, or it is damaged.
    """

    def __init__(self, package: Path, *, compiled: bool | None = None) -> None:
        self.info = read_package(package)
        has_compiled = COMPILED in self.info["files"]
        if compiled and not has_compiled:
            raise ConfigError(f"{package}: holds no {COMPILED}; export it with --compiled")
        self.compiled = has_compiled if compiled is None else compiled
        self._encoder = read_encoder(package, self.info["source"])
        self._schema = self._encoder.schema.for_scoring()
        self.fields = fields_of(self._encoder)
        self._model = load_package(package, compiled=self.compiled)

    def check(self, rows: list[Any]) -> list[RowError]:
        """What is wrong with the rows; empty if they can be predicted."""
        return check_rows(self.fields, rows)

    def predict(self, rows: list[dict[str, Any]]) -> NDArray[np.float32]:
        """Probabilities ``(B,)`` of rows that :meth:`check` found nothing wrong with."""
        table = table_of(self.fields, rows).select(self._schema.sources)
        checked, faults = convert(table, self._schema)
        assert not faults, f"the check of rows let pass: {faults[0].message}"
        encoded = self._encoder.encode(checked, "json")
        assert not encoded.faults, f"the check of rows let pass: column {encoded.faults[0][1]}"
        arrays = EncodedRows.of(self._encoder.spec, encoded.columns, len(rows))
        return predict_with(self._model, arrays, len(rows))
