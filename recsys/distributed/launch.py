"""What torchrun tells a process, read without torch: a job of one process must not wait for its import."""

from __future__ import annotations

import logging
import os
import warnings

from recsys.errors import ConfigError


def is_launched() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def rank() -> int:
    """This process's rank over all nodes; 0 without torchrun."""
    return int(os.environ["RANK"]) if is_launched() else 0


def agreed(name: str, value: str) -> str:
    """``value`` as the first rank of the job that asked gave it; the same text on every rank and after every restart.

    It lies in the store of torchrun's agent, which outlives the workers: a job that torchrun restarts finds the folder
    of its first attempt.

    Raises:
        ConfigError: torchrun keeps no store of its own, which only an unusual rendezvous does.
    """
    if not is_launched():
        return value
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        raise ConfigError("torchrun keeps no store of its own with this rendezvous; use --standalone or c10d")
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    store = PrefixStore("recsys", TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False))
    return str(store.compare_set(name, "", value).decode())


def label_messages() -> None:
    """Put the rank in front of warnings and log lines, and leave out what is less than a warning on ranks above 0."""
    if not is_launched():
        return
    # torchrec 1.8 calls what torch 2.13 has new names for.
    warnings.filterwarnings("ignore", message=".*torch.distributed.*_tensor. is deprecated", category=FutureWarning)
    label, plain = f"[rank {rank()}] ", warnings.formatwarning
    warnings.formatwarning = lambda *args, **kwargs: label + plain(*args, **kwargs)
    make = logging.getLogRecordFactory()

    def labelled(*args: object, **kwargs: object) -> logging.LogRecord:
        record = make(*args, **kwargs)
        record.msg = f"{label}{record.msg}"
        return record

    logging.setLogRecordFactory(labelled)
    if rank() != 0:
        logging.disable(logging.INFO)
