"""Read what earlier runs left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from recsys.errors import DataError
from recsys.report.curve import LearningCurve
from recsys.report.model import SIDES, RunReport, Side
from recsys.report.writers import CURVE_CSV, REPORT_JSON

_CONFIGS = ("config.yaml", ".hydra/config.yaml")  # the resolved one first


@dataclass(frozen=True)
class RunRecord:
    """A run's folder. Files are read when asked for, so a damaged one harms only who needs it.

    Attributes:
        folder: holds ``report.json``, ``curve.csv``, and ``config.yaml`` or ``.hydra/config.yaml``.
    """

    folder: Path

    @staticmethod
    def find(root: Path) -> Iterator[RunRecord]:
        """Every finished run under ``root`` (a folder with a ``report.json``), in the order of their paths.

        Raises:
            DataError: ``root`` is not a folder.
        """
        if not root.is_dir():
            raise DataError(f"{root}: no such folder; give the folder that holds the runs")
        for path in sorted(root.rglob(REPORT_JSON)):
            yield RunRecord(path.parent)

    @cached_property
    def report(self) -> RunReport:
        """The figures.

        Raises:
            DataError: ``report.json`` is missing or malformed; names the file.
        """
        path = self.folder / REPORT_JSON
        text = _read(path)
        try:
            return RunReport.from_dict(json.loads(text, parse_constant=_refuse_constant))
        except ValueError as error:
            raise DataError(f"{path}: not a report ({error}); run again") from error

    @property
    def fingerprint(self) -> str:
        """``config_hash`` of the experiment's own model."""
        return self.report.erase.config_hash

    def side_with(self, config_hash: str) -> Side | None:
        """Under which key the model with this fingerprint stands; None if the run has no such model."""
        return next((side for side in SIDES if self.report.side(side).config_hash == config_hash), None)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The configuration of the run, interpolations as they stand in the file.

        Raises:
            DataError: there is no configuration, or it is not YAML with a mapping; names the file.
        """
        from omegaconf import OmegaConf
        from yaml import YAMLError  # type: ignore[import-untyped, unused-ignore]

        path = next((p for name in _CONFIGS if (p := self.folder / name).exists()), None)
        if path is None:
            raise DataError(f"{self.folder}: holds neither {_CONFIGS[0]} nor {_CONFIGS[1]}; is it a run's folder?")
        try:
            config = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        except (OSError, YAMLError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: the configuration cannot be read ({error}); run again") from error
        if not isinstance(config, dict):
            raise DataError(f"{path}: the configuration is not a mapping; run again")
        return {str(key): value for key, value in config.items()}

    @cached_property
    def curve(self) -> LearningCurve:
        """The learning curve.

        Raises:
            DataError: ``curve.csv`` is missing or malformed; names the file and the line.
        """
        return LearningCurve.read(self.folder / CURVE_CSV)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; the run has not finished, or this is not a run's folder") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
