"""Training speed on one CPU thread beside torch-rechub and deepctr-torch: one epoch over the same rows.

    python -m scripts.bench_cpu_peers FILE

FILE is Criteo's Kaggle TSV. DLRM and DCNv2 of the product, and the peers' DCN with a full cross matrix: embedding
dimension 16, batch 4096, bottom MLP 64-64, top or parallel MLP 256-128-64, 3 cross layers, Adam, dense tables updated
by each product's own means. A row's time is all of an epoch: loader, forward, backward, update; what is prepared
once (reading and encoding the file) is left out. Models take turns, ``--rounds`` times; the median counts. The peers
are installed into an environment of their own (--env) that shares torch with the product: only the code differs.
"""

from __future__ import annotations

import argparse
import json
import os
import site
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # as `python scripts/bench_cpu_peers.py` puts scripts/ there

PACKAGES = ("torch-rechub==0.9.0", "deepctr-torch==0.3.0")
SHARED = ("torch", "numpy", "pandas", "scikit-learn", "tqdm")
PEERS = ("torch-rechub", "deepctr-torch")
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_TOWER = "[256,128,64]"
_COMMON = ("sparse.embedding_dim=16", "trainer.batch_size=4096", "model.dense_arch.hidden=[64]", "optim.lr=1e-3")
# The product's cross network is of low rank; rank T * D / 2 multiplies as often as a full matrix of width T * D.
_DCNV2 = (
    "+experiment=dcnv2",
    "model.archs.mlp.hidden=[256,128]",
    "model.archs.mlp.out_features=64",
    "model.over_arch.hidden=[]",
    "model.interaction.num_layers=3",
)
MODELS = {
    "recsys DLRM": ("+experiment=dlrm", f"model.over_arch.hidden={_TOWER}"),
    "recsys DCNv2, rank 64": _DCNV2,
    "recsys DCNv2, as many products as a full matrix": (*_DCNV2, "model.interaction.rank=216"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a :class:`UserError` is told in one message and ends the process with status 1."""
    from recsys.errors import UserError

    flags = _parse(arguments)
    try:
        measure(flags)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="Criteo's Kaggle TSV, plain or .gz")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each model (default: %(default)s)")
    parser.add_argument("--env", type=Path, default=ROOT / ".bench-peers-venv", help="of the peers (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("runs/bench_cpu_peers"), help="folder (default: %(default)s)")
    parser.add_argument("--model", help=argparse.SUPPRESS)  # time one of ours, in a process of its own
    flags = parser.parse_args(arguments)
    if flags.rounds < 1:
        parser.error("--rounds must be at least 1")
    return flags


def measure(flags: argparse.Namespace) -> None:
    """Time one model, or all of them in turns."""
    if flags.model:
        print(json.dumps(time_own(flags.file, flags.model)))
        return
    flags.out.mkdir(parents=True, exist_ok=True)
    rows = flags.out / "rows.npz"
    write_rows(flags.file, rows)
    python = make_environment(flags.env)
    commands: list[list[object]] = [
        [sys.executable, "-m", "scripts.bench_cpu_peers", flags.file, "--model", m] for m in MODELS
    ]
    commands += [[python, ROOT / "scripts" / "bench_cpu_peers_fit.py", rows, peer] for peer in PEERS]
    taken: dict[str, list[dict[str, Any]]] = {}
    for _ in range(flags.rounds):
        for command in commands:
            found = json.loads(_run(command, "a model could not be timed").splitlines()[-1])
            taken.setdefault(found["name"], []).append(found)
            print(f"{found['name']}: {found['rows'] / found['cpu_s']:,.0f} rows per CPU second", flush=True)
    (flags.out / "bench.json").write_text(json.dumps(taken, indent=1) + "\n")
    print(f"\n{table(taken)}\nwritten to {flags.out}")


def table(taken: dict[str, list[dict[str, Any]]]) -> str:
    """Rows per CPU second: median, least and most over the rounds, and as a multiple of the fastest peer."""
    speeds = {name: [f["rows"] / f["cpu_s"] for f in found] for name, found in taken.items()}
    fastest = max(statistics.median(v) for name, v in speeds.items() if not name.startswith("recsys"))
    lines = ["| model | rows per CPU second | least .. most | times the fastest peer |", "|---|---|---|---|"]
    for name, values in speeds.items():
        median = statistics.median(values)
        lines.append(f"| {name} | {median:,.0f} | {min(values):,.0f} .. {max(values):,.0f} | {median / fastest:.2f} |")
    return "\n".join(lines)


def _splits(path: Path) -> Any:
    from recsys.prepare.criteo_kaggle import CriteoKaggle

    return CriteoKaggle(str(path), dense_as_categorical=False).splits(batch_size=4096, seed=0)


def time_own(path: Path, name: str) -> dict[str, Any]:
    """CPU seconds of an epoch of one of ours, with the loader."""
    import torch

    from recsys.config.cli import compose, to_plain
    from recsys.config.wire import build_device, build_model, build_stepper

    torch.set_num_threads(1)
    cfg = to_plain(compose([*MODELS[name], *_COMMON, "trainer.device=cpu", "data=criteo_kaggle", f"data.path={path}"]))
    device, data = build_device("cpu"), _splits(path)
    stepper = build_stepper(cfg, build_model(cfg, data.spec, device).train(), device, len(data.train))
    rows = 0
    start, wall = time.process_time(), time.perf_counter()
    for batch in data.train:
        stepper(batch)
        rows += batch.num_rows
    stepper.finish()
    return {
        "name": name,
        "rows": rows,
        "cpu_s": time.process_time() - start,
        "wall_s": time.perf_counter() - wall,
    }


def write_rows(path: Path, target: Path) -> None:
    """The product's own encoded train rows, for the peers."""
    import numpy as np

    splits = _splits(path)
    batches = list(splits.train)
    np.savez(
        target,
        dense=np.concatenate([b.dense_features.numpy() for b in batches]),
        ids=np.concatenate(
            [b.sparse_features.values().numpy().reshape(len(splits.spec.sparse), -1) for b in batches], axis=1
        ).astype(np.int32),
        labels=np.concatenate([b.labels.numpy() for b in batches]),
        cardinalities=[feature.cardinality for feature in splits.spec.sparse],
    )


def make_environment(folder: Path) -> Path:
    """The interpreter of an environment that holds the peers and shares torch, numpy and the like with this one.

    Raises:
        UserError: it cannot be made or filled.
    """
    from recsys.errors import UserError

    python, stamp = folder / "bin" / "python", folder / ".installed"
    if not (stamp.exists() and stamp.read_text().split("\n") == list(PACKAGES) and python.exists()):
        print(f"installing {' '.join(PACKAGES)} into {folder}", flush=True)
        _run([sys.executable, "-m", "venv", folder], f"{folder}: the environment cannot be made; see --env")
        code = "import site; print(site.getsitepackages()[0])"
        own = Path(_run([python, "-c", code], "the environment is not usable").strip())
        (own / "shared.pth").write_text("".join(f"{path}\n" for path in site.getsitepackages()))
        _run(
            [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", *PACKAGES],
            f"{folder}: the packages cannot be installed; check the connection to PyPI and run again",
        )
        missing = _run([python, "-c", _MISSING, *SHARED], "the environment is not usable").split()
        if missing:
            raise UserError(f"{folder}: {', '.join(missing)} must be installed beside the product; pip install them")
        stamp.write_text("\n".join(PACKAGES))
    return python


_MISSING = """
import sys
from importlib.metadata import PackageNotFoundError, version
for name in sys.argv[1:]:
    try:
        version(name)
    except PackageNotFoundError:
        print(name)
"""


def _run(command: Sequence[object], problem: str) -> str:
    from recsys.errors import UserError

    environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, "1")}
    words = [str(word) for word in command]
    done = subprocess.run(words, env=environment, check=False, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise UserError(f"{problem} ({' '.join(done.stderr.split())[-400:]})")
    return done.stdout


if __name__ == "__main__":
    main()
