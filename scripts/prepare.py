"""Prepare click logs for training: one command from raw files to a checked, encoded, sharded folder.

    python scripts/prepare.py source=criteo_kaggle input=train.txt output=data/prepared
    python scripts/prepare.py source=parquet schema=schema.yaml "input=logs/*.parquet" output=data/prepared
    python scripts/prepare.py source=csv preset=x4_001 "input={train: train.csv, valid: valid.csv, test: test.csv}" ...
    python scripts/prepare.py infer-schema logs/part-0.parquet > schema.yaml
    python scripts/prepare.py verify data/prepared

docs/data.md explains the keys; a run that was cut off goes on when it is started again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # `python scripts/x.py` puts scripts/ there

from recsys.errors import ConfigError, UserError

if TYPE_CHECKING:
    from recsys.prepare.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "scripts" / "prepare_config"


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="key=value", help="or infer-schema FILE, or verify FOLDER")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    flags = parser.parse_intermixed_args(arguments)
    if not flags.words:
        parser.print_help()
        print("\nKeys and their values:\n")
        print(_yaml(compose([])))
        return 0
    try:
        _run(flags.words, flags.quiet)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; start the same command again to go on", file=sys.stderr)
        return 130
    return 0


def _run(words: list[str], quiet: bool) -> None:
    if words[0] in ("infer-schema", "verify"):
        if len(words) != 2:
            raise ConfigError(f"{words[0]} takes one path")
        _other_command(words[0], Path(words[1]))
        return
    from recsys.prepare.progress import Console, Silent
    from recsys.prepare.run import prepare

    for settings in [make_settings(cfg) for cfg in fold_configs(compose(words))]:
        content = prepare(settings, Silent() if quiet else Console())
        rows = ", ".join(f"{name} {split['rows']:,}" for name, split in content["splits"].items())
        print(f"{settings.output}: {rows} rows; {content['notes']['quarantined']} quarantined")


def fold_configs(cfg: dict[str, Any]) -> list[dict[str, Any]]:
    """With ``split.fold=all`` a configuration for each fold, its output a folder of its own; else the one given.

    Raises:
        ConfigError: ``split.folds`` or ``output`` is not set.
    """
    if not isinstance(cfg["split"], dict) or cfg["split"]["fold"] != "all":
        return [cfg]
    folds = cfg["split"]["folds"]
    if type(folds) is not int or folds < 2 or not cfg["output"]:
        raise ConfigError(f"split.fold=all needs output and split.folds, at least 2, not {folds}; set both")
    return [
        cfg | {"split": cfg["split"] | {"fold": fold}, "output": f"{cfg['output']}/fold-{fold}"}
        for fold in range(folds)
    ]


def _other_command(name: str, path: Path) -> None:
    if name == "verify":
        from recsys.prepare.manifest import verify

        verify(path)
        print(f"{path}: every file is what was written")
        return
    from recsys.prepare.infer import infer_schema

    print(infer_schema(path), end="")


def compose(overrides: list[str]) -> dict[str, Any]:
    """The configuration of a command line.

    Raises:
        ConfigError: an unknown key or option, or a value that cannot be read.
    """
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        with initialize_config_dir(str(CONFIGS), version_base="1.3"):
            cfg = hydra_compose("prepare", overrides)
        plain = OmegaConf.to_container(cfg, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(f"{_first_line(error)} (`python scripts/prepare.py` lists the keys)") from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _first_line(error: Exception) -> str:
    texts = [" ".join(str(e).split()) for e in (error, error.__cause__) if e is not None and str(e)]
    return "; ".join(dict.fromkeys(texts))


def make_settings(cfg: dict[str, Any]) -> Settings:
    """Settings of a composed configuration.

    Raises:
        ConfigError: a key that is not there, the schema cannot be read, or a value is wrong.
    """
    from dataclasses import replace

    from recsys.prepare.schema import read_schema
    from recsys.prepare.settings import Engine, Expected, Settings, Split

    if not cfg["source"]:
        raise ConfigError("source is not set; choose source=criteo_kaggle, criteo_1tb, csv or parquet")
    if not cfg["schema"]:
        raise ConfigError("schema is not set; give a YAML file (`infer-schema FILE` proposes one)")
    _check_kinds(cfg)
    path = Path(cfg["schema"]).expanduser()
    # The schemas that come with the product are named from its root.
    schema = read_schema(path if path.exists() or not (ROOT / path).exists() else ROOT / path)
    if cfg["label"]:
        schema = replace(schema, label=cfg["label"])
    shares = cfg["split"]["shares"]
    try:
        return Settings(
            source=cfg["source"]["kind"],
            inputs=cfg["input"],
            output=str(cfg["output"] or ""),
            schema=schema.with_min_count(cfg["min_count"]),
            split=Split(**(cfg["split"] | {"shares": tuple(shares) if shares else None})),
            expected={name: Expected(**entry) for name, entry in (cfg["expected"] or {}).items()},
            bad_rows=cfg["bad_rows"]["policy"],
            bad_rows_limit=cfg["bad_rows"]["limit"],
            engine=Engine(**cfg["engine"]),
            **cfg["parts"],
        )
    except TypeError as error:
        raise ConfigError(f"the configuration has a value of a wrong type ({error})") from error


def _check_kinds(cfg: dict[str, Any]) -> None:
    """Refuse a value of a wrong kind, such as ``engine=dask`` instead of ``engine.name=dask``."""
    for group, first in (("split", "kind"), ("bad_rows", "policy"), ("engine", "name"), ("parts", "compression")):
        if not isinstance(cfg[group], dict):
            raise ConfigError(f"{group}={cfg[group]}: is a group of keys; set one of them, such as {group}.{first}=...")
    if not isinstance(cfg["split"]["shares"] or [], list):
        raise ConfigError(f"split.shares={cfg['split']['shares']} must be a list such as [0.8,0.1,0.1]")
    expected = cfg["expected"] or {}
    good = isinstance(expected, dict) and all(
        isinstance(e, dict) and e.keys() == {"md5", "rows"} for e in expected.values()
    )
    if not good:
        raise ConfigError(f"expected={expected} must name md5 and rows of train, valid and test files, or be null")
    for key, value in (
        ("schema", cfg["schema"]),
        ("label", cfg["label"]),
        ("engine.address", cfg["engine"]["address"]),
    ):
        if not isinstance(value, str | None):
            raise ConfigError(f"{key}={value} must be one text; a number needs quotes, such as {key}='\"5\"'")


def _yaml(cfg: dict[str, Any]) -> str:
    import yaml

    return yaml.safe_dump(cfg, sort_keys=False)


if __name__ == "__main__":
    sys.exit(main())
