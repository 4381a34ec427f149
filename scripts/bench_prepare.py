"""Preparing Criteo's rows, side by side: rows per second and peak memory of recsys, torchrec and FuxiCTR.

    python scripts/bench_prepare.py FILE --copies 20 --fuxictr-python ENV/bin/python

FILE (plain or .gz; by default the file named by RECSYS_CRITEO_SAMPLE) is written out ``--copies`` times into one TSV,
and as train, valid and test CSV with a header for FuxiCTR; that is not timed. Each contender then runs alone, as a
process of its own. All split 8:1:1 in order except torchrec, which has no splits: it encodes the whole file, with one
vocabulary of all rows. FuxiCTR needs an environment of its own:
``pip install fuxictr "ray[data]" "polars<2" pandas scikit-learn h5py tqdm``.

Memory is the largest sum of proportional set sizes (PSS) of the process and its children, looked at ten times a second;
CPU seconds are summed likewise.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]

TORCHREC = """
import glob, sys
from torchrec.datasets.criteo import BinaryCriteoUtils as utils
source, out = sys.argv[1:]
utils.tsv_to_npys(source, f"{out}/dense.npy", f"{out}/sparse.npy", f"{out}/labels.npy", "criteo_kaggle")
utils.sparse_to_contiguous([f"{out}/sparse.npy"], out, frequency_threshold=10)
"""
FUXICTR = """
import sys
from fuxictr.preprocess import FeatureProcessor, build_dataset
folder, out = sys.argv[1:]
columns = [
    {"name": [f"I{i}" for i in range(1, 14)], "active": True, "dtype": "float", "type": "numeric"},
    {"name": [f"C{i}" for i in range(1, 27)], "active": True, "dtype": "str", "type": "categorical"},
]
label = {"name": "label", "dtype": "float"}
processor = FeatureProcessor(feature_cols=columns, label_col=label, dataset_id="criteo", data_root=out)
files = {f"{name}_data": f"{folder}/{name}.csv" for name in ("train", "valid", "test")}
build_dataset(processor, min_categr_count=10, **files)
"""


@dataclass(frozen=True)
class Usage:
    """What a process and its children took: seconds by the clock, CPU seconds, bytes."""

    wall: float
    cpu: float
    peak: int


def main() -> None:
    """Measure every contender and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", default=os.environ.get("RECSYS_CRITEO_SAMPLE"), help="Criteo's rows")
    parser.add_argument("--copies", type=int, default=20, help="of the file (default: %(default)s)")
    parser.add_argument("--fuxictr-python", help="interpreter that has fuxictr; without it FuxiCTR is left out")
    parser.add_argument("--without-torchrec", action="store_true", help="leave torchrec out")
    parser.add_argument("--folder", help="for the files, with a few GB of room (default: a temporary one)")
    arguments = parser.parse_args()
    if not arguments.file:
        parser.error("name a file of Criteo's rows, or set RECSYS_CRITEO_SAMPLE")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        rows = _write_inputs(Path(arguments.file), folder, arguments.copies, with_csv=bool(arguments.fuxictr_python))
        print(f"{rows:,} rows, {(folder / 'train.tsv').stat().st_size / 2**20:,.0f} MiB of text", flush=True)
        print("| what | rows/s | rows per CPU second | seconds | peak memory, MiB | output, MiB |")
        print("|---|---|---|---|---|---|", flush=True)
        for title, command in _contenders(folder, arguments).items():
            out = folder / "out"
            out.mkdir()
            usage = measure([word.replace("OUT", str(out)) for word in command])
            size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
            print(
                f"| {title} | {rows / usage.wall:,.0f} | {rows / usage.cpu:,.0f} | {usage.wall:.1f} | "
                f"{usage.peak / 2**20:,.0f} | {size / 2**20:,.0f} |",
                flush=True,
            )
            shutil.rmtree(out)


def _write_inputs(source: Path, folder: Path, copies: int, *, with_csv: bool) -> int:
    with gzip.open(source) if source.suffix == ".gz" else source.open("rb") as file:
        text = file.read()
    with (folder / "train.tsv").open("wb") as file:
        for _ in range(copies):
            file.write(text)
    rows = text.count(b"\n") * copies
    if with_csv:
        cuts = {"train": round(rows * 0.8), "valid": round(rows * 0.9), "test": rows}
        done = 0
        with (folder / "train.tsv").open("rb") as file:
            for name, stop in cuts.items():
                with (folder / f"{name}.csv").open("wb") as part:
                    part.write(",".join(NAMES).encode() + b"\n")
                    for _ in range(stop - done):
                        part.write(file.readline().replace(b"\t", b","))
                done = stop
    return rows


def _contenders(folder: Path, arguments: argparse.Namespace) -> dict[str, list[str]]:
    source = str(folder / "train.tsv")
    # 13 numbers and 26 categories, like the others; `bins` adds the 13 categories of the default schema.
    words = ["source=criteo_kaggle", f"input={source}", "output=OUT", "split.kind=order", "--quiet"]
    same = [*words, "schema=data/schemas/criteo_x1.yaml", "min_count=10"]
    run = [sys.executable, "scripts/prepare.py"]
    cores = len(os.sched_getaffinity(0))
    found = {
        "recsys, 1 worker": [*run, *same, "engine.workers=1"],
        f"recsys, {cores} workers": [*run, *same, f"engine.workers={cores}"],
        "recsys, 1 worker, with 13 bins": [*run, *words, "engine.workers=1"],
    }
    if not arguments.without_torchrec:
        found["torchrec"] = [sys.executable, "-c", TORCHREC, source, "OUT"]
    if arguments.fuxictr_python:
        found["FuxiCTR"] = [arguments.fuxictr_python, "-c", FUXICTR, str(folder), "OUT"]
    return found


def measure(command: list[str]) -> Usage:
    """Run a command to its end.

    Raises:
        SystemExit: it failed; its last words are told.
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=environment)
        peak = 0
        # Not os.times: what Ray starts is not waited for by its parent.
        ticks: dict[int, int] = {}
        while process.poll() is None:
            family = _family(process.pid)
            peak = max(peak, sum(map(_pss, family)))
            ticks |= {pid: _ticks(pid) or ticks.get(pid, 0) for pid in family}
            time.sleep(0.1)
        wall = time.perf_counter() - begin
        if process.returncode:
            log.seek(0)
            raise SystemExit(f"{command[0]} failed:\n{log.read().decode(errors='replace')[-2000:]}")
    return Usage(wall, sum(ticks.values()) / os.sysconf("SC_CLK_TCK"), peak)


def _family(pid: int) -> list[int]:
    family = [pid]
    for parent in family:
        try:
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
            family += [int(child) for task in tasks for child in (task / "children").read_text().split()]
        except OSError:
            continue
    return family


def _ticks(pid: int) -> int:
    """CPU time so far, in the kernel's ticks; 0 of a process that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])


def _pss(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
