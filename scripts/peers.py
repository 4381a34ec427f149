"""Measure peers from PyPI on the rows that the product trains, tunes and tests on.

    python -m scripts.peers FILE --trials 20 --seed 7 --jobs 2

FILE is Criteo's Kaggle TSV (plain or .gz), cut 80/10/10 in file order as data=criteo_kaggle does. The peers are
logistic regression on hashed one-hot features, and LightGBM with frequencies and out-of-fold smoothed target means,
each tuned on the valid rows from scripts/ranges/peer_*.yaml and tested once. LightGBM and scikit-learn are installed
into an environment of their own (--env); they are no dependency of the product.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as `python scripts/peers.py` puts scripts/ there

from recsys.errors import DataError, UserError

ROOT = Path(__file__).resolve().parent.parent
PEERS = ("logistic", "lightgbm")
PACKAGES = ("lightgbm>=4.6,<5", "scikit-learn>=1.5,<2")
SHARES = (0.8, 0.1, 0.1)
_STAMP = ".installed"
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; a :class:`UserError` is told in one message and ends the process with status 1."""
    flags = _parse(arguments)
    try:
        measure(flags)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="Criteo's Kaggle TSV, plain or .gz")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), help="default: all of them")
    parser.add_argument("--trials", type=int, default=20, help="settings of each peer (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="fits at a time, one thread each (default: %(default)s)")
    parser.add_argument("--env", type=Path, default=ROOT / ".peers-venv", help="environment of the peers (%(default)s)")
    parser.add_argument("--out", type=Path, help="folder of the results (default: runs/peers/<time>)")
    flags = parser.parse_args(arguments)
    if flags.jobs < 1:
        parser.error("--jobs must be at least 1")
    flags.out = flags.out or Path("runs/peers") / f"{time.strftime('%Y-%m-%d_%H-%M-%S')}-{os.getpid()}"
    return flags


def measure(flags: argparse.Namespace) -> None:
    """Prepare, tune each peer in its own environment, test the chosen setting, write and show."""
    from recsys.compare.ranges import draw_settings, read_ranges

    settings = {
        peer: draw_settings(read_ranges(ROOT / "scripts" / "ranges" / f"peer_{peer}.yaml"), flags.trials, flags.seed)
        for peer in flags.peers
    }
    flags.out.mkdir(parents=True, exist_ok=True)
    test_labels = write_rows(flags.file, flags.out)
    python = make_environment(flags.env)
    results = []
    for peer, drawn in settings.items():
        flat = [{key: value for choice in setting.values() for key, value in choice.items()} for setting in drawn]
        (flags.out / f"{peer}.settings.json").write_text(json.dumps(flat, indent=1) + "\n")
        _run([python, ROOT / "scripts" / "peers_fit.py", flags.out, peer, flags.jobs], f"tuning {peer} failed")
        results.append(read_result(flags.out, peer, test_labels))
    report = {"file": flags.file.name, "seed": flags.seed, "versions": versions(python), "peers": results}
    (flags.out / "peers.json").write_text(json.dumps(report, indent=1) + "\n")
    text = markdown(report)
    (flags.out / "peers.md").write_text(text)
    print(f"\n{text}\nwritten to {flags.out}")


def write_rows(path: Path, folder: Path) -> np.ndarray[Any, Any]:
    """Read and check the file as the product does and keep its rows for the peers.

    Returns:
        Labels of the test rows.

    Raises:
        DataError: a fault of the file, or too few rows.
    """
    from recsys.prepare.numeric import buckets

    labels, integers, categories = read_rows(path)
    end_train, end_valid, _ = (round(len(labels) * share) for share in np.cumsum(SHARES))
    parts = np.split(labels, [end_train, end_valid])
    if any(len(part) == 0 or part.min() == part.max() for part in parts):
        raise DataError(f"{path}: {len(labels)} rows are too few for train, valid and test rows with both labels")
    missing = np.isnan(integers)
    bins = buckets(integers, "log_bins")
    np.savez(
        folder / "rows.npz",
        labels=labels,
        integers=integers,
        bins=np.where(missing, bins.min() - 1, bins),
        categories=categories,
        num_train=end_train,
        num_valid=end_valid - end_train,
    )
    return parts[2]


def read_rows(path: Path) -> tuple[np.ndarray[Any, Any], ...]:
    """Labels ``(R,)``, integers ``(13, R)`` with NaN and categories ``(26, R)`` with -1 where they are missing.

    Raises:
        DataError: a fault of the file.
    """
    from recsys.prepare.criteo import INTEGER_NAMES, TOKEN_NAMES
    from recsys.prepare.inputs import resolve
    from recsys.prepare.schema import CategoricalColumn, DenseColumn, Schema
    from recsys.prepare.units import make_units, read_unit

    source, chunk_bytes = "criteo_kaggle", 16 << 20
    schema = Schema("label", tuple(map(DenseColumn, INTEGER_NAMES)), tuple(map(CategoricalColumn, TOKEN_NAMES)))
    blocks: list[tuple[np.ndarray[Any, Any], ...]] = []
    for unit in make_units(source, resolve(source, str(path)), schema, chunk_bytes):
        for piece in read_unit(source, unit, schema, chunk_bytes):
            if piece.faults:
                raise DataError(f"{piece.places[0]}: {piece.faults[0].message}")
            categories = [column.cast("int64").fill_null(-1).to_numpy() for column in piece.rows.categorical]
            blocks.append((piece.rows.label, np.stack(piece.rows.dense), np.stack(categories)))
    labels, integers, categories_of_all = (np.concatenate(part, axis=-1) for part in zip(*blocks, strict=True))
    return labels, integers, categories_of_all


def make_environment(folder: Path) -> Path:
    """The interpreter of an environment that holds the peers; made and filled where it is not there yet.

    Raises:
        UserError: it cannot be made or filled.
    """
    python, stamp = folder / "bin" / "python", folder / _STAMP
    if not (stamp.exists() and stamp.read_text().split("\n") == list(PACKAGES) and python.exists()):
        print(f"installing {' '.join(PACKAGES)} into {folder}", flush=True)
        _run([sys.executable, "-m", "venv", folder], f"{folder}: the environment cannot be made; see --env")
        _run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES],
            f"{folder}: the packages cannot be installed; check the connection to PyPI and run again",
        )
        stamp.write_text("\n".join(PACKAGES))
    return python


def versions(python: Path) -> dict[str, str]:
    """Versions of what the peers ran on."""
    code = (
        "import json, sys; from importlib.metadata import version; "
        "print(json.dumps({'python': sys.version.split()[0]} | {n: version(n) for n in sys.argv[1:]}))"
    )
    names = ("lightgbm", "scikit-learn", "numpy", "scipy")
    found: dict[str, str] = json.loads(subprocess.check_output([python, "-c", code, *names], text=True))
    return found


def _run(command: Sequence[object], problem: str) -> None:
    environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, "1")}
    try:
        subprocess.run([str(word) for word in command], env=environment, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"{problem} ({error})") from error


def read_result(folder: Path, peer: str, test_labels: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The chosen setting and its test figures, by the product's own metrics."""
    from recsys.metrics import compute_metrics

    raw = json.loads((folder / f"{peer}.result.json").read_text())
    metrics = compute_metrics(np.load(folder / f"{peer}.logits.npy"), test_labels)
    best = raw["trials"][raw["best"]]
    return {"peer": peer, "chosen": best, "test": asdict(metrics), "trials": raw["trials"]}


def markdown(report: dict[str, Any]) -> str:
    """The table of all peers."""
    from recsys.compare.search_tables import render

    head = ("peer", "trials", "valid NE", "test NE", "AUC", "log loss", "calibration", "chosen by valid NE")
    rows = []
    for result in report["peers"]:
        figures = (result["chosen"]["valid_ne"], *(result["test"][k] for k in ("ne", "auc", "logloss", "calibration")))
        chosen = ", ".join(f"{key}={value}" for key, value in result["chosen"]["settings"].items())
        rows.append([result["peer"], str(len(result["trials"])), *(f"{v:.5f}" for v in figures), chosen])
    found = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    return f"Peers on {report['file']}, 80/10/10 in file order; {found}\n\n{render((head, rows))}\n"


if __name__ == "__main__":
    main()
