"""Which jobs a multirun consists of, each checked before the first one starts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser

from recsys.config.cli import compose, to_plain
from recsys.errors import ConfigError, DataError
from recsys.report.atomic import write_atomic

SWEEP_JSON = "sweep.json"
_BASIC = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


@dataclass(frozen=True)
class SweepPlan:
    """The jobs of a sweep, as ``sweep.json`` holds them.

    Attributes:
        arguments: of the command line.
        jobs: overrides of each job, key to value, in the order of their folders ``0``, ``1``, ...
    """

    arguments: list[str]
    jobs: list[dict[str, str]]

    @property
    def varied(self) -> list[str]:
        """Keys that are not the same in all jobs; of a sweep of one job, those that are no group."""
        keys = list(dict.fromkeys(key for job in self.jobs for key in job))
        varied = [key for key in keys if len({job.get(key) for job in self.jobs}) > 1]
        return varied or [key for key in keys if not key.startswith("+")]

    def label(self, number: int) -> str:
        """The job in a few words: its values of the keys that vary."""
        values = {key.lstrip("+"): self.jobs[number].get(key, "-") for key in self.varied}
        return " ".join(f"{key}={value}" for key, value in values.items()) or "the only job"

    def write(self, folder: Path) -> None:
        """Write ``sweep.json``."""
        write_atomic(folder / SWEEP_JSON, json.dumps(asdict(self), indent=1) + "\n")

    @staticmethod
    def read(folder: Path) -> SweepPlan:
        """Read ``sweep.json``.

        Raises:
            DataError: it is missing or malformed; names the file.
        """
        path = folder / SWEEP_JSON
        try:
            raw = json.loads(path.read_text())
            return SweepPlan(list(raw["arguments"]), [dict(job) for job in raw["jobs"]])
        except FileNotFoundError as error:
            raise DataError(f"{path}: no such file; give the folder of a sweep, multirun/DATE/TIME-...") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: damaged ({error}); start the sweep again, finished jobs are kept") from error


def plan_sweep(arguments: list[str]) -> tuple[Path, SweepPlan]:
    """The sweep's folder and its jobs, each composed and checked.

    Args:
        arguments: of the command line, without ``-m``.

    Raises:
        ConfigError: a job that could not run; names it and the key. Another sweeper than Hydra's basic one.
    """
    parser = OverridesParser.create()
    single = [a for a in arguments if not parser.parse_override(a).is_sweep_override()]
    cfg = compose(single, with_hydra=True)
    if cfg.hydra.sweeper._target_ != _BASIC:
        raise ConfigError(f"hydra/sweeper={cfg.hydra.sweeper._target_}: only basic is supported; see scripts/tune.py")
    given = [f"{key}={value}" for key, value in (cfg.hydra.sweeper.params or {}).items()]
    jobs = _expand([*given, *arguments])
    plan = SweepPlan(arguments, [dict(_pair(o) for o in job) for job in jobs])
    for number, job in enumerate(jobs):
        try:
            _check(to_plain(compose(job)))
        except ConfigError as error:
            raise ConfigError(f"job {number} of {len(jobs)} ({plan.label(number)}): {error}") from error
    return Path(cfg.hydra.sweep.dir), plan


def _check(cfg: dict[str, Any]) -> None:
    from recsys.config.check import check_config
    from recsys.config.target import check_target

    if "chain" in cfg:
        check_target(cfg["chain"], "chain")
    else:
        check_config(cfg)


def _expand(overrides: list[str]) -> list[list[str]]:
    """Every combination, in the order in which Hydra's own sweeper numbers them."""
    import hydra

    from recsys.config.cli import CONFIGS

    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()  # for glob(...), which looks the options of a group up
        parsed = OverridesParser.create(config_loader=loader).parse_overrides(overrides)
        task = [o for o in parsed if not o.key_or_group.startswith(("hydra.", "hydra/"))]
        (jobs,) = BasicSweeper.split_arguments(task, None)
    return jobs


def _pair(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key, value
