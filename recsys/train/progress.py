"""What a person sees while a model trains: rows/s, NE so far and time left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

_REDRAW_SECONDS = 0.5
_LINE_SECONDS = 10.0
_RATE_SECONDS = 30.0  # rows/s is the rate of the latest half minute: the slow first steps fade out


class Progress:
    """A progress bar on a terminal, plain lines elsewhere, nothing when ``quiet``; written to stderr.

    Use as a context manager. Redraws happen inside ``update`` (no thread beside the training), at most twice
    a second on a terminal and every ten seconds as lines; only then is NE read, which waits for the device.
    A run that ends without an error closes with the last figures.

    Args:
        total_rows: rows of the whole run, at least 1.
        title: short text in front.
        quiet: show nothing.
        console: where to write; stderr by default.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        total_rows: int,
        title: str,
        quiet: bool = False,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total_rows = total_rows
        self._title = title
        self._quiet = quiet
        self._console = console
        self._clock = clock
        self._bar: Bar | None = None
        self._rows = 0
        self._ne: Callable[[], float | None] = lambda: None

    def __enter__(self) -> Self:
        self._next_draw = self._clock()
        self._samples = deque([(self._next_draw, 0)])
        if self._quiet:
            return self
        if self._console is None:
            from rich.console import Console

            self._console = Console(stderr=True)
        if self._console.is_interactive:
            self._bar = _bar(self._console)
            self._bar.add_task(self._title, total=self._total_rows, detail="")
            self._bar.start()
        self._next_draw += self._interval
        return self

    def skip(self, rows: int) -> None:
        """Count ``rows`` rows that an earlier process trained on."""
        self._rows += rows
        self._samples = deque([(self._clock(), self._rows)])

    def update(self, rows: int, ne: Callable[[], float | None]) -> None:
        """Count ``rows`` more rows; ``ne`` gives NE so far and is called only when something is drawn."""
        self._rows += rows
        self._ne = ne
        if not self._quiet and self._clock() >= self._next_draw:
            self._draw()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._quiet:
            return
        if kind is None:
            self._draw()
        if self._bar is not None:
            self._bar.stop()

    @property
    def _interval(self) -> float:
        return _REDRAW_SECONDS if self._bar is not None else _LINE_SECONDS

    def _draw(self) -> None:
        ne = self._ne()
        now = self._clock()  # after NE: reading it waits for the steps that are under way
        detail = _detail(self._rate(now), ne, self._total_rows - self._rows)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._rows, detail=detail, refresh=True)
        else:
            assert self._console is not None, "__enter__ opens the console"
            share = self._rows / self._total_rows
            line = f"{self._title}: {self._rows:,} of {self._total_rows:,} rows ({share:.0%}), {detail}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._next_draw = now + self._interval

    def _rate(self, now: float) -> float | None:
        """Rows/s since the oldest sample that is kept; None before any time has passed."""
        while len(self._samples) > 1 and self._samples[1][0] <= now - _RATE_SECONDS:
            self._samples.popleft()
        then, rows = self._samples[0]
        self._samples.append((now, self._rows))
        return (self._rows - rows) / (now - then) if now > then else None


def _bar(console: Console) -> Bar:
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[detail]}", markup=False),
        console=console,
        auto_refresh=False,
    )


def _detail(rate: float | None, ne: float | None, rows_left: int) -> str:
    speed = "- rows/s" if rate is None else f"{rate:,.0f} rows/s"
    quality = "NE undefined" if ne is None else f"NE {ne:.4f}"
    left = f"{_clock_time(rows_left / rate)} left" if rate else "- left"
    return f"{speed}, {quality}, {left}"


def _clock_time(seconds: float) -> str:
    minutes, seconds_part = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_part:02}" if hours else f"{minutes}:{seconds_part:02}"
