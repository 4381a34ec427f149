"""How far a scoring is, and how fast."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def rows_bar(what: str, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A function to count rows with: a live line on a terminal, one line at the end elsewhere; on standard error."""
    if quiet:
        yield lambda _: None
        return
    start, rows = time.perf_counter(), 0
    if not sys.stderr.isatty():

        def count(more: int) -> None:
            nonlocal rows
            rows += more

        yield count
        print(f"{what}: {_pace(rows, start)}", file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what, total=None)

        def advance(more: int) -> None:
            nonlocal rows
            rows += more
            bar.update(task, description=f"{what}: {_pace(rows, start)}")

        yield advance


def _pace(rows: int, start: float) -> str:
    return f"{rows:,} rows, {rows / max(time.perf_counter() - start, 1e-9):,.0f} rows/s"
