"""The final model of a run in its folder: weights, feature spec and vocabularies, each with its checksum.

A run's folder can be moved to another machine: nothing in it points to the data it was trained on.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsys.errors import ConfigError, DataError
from recsys.report.atomic import write_atomic

if TYPE_CHECKING:
    import torch

    from recsys.data.source import DataSplits

MODEL_JSON = "model.json"
FEATURES_JSON = "features.json"
VERSION = 1
# The sides of a report and the files of their weights.
WEIGHTS = {"erase": "model.safetensors", "baseline": "baseline.safetensors"}


def require_safetensors() -> None:
    """Refuse to begin what could not be saved at its end.

    Raises:
        ConfigError: the package is not installed.
    """
    try:
        import safetensors  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "trainer.save_model=true needs the package safetensors; install it (pip install safetensors), or train "
            "with trainer.save_model=false, which keeps the figures but not the model"
        ) from error


def write_weights(path: Path, state: dict[str, torch.Tensor]) -> None:
    """Write a model's ``state_dict`` as safetensors; the file appears whole or not at all."""
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        save_file({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}, draft)
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        os.chmod(draft, 0o644)  # safetensors makes files that only their owner reads
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def place_weights(source: Path, target: Path) -> None:
    """Put a finished file at another place too: a second name for it where the file system can, else a copy."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    draft.unlink(missing_ok=True)
    try:
        os.link(source, draft)
    except OSError:
        shutil.copyfile(source, draft)
    os.replace(draft, target)


def write_model_files(
    folder: Path, data: DataSplits, sides: dict[str, tuple[dict[str, Any], Mapping[str, float | None]]]
) -> None:
    """Finish a folder that holds the weights: encoding and ``model.json``.

    Args:
        folder: of the run.
        data: what the model was trained on.
        sides: configuration of each model and the report's ``prediction`` of it, by the side of the report.
    """
    names = [WEIGHTS[side] for side in sides]
    names += _write_encoding(folder, data)
    content = {
        "version": VERSION,
        "source": data.encoding.source if data.encoding else None,
        "sides": {
            side: {"name": cfg["name"], "model": cfg["model"], "prediction": dict(prediction)}
            for side, (cfg, prediction) in sides.items()
        },
        "files": {name: sha256(folder / name) for name in names},
    }
    write_atomic(folder / MODEL_JSON, json.dumps(content, indent=1) + "\n")


def _write_encoding(folder: Path, data: DataSplits) -> list[str]:
    """Write what turns raw rows into ids; names of the files."""
    if data.encoding is None:
        data.spec.write(folder / FEATURES_JSON)
        return [FEATURES_JSON]
    origin = data.encoding.folder
    names = [FEATURES_JSON, *sorted(str(p.relative_to(origin)) for p in (origin / "vocab").glob("*.parquet"))]
    for name in names:
        write_atomic(folder / name, (origin / name).read_bytes())
    return names


def read_model_json(folder: Path) -> dict[str, Any]:
    """What ``model.json`` says, every file compared with its checksum.

    Raises:
        DataError: there is no saved model, or a file is missing or not the one that was written.
    """
    path = folder / MODEL_JSON
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name the folder of a run")
    if not path.exists():
        raise DataError(
            f"{folder}: holds no {MODEL_JSON}, so no model was saved there; train with trainer.save_model=true"
        )
    content = read_json(path, VERSION)
    check_files(folder, content["files"])
    return content


def read_json(path: Path, version: int) -> dict[str, Any]:
    """A JSON mapping with ``version`` and ``files``.

    Raises:
        DataError: it is damaged or of another version.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != version:
            raise ValueError(f"version {content['version']}, and this recsys reads version {version}")
        if not isinstance(content["files"], dict):
            raise ValueError("no list of files")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: cannot be read ({error}); restore it or make the folder again") from error
    result: dict[str, Any] = content
    return result


def check_files(folder: Path, files: dict[str, str]) -> None:
    """Compare files with their SHA-256.

    Raises:
        DataError: one is missing or is not what was written.
    """
    for name, wanted in files.items():
        if not (folder / name).is_file():
            raise DataError(f"{folder / name}: is not there; restore it or make the folder again")
        if sha256(folder / name) != wanted:
            raise DataError(
                f"{folder / name}: is not what was written (its sha256 differs from that of {MODEL_JSON} or "
                "package.json); restore it or make the folder again"
            )


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def forget(folder: Path) -> None:
    """Remove a saved model from a folder that is written anew, so that no old one is taken for the new."""
    for name in (MODEL_JSON, *WEIGHTS.values()):
        with suppress(FileNotFoundError):
            (folder / name).unlink()
