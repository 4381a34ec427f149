"""What ``+resume`` and ``checkpoint.auto_resume`` mean: which folder a run goes on in, and from which checkpoint."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsys.errors import ConfigError

RUNS = Path("runs")
"""Where runs without ``hydra.run.dir`` go; see configs/config.yaml."""
_POINTER = ".latest"
_CHECKPOINTS = "checkpoints"
_STEP = re.compile(r"step_\d{8,18}")


@dataclass(frozen=True)
class ResumePlan:
    """Where checkpoints go and what a run goes on from.

    Attributes:
        root: holds a folder of checkpoints for every model of the run.
        source: one checkpoint to branch off from; the folder that it lies in stays as it is.
        resumes: whether to go on from the newest checkpoint in ``root``.
        must: whether there has to be one.
    """

    root: Path
    source: Path | None = None
    resumes: bool = False
    must: bool = False


def plan_resume(cfg: Mapping[str, Any], folder: Path, environment: Mapping[str, str] = os.environ) -> ResumePlan:
    """The plan of a run in ``folder``; torchrun's second and later attempts resume by themselves.

    Raises:
        ConfigError: ``resume`` names nothing that could be resumed.
    """
    own = cfg["checkpoint"]["folder"]
    root = Path(own) if own is not None else folder / _CHECKPOINTS
    resume = cfg["resume"]
    if resume is None:
        restarted = int(environment.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
        return ResumePlan(root, resumes=restarted or cfg["checkpoint"]["auto_resume"])
    if resume == "latest":
        return ResumePlan(root, resumes=True, must=True)
    path = Path(resume)
    if not path.is_dir():
        raise ConfigError(f"resume={resume}: there is no such folder; name a run's folder or a checkpoint, or latest")
    if _STEP.fullmatch(path.name):
        return ResumePlan(root, source=path)
    return ResumePlan(_run_folder(path) / _CHECKPOINTS if own is None else root, resumes=True, must=True)


def resumed_folder(resume: str) -> Path | None:
    """The folder of the run that ``resume`` goes on with, which is to be the folder of this run, too.

    Returns:
        None where a run branches off from a single checkpoint, and gets a folder of its own.

    Raises:
        ConfigError: no run has been saved yet.
    """
    if resume != "latest":
        path = Path(resume)
        return None if _STEP.fullmatch(path.name) or not path.is_dir() else _run_folder(path)
    try:
        name = (RUNS / _POINTER).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(
            f"resume=latest: no run in {RUNS}/ has made a checkpoint yet; name its folder with +resume=FOLDER"
        ) from error
    found = RUNS / name
    if not found.is_dir():
        raise ConfigError(f"resume=latest: the latest run was {found}, which is gone; use +resume=FOLDER")
    return found


def note_latest(folder: Path) -> None:
    """Remember that the run in ``folder`` was the last to be saved; no clock is asked, for clocks are set back."""
    from recsys.report.atomic import write_atomic

    try:
        name = folder.resolve().relative_to(RUNS.resolve())
    except ValueError:
        return  # a folder of the user's own choice has a name that they know
    write_atomic(RUNS / _POINTER, f"{name}\n")


def _run_folder(path: Path) -> Path:
    """The run's folder of ``path``, which is that, its ``checkpoints``, or those of one model."""
    for candidate in (path, path.parent):
        if candidate.name == _CHECKPOINTS:
            return candidate.parent
    return path
