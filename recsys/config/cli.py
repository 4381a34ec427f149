"""The command line: fast help, clear errors, one folder a run. Imports no torch before the configuration stands."""

from __future__ import annotations

import argparse
import difflib
import errno
import os
import re
import secrets
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TypeVar

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from recsys.config.resume import RUNS, resumed_folder
from recsys.config.schema import ChainRootSchema, RootSchema
from recsys.config.sweep_values import detach_sets, loss_weights
from recsys.config.torchrun import quoted, under_torchrun
from recsys.distributed import launch
from recsys.errors import ConfigError, UserError
from recsys.train.stop_signal import Stopped

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
_VERSION_BASE = "1.3"
# Dictionaries whose keys are the user's; struct mode wants a + in front of a new one.
_FREE_KEYS = ("model.loss_weights", "schedule.lanes")
_ARCH_HINT = "arch: say where; arch@model.interaction=<option>, or +arch@model.archs.<name>=<option> for one more"

Result = TypeVar("Result")
Task = Callable[[dict[str, Any], Path], None]


class Sweep(Protocol):
    """What a multirun needs beside the task of a single run."""

    folder: Path
    """Of the sweep; its jobs' folders lie inside."""

    @property
    def job(self) -> Task:
        """Runs one job, in this process or in another. A job that fails is written down and does not end the others."""

    def finish(self) -> int:
        """Tell what came of all jobs; the exit status."""


OpenSweep = Callable[[list[str]], Sweep]
"""Checks every job of these command-line arguments and writes down which they are."""


def register_resolvers() -> None:
    """``${run_id:}``: a folder name of its own for every job, two of one instant too; values of sweeps.

    The processes of torchrun are one job, also after it has restarted them.
    """
    stamp = f"{time.strftime('%Y-%m-%d/%H-%M-%S')}-{os.getpid()}-{secrets.token_hex(2)}"
    if launch.is_launched():
        stamp = launch.agreed("run_id", stamp)
    OmegaConf.register_new_resolver("run_id", lambda: stamp, use_cache=True, replace=True)
    OmegaConf.register_new_resolver("detach_sets", detach_sets, replace=True)
    OmegaConf.register_new_resolver("loss_weights", loss_weights, replace=True)


def main(task: Task, open_sweep: OpenSweep | None = None) -> None:
    """Compose the configuration from ``sys.argv`` and run ``task(config, run folder)``.

    A :class:`UserError` is told in one message and ends the process with status 1.

    Args:
        task: a single run.
        open_sweep: what a multirun does; None: the task for each job, and the first failure ends it.
    """
    # Before torch starts its threads: spinning ones, on cores that others use too, made training ten times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    launch.label_messages()
    _or_exit(register_resolvers)
    flags = get_args_parser().parse_args()
    _or_exit(lambda: _check_sweep(flags))
    if launch.rank() != 0:
        # One run folder a job: only rank 0 makes it.
        sys.argv += ["hydra.run.dir=.", "hydra.output_subdir=null"]
    if not _is_hydras_own(flags):
        _or_exit(lambda: check_overrides(flags.overrides, sweep=flags.multirun))
        _or_exit(lambda: _check_run_folder(flags.overrides))
        _or_exit(lambda: _go_on_in_the_same_folder(flags.overrides, sweep=flags.multirun))
        if flags.multirun and open_sweep is not None:
            _run_sweep(_or_exit(lambda: open_sweep(flags.overrides)))
            return

    @hydra.main(version_base=_VERSION_BASE, config_path=str(CONFIGS), config_name="config")
    def job(cfg: DictConfig) -> None:
        folder = Path(HydraConfig.get().runtime.output_dir)
        plain = _or_exit(lambda: to_plain(cfg))
        processes = plain["trainer"].get("processes", 1)
        if processes > 1 and not launch.is_launched():
            if status := under_torchrun(processes, folder):
                sys.exit(status)
        else:
            _or_exit(lambda: task(plain, folder))

    # While a model trains, the loop takes the signal instead and saves.
    signal.signal(signal.SIGTERM, _raise_stopped)
    try:
        job()
    except KeyboardInterrupt:
        print("interrupted: the run's folder holds no report", file=sys.stderr)
        sys.exit(130)


def _run_sweep(sweep: Sweep) -> None:
    # Said in full: a launcher's other processes have no resolver of ours and no clock of this moment.
    if not any(argument.startswith("hydra.sweep.dir=") for argument in sys.argv):
        sys.argv.append(f"hydra.sweep.dir={quoted(str(sweep.folder))}")
    # Nor do they find this checkout by themselves: submitit starts Python in whatever folder.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(CONFIGS.parent), os.environ.get("PYTHONPATH")]))
    run_one = sweep.job

    @hydra.main(version_base=_VERSION_BASE, config_path=str(CONFIGS), config_name="config")
    def job(cfg: DictConfig) -> None:
        run_one(to_plain(cfg), Path(HydraConfig.get().runtime.output_dir))

    try:
        job()
    except KeyboardInterrupt:
        handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the tables take a moment; one Ctrl-C is enough
        print("interrupted: the same command goes on with the jobs that are left", file=sys.stderr)
        sweep.finish()
        signal.signal(signal.SIGINT, handler)
        sys.exit(130)
    except SystemExit:  # Hydra has told why, for instance that a launcher's process was killed
        sweep.finish()
        raise
    if status := sweep.finish():
        sys.exit(status)


def _check_sweep(flags: argparse.Namespace) -> None:
    if flags.multirun and launch.is_launched():
        raise ConfigError(
            "-m under torchrun: its processes would each start a sweep of their own; a sweep starts torchrun jobs: "
            "python train.py -m trainer.processes=N ..."
        )


def _check_run_folder(arguments: list[str]) -> None:
    overrides = [_parse(argument) for argument in arguments]
    here = RUNS if RUNS.is_dir() else RUNS.parent
    if not any(o.key_or_group == "hydra.run.dir" for o in overrides) and not os.access(here, os.W_OK | os.X_OK):
        raise ConfigError(
            f"{RUNS}: cannot be made here ({os.strerror(errno.EACCES)}); name a folder that can be written with "
            "hydra.run.dir=FOLDER"
        )
    for override in overrides:
        if override.key_or_group == "hydra.run.dir" and not override.is_sweep_override():
            try:
                Path(str(override.value())).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(
                    f"hydra.run.dir={override.value()}: {error.strerror}; name a folder that can be written"
                ) from error


def _go_on_in_the_same_folder(arguments: list[str], *, sweep: bool) -> None:
    """Let a resumed run write to the folder of the run that it resumes, unless the command line names one."""
    given = {override.key_or_group: override for override in map(_parse, arguments)}
    if "resume" not in given or not isinstance(given["resume"].value(), str):
        return
    if sweep:
        raise ConfigError("resume: goes on with one run; leave -m out, or use checkpoint.auto_resume=true")
    if given.keys() & {"hydra.run.dir", "checkpoint.folder"}:
        return
    if (folder := resumed_folder(str(given["resume"].value()))) is not None:
        sys.argv.append(f"hydra.run.dir={quoted(str(folder))}")


def _raise_stopped(number: int, frame: FrameType | None) -> None:
    raise Stopped


def _or_exit(action: Callable[[], Result]) -> Result:
    try:
        return action()
    except UserError as error:
        label = f"[rank {launch.rank()}] " if launch.is_launched() else ""
        print(f"{label}error: {error}", file=sys.stderr, flush=True)
        sys.exit(1)


def to_plain(cfg: DictConfig) -> dict[str, Any]:
    """Check keys and types against the schema and resolve to plain values.

    Raises:
        ConfigError: an unknown key or a value of the wrong type.
    """
    try:
        schema = ChainRootSchema if "chain" in cfg else RootSchema
        checked = OmegaConf.merge(OmegaConf.structured(schema), cfg)
        plain = OmegaConf.to_container(checked, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(_omegaconf_message(error, cfg)) from error
    assert isinstance(plain, dict)
    return {str(k): v for k, v in plain.items()}


def compose(overrides: list[str], *, with_hydra: bool = False) -> DictConfig:
    """The configuration for ``overrides``, as ``train.py`` would get it; for scripts and tests.

    Args:
        overrides: without sweeps.
        with_hydra: whether the node ``hydra`` is in it.

    Raises:
        ConfigError: an override that does not fit, with the nearest valid names.
    """
    register_resolvers()
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(CONFIGS), version_base=_VERSION_BASE):
        try:
            return hydra.compose("config", overrides, return_hydra_config=with_hydra)
        except Exception as error:  # hydra's errors share no base class below Exception
            raise ConfigError(_compose_message(error, overrides)) from error


def check_overrides(arguments: list[str], *, sweep: bool = False) -> None:
    """Compose and check once, a sweep with its first values, before Hydra makes folders.

    Args:
        arguments: overrides as they stand on the command line.
        sweep: whether a list of values (``seed=1,2``) is allowed.

    Raises:
        ConfigError: names the override and the nearest valid ones.
    """
    overrides = [_parse(argument) for argument in arguments]
    for override in overrides:
        if override.key_or_group == "sweep" and not sweep:
            raise ConfigError(f"{override.input_line}: add -m to run the jobs of a sweep")
        if override.is_sweep_override() and not sweep:
            key, _, values = str(override.input_line).partition("=")
            raise ConfigError(f"{key}={values}: write {key}=[{values}] for a list, or add -m to run one job a value")
        if override.is_force_add() is False and override.value() == {}:
            key = override.key_or_group
            raise ConfigError(f"{key}={{}}: an empty mapping changes nothing; write ~{key}.<name> to leave one out")
    # Hydra checks its own keys before it makes a folder.
    single = [_first_value(o) for o in overrides if re.split(r"[./]", o.key_or_group)[0] != "hydra"]
    to_plain(compose(single))


def _is_hydras_own(flags: argparse.Namespace) -> bool:
    """Whether this is a question to Hydra, or its primary config lies elsewhere: then it checks alone."""
    questions = (flags.help, flags.hydra_help, flags.cfg, flags.info, flags.shell_completion)
    elsewhere = (flags.config_path, flags.config_name, flags.config_dir, flags.experimental_rerun)
    return any(questions) or any(elsewhere)


def _parse(argument: str) -> Override:
    try:
        override = OverridesParser.create().parse_override(argument)
        if override.key_or_group:
            return override
        raise ValueError("the key is empty")
    except Exception as error:
        raise ConfigError(f"{argument!r} is no override; write key=value, group=option or +experiment=name") from error


def _first_value(override: Override) -> str:
    line = str(override.input_line)
    if not override.is_sweep_override():
        return line
    return f"{line.split('=', 1)[0]}={next(iter(override.sweep_string_iterator()))}"


def _compose_message(error: Exception, overrides: list[str]) -> str:
    text, cause = str(error), error.__cause__
    if found := re.search(r"Could not find '([^']+)'", text):
        group, _, option = found[1].rpartition("/")
        if group == "hydra/launcher":
            plugin = f"hydra-{option.partition('_')[0]}-launcher"
            return f"{group}={option}: there is no such launcher here; pip install {plugin}"
        return f"{group}={option}: there is no such option in the group {group!r}; {_nearest(option, _options(group))}"
    if found := re.search(r"Multiple values for ([^.\s]+)\.", text):
        return f"{found[1]}: an option is chosen already; write {found[1]}=<option>, without +"
    if found := re.search(r"Could not override '([^']+)'", text):
        # Of a whole dictionary given at once, the cause names the entry.
        key = (isinstance(cause, OmegaConfBaseException) and cause.full_key) or found[1]
        return _no_key(str(key), overrides)
    if found := re.search(r"Could not delete.* '([^']+)'", text):
        return f"~{found[1]}: there is nothing like that to delete; {_nearest(found[1], _keys(overrides))}"
    if "Config group override must be a string" in text:
        groups = ((o, o.lstrip("+").partition("=")[0].partition("@")[0]) for o in overrides)
        override, group = next(((o, g) for o, g in groups if (CONFIGS / g).is_dir()), (" ".join(overrides), ""))
        return f"{override}: choose an option of the group by name; {_nearest('', _options(group))}"
    return f"{' '.join(overrides)}: {' '.join(str(cause or error).split())}"


def _no_key(key: str, overrides: list[str]) -> str:
    group = key.partition("@")[0]
    if key == "arch":
        return _ARCH_HINT
    if (CONFIGS / group).is_dir() and key == group:
        return f"{key}: this group is not in the defaults; write +{key}=<option>, for example +{key}={_options(key)[0]}"
    if key.rpartition(".")[0] in _FREE_KEYS:
        return f"{key}: there is no such entry yet; write +{key}=<value> to add it"
    if others := [o for o in _options(group.partition(".")[0]) if _has_key(o, key)]:
        group = key.partition(".")[0]
        return f"there is no config key {key!r} here; it is one of {group}={others[0]}, so add {group}={others[0]}"
    return f"there is no config key {key!r}; {_nearest(key, _keys(overrides))} (see python train.py --help)"


def _has_key(option: str, key: str) -> bool:
    """Whether the file of ``option`` holds ``key``, also with the value null."""
    group, *names = key.split(".")
    node: Any = OmegaConf.to_container(OmegaConf.load(CONFIGS / group / f"{option}.yaml"))
    for name in names:
        if not isinstance(node, dict) or name not in node:
            return False
        node = node[name]
    return bool(names)


def _groups() -> list[str]:
    return sorted(p.name for p in CONFIGS.iterdir() if p.is_dir())


def _options(group: str) -> list[str]:
    return sorted(p.stem for p in (CONFIGS / group).glob("*.yaml")) if group else []


def _nearest(word: str, valid: list[str]) -> str:
    near = difflib.get_close_matches(word, valid, n=3, cutoff=0.4)
    by_leaf = [k for k in valid if k.rpartition(".")[2] == word.rpartition(".")[2] and k not in near]
    choices = (near + by_leaf)[:4] or [k for k in valid if "." not in k]
    return f"nearest valid: {', '.join(dict.fromkeys(choices))}"


def _keys(overrides: list[str]) -> list[str]:
    """Every key and group, with the options that ``overrides`` choose where these can be composed."""
    chosen = [o for o in overrides if (CONFIGS / o.lstrip("+").partition("=")[0].partition("@")[0]).is_dir()]
    try:
        return sorted({*_groups(), *_keys_of(compose(chosen))})
    except ConfigError:
        return sorted({*_groups(), *_keys_of(compose([]))})


def _keys_of(cfg: DictConfig) -> list[str]:
    def walk(node: Any, prefix: str) -> list[str]:
        if not isinstance(node, dict):
            return [prefix]
        return [prefix, *(k for name, child in node.items() for k in walk(child, f"{prefix}.{name}".strip(".")))]

    return [k for k in walk(OmegaConf.to_container(cfg, resolve=False), "") if k]


def _omegaconf_message(error: OmegaConfBaseException, cfg: DictConfig) -> str:
    key = error.full_key or ""
    first = str(error).splitlines()[0]
    if key == "arch":
        return _ARCH_HINT
    if "not in" in first and key:
        keys = [k for k in [*_groups(), *_keys_of(cfg)] if k != key and not k.startswith(f"{key}.")]
        return f"there is no config key {key!r}; {_nearest(key, keys)}"
    if "Missing mandatory value" in first:
        return f"{key}: a value is needed; add {key}=<value> to the command line"
    if "not Optional" in first or "value 'None'" in first:
        return f"{key}=null: a value is needed, or leave {key} out"
    if "not a ListConfig" in first:
        return f"{key}: give a list such as [64,32]"
    return f"{key}: {first}"
