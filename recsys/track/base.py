"""The interface that every tracker fills."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

Param = str | int | float | bool | None


class Tracker(ABC):
    """One run in one tracker, from its start to ``end``."""

    @abstractmethod
    def log_params(self, params: Mapping[str, Param]) -> None:
        """Note the configuration: dotted key -> value. Called once, before any metric."""

    @abstractmethod
    def log_metrics(self, metrics: Mapping[str, float], rows: int) -> None:
        """Add a point to each of these curves; ``rows`` are the training rows seen."""

    @abstractmethod
    def log_artifact(self, path: Path) -> None:
        """Keep a copy of a finished file, or show it: text and PNG pictures at least."""

    @abstractmethod
    def end(self, failed: bool) -> None:
        """Write everything out; nothing is logged after it."""
