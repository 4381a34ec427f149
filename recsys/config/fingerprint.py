"""A name for everything that can change a model's quality figures."""

from __future__ import annotations

import copy
import hashlib
import json
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from recsys.config.cuts import resolve_cuts
from recsys.report import describe_environment

_PACKAGE = Path(__file__).resolve().parents[1]
# What these hold never changes a number: how progress is shown, where files go, how speed is timed.
_WITHOUT_EFFECT = (
    *("quiet", "cache_dir", "reuse_baseline", "save_model", "reuse_jobs", "timing", "device"),
    *("processes", "timeout_s", "overlap_input"),
)
# Rooms that keep, show or compare figures and make none.
_ROOMS_WITHOUT_EFFECT = ("checkpoint", "report", "track", "compare", "overview", "serve", "sweep", "advise")


def fingerprint(cfg: dict[str, Any], data_fingerprint: str, device: torch.device, processes: int = 1) -> str:
    """16 hex digits over config, rows, source code, library versions, kind of device, threads and processes."""
    plain = config_with_effect(cfg)
    plain.pop("data", None)  # the data's own fingerprint stands for it
    facts = {
        "config": plain,
        "data": data_fingerprint,
        "code": _code_hash(),
        "numpy": metadata.version("numpy"),
        "environment": {k: v for k, v in describe_environment(device).items() if k not in ("git_commit", "cpus")},
        "threads": torch.get_num_threads(),
        "processes": processes,
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def config_with_effect(cfg: dict[str, Any]) -> dict[str, Any]:
    """The configuration without what never changes a number of the trained model."""
    plain = copy.deepcopy(cfg)
    plain["model"].update(_plain_cuts(plain["model"]))
    # A name, the progress display, who is told of it, and where and when a run is saved.
    for key in ("name", "metrics", "trackers", "checkpoint", "resume"):
        plain.pop(key, None)
    for key in _WITHOUT_EFFECT:
        plain["trainer"].pop(key, None)
    return plain


def _plain_cuts(model: dict[str, Any]) -> dict[str, Any]:
    """The cuts without their words: ``all`` and a list of all parts are one model."""
    cuts = resolve_cuts(model)
    return {
        "detach": sorted(cuts.detach),
        "local_losses": sorted(cuts.local_losses),
        "embedding_grad_from": sorted(cuts.embedding_grad_from),
        "loss_weights": {a: cuts.loss_weights.get(a, 1.0) for a in sorted(cuts.local_losses)},
    }


@cache
def _code_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        if path.relative_to(_PACKAGE).parts[0] in _ROOMS_WITHOUT_EFFECT:
            continue
        digest.update(str(path.relative_to(_PACKAGE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
