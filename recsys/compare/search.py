"""A search: settings that were drawn, or asked of a sampler, each trained once and judged by its valid NE.

The test rows of a trial are not looked at, except for the setting that was chosen.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from recsys.compare.plan import Config, Experiment
from recsys.compare.ranges import Setting, overrides_of, show
from recsys.compare.runner import run_all, train_once
from recsys.config.cli import compose, to_plain
from recsys.errors import ConfigError, DataError, UserError
from recsys.report.record import RunRecord


@dataclass(frozen=True)
class Trial:
    """A run to make: setting number ``index`` for the experiment ``label``.

    Attributes:
        arguments: with which ``train.py`` trains the same model.
    """

    label: str
    index: int
    cfg: Config
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What became of a trial; either ``valid_ne``, ``config_hash`` and ``folder``, or ``error``.

    Attributes:
        step_ms: median time of a training step; None where it was not asked for.
    """

    seconds: float = 0.0
    from_cache: bool = False
    valid_ne: float | None = None
    config_hash: str | None = None
    folder: str | None = None
    error: str | None = None
    step_ms: float | None = None


@dataclass(frozen=True)
class Chosen:
    """The best setting of an experiment by valid NE, and its figures on the test rows."""

    index: int
    arguments: tuple[str, ...]
    valid_ne: float
    config_hash: str
    folder: str
    test_ne: float | None
    test_auc: float | None
    test_logloss: float | None
    test_calibration: float | None
    test_rows: int


@dataclass(frozen=True)
class Mean:
    """Valid NE over the finished trials that share a choice."""

    mean: float
    trials: int


@dataclass(frozen=True)
class Searched:
    """An experiment's search: ``outcomes`` by trial, ``marginals`` by name and choice."""

    label: str
    chosen: Chosen
    outcomes: list[Outcome]
    marginals: dict[str, dict[str, Mean]]


@dataclass(frozen=True)
class PairedGap:
    """Valid NE against that of the first experiment over settings that both finished, in percent; above 0 is worse.

    Attributes:
        se: standard error over settings. All trials share their valid rows, which it does not know of.
    """

    label: str
    reference: str
    pairs: int
    mean: float
    se: float | None


@dataclass(frozen=True)
class Search:
    """Everything that the tables show.

    Attributes:
        sampler: ``random`` or ``tpe``.
        max_step_ms: what a chosen setting's step may take; None: anything.
    """

    seed: int
    ranges: str
    settings: list[dict[str, str]]
    experiments: list[Searched]
    gaps: list[PairedGap] = field(default_factory=list)
    sampler: str = "random"
    max_step_ms: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values; keys are the attributes' names."""
        return asdict(self)


def plan_trials(
    experiments: Sequence[Experiment],
    common: Sequence[str],
    settings: Sequence[Setting],
    compose_config: Callable[[list[str]], Config] = lambda overrides: to_plain(compose(overrides)),
) -> list[Trial]:
    """Compose every run, setting by setting, so that a search which is stopped leaves pairs.

    Raises:
        ConfigError: no experiment, a key that is also on the command line, or whatever does not compose.
    """
    if not experiments:
        raise ConfigError("nothing to tune; name an experiment, such as erase6")
    trials = []
    bases = {e.label: compose_config([f"+experiment={e.name}", *common, *e.overrides]) for e in experiments}
    for index, setting in enumerate(settings):
        for experiment in experiments:
            drawn = overrides_of(setting, bases[experiment.label])
            given = (*common, *experiment.overrides)
            if twice := {a.partition("=")[0] for a in given} & {a.partition("=")[0] for a in drawn}:
                raise ConfigError(
                    f"{', '.join(sorted(twice))}: set on the command line and in the ranges; leave one out"
                )
            arguments = (f"+experiment={experiment.name}", *given, *drawn)
            cfg = compose_config(list(arguments))
            cfg["trainer"]["quiet"] = True
            trials.append(Trial(experiment.label, index, cfg, arguments))
    return trials


def attempt(cfg: Config, store: Path, threads: int) -> Outcome:
    """The trial of ``cfg``, from ``store`` where it is there; a failure becomes a part of the result."""
    try:
        finished = train_once(cfg, store, threads)
        valid_ne = read_valid_ne(finished.folder, keep_best=cfg["trainer"]["keep_best"])
    except Exception as error:  # whatever one setting runs into, the others go on
        name = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        return Outcome(error=name + " ".join(str(error).split()))
    return Outcome(
        finished.seconds, finished.from_cache, valid_ne, config_hash=finished.folder.name, folder=str(finished.folder)
    )


def read_valid_ne(folder: Path, *, keep_best: bool) -> float:
    """NE on the valid rows of the state that a run reports: its best with ``trainer.keep_best``, else its last.

    Raises:
        DataError: the curve is missing, damaged or without a value.
    """
    points = [point.ne for point in RunRecord(folder).curve.erase]
    known = [ne for ne in points if ne is not None]
    if not known or (points[-1] is None and not keep_best):
        raise DataError(
            f"{folder}: holds no NE on valid rows; set data.split and trainer.evals_per_epoch so that it does"
        )
    return min(known) if keep_best else known[-1]


def run_trials(
    trials: Sequence[Trial], store: Path, *, jobs: int, threads: int, on_done: Callable[[Trial, Outcome], None]
) -> list[Outcome]:
    """Make every trial that is not in ``store`` yet; ``on_done`` is called after each.

    Raises:
        UserError: a process was killed; what is finished stays.
    """
    outcomes: dict[int, Outcome] = {}
    work = partial(attempt, store=store, threads=threads)
    with closing(run_all(work, [trial.cfg for trial in trials], jobs)) as results:
        for number, outcome in results:
            outcomes[number] = outcome
            on_done(trials[number], outcome)
    return [outcomes[number] for number in range(len(trials))]


def conclude(
    trials: Sequence[Trial],
    outcomes: Sequence[Outcome],
    settings: Sequence[Setting],
    *,
    seed: int,
    ranges: str,
    sampler: str = "random",
    max_step_ms: float | None = None,
) -> Search:
    """Choose by valid NE, among the trials within ``max_step_ms``, then read the chosen run's test figures.

    Raises:
        UserError: no trial of an experiment finished, or none within the limit; tells the first failure.
    """
    texts = [{name: show(choice) for name, choice in setting.items()} for setting in settings]
    labels = list(dict.fromkeys(trial.label for trial in trials))
    by_label = {label: [(t, o) for t, o in zip(trials, outcomes, strict=True) if t.label == label] for label in labels}
    searched = [_searched(label, by_label[label], texts, max_step_ms) for label in labels]
    gaps = [_gap(searched[0], other) for other in searched[1:]]
    return Search(seed, ranges, texts, searched, [gap for gap in gaps if gap is not None], sampler, max_step_ms)


def _searched(
    label: str, pairs: Sequence[tuple[Trial, Outcome]], texts: Sequence[dict[str, str]], max_step_ms: float | None
) -> Searched:
    outcomes = [outcome for _, outcome in pairs]
    finished = [(outcome.valid_ne, trial, outcome) for trial, outcome in pairs if outcome.valid_ne is not None]
    if not finished:
        raise UserError(f"{label}: not one of {len(pairs)} trials finished; the first says: {outcomes[0].error}")
    if max_step_ms is not None:
        fastest = min(outcome.step_ms for _, _, outcome in finished if outcome.step_ms is not None)
        finished = [entry for entry in finished if (entry[2].step_ms or 0.0) <= max_step_ms]
        if not finished:
            raise UserError(
                f"{label}: no trial's step takes {max_step_ms:g} ms or less; the fastest takes {fastest:.3g}"
            )
    valid_ne, trial, outcome = min(finished, key=lambda entry: entry[0])
    assert outcome.folder is not None and outcome.config_hash is not None
    test = RunRecord(Path(outcome.folder)).report.erase
    chosen = Chosen(
        index=trial.index,
        arguments=trial.arguments,
        valid_ne=valid_ne,
        config_hash=outcome.config_hash,
        folder=outcome.folder,
        test_ne=test.ne,
        test_auc=test.auc,
        test_logloss=test.logloss,
        test_calibration=test.calibration,
        test_rows=test.rows,
    )
    return Searched(label, chosen, outcomes, _marginals(outcomes, texts))


def _marginals(outcomes: Sequence[Outcome], texts: Sequence[dict[str, str]]) -> dict[str, dict[str, Mean]]:
    values: dict[str, dict[str, list[float]]] = {}
    for outcome, text in zip(outcomes, texts, strict=True):
        for name, choice in text.items():
            at = values.setdefault(name, {}).setdefault(choice, [])
            if outcome.valid_ne is not None:
                at.append(outcome.valid_ne)
    return {
        name: {choice: Mean(statistics.fmean(nes), len(nes)) for choice, nes in by_choice.items() if nes}
        for name, by_choice in values.items()
    }


def _gap(reference: Searched, other: Searched) -> PairedGap | None:
    pairs = [(a.valid_ne, b.valid_ne) for a, b in zip(reference.outcomes, other.outcomes, strict=True)]
    gaps = [100 * (b / a - 1) for a, b in pairs if a is not None and b is not None]
    if not gaps:
        return None
    se = statistics.stdev(gaps) / len(gaps) ** 0.5 if len(gaps) > 1 else None
    return PairedGap(other.label, reference.label, len(gaps), statistics.fmean(gaps), se)
