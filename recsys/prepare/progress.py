"""Telling how far a preparation is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

_T = TypeVar("_T")


class Silent:
    """Says nothing."""

    def say(self, text: str) -> None:
        """Drop a line."""

    def follow(self, what: str, results: Iterable[_T], total: int) -> Iterator[_T]:
        """Pass the results on."""
        del what, total
        yield from results


class Console(Silent):
    """A bar for each pass on a terminal, a line for each pass elsewhere; on standard error."""

    def say(self, text: str) -> None:
        """Print a line."""
        print(text, file=sys.stderr, flush=True)

    def follow(self, what: str, results: Iterable[_T], total: int) -> Iterator[_T]:
        """Pass the results on and count them."""
        if not sys.stderr.isatty():
            yield from results
            self.say(f"{what}: {total} done")
            return
        from rich.console import Console as RichConsole
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=RichConsole(stderr=True)) as bar:
            task = bar.add_task(what, total=total)
            for result in results:
                yield result
                bar.advance(task)
