"""The manifest of a prepared folder: written last, it says what every file must be."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from recsys.errors import DataError
from recsys.prepare.settings import SPLITS

MANIFEST = "manifest.json"
QUARANTINE = "quarantine.jsonl"


def file_entry(folder: Path, name: str) -> dict[str, Any]:
    """Name, size and SHA-256 of a file."""
    path = folder / name
    with path.open("rb") as file:
        return {"name": name, "bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def read(folder: Path) -> dict[str, Any]:
    """Read ``manifest.json``.

    Raises:
        DataError: it is not there or cannot be read.
    """
    path = folder / MANIFEST
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(raw, dict) or raw.keys() < {"version", "fingerprint", "splits", "files"}:
            raise ValueError("keys are missing")
        return raw
    except FileNotFoundError:
        raise DataError(f"{folder}: holds no {MANIFEST}, which is written last; prepare the data to the end") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({error}); prepare the data again") from error


def verify(folder: Path) -> None:
    """Compare every file of a prepared folder with the manifest.

    Raises:
        DataError: a file is missing, changed, or not one that was written.
    """
    manifest = read(folder)
    entries = [*(e for split in SPLITS for e in manifest["splits"][split]["files"]), *manifest["files"]]
    for entry in entries:
        path = folder / entry["name"]
        if not path.is_file():
            raise DataError(f"{path}: is missing; restore it or prepare the data again")
        found = file_entry(folder, entry["name"])
        if (found["bytes"], found["sha256"]) != (entry["bytes"], entry["sha256"]):
            raise DataError(f"{path}: is not what was written (size or SHA-256); restore it or prepare the data again")
    written = {folder / entry["name"] for entry in entries}
    for split in (*SPLITS, "vocab"):
        if strange := sorted(set((folder / split).glob("*.parquet")) - written):
            raise DataError(f"{strange[0]}: does not belong to the prepared data; remove it")
