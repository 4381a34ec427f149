"""The bar of a preparation on a terminal, and its lines elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from recsys.prepare.progress import Console


class Terminal(io.StringIO):
    """A stream that takes itself for a terminal."""

    def isatty(self) -> bool:
        """Always."""
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), "3/3"), (io.StringIO(), "read: 3 done\n")])
def test_results_pass_and_are_counted(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, shown: str) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    assert list(Console().follow("read", iter("abc"), 3)) == ["a", "b", "c"]
    assert "read" in stream.getvalue() and shown in stream.getvalue()
