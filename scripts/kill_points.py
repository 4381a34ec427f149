"""Kill a job with SIGKILL at file operations of its checkpoints, resume it, and compare with the job that ran through.

    python scripts/kill_points.py              # every file operation
    python scripts/kill_points.py --points 20  # evenly spread

Each attempt is a process of its own, forked from one that has loaded the libraries. The fault is made from outside of
the product: in the doomed process the functions of ``os`` that touch files count their calls, and the n-th never
returns. A write is killed twice: before anything, and after half of its bytes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from scripts.fault_job import Job

OPERATIONS = ("open", "write", "fsync", "close", "mkdir", "rename", "replace", "unlink", "rmdir")


@contextmanager
def counted(on_call: Callable[[str, tuple[Any, ...]], None]) -> Iterator[None]:
    """Call ``on_call`` with the name and the arguments of every file operation before it happens."""
    real = {name: getattr(os, name) for name in OPERATIONS}

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            on_call(name, args)
            return real[name](*args, **kwargs)

        return call

    for name in OPERATIONS:
        setattr(os, name, wrapped(name))
    try:
        yield
    finally:
        for name in OPERATIONS:
            setattr(os, name, real[name])


def forked(work: Callable[[], str]) -> tuple[int, str]:
    """Run ``work`` in a process of its own: how it ended (as ``os.waitstatus_to_exitcode``) and what it gave."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reading)
            text = work()
            os.write(writing, text.encode())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def list_operations(folder: Path) -> list[str]:
    """The file operations of a job that runs through, in order."""

    def work() -> str:
        names: list[str] = []
        job = Job(folder)
        with counted(lambda name, _: names.append(name)):
            job.run()
        return " ".join(names)

    status, text = forked(work)
    assert status == 0, f"the job ended with {status}"
    return text.split()


def run_and_die(folder: Path, number: int, half: bool) -> int:
    """Run the job until its file operation ``number``, counted from 0; how the process ended."""
    write = os.write
    calls = iter(range(1 << 62))

    def die(name: str, args: tuple[Any, ...]) -> None:
        if next(calls) == number:
            if half:
                descriptor, data = args
                write(descriptor, bytes(data)[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

    def work() -> str:
        job = Job(folder)
        with counted(die):
            return job.run()

    return forked(work)[0]


def check_points(points: int | None, workplace: Path) -> Counter[str]:
    """Kill at ``points`` operations (all with None); operation -> how often it was the one.

    Raises:
        AssertionError: a resumed job ended with other numbers, or a checkpoint under its final name was not whole.
    """
    status, expected = forked(Job(workplace / "whole").run)
    assert status == 0, f"the job ended with {status}"
    names = list_operations(workplace / "listed")
    every = [(n, half) for n, name in enumerate(names) for half in ((False, True) if name == "write" else (False,))]
    step = 1 if points is None else max(1, len(every) // points)
    chosen = every if points is None else every[step // 2 :: step][:points]
    killed: Counter[str] = Counter()
    for number, half in chosen:
        folder = workplace / "killed"
        status = run_and_die(folder, number, half)
        what = f"operation {number} ({names[number]}{', half of it' if half else ''})"
        assert status == -signal.SIGKILL, f"{what}: ended with {status}"
        status, text = forked(lambda folder=folder: _resume(folder))  # type: ignore[misc]
        assert status == 0, f"{what}: the resumed job ended with {status}"
        assert text == expected, f"{what}: the resumed job ended with other numbers"
        killed[names[number]] += 1
        shutil.rmtree(folder)
    return killed


def _resume(folder: Path) -> str:
    job = Job(folder)
    assert not [p for p in folder.glob("*") if p.name.endswith(".damaged")], "a killed write left a damaged checkpoint"
    result = job.run()
    left = sorted(p.name for p in folder.iterdir())
    assert left == ["step_00000005", "step_00000006"], f"left: {left}"
    return result


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, help="how many, evenly spread; all without it")
    points = parser.parse_args().points
    with tempfile.TemporaryDirectory() as folder:
        killed = check_points(points, Path(folder))
    by_name = ", ".join(f"{name} {count}" for name, count in sorted(killed.items()))
    print(
        f"{killed.total()} points killed ({by_name}); every resumed job ended with the numbers of the one that ran on"
    )


if __name__ == "__main__":
    main()
