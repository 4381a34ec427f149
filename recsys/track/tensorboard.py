"""TensorBoard: event files in the run's own folder. ``tensorboard --logdir runs`` shows all runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from recsys.track.base import Param, Tracker

EVENTS = "tensorboard"  # folder of the event files, inside the run's


class TensorBoardTracker(Tracker):
    """Scalars under their names with training rows as step; parameters and Markdown as text, PNG files as pictures.

    Args:
        folder: of the run.
    """

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / EVENTS))

    def log_params(self, params: Mapping[str, Param]) -> None:
        """One text, ``params``: a JSON object, set as code."""
        self._writer.add_text("params", f"```\n{json.dumps(dict(params), indent=1)}\n```")

    def log_metrics(self, metrics: Mapping[str, float], rows: int) -> None:
        """One scalar a metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, rows)

    def log_artifact(self, path: Path) -> None:
        """Pictures and Markdown are shown; other files lie in the run's folder, beside the events, already."""
        if path.suffix == ".png":
            from matplotlib.image import imread

            self._writer.add_image(path.stem, imread(path), dataformats="HWC")
        elif path.suffix == ".md":
            self._writer.add_text(path.stem, path.read_text(encoding="utf-8"))

    def end(self, failed: bool) -> None:
        """Flush and close; whether the run failed is told by the text ``state``."""
        self._writer.add_text("state", "failed" if failed else "finished")
        self._writer.close()
