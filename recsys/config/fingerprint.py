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

_PACKAGE = Path(__file__).resolve().parents[1]
# What these hold never changes a number: how progress is shown, where files go, how speed is timed.
_WITHOUT_EFFECT = ("quiet", "cache_dir", "reuse_baseline", "timing", "device")


def fingerprint(cfg: dict[str, Any], data_fingerprint: str, device: torch.device) -> str:
    """16 hex digits over config, rows, source code, library versions, device kind and threads."""
    plain = copy.deepcopy(cfg)
    plain.pop("name", None)
    plain.pop("data", None)  # the data's own fingerprint stands for it
    for key in _WITHOUT_EFFECT:
        plain["trainer"].pop(key, None)
    facts = {
        "config": plain,
        "data": data_fingerprint,
        "code": _code_hash(),
        "versions": {name: metadata.version(name) for name in ("torch", "torchrec", "numpy")},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


@cache
def _code_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(str(path.relative_to(_PACKAGE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
