"""A folder of prepared arrays: written once as a whole, checked at every reading."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsys.errors import DataError
from recsys.features import FeatureSpec

_log = logging.getLogger(__name__)
_MANIFEST = "manifest.json"
_FEATURES = "features.json"
_NOTES = "notes.json"


@dataclass(frozen=True)
class Prepared:
    """Encoded rows of a data set.

    Attributes:
        spec: the columns.
        arrays: the rows of every split and the constants of the encoding, by name.
        notes: figures about the rows; plain JSON.
    """

    spec: FeatureSpec
    arrays: dict[str, NDArray[Any]]
    notes: dict[str, Any] = field(default_factory=dict)


class _DamagedError(Exception):
    """A cache folder that is not what was written."""


def fetch(folder: Path, build: Callable[[], Prepared]) -> Prepared:
    """Read ``folder``; if it is not there, or damaged (said in the log), build its content and write it.

    The folder appears in one rename, so a reader never sees half of it, and of two runs that prepare the same
    rows at once the second leaves the first one's folder in place.

    Raises:
        DataError: the folder cannot be written; whatever ``build`` raises.
    """
    if folder.exists():
        try:
            return _read(folder)
        except _DamagedError as error:
            _log.warning("%s: the cache is damaged (%s); preparing it again", folder, error)
            _remove(folder)
    prepared = build()
    try:
        _write(folder, prepared)
    except OSError as error:
        raise DataError(
            f"{folder}: cannot write the prepared rows ({error.strerror or error}); "
            "set data.cache_dir to a writable folder with enough room"
        ) from error
    return prepared


def _read(folder: Path) -> Prepared:
    try:
        files: dict[str, str] = json.loads((folder / _MANIFEST).read_text())["sha256"]
        if {path.name for path in folder.iterdir()} != {*files, _MANIFEST}:
            raise _DamagedError("its files are not the ones in the manifest")
        for name, checksum in files.items():
            if _checksum(folder / name) != checksum:
                raise _DamagedError(f"the checksum of {name} differs")
        spec = FeatureSpec.read(folder / _FEATURES)
        names = [name for name in files if name.endswith(".npy")]
        arrays = {name.removesuffix(".npy"): np.load(folder / name, allow_pickle=False) for name in names}
        return Prepared(spec, arrays, json.loads((folder / _NOTES).read_text()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _DamagedError(str(error)) from error


def _write(folder: Path, prepared: Prepared) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.unfinished-", dir=folder.parent))
    try:
        prepared.spec.write(unfinished / _FEATURES)
        for name, array in prepared.arrays.items():
            np.save(unfinished / f"{name}.npy", array, allow_pickle=False)
        (unfinished / _NOTES).write_text(json.dumps(prepared.notes, indent=1) + "\n")
        files = {path.name: _checksum(path) for path in sorted(unfinished.iterdir())}
        (unfinished / _MANIFEST).write_text(json.dumps({"sha256": files}, indent=1) + "\n")
        unfinished.chmod(0o755)
        try:
            os.rename(unfinished, folder)
        except OSError:
            # Another run was first; a folder that is already there holds the same rows.
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _remove(folder: Path) -> None:
    """Take the folder out of the way in one rename, so that nobody reads it while it is being deleted."""
    try:
        grave = Path(tempfile.mkdtemp(prefix=f"{folder.name}.damaged-", dir=folder.parent))
        os.rename(folder, grave / folder.name)
    except FileNotFoundError:
        pass  # Another run that found the damage was first.
    except OSError as error:
        raise DataError(f"{folder}: cannot remove the damaged cache ({error.strerror}); delete it") from error
    shutil.rmtree(grave, ignore_errors=True)


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
