"""Load test of the HTTP service on this machine's loopback: requests a second and latency, by concurrency.

    python scripts/bench_service.py exported
    python scripts/bench_service.py exported --rows 1 16 --clients 1 8 32 --seconds 5 --server="--batch-rows 1"

Starts scripts/serve.py on a free port and loads it with clients that each wait for their answer before they ask again.
Clients and server share the machine's cores.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
_START_SECONDS = 120


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    flags = _parse(arguments)
    with serving(flags.package, shlex.split(flags.server)) as port:
        fields = json.loads(ask(port, "GET", "/ready")[1])["fields"]
        print(f"{'rows':>5} {'clients':>8} {'requests/s':>11} {'rows/s':>9} {'p50 ms':>8} {'p99 ms':>8} {'errors':>7}")
        for rows in flags.rows:
            for clients in flags.clients:
                found = load(port, made_up(fields, rows), clients, flags.seconds)
                print(
                    f"{rows:5} {clients:8} {found['requests_per_s']:11.1f} {found['rows_per_s']:9.0f} "
                    f"{found['p50_ms']:8.1f} {found['p99_ms']:8.1f} {found['errors']:7.0f}",
                    flush=True,
                )
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, metavar="PACKAGE", help="folder that scripts/export.py made")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32], help="of a request (default: %(default)s)")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8], help="at a time (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each load (default: %(default)s)")
    parser.add_argument("--server", default="", help="further options of scripts/serve.py, in one word")
    return parser.parse_intermixed_args(arguments)


@contextmanager
def serving(package: Path, options: Sequence[str] = ()) -> Iterator[int]:
    """Run scripts/serve.py; gives its port once it is ready, and ends it afterwards.

    Raises:
        RuntimeError: it ended, or was not ready in time; with what it said.
    """
    with _free_port() as port:
        command = [
            sys.executable,
            str(ROOT / "scripts" / "serve.py"),
            str(package.resolve()),
            "--port",
            str(port),
            *options,
        ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        _wait_until_ready(process, port)
        yield port
    finally:
        process.terminate()
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


@contextmanager
def _free_port() -> Iterator[int]:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield int(probe.getsockname()[1])


def _wait_until_ready(process: subprocess.Popen[str], port: int) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            raise RuntimeError(f"the service ended: {process.communicate()[0]}")
        try:
            status, body = ask(port, "GET", "/ready")
        except OSError:
            time.sleep(0.2)
            continue
        if status == 200:
            return
        if json.loads(body)["status"] != "loading":
            raise RuntimeError(f"the service is not ready: {body}")
        time.sleep(0.1)
    raise RuntimeError(f"the service was not ready after {_START_SECONDS} s")


def ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
    """One request on a connection of its own: status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, {"content-type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def made_up(fields: list[dict[str, Any]], num_rows: int) -> bytes:
    """The body of a request of rows that fit the fields; ids and tokens are small numbers."""
    draw = np.random.default_rng(num_rows)
    values = {"number": 1.5, "text": "a", "token": "0a", "whole number": 1, "text or whole number": 1, "id": 0}

    def value(field: dict[str, Any]) -> Any:
        if field["kind"] == "number":
            return round(float(draw.exponential(10)), 2)
        if field["kind"] == "token":
            return f"{int(draw.integers(0, 2**32)):08x}"
        one = values[field["kind"]]
        return [one] if field["list"] else one

    return json.dumps({"rows": [{f["name"]: value(f) for f in fields} for _ in range(num_rows)]}).encode()


def load(port: int, body: bytes, clients: int, seconds: float) -> dict[str, float]:
    """Load the service for so long; figures of all clients together."""
    num_rows = len(json.loads(body)["rows"])
    times: list[float] = []
    errors: list[float] = []
    start = threading.Barrier(clients + 1)

    def run() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        start.wait()
        end = time.perf_counter() + seconds
        while (begin := time.perf_counter()) < end:
            connection.request("POST", "/predict", body, {"content-type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            (times if answer.status == 200 else errors).append(time.perf_counter() - begin)
        connection.close()

    threads = [threading.Thread(target=run) for _ in range(clients)]
    for thread in threads:
        thread.start()
    start.wait()
    begin = time.perf_counter()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - begin
    p50, p99 = (float(np.percentile(times, q)) * 1e3 if times else float("nan") for q in (50, 99))
    return {
        "requests_per_s": len(times) / taken,
        "rows_per_s": num_rows * len(times) / taken,
        "p50_ms": p50,
        "p99_ms": p99,
        "errors": float(len(errors)),
    }


if __name__ == "__main__":
    sys.exit(main())
