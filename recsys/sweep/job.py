"""One job of a sweep: taken over where it was made before, else run; a failure is written down."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import shutil
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from recsys.errors import DataError, UserError
from recsys.report.atomic import write_atomic
from recsys.report.record import RunRecord
from recsys.report.writers import REPORT_JSON

JOB_JSON = "job.json"

Config = dict[str, Any]


@dataclass(frozen=True)
class JobEnd:
    """What became of a job; ``job.json``.

    Attributes:
        status: ``failed`` with ``error`` and ``traceback``, or ``finished``.
        seconds: that it took now.
        fingerprint: of everything that the job's figures depend on; None where it failed before that was known, and of
            chains, which are not kept.
        reused_from: folder of the earlier job that it was taken from; None where it was run.
    """

    status: Literal["finished", "failed"]
    seconds: float
    fingerprint: str | None = None
    reused_from: str | None = None
    error: str | None = None
    traceback: str | None = None

    def write(self, folder: Path) -> None:
        """Write ``job.json``."""
        write_atomic(folder / JOB_JSON, json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def read(folder: Path) -> JobEnd | None:
        """Read ``job.json``; None where there is none, for the job has not ended.

        Raises:
            DataError: it is malformed; names the file.
        """
        path = folder / JOB_JSON
        try:
            return JobEnd(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise DataError(f"{path}: damaged ({error}); delete it and run the sweep again") from error


def run_job(cfg: Config, folder: Path) -> JobEnd:
    """Run ``cfg`` into ``folder``, or take the finished job with the same fingerprint; an error is no end of the sweep.

    With ``trainer.reuse_jobs=false`` nothing is taken over.
    """
    start = time.perf_counter()
    try:
        fingerprint, reused = _run_or_reuse(cfg, folder)
        if reused == folder.resolve() and (end := JobEnd.read(folder)) is not None:
            return end
        end = JobEnd("finished", time.perf_counter() - start, fingerprint, None if reused is None else str(reused))
    except Exception as error:  # whatever one job runs into, the others go on
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        message = kind + " ".join(str(error).split())
        end = JobEnd("failed", time.perf_counter() - start, error=message, traceback=traceback.format_exc())
        _release_memory()
    end.write(folder)
    return end


def _run_or_reuse(cfg: Config, folder: Path) -> tuple[str | None, Path | None]:
    if "chain" in cfg:  # has no fingerprint, so it is run every time
        from recsys.chains.run import run_chain

        run_chain(cfg, folder)
        return None, None
    from recsys.config.check import check_config
    from recsys.config.wire import build_data

    check_config(cfg)
    data = build_data(cfg)
    fingerprint = job_fingerprint(cfg, data.fingerprint)
    index = Path(cfg["trainer"]["cache_dir"]) / "sweep_jobs" / f"{fingerprint}.json"
    earlier = _find(index, folder) if cfg["trainer"]["reuse_jobs"] else None
    if earlier is not None:
        _take_over(earlier, folder)
    else:
        for name in (JOB_JSON, REPORT_JSON):  # of other figures than those that are now to come
            (folder / name).unlink(missing_ok=True)
        _run_here_or_under_torchrun(cfg, folder, data)
    known = [str(path) for path in _indexed(index)]
    write_atomic(index, json.dumps({"folders": list(dict.fromkeys([*known, str(folder.resolve())]))}) + "\n")
    return fingerprint, earlier


def _run_here_or_under_torchrun(cfg: Config, folder: Path, data: Any) -> None:
    from recsys.config.torchrun import under_torchrun
    from recsys.run import run

    if cfg["trainer"]["processes"] == 1:
        run(cfg, folder, data)
    elif status := under_torchrun(cfg["trainer"]["processes"], folder):
        raise UserError(f"torchrun ended with status {status}; what its processes said stands above")


def job_fingerprint(cfg: Config, data_fingerprint: str) -> str:
    """16 hex digits over both models' fingerprints, the experiment's name and how speed is timed."""
    from recsys.config.fingerprint import fingerprint
    from recsys.config.wire import build_device
    from recsys.run import baseline_config

    device = build_device(cfg["trainer"]["device"])
    models = [
        fingerprint(c, data_fingerprint, device, cfg["trainer"]["processes"])
        for c in (cfg, baseline_config(cfg, device))
    ]
    facts = [*models, cfg["name"], cfg["trainer"]["timing"]]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _find(index: Path, folder: Path) -> Path | None:
    """The folder of a finished job with this fingerprint, readable still: ``folder`` itself, or another."""
    candidates = [folder.resolve(), *_indexed(index)]
    return next((candidate for candidate in candidates if _is_whole(candidate, index.stem)), None)


def _indexed(index: Path) -> list[Path]:
    """Where jobs with this fingerprint ended; one that is gone or was written over is found out by who looks there."""
    try:
        return [Path(folder) for folder in json.loads(index.read_text())["folders"]]
    except (OSError, ValueError, KeyError, TypeError):  # the index only saves time
        return []


def _is_whole(folder: Path, fingerprint: str) -> bool:
    try:
        end = JobEnd.read(folder)
        _ = RunRecord(folder).report, RunRecord(folder).curve
        return end is not None and end.status == "finished" and end.fingerprint == fingerprint
    except DataError:
        return False


def _take_over(earlier: Path, folder: Path) -> None:
    """Put the files of a finished job into ``folder``, the report last; folders inside (checkpoints) stay there."""
    if earlier == folder.resolve():
        return
    names = [path.name for path in earlier.iterdir() if path.is_file() and path.name not in (JOB_JSON, REPORT_JSON)]
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*names, REPORT_JSON):
        target = folder / name
        target.unlink(missing_ok=True)
        try:
            os.link(earlier / name, target)
        except OSError:  # another file system
            shutil.copyfile(earlier / name, target)


def _release_memory() -> None:
    gc.collect()
    with suppress(ImportError):
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()
