"""Train for minutes with evaluations and checkpoints every few seconds, and watch memory, file handles and speed.

    python scripts/soak.py --minutes 30 --processes 2
    python scripts/soak.py --minutes 1 -- +experiment=dlrm trainer.batch_size=1024

Starts ``train.py`` (by torchrun for more than one process), reads each worker's memory and open files from /proc and
the rows trained from the progress lines, and ends the job by SIGTERM, as a cluster would. Fails where memory or file
handles grow, or the rate of the last minute is below 0.95 of that of the first minute after the warm-up.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OVERRIDES = (
    *("+experiment=baseline6", "data.train_rows=20000", "data.valid_rows=2000", "data.test_rows=1000"),
    *("trainer.device=cpu", "trainer.epochs=1000000", "trainer.evals_per_epoch=1", "trainer.reuse_baseline=false"),
    *("checkpoint.every_seconds=3", "checkpoint.keep_best=1", "hydra.run.dir=run", "trainer.cache_dir=cache"),
)
MIN_SPEED = 0.95
MAX_GROWTH = 0.03
"""Of memory, from the first to the last quarter after the warm-up; Python's and malloc's arenas breathe."""
_LINE = re.compile(r": ([\d,]+) of [\d,]+ rows")
_MB = 1 << 20


@dataclass
class Samples:
    """What was seen, each with its time in seconds.

    Attributes:
        memory: resident bytes of all workers together.
        handles: open files of all workers together.
        rows: training rows so far, as the progress lines tell.
        cpu: processor seconds of all workers so far, all threads together.
    """

    memory: list[tuple[float, int]] = field(default_factory=list)
    handles: list[tuple[float, int]] = field(default_factory=list)
    rows: list[tuple[float, int]] = field(default_factory=list)
    cpu: list[tuple[float, float]] = field(default_factory=list)


@dataclass(frozen=True)
class Verdict:
    """A soak in figures.

    Attributes:
        growth: of memory, as a share; median of the last quarter to that of the first after the warm-up.
        handles: median of open files in the first and in the last quarter.
        speed: rate of the last window to that of the first one after the warm-up; None where time was too short.
        checkpoints: left in the end.
        fifths: rows a second in each fifth of the time, the warm-up first; tells a slow end from one slow minute.
        fifths_cpu: rows a processor second, the same way; what other work on the machine changes least.
    """

    memory_mb: tuple[float, float]
    growth: float
    handles: tuple[float, float]
    speed: float | None
    checkpoints: int
    status: int
    fifths: tuple[float, ...] = ()
    fifths_cpu: tuple[float, ...] = ()

    def problems(self) -> list[str]:
        """What is wrong; empty if nothing is."""
        found = []
        if self.growth > MAX_GROWTH:
            found.append(f"memory grew by {self.growth:.1%}")
        if self.handles[1] > self.handles[0]:
            found.append(f"open files grew from {self.handles[0]:.0f} to {self.handles[1]:.0f}")
        if self.speed is not None and self.speed < MIN_SPEED:
            found.append(f"the last minute had {self.speed:.3f} of the speed of the first")
        if not self.checkpoints:
            found.append("no checkpoint was left")
        return found


def soak(minutes: float, processes: int, folder: Path, overrides: Sequence[str] = ()) -> Verdict:
    """Run the job in ``folder`` and look at it."""
    command = [sys.executable, str(ROOT / "train.py"), *OVERRIDES, *overrides]
    if processes > 1:
        launcher = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}")
        command[1:1] = launcher
    environment = {**os.environ, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), "PYTHONPATH": str(ROOT)}
    log = folder / "output"
    with log.open("w") as output:
        job = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, env=environment)
        try:
            samples = _watch(job, processes, log, minutes * 60)
            job.send_signal(signal.SIGTERM)
            status = job.wait(120)
        finally:
            job.kill()
    return judge(samples, status, len(list(folder.glob("run/checkpoints/*/step_*"))))


def _watch(job: subprocess.Popen[bytes], processes: int, log: Path, seconds: float) -> Samples:
    samples, begin, seen = Samples(), None, 0
    while begin is None or time.monotonic() - begin < seconds:
        time.sleep(0.5)
        if job.poll() is not None:
            raise SystemExit(f"the job ended early with {job.returncode}:\n{log.read_text()[-4000:]}")
        now, lines = time.monotonic(), _LINE.findall(log.read_text())
        if lines[seen:]:
            begin = now if begin is None else begin
            samples.rows.append((now, int(lines[-1].replace(",", ""))))
            seen = len(lines)
        if begin is not None:
            workers = [job.pid] if processes == 1 else _children(job.pid)
            samples.memory.append((now, sum(_resident(w) for w in workers)))
            samples.handles.append((now, sum(len(os.listdir(f"/proc/{w}/fd")) for w in workers)))
            samples.cpu.append((now, sum(_cpu_seconds(w) for w in workers)))
    return samples


def _children(process: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _resident(process: int) -> int:
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def judge(samples: Samples, status: int, checkpoints: int) -> Verdict:
    """Figures of a soak; the first fifth of the time is the warm-up."""
    begin, end = samples.memory[0][0], samples.memory[-1][0]
    warm = begin + (end - begin) / 5
    memory, handles = _quarters(samples.memory, warm), _quarters(samples.handles, warm)
    rates = [(t, (r - s) / (t - u)) for (u, s), (t, r) in zip(samples.rows, samples.rows[1:], strict=False)]
    late = [(t, rate) for t, rate in rates if t >= warm]
    speed = None
    if end - warm >= 120:
        first = [rate for t, rate in late if t <= warm + 60]
        last = [rate for t, rate in late if t >= end - 60]
        speed = statistics.mean(last) / statistics.mean(first)
    fifths = [_gains(samples, begin + i * (end - begin) / 5, begin + (i + 1) * (end - begin) / 5) for i in range(5)]
    return Verdict(
        memory_mb=(memory[0] / _MB, memory[1] / _MB),
        growth=memory[1] / memory[0] - 1,
        handles=handles,
        speed=speed,
        checkpoints=checkpoints,
        status=status,
        fifths=tuple(rows / seconds for rows, seconds, _ in fifths if rows),
        fifths_cpu=tuple(rows / cpu for rows, _, cpu in fifths if rows and cpu),
    )


def _gains(samples: Samples, begin: float, end: float) -> tuple[int, float, float]:
    """Rows, seconds and processor seconds between the first and the last progress line in a stretch of time."""
    rows = [(t, n) for t, n in samples.rows if begin <= t <= end]
    if len(rows) < 2:
        return 0, 0.0, 0.0
    cpu = [seconds for t, seconds in samples.cpu if rows[0][0] <= t <= rows[-1][0]]
    return rows[-1][1] - rows[0][1], rows[-1][0] - rows[0][0], cpu[-1] - cpu[0] if cpu else 0.0


def _quarters(samples: Sequence[tuple[float, int]], warm: float) -> tuple[float, float]:
    values = [value for t, value in samples if t >= warm]
    size = max(1, len(values) // 4)
    return statistics.median(values[:size]), statistics.median(values[-size:])


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("overrides", nargs="*", help="further overrides of train.py, after --")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        verdict = soak(args.minutes, args.processes, Path(folder), args.overrides)
    print(
        f"memory {verdict.memory_mb[0]:.0f} MB, at the end {verdict.memory_mb[1]:.0f} MB ({verdict.growth:+.2%}); "
        f"open files {verdict.handles[0]:.0f}, at the end {verdict.handles[1]:.0f}; speed of the last minute "
        f"{'not measured' if verdict.speed is None else f'{verdict.speed:.3f} of the first'}; ended with "
        f"{verdict.status}; {verdict.checkpoints} checkpoints left"
    )
    for name, fifths in (("second", verdict.fifths), ("processor second", verdict.fifths_cpu)):
        print(f"rows a {name}, fifth by fifth: {', '.join(f'{rate:,.0f}' for rate in fifths)}")
    if problems := verdict.problems():
        raise SystemExit("; ".join(problems))


if __name__ == "__main__":
    main()
