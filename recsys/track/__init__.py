"""Experiment trackers: what a run tells TensorBoard or MLflow while it trains and when it ends."""

from recsys.track.base import Tracker
from recsys.track.tracking import NAMES, Tracking, check_names, open_tracking

__all__ = ["NAMES", "Tracker", "Tracking", "check_names", "open_tracking"]
