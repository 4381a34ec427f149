"""From the config key ``trackers`` to open trackers, and from a run's figures to what they are told."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from recsys.errors import ConfigError
from recsys.report.curve import CurvePoint
from recsys.report.model import RunReport, Side
from recsys.track.base import Param, Tracker

_INSTALL = {"tensorboard": "pip install tensorboard", "mlflow": "pip install mlflow-skinny sqlalchemy alembic"}
NAMES = tuple(_INSTALL)
_SHOWN = (".png", ".md", ".json", ".csv", ".yaml")  # files of a run's folder that trackers keep; all small


def check_names(names: Sequence[str]) -> None:
    """Refuse what is no tracker.

    Raises:
        ConfigError: names the nearest valid ones.
    """
    for name in names:
        if name not in NAMES:
            near = difflib.get_close_matches(str(name), NAMES, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(f"trackers: {name!r} is no tracker; {hint}Valid: {', '.join(NAMES)}, or trackers=[]")


class Tracking:
    """What a run says, passed on to every tracker."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = trackers

    def on_point(self, side: Side) -> Callable[[CurvePoint], None]:
        """A listener for the learning curve of one model: ``<side>/valid_ne`` and ``<side>/valid_ne_<part>``."""

        def tell(point: CurvePoint) -> None:
            found = {"": point.ne, **{f"_{name}": ne for name, ne in point.heads.items()}}
            self.log({f"{side}/valid_ne{name}": ne for name, ne in found.items()}, point.rows)

        return tell

    def on_report(self, report: RunReport, rows: Mapping[Side, int], folder: Path) -> None:
        """The final figures, ``<side>/test_<metric>``, and the files of the run's folder.

        Args:
            report: all figures.
            rows: training rows that each side's reported state had seen.
            folder: holds the finished files.
        """
        for side in report.sides:
            model = report.side(side)
            names = ("ne", "logloss", "auc", "calibration", "rows_per_s", "peak_memory_bytes")
            figures = {f"{side}/test_{name}": getattr(model, name) for name in names}
            figures |= {f"{side}/test_ne_{name}": ne for name, ne in model.heads.items()}
            self.log(figures, rows[side])
        gap = {"ne_gap_percent": report.ne_gap_percent, "speedup": report.speedup.median if report.speedup else None}
        if len(report.sides) > 1:
            self.log(gap, rows["erase"])
        self.keep_files(folder)

    def keep_files(self, folder: Path) -> None:
        """Hand the finished files of a run's folder over."""
        for path in sorted(p for p in folder.iterdir() if p.suffix in _SHOWN):
            for tracker in self._trackers:
                tracker.log_artifact(path)

    def log(self, values: Mapping[str, float | None], rows: int) -> None:
        """A point of each curve that is defined, at ``rows`` training rows."""
        defined = {name: float(v) for name, v in values.items() if v is not None and math.isfinite(v)}
        for tracker in self._trackers if defined else ():
            tracker.log_metrics(defined, rows)


@contextmanager
def open_tracking(cfg: Mapping[str, Any], folder: Path) -> Iterator[Tracking]:
    """The trackers of ``cfg["trackers"]`` for one run, told whether it failed when the block ends.

    Raises:
        ConfigError: a tracker's package is not installed; names the line that installs it.
    """
    trackers: list[Tracker] = []
    failed = True
    try:
        for name in dict.fromkeys(cfg["trackers"]):
            trackers.append(_open(name, folder, cfg["name"]))
            trackers[-1].log_params(flatten(cfg))
        yield Tracking(trackers)
        failed = False
    finally:
        for tracker in trackers:
            tracker.end(failed)


def _open(name: str, folder: Path, title: str) -> Tracker:
    check_names([name])
    folder.mkdir(parents=True, exist_ok=True)
    try:
        if name == "tensorboard":
            from recsys.track.tensorboard import TensorBoardTracker

            return TensorBoardTracker(folder)
        from recsys.track.mlflow import MLflowTracker

        return MLflowTracker(folder, title)
    except ImportError as error:
        raise ConfigError(
            f"trackers: {name} is not installed here ({error}); {_INSTALL[name]}, or leave it out: trackers=[]"
        ) from error


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Param]:
    """Dotted key -> value; a list, or a mapping with nothing in it, is one value, its text."""
    flat: dict[str, Param] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, Param) else str(value)
    return flat
