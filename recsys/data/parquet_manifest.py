"""The manifest of a prepared folder: which shards there are, and what makes them the ones that were written."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsys.errors import DataError
from recsys.features import FeatureSpec

FORMAT_VERSION = 1
SPLITS = ("train", "valid", "test")
MANIFEST_JSON = "manifest.json"
FEATURES_JSON = "features.json"

_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Shard:
    """A parquet file as the manifest tells it.

    Attributes:
        path: where it lies.
        rows: rows in it.
        num_bytes: its size.
        sha256: of its content, in hex.
    """

    path: Path
    rows: int
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a prepared folder holds.

    Attributes:
        fingerprint: of the rows and their encoding, as the preparation gave it.
        shards: of each of :data:`SPLITS`, in the order of the rows.
        notes: figures of the preparation; plain JSON.
        spec: what ``features.json`` says of the columns.
        source: kind of the files that the rows come from; None where the manifest does not say.
    """

    fingerprint: str
    shards: dict[str, list[Shard]]
    notes: dict[str, Any]
    spec: FeatureSpec
    source: str | None = None


class _WrongError(Exception):
    """What is wrong with a manifest."""


def read_manifest(folder: Path) -> Manifest:
    """Read ``manifest.json`` and ``features.json`` and compare them with the files that lie in ``folder``.

    Raises:
        DataError: there is none, it is of another version or damaged, a shard is missing or not listed, or
            ``features.json`` is not the one that was written.
    """
    path = folder / MANIFEST_JSON
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; set data.path to a folder that prepare.py wrote")
    if not path.exists():
        raise DataError(f"{folder}: holds no {MANIFEST_JSON}, which is written last; run prepare.py to its end")
    try:
        raw = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_object)
        manifest = _manifest(folder, raw)
    except DataError:
        raise
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror or error})") from error
    except (ValueError, _WrongError) as error:
        raise DataError(f"{path}: {error}; prepare the data again") from error
    for split in SPLITS:
        _compare(folder / split, {shard.path for shard in manifest.shards[split]})
    return manifest


def fold_folder(folder: Path, folds: int, fold: int) -> Path:
    """The folder of a fold, the manifests of all folds compared: same rows, same settings, each its own test block.

    Raises:
        DataError: a fold is missing, is another one than its name says, or is of other rows or settings.
    """
    if (folder / MANIFEST_JSON).exists():
        raise DataError(
            f"{folder}: is one prepared set without folds, and its encodings are fitted on its own train rows; prepare "
            f"the folds from the source: prepare.py ... split.folds={folds} split.fold=all"
        )
    first: Any = None
    for number in range(folds):
        path = folder / f"fold-{number}" / MANIFEST_JSON
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            split = dict(raw["settings"]["split"])
            found = (split.pop("folds"), split.pop("fold"))
            task = (raw["source"], raw["settings"] | {"split": split})
        except OSError:
            raise DataError(
                f"{path}: not there; prepare all {folds} folds: prepare.py ... split.folds={folds} split.fold=all"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: cannot be read as a manifest ({error}); prepare the data again") from error
        if found != (folds, number):
            raise DataError(
                f"{path}: is fold {found[1]} of {found[0]}, not {number} of {folds}; set data.folds to {found[0]}"
            )
        first = first or task
        if task != first:
            raise DataError(f"{path}: is of other rows or settings than fold-0; prepare all folds alike")
    return folder / f"fold-{fold}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise _WrongError(f"the keys {[key for key, _ in pairs]} are not unique")
    return dict(pairs)


def _manifest(folder: Path, raw: Any) -> Manifest:
    version = _get(raw, "version", int)
    if version != FORMAT_VERSION:
        raise _WrongError(f"is of version {version}, and this recsys reads version {FORMAT_VERSION}")
    splits = _get(raw, "splits", dict)
    if splits.keys() != set(SPLITS):
        raise _WrongError(f"has the splits {sorted(splits)} instead of {', '.join(SPLITS)}")
    shards = {name: _shards(folder, name, splits[name]) for name in SPLITS}
    fingerprint = _get(raw, "fingerprint", str)
    if not re.fullmatch(r"[0-9a-f]{8,}", fingerprint):
        raise _WrongError(f"the fingerprint {fingerprint!r} is not hexadecimal")
    hashes = {_get(file, "name", str): _get(file, "sha256", str) for file in _get(raw, "files", list)}
    if FEATURES_JSON not in hashes:
        raise _WrongError(f"does not list {FEATURES_JSON}")
    spec = _spec(folder / FEATURES_JSON, hashes[FEATURES_JSON])
    return Manifest(fingerprint, shards, _get(raw, "notes", dict), spec, _get(raw, "source", dict).get("kind"))


def _spec(path: Path, sha256: str) -> FeatureSpec:
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise DataError(
            f"{path}: the content is not the one that was written (its sha256 differs from the manifest's); "
            "restore the file or prepare the data again"
        )
    return FeatureSpec.read(path)


def _shards(folder: Path, split: str, raw: Any) -> list[Shard]:
    shards = [_shard(folder, split, file) for file in _get(raw, "files", list)]
    paths = [shard.path for shard in shards]
    if paths != sorted(set(paths)):
        raise _WrongError(f"the files of {split} are not in order, or one stands twice")
    rows = _get(raw, "rows", int)
    if rows != sum(shard.rows for shard in shards):
        raise _WrongError(f"{split} has {rows} rows and its files {sum(shard.rows for shard in shards)}")
    return shards


def _shard(folder: Path, split: str, raw: Any) -> Shard:
    name, sha256 = _get(raw, "name", str), _get(raw, "sha256", str)
    # The folder in the name keeps an edited manifest from passing test rows off as train rows.
    if not re.fullmatch(rf"{split}/part-\d{{5,}}\.parquet", name):
        raise _WrongError(f"{name!r} is no file of the split {split}")
    if not _SHA256.fullmatch(sha256):
        raise _WrongError(f"the sha256 of {name} is {sha256!r}")
    return Shard(folder / name, _get(raw, "rows", int), _get(raw, "bytes", int), sha256)


def _get(raw: Any, key: str, kind: type) -> Any:
    value = raw.get(key) if isinstance(raw, dict) else None
    if type(value) is not kind:
        raise _WrongError(f"{key!r} should be there and be {kind.__name__}, but is {value!r:.80}")
    if isinstance(value, int) and value < 0:
        raise _WrongError(f"{key!r} is {value}")
    return value


def _compare(folder: Path, listed: set[Path]) -> None:
    there = set(folder.glob("*.parquet"))
    if missing := sorted(listed - there):
        raise DataError(f"{missing[0]}: listed in {MANIFEST_JSON} but not there; restore it or prepare the data again")
    if unknown := sorted(there - listed):
        raise DataError(f"{unknown[0]}: not listed in {MANIFEST_JSON}; remove it or prepare the data again")
