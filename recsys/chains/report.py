"""The figures of a chain's run, as JSON and as a table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recsys.report import Speedup
from recsys.report.atomic import write_atomic

CHAIN_JSON = "chain.json"
CHAIN_MD = "chain.md"


@dataclass(frozen=True)
class ChainScore:
    """Quality of one head on the test rows.

    Attributes:
        loss: mean cross-entropy in nats.
        accuracy: share of right first choices.
    """

    loss: float
    accuracy: float

    @property
    def perplexity(self) -> float:
        """``exp(loss)``: how many equally likely classes would be as hard."""
        return math.exp(self.loss)


@dataclass(frozen=True)
class ChainSide:
    """One model.

    Attributes:
        name: experiment.
        schedule: what it trained with.
        heads: by part name, in model order; the last one is the model's prediction.
        rows_per_s: from the interleaved timing.
        step_ms: median over turns.
        peak_memory_bytes: while it trained.
    """

    name: str
    schedule: str
    heads: Mapping[str, ChainScore]
    rows_per_s: float
    step_ms: float
    peak_memory_bytes: int

    @property
    def score(self) -> ChainScore:
        """The model's own prediction."""
        return list(self.heads.values())[-1]


@dataclass(frozen=True)
class ChainReport:
    """Both models of a run.

    Attributes:
        speedup: how many times faster the experiment trains; None where it is its own baseline.
        environment: versions and machine.
    """

    baseline: ChainSide
    erase: ChainSide
    speedup: Speedup | None
    environment: Mapping[str, Any]

    def rows(self) -> list[tuple[str, str, str]]:
        """``(figure, baseline, experiment)``."""
        sides = (self.baseline, self.erase)
        table = {
            "accuracy": [f"{s.score.accuracy:.2%}" for s in sides],
            "log loss (nats)": [f"{s.score.loss:.4f}" for s in sides],
            "perplexity": [f"{s.score.perplexity:.3f}" for s in sides],
            "train rows/s": [f"{s.rows_per_s:,.0f}" for s in sides],
            "step (ms)": [f"{s.step_ms:.3f}" for s in sides],
            "peak memory (MiB)": [f"{s.peak_memory_bytes / 2**20:,.0f}" for s in sides],
        }
        return [(label, a, b) for label, (a, b) in table.items()]

    def lines(self) -> list[str]:
        """The finding in words."""
        lines: list[str] = []
        if self.speedup is not None:
            s = self.speedup
            lines.append(
                f"speed: {s.median:.2f} times the baseline's (p10 {s.p10:.2f}, p90 {s.p90:.2f}, {s.pairs} pairs); "
                f"the step takes {1 / s.median:.0%} of its time"
            )
        if len(self.erase.heads) > 1:
            heads = list(self.erase.heads.items())
            shown = [heads[0], heads[len(heads) // 2], heads[-1]]
            lines.append("accuracy by head: " + ", ".join(f"{n} {h.accuracy:.2%}" for n, h in shown))
        return lines

    def markdown(self) -> str:
        """The text of ``chain.md``."""
        head = [f"# {self.erase.name} against {self.baseline.name}", "", *(f"- {line}" for line in self.lines()), ""]
        head += [f"| | {self.baseline.name} ({self.baseline.schedule}) | {self.erase.name} ({self.erase.schedule}) |",
                 "| --- | ---: | ---: |"]  # fmt: skip
        facts = ["", "## Measured on", "", *(f"- {k}: {v}" for k, v in self.environment.items()), ""]
        return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in self.rows()), *facts])

    def write(self, folder: Path) -> None:
        """Write ``chain.md`` and, last, ``chain.json``."""
        write_atomic(folder / CHAIN_MD, self.markdown())
        write_atomic(folder / CHAIN_JSON, json.dumps(asdict(self), indent=1) + "\n")

    def show(self) -> None:
        """Print the table."""
        from rich.console import Console
        from rich.table import Table

        console = Console()
        table = Table("", header_style="bold")
        for side in (self.baseline, self.erase):
            table.add_column(f"{side.name} ({side.schedule})", justify="right")
        for row in self.rows():
            table.add_row(*row)
        console.print(table)
        for line in self.lines():
            console.print(line, markup=False, highlight=False, soft_wrap=True)
