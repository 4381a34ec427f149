"""The command line: fast help, clear errors, one folder a run. Imports no torch before the configuration stands."""

from __future__ import annotations

import difflib
import os
import re
import secrets
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from recsys.config.schema import RootSchema
from recsys.errors import ConfigError, UserError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
_VERSION_BASE = "1.3"
_INFO_FLAGS = ("--help", "-h", "--hydra-help", "--version", "--info", "-i", "--cfg", "-c", "--resolve", "--package", "-p")

Task = Callable[[dict[str, Any], Path], None]


def register_resolvers() -> None:
    """``${run_id:}``: a folder name of its own for every process, also for two of the same instant."""
    stamp = f"{time.strftime('%Y-%m-%d/%H-%M-%S')}-{os.getpid()}-{secrets.token_hex(2)}"
    OmegaConf.register_new_resolver("run_id", lambda: stamp, use_cache=True, replace=True)


def main(task: Task) -> None:
    """Compose the configuration from ``sys.argv`` and run ``task(config, run folder)``.

    A :class:`UserError` is told in one message and ends the process with status 1.
    """
    register_resolvers()
    if not any(a.split("=")[0] in _INFO_FLAGS for a in sys.argv[1:]):
        _or_exit(lambda: check_overrides([a for a in sys.argv[1:] if not a.startswith("-")]))

    @hydra.main(version_base=_VERSION_BASE, config_path=str(CONFIGS), config_name="config")
    def job(cfg: DictConfig) -> None:
        folder = Path(HydraConfig.get().runtime.output_dir)
        _or_exit(lambda: task(to_plain(cfg), folder))

    job()


def _or_exit(action: Callable[[], Any]) -> None:
    try:
        action()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def to_plain(cfg: DictConfig) -> dict[str, Any]:
    """Check keys and types against the schema and resolve to plain values.

    Raises:
        ConfigError: an unknown key or a value of the wrong type.
    """
    try:
        checked = OmegaConf.merge(OmegaConf.structured(RootSchema), cfg)
        plain = OmegaConf.to_container(checked, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(_omegaconf_message(error, cfg)) from error
    assert isinstance(plain, dict)
    return {str(k): v for k, v in plain.items()}


def compose(overrides: list[str]) -> DictConfig:
    """The configuration for ``overrides``, as ``train.py`` would get it; for scripts and tests.

    Raises:
        ConfigError: an override that does not fit, with the nearest valid names.
    """
    register_resolvers()
    GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(str(CONFIGS), version_base=_VERSION_BASE):
        try:
            return hydra.compose("config", overrides)
        except Exception as error:  # hydra's errors share no base class below Exception
            raise ConfigError(_compose_message(error, overrides)) from error


def check_overrides(arguments: list[str]) -> None:
    """Compose and check once, a sweep with its first values, before Hydra makes folders.

    Raises:
        ConfigError: names the override and the nearest valid ones.
    """
    single = [_first_value(_parse(argument)) for argument in arguments]
    to_plain(compose([o for o in single if not o.lstrip("+~").startswith("hydra")]))


def _parse(argument: str) -> Override:
    try:
        return OverridesParser.create().parse_override(argument)
    except Exception as error:
        raise ConfigError(f"{argument!r} is no override; write key=value, group=option or +experiment=name") from error


def _first_value(override: Override) -> str:
    line = str(override.input_line)
    if not override.is_sweep_override():
        return line
    return f"{line.split('=', 1)[0]}={next(iter(override.sweep_string_iterator()))}"


def _compose_message(error: Exception, overrides: list[str]) -> str:
    text = str(error)
    if found := re.search(r"Could not find '([^']+)'", text):
        group, _, option = found[1].rpartition("/")
        return _no_option(group, option)
    if found := re.search(r"Could not override '([^'@]+)(?:@[^']*)?'.*\n?.*No match in the defaults list", text):
        return _no_key(found[1])
    if found := re.search(r"Could not override '([^']+)'", text):
        return _no_key(found[1])
    if found := re.search(r"Could not delete from config\. (?:The value of )?'([^']+)'", text):
        return f"~{found[1]}: there is nothing of that name to delete"
    cause = error.__cause__ or error
    return f"{' '.join(overrides)}: {' '.join(str(cause).split())}"


def _no_option(group: str, option: str) -> str:
    folder = CONFIGS / group
    valid = sorted(p.stem for p in folder.glob("*.yaml"))
    return f"{group}={option}: there is no such option in the group {group!r}; {_nearest(option, valid)}"


def _no_key(key: str) -> str:
    keys = _all_keys()
    if (CONFIGS / key).is_dir():
        return f"{key}: this group is not in the defaults; write +{key}=<option>, for example +{key}={_options(key)[0]}"
    return f"there is no config key {key!r}; {_nearest(key, keys)} (see python train.py --help)"


def _options(group: str) -> list[str]:
    return sorted(p.stem for p in (CONFIGS / group).glob("*.yaml"))


def _nearest(word: str, valid: list[str]) -> str:
    near = difflib.get_close_matches(word, valid, n=3, cutoff=0.4)
    by_leaf = [k for k in valid if k.rpartition(".")[2] == word.rpartition(".")[2] and k not in near]
    choices = (near + by_leaf)[:4] or valid[:12]
    return f"nearest valid: {', '.join(choices)}"


def _all_keys() -> list[str]:
    def walk(node: Any, prefix: str) -> list[str]:
        if not isinstance(node, dict):
            return [prefix]
        return [prefix, *(k for name, child in node.items() for k in walk(child, f"{prefix}.{name}".strip(".")))]

    return [k for k in walk(OmegaConf.to_container(compose([]), resolve=False), "") if k]


def _omegaconf_message(error: OmegaConfBaseException, cfg: DictConfig) -> str:
    key = error.full_key or ""
    first = str(error).splitlines()[0]
    if "not in" in first and key:
        return f"there is no config key {key!r}; {_nearest(key, _all_keys())}"
    if "Missing mandatory value" in first:
        return f"{key}: a value is needed; add {key}=<value> to the command line"
    return f"{key}: {first}"
