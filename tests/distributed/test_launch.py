"""What torchrun tells, and what its processes agree on."""

from __future__ import annotations

import logging
import warnings

import pytest
from torch._C._distributed_c10d import TCPStore

from recsys.distributed import launch
from recsys.errors import ConfigError


@pytest.fixture
def torchrun(monkeypatch: pytest.MonkeyPatch) -> TCPStore:
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    for name, value in {
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(store.port),
        "RANK": "1",
    }.items():
        monkeypatch.setenv(name, value)
    return store


def test_a_process_alone_agrees_with_itself() -> None:
    assert not launch.is_launched() and launch.rank() == 0
    assert launch.agreed("run_id", "mine") == "mine"


def test_the_first_value_holds_for_every_rank_and_after_a_restart(
    torchrun: TCPStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert launch.agreed("run_id", "first") == "first"
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert launch.agreed("run_id", "second") == "first"
    assert launch.agreed("other", "second") == "second"


def test_without_a_store_the_way_out_is_named(torchrun: TCPStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "False")
    with pytest.raises(ConfigError, match="use --standalone or c10d"):
        launch.agreed("run_id", "mine")


def test_messages_carry_the_rank_and_lesser_ones_stay_away(
    torchrun: TCPStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    factory, disabled = logging.getLogRecordFactory(), logging.root.manager.disable
    try:
        with warnings.catch_warnings():
            launch.label_messages()
            assert warnings.formatwarning("odd", UserWarning, "file.py", 1).startswith("[rank 1] file.py")
        assert not logging.getLogger("x").isEnabledFor(logging.INFO)
        logging.getLogger("x").warning("odd %s", "thing")
        assert [r.getMessage() for r in caplog.records] == ["[rank 1] odd thing"]
    finally:
        logging.setLogRecordFactory(factory)
        logging.disable(disabled)
