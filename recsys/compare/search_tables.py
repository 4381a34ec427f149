"""A search as text: Markdown with aligned columns, which reads as well on a terminal."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from recsys.compare.search import Outcome, Search
from recsys.report.atomic import write_atomic

SEARCH_JSON = "search.json"
SEARCH_MD = "search.md"
NOT_THERE = "-"

Table = tuple[Sequence[str], list[list[str]]]


def chosen_table(search: Search) -> Table:
    """The best setting of each experiment."""
    head = ("experiment", "trial", "valid NE", "test NE", "AUC", "log loss", "calibration", "failed", "config hash")
    rows = []
    for searched in search.experiments:
        best = searched.chosen
        failed = sum(outcome.error is not None for outcome in searched.outcomes)
        test = (best.test_ne, best.test_auc, best.test_logloss, best.test_calibration)
        figures = [_number(value) for value in (best.valid_ne, *test)]
        rows.append([searched.label, str(best.index), *figures, str(failed), best.config_hash[:12]])
    return head, rows


def marginal_table(search: Search) -> Table:
    """Mean valid NE of each choice, over the trials that have it."""
    head = ["key", "value", *(f"{searched.label} (trials)" for searched in search.experiments)]
    rows = []
    for name in search.settings[0]:
        for choice in dict.fromkeys(setting[name] for setting in search.settings):
            means = (searched.marginals[name].get(choice) for searched in search.experiments)
            rows.append([name, choice, *(f"{m.mean:.5f} ({m.trials})" if m else NOT_THERE for m in means)])
    return head, rows


def trial_table(search: Search) -> Table:
    """Every setting and the valid NE that it gave."""
    head = ["trial", *search.settings[0], *(searched.label for searched in search.experiments)]

    def cell(outcome: Outcome) -> str:
        time = "" if outcome.step_ms is None else f" ({outcome.step_ms:.2f} ms)"
        return "failed" if outcome.error is not None else _number(outcome.valid_ne) + time

    rows = [
        [str(index), *setting.values(), *(cell(searched.outcomes[index]) for searched in search.experiments)]
        for index, setting in enumerate(search.settings)
    ]
    return head, rows


def front_table(search: Search) -> Table:
    """Trials that no other one of their experiment equals or beats in both valid NE and step time, fastest first."""
    rows = []
    for searched in search.experiments:
        known = [
            (outcome.step_ms, outcome.valid_ne, index)
            for index, outcome in enumerate(searched.outcomes)
            if outcome.step_ms is not None and outcome.valid_ne is not None
        ]
        lowest = float("inf")
        for step_ms, valid_ne, index in sorted(known):
            if valid_ne < lowest:
                lowest = valid_ne
                setting = " ".join(f"{k}={v}" for k, v in search.settings[index].items())
                rows.append([searched.label, str(index), f"{step_ms:.3f}", f"{valid_ne:.5f}", setting])
    return ("experiment", "trial", "ms a step", "valid NE", "setting"), rows


def gap_lines(search: Search) -> list[str]:
    """The paired gaps in words."""
    return [
        f"{gap.label} against {gap.reference}: valid NE {gap.mean:+.3f} % over {gap.pairs} paired settings"
        + (f", standard error {gap.se:.3f} over settings" if gap.se is not None else "")
        for gap in search.gaps
    ]


def failure_lines(search: Search) -> list[str]:
    """A line for each trial that failed."""
    return [
        f"{searched.label}, trial {index}: {outcome.error}"
        for searched in search.experiments
        for index, outcome in enumerate(searched.outcomes)
        if outcome.error is not None
    ]


def command_lines(search: Search) -> list[str]:
    """What trains the chosen setting of each experiment again."""
    return [f"python train.py {shlex.join(searched.chosen.arguments)}" for searched in search.experiments]


def summary(search: Search) -> str:
    """What is shown on the terminal."""
    return "\n\n".join(_sections(search)) + "\n"


def _sections(search: Search) -> Iterator[str]:
    limit = "" if search.max_step_ms is None else f" among steps of at most {search.max_step_ms:g} ms"
    yield f"## Chosen by valid NE{limit}; test figures are read once, at the end, for these only"
    yield render(chosen_table(search))
    yield "\n".join(["```", *command_lines(search), "```"])
    if search.gaps:
        yield "\n".join(f"- {line}" for line in gap_lines(search))
    if (front := front_table(search))[1]:
        yield "## Pareto front of valid NE and step time"
        yield render(front)
    yield "## Mean valid NE of each choice"
    yield render(marginal_table(search))
    if failures := failure_lines(search):
        yield "## Failed trials"
        yield "\n".join(f"- {line}" for line in failures)


def markdown(search: Search) -> str:
    """The text of ``search.md``."""
    kind = "Random search" if search.sampler == "random" else f"Search ({search.sampler})"
    title = f"# {kind}: {len(search.settings)} settings drawn with seed {search.seed} from {search.ranges}"
    trials = ["## Valid NE of every trial", render(trial_table(search))]
    return "\n\n".join([title, *_sections(search), *trials]) + "\n"


def write_search(folder: Path, search: Search) -> None:
    """Write ``search.md`` and, last, ``search.json``; each whole or not at all."""
    write_atomic(folder / SEARCH_MD, markdown(search))
    write_atomic(folder / SEARCH_JSON, json.dumps(search.to_dict(), indent=1, allow_nan=False) + "\n")


def render(table: Table) -> str:
    """A Markdown table with columns of even width."""
    head, rows = table
    lines = [list(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines)


def _number(value: float | None) -> str:
    return NOT_THERE if value is None else f"{value:.5f}"
