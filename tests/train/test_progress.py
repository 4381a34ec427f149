"""Progress on a terminal, without one, and quiet; time is a number the test sets."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from recsys.train.progress import Progress


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class CountedNE:
    """An NE that counts how often it was read."""

    def __init__(self, value: float | None = 0.85) -> None:
        self.value = value
        self.reads = 0

    def __call__(self) -> float | None:
        self.reads += 1
        return self.value


def console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, force_terminal=terminal, force_interactive=terminal, width=120), text


def train(progress: Progress, clock: Clock, ne: CountedNE, *, steps: int = 200, seconds: float = 0.125) -> None:
    with progress:
        for _ in range(steps):
            clock.now += seconds
            progress.update(125, ne)


def test_plain_lines_every_ten_seconds() -> None:
    clock, ne = Clock(), CountedNE()
    out, text = console(terminal=False)
    train(Progress(25_000, "train [erase6]", console=out, clock=clock), clock, ne)
    lines = text.getvalue().splitlines()
    assert lines == [
        "train [erase6]: 10,000 of 25,000 rows (40%), 1,000 rows/s, NE 0.8500, 0:15 left",
        "train [erase6]: 20,000 of 25,000 rows (80%), 1,000 rows/s, NE 0.8500, 0:05 left",
        "train [erase6]: 25,000 of 25,000 rows (100%), 1,000 rows/s, NE 0.8500, 0:00 left",
    ]
    assert ne.reads == 3


def test_terminal_shows_a_bar_and_reads_ne_twice_a_second() -> None:
    clock, ne = Clock(), CountedNE()
    out, text = console(terminal=True)
    train(Progress(25_000, "train", console=out, clock=clock), clock, ne)
    assert ne.reads == 51  # 25 s, and once at the end
    assert "25000/25000" in text.getvalue()
    assert "1,000 rows/s, NE 0.8500, 0:00 left" in text.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_quiet_shows_nothing_and_never_reads_ne(terminal: bool) -> None:
    clock, ne = Clock(), CountedNE()
    out, text = console(terminal=terminal)
    train(Progress(25_000, "train", quiet=True, console=out, clock=clock), clock, ne)
    assert (text.getvalue(), ne.reads) == ("", 0)


def test_undefined_ne_and_no_time() -> None:
    out, text = console(terminal=False)
    with Progress(100, "train", console=out, clock=Clock()) as progress:
        progress.update(10, CountedNE(None))
    assert text.getvalue() == "train: 10 of 100 rows (10%), - rows/s, NE undefined, - left\n"


def test_rate_forgets_a_slow_start() -> None:
    clock = Clock()
    out, text = console(terminal=False)
    with Progress(100_000, "train", console=out, clock=clock) as progress:
        clock.now = 100.0
        progress.update(1, CountedNE())  # 100 s to compile the first step
        for _ in range(70):
            clock.now += 1
            progress.update(1_000, CountedNE())
    assert ", 1,000 rows/s, NE 0.8500, 0:30 left" in text.getvalue().splitlines()[-1]


def test_hours_left() -> None:
    clock = Clock()
    out, text = console(terminal=False)
    with Progress(100_000, "train", console=out, clock=clock) as progress:
        clock.now = 10.0
        progress.update(100, CountedNE())
    assert text.getvalue().splitlines()[0].endswith(", 10 rows/s, NE 0.8500, 2:46:30 left")


@pytest.mark.parametrize("terminal", [True, False])
def test_error_passes_through_without_a_last_line(terminal: bool) -> None:
    ne = CountedNE()
    out, _ = console(terminal=terminal)
    with (
        pytest.raises(RuntimeError, match="step failed"),
        Progress(10, "train", console=out, clock=Clock()) as progress,
    ):
        progress.update(1, ne)
        raise RuntimeError("step failed")
    assert ne.reads == 0


def test_default_console_is_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(1, "train") as progress:
        progress.update(1, CountedNE())
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("train: 1 of 1 rows (100%)")
