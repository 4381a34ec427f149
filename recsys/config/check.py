"""Refuse values that no run could use, before data is read or a model is built."""

from __future__ import annotations

from typing import Any

from recsys.checkpoint.saver import CheckpointConfig
from recsys.config.cuts import resolve_cuts
from recsys.config.target import check_target
from recsys.distributed.sharding import ShardingConfig
from recsys.errors import ConfigError
from recsys.models.recommender import MAIN_PATH
from recsys.optim.clip import make_clip
from recsys.optim.dense import DenseOptimConfig
from recsys.optim.lr_schedule import LrSchedule
from recsys.schedule.factory import ScheduleConfig
from recsys.sparse.sparse_arch import SparseConfig
from recsys.track import check_names
from recsys.train.prediction import starting_prediction

_AT_LEAST_ONE = (
    "trainer.epochs",
    "trainer.batch_size",
    "trainer.accumulate_steps",
    "trainer.processes",
    "trainer.evals_per_epoch",
    "trainer.timing.rounds",
    "trainer.timing.steps",
    "model.dense_arch.tokens",
)
_WIDTHS = ("model.dense_arch.hidden", "model.over_arch.hidden", "model.local_head.hidden")
_MAX_SEED = 2**63 - 1


def check_config(cfg: dict[str, Any]) -> None:
    """Check the values of a configuration whose keys and types are right.

    Raises:
        ConfigError: names the key, its value and what is valid.
    """
    for key in _AT_LEAST_ONE:
        _require(cfg, key, lambda v: v >= 1, "must be at least 1")
    _require(cfg, "trainer.patience", lambda v: v >= 0, "must be at least 0; 0 never stops early")
    _require(cfg, "trainer.timeout_s", lambda v: v > 0, "must be above 0")
    _require(cfg, "metrics.window_rows", lambda v: v is None or v >= 1, "must be at least 1, or null for all rows")
    _require(cfg, "seed", lambda v: 0 <= v <= _MAX_SEED, f"must be in [0, {_MAX_SEED}]")
    _require(cfg, "model.over_arch.dropout", lambda v: 0 <= v < 1, "must be in [0, 1)")
    _require(cfg, "model.dense_arch.bins", lambda v: v >= 0, "must be at least 0; 0 encodes nothing")
    starting_prediction(cfg["trainer"]["blend"], ())
    for key in _WIDTHS:
        _require(cfg, key, lambda v: all(w >= 1 for w in v), "must be widths of at least 1, such as [64,32]")
    check_names(cfg["trackers"])
    _require(cfg, "trainer.on_nonfinite", lambda v: v in ("stop", "skip"), "valid are stop, skip")
    _require(cfg, "trainer.max_skipped_steps", lambda v: v >= 0, "must be at least 0")
    resolve_cuts(cfg["model"])
    check_target(cfg["data"], "data")
    check_target(cfg["model"]["interaction"], "model.interaction")
    for name, arch in cfg["model"]["archs"].items():
        check_target(arch, f"model.archs.{name}")
    _check_lanes(cfg["schedule"], [*cfg["model"]["archs"], *sorted(MAIN_PATH)])
    schedule = ScheduleConfig(**cfg["schedule"])
    SparseConfig(**cfg["sparse"])
    sharding = ShardingConfig(**cfg["sharding"])
    DenseOptimConfig(**{k: v for k, v in cfg["optim"].items() if k != "lr_schedule"})
    LrSchedule(**cfg["optim"]["lr_schedule"])
    _check_checkpoint(cfg["checkpoint"])
    _check_whole_steps(cfg, schedule, sharding)


def _check_checkpoint(group: dict[str, Any]) -> None:
    allowed = group["allow_changes"]
    if not isinstance(allowed, str | list) or not all(isinstance(word, str) for word in allowed):
        raise ConfigError(f"checkpoint.allow_changes={allowed}: give a list of config keys, or all")
    CheckpointConfig(**{k: v for k, v in group.items() if k != "allow_changes"})


def _check_whole_steps(cfg: dict[str, Any], schedule: ScheduleConfig, sharding: ShardingConfig) -> None:
    """What must be known of a whole step does not go with what is done before it ends."""
    make_clip(cfg["optim"]["clip_norm"], early_update=schedule.early_update)
    if cfg["trainer"]["accumulate_steps"] > 1 and not sharding.replicates_all:
        raise ConfigError(
            f"trainer.accumulate_steps={cfg['trainer']['accumulate_steps']}: tables with a fused optimizer are updated "
            "by every backward, so their gradients cannot be gathered over several; add sharding=data_parallel, or "
            "use a smaller trainer.batch_size"
        )


def _check_lanes(schedule: dict[str, Any], parts: list[str]) -> None:
    lanes = schedule["lanes"]
    if lanes and schedule["name"].startswith("sequential"):
        raise ConfigError(f"schedule.lanes: schedule.name={schedule['name']} has no lanes; use schedule=erase")
    for part, lane in lanes.items():
        if part not in parts:
            raise ConfigError(f"schedule.lanes.{part}: there is no part {part!r}; valid are {', '.join(parts)}")
        if lane < 1:
            raise ConfigError(f"schedule.lanes.{part}={lane}: must be at least 1, for lane 0 is the main one")


def _require(cfg: dict[str, Any], key: str, holds: Any, rule: str) -> None:
    value: Any = cfg
    for name in key.split("."):
        value = value[name]
    if not holds(value):
        raise ConfigError(f"{key}={value}: {rule}")
