"""Chart of the schedule benchmark: gain over batch size, and what part of it is work removed.

python -m scripts.plot_gain --results DIR --out docs/images/gain.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from scripts.schedule_table import BASELINE, BRANCH, ERASE, SERIAL, best_ms


def load(folder: Path, experiment: str) -> list[dict[str, Any]]:
    """Results of one experiment, by batch size."""
    found = [json.loads(p.read_text()) for p in folder.glob(f"{experiment}_*.json")]
    return sorted(found, key=lambda r: r["batch_size"])


def main() -> None:
    """Read results and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), sharey=True, constrained_layout=True)
    for axis, experiment in zip(axes, ("bench_proxy", "bench_wide"), strict=True):
        results = load(args.results, experiment)
        sizes = [r["batch_size"] for r in results]
        base, branch, serial, erase = (
            [best_ms(r["rows"], p) for r in results] for p in (BASELINE, BRANCH, SERIAL, ERASE)
        )
        axis.plot(
            sizes, [b / e for b, e in zip(base, erase, strict=True)], "o-", label="ERASE over baseline, one stream"
        )
        axis.plot(
            sizes, [b / e for b, e in zip(branch, erase, strict=True)], "s-", label="ERASE over baseline, branches"
        )
        axis.plot(sizes, [b / s for b, s in zip(base, serial, strict=True)], "--", color="grey",
                  label="work removed: what is left on a full device")  # fmt: skip
        full = [r["limits"]["saturation_ms"] for r in results]
        axis.plot(sizes, [b / f for b, f in zip(base, full, strict=True)], ":", color="black",
                  label="saturation: every multiprocessor busy (an estimate)")  # fmt: skip
        axis.set_xscale("log", base=2)
        axis.set_xticks(sizes, [str(s) for s in sizes])
        axis.set_xlabel("batch size")
        axis.set_title(experiment, loc="left", fontsize=10)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("step time ratio")
    axes[0].legend(fontsize=8)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
