"""The faults of tests/data/test_criteo_faults.py, told by this reader in the same words."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from recsys.prepare.schema import Schema, read_schema
from tests.reference.clicks import run_prepare

_HERE = Path(__file__).resolve()
_SCHEMA: Schema = read_schema(_HERE.parents[2] / "data/schemas/criteo.yaml").with_min_count(2)
# Those that look inside the other reader, or name its config keys.
_NOT_OURS = {
    "test_missing_path",
    "test_line_numbers_hold_across_blocks",
    "test_endless_line",
    "test_max_rows_stops_before_a_later_fault",
}


def _reader(path: str, *, cache_dir: str, test_path: str | None = None) -> Any:
    inputs: Any = path if test_path is None else {"train": path, "test": test_path}

    def splits(batch_size: int, seed: int) -> None:
        del batch_size, seed
        try:
            run_prepare("criteo_kaggle", inputs, Path(cache_dir), _SCHEMA)
        finally:
            # The tests ask that nothing be left that could be taken for data.
            folder = Path(cache_dir)
            if folder.exists() and not (folder / "manifest.json").exists():
                folder.rename(folder.with_name("unfinished"))

    return SimpleNamespace(splits=splits)


_spec = importlib.util.spec_from_file_location("criteo_faults", _HERE.parents[1] / "data/test_criteo_faults.py")
assert _spec is not None and _spec.loader is not None
_faults: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_faults)
_faults.CriteoKaggle = _reader
globals().update({n: f for n, f in vars(_faults).items() if n.startswith("test_") and n not in _NOT_OURS})


def test_there_are_many() -> None:
    assert sum(name.startswith("test_") for name in globals()) > 15
