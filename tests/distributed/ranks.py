"""Real processes for tests: forked from a server that has imported torch once, joined over gloo as under torchrun."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable
from typing import Any

from torch._C._distributed_c10d import TCPStore

from recsys.distributed import launch
from recsys.distributed.world import open_world

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.distributed.ranks", "tests.distributed.jobs"])
TIMEOUT_S = 40.0


def run_ranks(
    size: int, job: Callable[..., Any], *args: Any, exit_codes: list[int] | None = None, device: str = "cpu"
) -> list[Any]:
    """What ``job(world, *args)`` gives on each of ``size`` ranks.

    Args:
        size: number of processes.
        job: of ``tests.distributed.jobs``.
        args: of the job, after the world.
        device: gloo for "cpu", NCCL for "cuda".
        exit_codes: expected ones of processes that give nothing.
    """
    # A process that is forked after CUDA has started cannot use it.
    context = _CONTEXT if device == "cpu" else multiprocessing.get_context("spawn")
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    answers: list[Any] = []
    ranks = []
    for rank in range(size):
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=_rank, args=(rank, size, store.port, send, device, job, args))
        process.start()
        send.close()
        ranks.append((process, receive))
    for _, receive in ranks:
        try:
            answers.append(pickle.loads(receive.recv_bytes()) if receive.poll(90) else (None, "no answer in time"))
        except EOFError:
            answers.append((None, None))
    for process, _ in ranks:
        process.join(30)
        if process.exitcode is None:
            process.kill()
            process.join()
    errors = [error for _, error in answers if error]
    assert not errors, "\n".join(errors)
    assert [process.exitcode for process, _ in ranks] == (exit_codes or [0] * size)
    return [answer for answer, _ in answers]


def _rank(
    rank: int, size: int, port: int, send: Any, device: str, job: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    launch.label_messages()
    try:
        with open_world(device, TIMEOUT_S) as world:
            answer = job(world, *args)
            # Plain bytes: torch would hand its tensors over by file descriptors that end with this process.
            send.send_bytes(pickle.dumps((answer, None)))
    except BaseException:  # told to the test, whatever it is
        send.send_bytes(pickle.dumps((None, f"rank {rank}:\n{traceback.format_exc()}")))
