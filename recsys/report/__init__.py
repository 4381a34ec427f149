"""What a run leaves behind, and how it is read again. Importing this loads neither torch nor matplotlib."""

from recsys.report.curve import CurvePoint, LearningCurve
from recsys.report.environment import describe_environment
from recsys.report.model import ModelReport, RunReport, Speedup
from recsys.report.record import RunRecord
from recsys.report.writers import print_report, write_run

__all__ = [
    "CurvePoint",
    "LearningCurve",
    "ModelReport",
    "RunRecord",
    "RunReport",
    "Speedup",
    "describe_environment",
    "print_report",
    "write_run",
]
