"""Serve an exported model over HTTP: /predict, /health, /ready, /metrics.

    python scripts/serve.py exported --port 8000

Needs the extra `serve` (fastapi, uvicorn, prometheus-client). docs/serving.md shows requests and answers.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as `python scripts/serve.py` puts scripts/ there

from recsys.errors import ConfigError, UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status."""
    flags = _parse(arguments)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        _serve(flags)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, metavar="PACKAGE", help="folder that scripts/export.py made")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    parser.add_argument(
        "--port", type=int, default=8000, help="0 takes a free one and prints it (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=1, help="of torch (default: %(default)s)")
    parser.add_argument("--max-rows", type=int, default=1024, help="of a request (default: %(default)s)")
    parser.add_argument("--max-body-mib", type=float, default=8.0, help="of a request (default: %(default)s)")
    parser.add_argument(
        "--batch-rows", type=int, default=256, help="of requests predicted together; 1: none (default: %(default)s)"
    )
    parser.add_argument("--not-compiled", action="store_true", help="use dense.pt2 though there is a compiled one")
    return parser.parse_args(arguments)


def _serve(flags: argparse.Namespace) -> None:
    if flags.threads < 1:
        raise ConfigError("--threads must be at least 1")
    try:
        import uvicorn

        from recsys.serve.service import Limits, create_app
    except ImportError as error:
        raise ConfigError(
            f"the service needs the package {error.name}; install the extra: pip install 'recsys[serve]', or "
            "pip install fastapi uvicorn prometheus-client"
        ) from error
    import torch

    from recsys.serve.export import read_package

    torch.set_num_threads(flags.threads)
    read_package(flags.package)  # what is no package is told before anything listens
    limits = Limits(flags.max_rows, int(flags.max_body_mib * 2**20), flags.batch_rows)
    app = create_app(flags.package, limits, compiled=False if flags.not_compiled else None)
    uvicorn.run(app, host=flags.host, port=flags.port, log_level="info", access_log=False)


if __name__ == "__main__":
    sys.exit(main())
