"""What a comparison consists of: experiments x folds x seeds, each a run with a configuration of its own."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from recsys.config.cli import compose, to_plain
from recsys.errors import ConfigError

Config = dict[str, Any]
# baseline; + local losses; detached, backward late; detached, backward early. Each differs from the one
# before it in one thing, so together they tell where a gap comes from.
CONTROLS = ("baseline6", "heads6", "late6", "erase6")
# Folds have seeds of their own: runs of two folds share no random number, so fold means are independent draws.
SEEDS_PER_FOLD = 1000

_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[{(]*[\]})])")


@dataclass(frozen=True)
class Experiment:
    """A named experiment with overrides of its own, written ``name`` or ``name:override,override``."""

    name: str
    overrides: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """As it is written on the command line."""
        return f"{self.name}:{','.join(self.overrides)}" if self.overrides else self.name

    @classmethod
    def parse(cls, text: str) -> Experiment:
        """Read ``text``; commas inside brackets do not end an override.

        Raises:
            ConfigError: there is no name, or an override without ``=``.
        """
        name, _, rest = text.partition(":")
        overrides = tuple(part for part in _COMMA_OUTSIDE_BRACKETS.split(rest) if part)
        if not name or any("=" not in part for part in overrides):
            raise ConfigError(f"{text!r} is no experiment; write name or name:key=value,key=value")
        return cls(name, overrides)


def split_arguments(arguments: Sequence[str]) -> tuple[list[Experiment], list[str]]:
    """Tell experiments (``erase6``, ``erase6:optim.lr=1e-3``) from overrides for all (``data=criteo_kaggle``)."""
    is_override = [argument.startswith("~") or "=" in argument.partition(":")[0] for argument in arguments]
    common = [a for a, it_is in zip(arguments, is_override, strict=True) if it_is]
    experiments = [Experiment.parse(a) for a, it_is in zip(arguments, is_override, strict=True) if not it_is]
    return list(dict.fromkeys(experiments)), common


def with_controls(experiments: Sequence[Experiment]) -> list[Experiment]:
    """The experiments, with the four controls in front where ``erase6`` or a variant of it is among them."""
    if not any(experiment.name == "erase6" for experiment in experiments):
        return list(experiments)
    return list(dict.fromkeys([*(Experiment(name) for name in CONTROLS), *experiments]))


@dataclass(frozen=True)
class Cell:
    """One run of the plan.

    Attributes:
        label: of the experiment.
        fold, index: which fold, and which of the fold's seeds, both counted from 0.
        cfg: the resolved configuration.
        overrides: arguments with which ``train.py`` trains the same model.
    """

    label: str
    fold: int
    index: int
    cfg: Config
    overrides: tuple[str, ...]

    @property
    def key(self) -> tuple[str, int, int]:
        """Label, fold and seed's index."""
        return self.label, self.fold, self.index


@dataclass(frozen=True)
class Plan:
    """All runs of a comparison.

    Attributes:
        labels: experiments in the order of the tables.
        reference: the label that the gaps are measured against.
        cells: fold by fold, seed by seed, in the order of ``labels``.
        num_folds, num_seeds: K folds with N seeds each.
        folds_share_rows: whether the folds are one file's blocks, so that what one fold tests on the others train on.
    """

    labels: tuple[str, ...]
    reference: str
    cells: tuple[Cell, ...]
    num_folds: int
    num_seeds: int
    folds_share_rows: bool

    def twins(self) -> list[tuple[str, str]]:
        """Pairs of experiments that differ in nothing but their schedule, which must not change a prediction."""
        first = {cell.label: _without_schedule(cell.cfg) for cell in self.cells if (cell.fold, cell.index) == (0, 0)}
        return [(a, b) for a, b in itertools.combinations(self.labels, 2) if first[a] == first[b]]


def make_plan(
    experiments: Sequence[Experiment],
    common: Sequence[str],
    *,
    num_seeds: int,
    num_folds: int,
    reference: str | None = None,
    compose_config: Callable[[list[str]], Config] = lambda overrides: to_plain(compose(overrides)),
) -> Plan:
    """Compose every run.

    Args:
        experiments: at least two, the controls included.
        common: overrides of every run.
        num_seeds: N seeds in each fold.
        num_folds: K; 1 keeps the split of the configuration.
        reference: label to measure against; None: the first experiment.
        compose_config: overrides to a resolved configuration.

    Raises:
        ConfigError: fewer than two experiments, impossible numbers, an unknown reference, data that offers no folds.
    """
    labels = tuple(experiment.label for experiment in experiments)
    if len(labels) < 2:
        raise ConfigError(f"a comparison needs two experiments or more, got {', '.join(labels) or 'none'}")
    if not 1 <= num_seeds <= SEEDS_PER_FOLD or num_folds < 1:
        raise ConfigError(
            f"--seeds {num_seeds} --folds {num_folds}: both at least 1, and at most {SEEDS_PER_FOLD} seeds"
        )
    if reference is not None and reference not in labels:
        raise ConfigError(f"--reference {reference}: is none of the experiments compared, {', '.join(labels)}")
    arguments = {e.label: (f"+experiment={e.name}", *common, *e.overrides) for e in experiments}
    configs = {label: compose_config(list(overrides)) for label, overrides in arguments.items()}
    cells = tuple(
        _cell(label, configs[label], arguments[label], num_folds, fold, index)
        for fold in range(num_folds)
        for index in range(num_seeds)
        for label in labels
    )
    shared = num_folds > 1 and all("folds" in cfg["data"] for cfg in configs.values())
    return Plan(labels, reference or labels[0], cells, num_folds, num_seeds, shared)


def _cell(label: str, cfg: Config, arguments: tuple[str, ...], num_folds: int, fold: int, index: int) -> Cell:
    cfg = copy.deepcopy(cfg)
    changes = {"seed": cfg["seed"] + SEEDS_PER_FOLD * fold + index}
    cfg["seed"] = changes["seed"]
    for key, value in _fold_settings(cfg["data"], num_folds, fold).items():
        cfg["data"][key] = changes[f"data.{key}"] = value
    cfg["trainer"]["quiet"] = True
    given = [a for a in arguments if a.partition("=")[0] not in changes]
    return Cell(label, fold, index, cfg, (*given, *(f"{key}={value}" for key, value in changes.items())))


def _fold_settings(data: Config, num_folds: int, fold: int) -> dict[str, int]:
    """Keys of the group ``data`` that make it fold ``fold`` of ``num_folds``."""
    if num_folds == 1:
        return {}
    if "folds" in data:
        return {"folds": num_folds, "fold": fold}
    if "row_offset" in data:
        rows = data["train_rows"] + data["valid_rows"] + data["test_rows"]
        return {"row_offset": data["row_offset"] + fold * rows}
    raise ConfigError(f"--folds {num_folds}: {data.get('_target_')} has no folds; use --folds 1")


def _without_schedule(cfg: Config) -> str:
    return json.dumps({k: v for k, v in cfg.items() if k not in ("name", "schedule")}, sort_keys=True)
