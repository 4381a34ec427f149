"""A guided search: Optuna is asked for settings and told what came of them; the study lies in an SQLite file.

The sampler is Optuna's tree-structured Parzen estimator (Bergstra et al., 2011; Watanabe, arXiv 2304.11127).
Trials that fail do not end the search. They are told as pruned and infeasible, which the sampler learns to avoid: of
what is told as failed it knows nothing, and so it asks for it again and again.
"""

from __future__ import annotations

import fcntl
import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsys.compare.plan import Config, Experiment
from recsys.compare.ranges import Ranges, Setting, show
from recsys.compare.runner import run_all
from recsys.compare.search import Outcome, Trial, attempt, plan_trials
from recsys.compare.step_time import step_time_ms
from recsys.errors import ConfigError, UserError

if TYPE_CHECKING:
    import optuna

_IDENTITY, _OUTCOME, _ARGUMENTS = "asked", "outcome", "arguments"


@dataclass(frozen=True)
class Goal:
    """What is sought: the lowest valid NE; with a limit of the step time; or both as a Pareto front.

    Attributes:
        max_step_ms: limit of the median training step; None: no limit.
        pareto: whether the step time is a second objective.
    """

    max_step_ms: float | None = None
    pareto: bool = False

    def __post_init__(self) -> None:
        if self.pareto and self.max_step_ms is not None:
            raise ConfigError("--pareto --max-step-ms: a front has no limit; choose one of them")
        if self.max_step_ms is not None and not self.max_step_ms > 0:
            raise ConfigError(f"--max-step-ms {self.max_step_ms:g}: must be above 0")

    @property
    def needs_speed(self) -> bool:
        """Whether steps are to be timed."""
        return self.pareto or self.max_step_ms is not None


@dataclass(frozen=True)
class Question:
    """What a study is about: asked again with anything else, its trials would not be comparable."""

    experiment: Experiment
    common: tuple[str, ...]
    ranges: Ranges
    goal: Goal

    def identity(self) -> str:
        """All of it as text."""
        ranges = {name: [show(choice) for choice in choices] for name, choices in self.ranges.items()}
        facts = {"experiment": self.experiment.label, "overrides": list(self.common), "ranges": ranges}
        return json.dumps({**facts, "goal": asdict(self.goal)}, sort_keys=True)


@contextmanager
def open_study(path: Path, question: Question, seed: int) -> Iterator[optuna.Study]:
    """The study of ``path``, made where there is none; no other process searches in it meanwhile.

    Raises:
        ConfigError: Optuna is not installed, or the file holds another question's trials.
        UserError: another process is searching in it.
    """
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("--sampler tpe: needs Optuna; pip install 'optuna>=5,<6'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(
                f"--study {path}: another process is searching in it; wait, or name another file"
            ) from error
        storage = optuna.storages.RDBStorage(f"sqlite:///{path.resolve()}")
        try:
            study = optuna.create_study(
                study_name="search",
                storage=storage,
                load_if_exists=True,
                directions=["minimize"] * (2 if question.goal.pareto else 1),
            )
            asked = study.user_attrs.get(_IDENTITY, question.identity())
            if asked != question.identity():
                raise ConfigError(f"--study {path}: holds a search for something else, {asked}; name another file")
            study.set_user_attr(_IDENTITY, asked)
            # Another seed for each session: the same one would draw the first session's settings once more.
            study.sampler = optuna.samplers.TPESampler(seed=seed + len(study.trials))
            yield study
        finally:
            storage.engine.dispose()


def search(
    study: optuna.Study,
    question: Question,
    total: int,
    store: Path,
    *,
    jobs: int,
    threads: int,
    on_done: Callable[[Trial, Outcome], None],
) -> None:
    """Ask, train and tell until ``total`` trials have ended. What was stopped in the middle is asked first.

    Raises:
        ConfigError: the ranges name a key that the experiment does not have.
        UserError: a process was killed; what was told stays.
    """
    from optuna.trial import TrialState

    for stale in study.get_trials(states=[TrialState.RUNNING]):
        study.enqueue_trial(stale.params)
        study.tell(stale.number, state=TrialState.FAIL)
    _planned(question, {name: choices[0] for name, choices in question.ranges.items()}, 0)  # wrong keys end it at once
    asked: list[tuple[optuna.Trial, Trial]] = []

    def ask() -> Iterator[Config]:
        for _ in range(total - len(ended(study))):
            trial = study.ask()
            planned = _planned(question, _suggested(trial, question.ranges), trial.number)
            trial.set_user_attr(_ARGUMENTS, list(planned.arguments))
            asked.append((trial, planned))
            yield planned.cfg

    work = partial(attempt_and_time, store=store, threads=threads, timed=question.goal.needs_speed)
    with closing(run_all(work, ask(), jobs)) as results:
        for position, outcome in results:
            trial, planned = asked[position]
            _tell(study, trial, outcome, question.goal)
            on_done(planned, outcome)


def _planned(question: Question, setting: Setting, number: int) -> Trial:
    (trial,) = plan_trials([question.experiment], question.common, [setting])
    return replace(trial, index=number)


def _suggested(trial: optuna.Trial, ranges: Ranges) -> Setting:
    setting = {}
    for name, choices in ranges.items():
        by_text = {show(choice): choice for choice in choices}
        setting[name] = by_text[trial.suggest_categorical(name, list(by_text))]
    return setting


def attempt_and_time(cfg: Config, store: Path, threads: int, timed: bool) -> Outcome:
    """As ``attempt``, and the time of a training step if ``timed``."""
    outcome = attempt(cfg, store, threads)
    if not timed or outcome.folder is None:
        return outcome
    try:
        return replace(outcome, step_ms=step_time_ms(cfg, Path(outcome.folder)))
    except Exception as error:  # whatever one setting runs into, the others go on
        return Outcome(error=f"{type(error).__name__}: {' '.join(str(error).split())}")


def _tell(study: optuna.Study, trial: optuna.Trial, outcome: Outcome, goal: Goal) -> None:
    from optuna.trial import TrialState

    trial.set_user_attr(_OUTCOME, asdict(outcome))
    ne, step_ms = outcome.valid_ne, outcome.step_ms
    failed = ne is None or not math.isfinite(ne)
    trial.set_constraint("failed", float(failed))
    if ne is None or failed:
        study.tell(trial, state=TrialState.PRUNED)
        return
    if goal.max_step_ms is not None:
        assert step_ms is not None, "was timed"
        trial.set_constraint("step_ms", step_ms - goal.max_step_ms)
    values = [ne, step_ms] if goal.pareto and step_ms is not None else [ne]
    study.tell(trial, values)


def ended(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Trials whose outcome is known, failed ones too; those that were stopped in the middle are not among them."""
    return [trial for trial in study.get_trials() if _OUTCOME in trial.user_attrs]


def told(study: optuna.Study, question: Question) -> tuple[list[Trial], list[Outcome], list[Setting]]:
    """What ``recsys.compare.search.conclude`` takes: every ended trial of all sessions, numbered afresh."""
    trials: list[Trial] = []
    outcomes: list[Outcome] = []
    settings: list[Setting] = []
    for index, trial in enumerate(ended(study)):
        attrs: dict[str, Any] = trial.user_attrs
        trials.append(Trial(question.experiment.label, index, {}, tuple(attrs[_ARGUMENTS])))
        outcomes.append(Outcome(**attrs[_OUTCOME]))
        settings.append(_setting_of(trial.params, question.ranges))
    return trials, outcomes, settings


def _setting_of(params: dict[str, Any], ranges: Ranges) -> Setting:
    def find(name: str, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return next(choice for choice in choices if show(choice) == params[name])

    return {name: find(name, choices) for name, choices in ranges.items()}
