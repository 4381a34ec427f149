"""SIGTERM: finish the step, save, and end with a status of its own."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Self

EXIT_STATUS = 75
"""``EX_TEMPFAIL`` of sysexits.h: try again later."""


class Stopped(SystemExit):
    """Training was asked to end by SIGTERM; what it had done so far is saved. Ends the process with status 75."""

    def __init__(self) -> None:
        super().__init__(EXIT_STATUS)


class StopSignal:
    """While this context is open, SIGTERM only sets ``received``.

    Does nothing outside of the main thread, where Python allows no handlers.
    """

    def __init__(self) -> None:
        self.received = False
        self._before: Any = None
        self._installed = False

    def __enter__(self) -> Self:
        try:
            self._before = signal.signal(signal.SIGTERM, self._receive)
            self._installed = True
        except ValueError:
            pass
        return self

    def __exit__(self, *error: object) -> None:
        if self._installed:
            signal.signal(signal.SIGTERM, self._before)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.received = True
