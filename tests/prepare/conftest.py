from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test cuts the power, and a preparation syncs more than a hundred files."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
