"""The figures of a run: two models on the same rows, and what lies between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Self

import numpy as np

from recsys.metrics.binary import Metrics

Side = Literal["baseline", "erase"]
SIDES: tuple[Side, Side] = ("baseline", "erase")
_OBJECTS = ("heads", "config_hash", "prediction")


@dataclass(frozen=True)
class ModelReport:
    """One model: quality on the held-out rows, and cost. The keys of a side of ``report.json``.

    Attributes:
        ne .. coverage: as in ``recsys.metrics.Metrics``.
        rows_per_s: training rows per second, from the interleaved timing of this run.
        peak_memory_bytes: see ``recsys.metrics.peak_memory_bytes``; None where it was not measured.
        seed: of initialisation, dropout and data order.
        config_hash: fingerprint of everything that can change the quality figures.
        heads: part name -> NE of its local head; empty where there are none.
        prediction: how the final logit is made of the parts' and corrected, with NE and calibration of the over-arch
            alone; empty where the over-arch's logit is the final one.
    """

    ne: float | None
    logloss: float | None
    auc: float | None
    calibration: float | None
    base_rate: float | None
    entropy: float | None
    rows: int
    coverage: float | None
    rows_per_s: float | None
    peak_memory_bytes: int | None
    seed: int
    config_hash: str
    heads: Mapping[str, float | None] = field(default_factory=dict)
    prediction: Mapping[str, float | None] = field(default_factory=dict)

    @classmethod
    def from_metrics(
        cls,
        metrics: Metrics,
        *,
        rows_per_s: float | None,
        peak_memory_bytes: int | None,
        seed: int,
        config_hash: str,
        heads: Mapping[str, Metrics] | None = None,
        prediction: Mapping[str, float | None] | None = None,
    ) -> Self:
        """Join what ``EvalAccumulator`` computed with the cost of the training."""
        return cls(
            **asdict(metrics),
            rows_per_s=rows_per_s,
            peak_memory_bytes=peak_memory_bytes,
            seed=seed,
            config_hash=config_hash,
            heads={name: head.ne for name, head in (heads or {}).items()},
            prediction=dict(prediction or {}),
        )

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """Read a side of ``report.json``; keys that a later version added are left out.

        Raises:
            ValueError: a key is missing or its value is of another type; names the key.
        """
        values: dict[str, Any] = {}
        for item in fields(cls):
            if item.name == "prediction" and item.name not in raw:  # came later than the others
                values[item.name] = {}
                continue
            _require(item.name in raw, f"key {item.name!r} is missing")
            values[item.name] = raw[item.name]
        heads, config_hash, prediction = values["heads"], values["config_hash"], values["prediction"]
        _require(isinstance(prediction, Mapping), f"'prediction' is {prediction!r}, not an object of numbers")
        _require(isinstance(heads, Mapping), f"'heads' is {heads!r}, not an object of part names and NE")
        _require(isinstance(config_hash, str), f"'config_hash' is {config_hash!r}, not a string")
        for name in ("rows", "seed"):
            _require(type(values[name]) is int, f"{name!r} is {values[name]!r}, not a whole number")
        _check_numbers({name: value for name, value in values.items() if name not in _OBJECTS})
        _check_numbers(heads)
        _check_numbers(prediction)
        return cls(**values)


@dataclass(frozen=True)
class Speedup:
    """How many times faster the experiment trains than the baseline: a ratio for each timed pair.

    Attributes:
        median, p10, p90: over the pairs.
        pairs: number of pairs, each timed one right after the other.
    """

    median: float
    p10: float
    p90: float
    pairs: int

    @classmethod
    def from_pairs(cls, baseline_s: Sequence[float], erase_s: Sequence[float]) -> Self:
        """From the interleaved timing: ``baseline_s[i]`` and ``erase_s[i]`` are seconds for the same rows."""
        assert len(baseline_s) == len(erase_s) > 0, "the timing is in pairs"
        p10, median, p90 = np.percentile(np.asarray(baseline_s) / np.asarray(erase_s), (10, 50, 90)).tolist()
        return cls(median=median, p10=p10, p90=p90, pairs=len(baseline_s))


@dataclass(frozen=True)
class RunReport:
    """All figures of one run; ``to_dict`` is ``report.json``.

    Attributes:
        baseline: nothing detached, no local losses, the same seed and data order.
        erase: the experiment's own model, whatever it detaches.
        experiment, baseline_name: names of the two experiments.
        schedule, baseline_schedule: the schedules they trained with.
        detached: parts that the experiment detaches.
        speedup: from the interleaved timing; None where it was not measured.
        bayes_ne: NE of the true click probabilities on the evaluated rows, the floor; None for real data.
        baseline_from_cache: the baseline's quality comes from an earlier run with the same ``config_hash``.
        data_notes: what is known about the rows.
        environment: versions and machine, from ``describe_environment``.
    """

    baseline: ModelReport
    erase: ModelReport
    experiment: str = "erase"
    baseline_name: str = "baseline"
    schedule: str | None = None
    baseline_schedule: str | None = None
    detached: Sequence[str] = ()
    speedup: Speedup | None = None
    bayes_ne: float | None = None
    baseline_from_cache: bool = False
    data_notes: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ne_gap_percent(self) -> float | None:
        """``100 * (erase.ne / baseline.ne - 1)``: above 0 the experiment predicts worse; None if undefined."""
        if self.baseline.ne is None or self.erase.ne is None or self.baseline.ne == 0:
            return None
        return 100 * (self.erase.ne / self.baseline.ne - 1)

    @property
    def sides(self) -> tuple[Side, ...]:
        """The models to show: one where the experiment is its own baseline."""
        return SIDES if self.baseline.config_hash != self.erase.config_hash else ("erase",)

    def side(self, side: Side) -> ModelReport:
        """The model under that key of ``report.json``."""
        return self.baseline if side == "baseline" else self.erase

    def label(self, side: Side) -> str:
        """Experiment and schedule, for table headings and legends."""
        name, schedule = (
            (self.baseline_name, self.baseline_schedule) if side == "baseline" else (self.experiment, self.schedule)
        )
        return f"{name} ({schedule})" if schedule else name

    def to_dict(self) -> dict[str, Any]:
        """Plain values ready for JSON: whatever is undefined, NaN or infinite is None."""
        own = asdict(self)
        sides = {side: own.pop(side) for side in SIDES}
        plain: dict[str, Any] = _plain({**sides, "ne_gap_percent": self.ne_gap_percent, **own})
        return plain

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Self:
        """Read ``report.json``; keys that a later version added are left out.

        Raises:
            ValueError: something is missing or of another type; names the key.
        """
        _require(isinstance(raw, Mapping), "not a JSON object")
        values = {item.name: raw[item.name] for item in fields(cls) if item.name in raw}
        for side in SIDES:
            _require(isinstance(values.get(side), Mapping), f"object {side!r} is missing")
            try:
                values[side] = ModelReport.from_dict(values[side])
            except ValueError as error:
                raise ValueError(f"in object {side!r}: {error}") from error
        if values.get("speedup") is not None:
            try:
                values["speedup"] = Speedup(**values["speedup"])
            except TypeError as error:
                raise ValueError(f"in object 'speedup': {error}") from error
        return cls(**values)


def _require(holds: bool, problem: str) -> None:
    if not holds:
        raise ValueError(problem)


def _check_numbers(values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        _require(number or value is None, f"{name!r} is {value!r}, neither a number nor null")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
