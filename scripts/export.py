"""Export a trained model to a folder that predicts without this project's code.

    python scripts/export.py RUN --out exported
    python scripts/export.py RUN --out exported --embeddings int8 --compiled --bench

RUN is the folder of a run. docs/serving.md tells what the folder holds and how to use it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as `python scripts/export.py` puts scripts/ there

from recsys.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    flags = _parse(arguments)
    try:
        _export(flags)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; nothing was written", file=sys.stderr)
        return 130
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run")
    parser.add_argument("--out", type=Path, required=True, help="folder to make")
    parser.add_argument("--side", default="erase", help="erase (the experiment's model, default) or baseline")
    parser.add_argument("--embeddings", default="fp32", help="fp32 (default), fp16 or int8")
    parser.add_argument("--compiled", action="store_true", help="also compile the dense graph (AOTInductor)")
    parser.add_argument("--tolerance", type=float, help="a probability may differ by so much (default: by precision)")
    parser.add_argument("--bench", action="store_true", help="measure latency on one CPU thread, against the trainer")
    parser.add_argument("--calls", type=int, default=400, help="of the benchmark, for each batch size (%(default)s)")
    return parser.parse_intermixed_args(arguments)


def _export(flags: argparse.Namespace) -> None:
    from recsys.serve.export import export_package

    done = export_package(
        flags.run,
        flags.out,
        side=flags.side,
        embeddings=flags.embeddings,
        compiled=flags.compiled,
        tolerance=flags.tolerance,
    )
    for way, worst in done.agreement.items():
        print(f"{way}: probabilities differ from the trainer's by {worst:.1e} at the most")
    for name, size in done.num_bytes.items():
        if "/" not in name:
            print(f"{name}: {size / 2**20:.2f} MiB")
    print(f"{flags.out}: {sum(done.num_bytes.values()) / 2**20:.2f} MiB (weights of the run: ", end="")
    print(f"{done.trained_bytes / 2**20:.2f} MiB)")
    if flags.bench:
        from recsys.serve.latency import measure_latency

        print("one CPU thread, milliseconds a call:")
        for found in measure_latency(done.model, flags.out, calls=flags.calls):
            print(f"{found.way:9} batch {found.batch:5}: p50 {found.p50_ms:8.3f}, p99 {found.p99_ms:8.3f}")


if __name__ == "__main__":
    sys.exit(main())
