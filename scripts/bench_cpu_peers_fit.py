"""Time one epoch of a peer's DCNv2 (matrix form); runs inside the environment of scripts/bench_cpu_peers.py.

    ENV/bin/python scripts/bench_cpu_peers_fit.py ROWS.npz PEER

Reads ``dense`` float32 ``(R, N)``, ``ids`` int32 ``(F, R)``, ``labels`` and ``cardinalities``; prints one JSON line
with the CPU seconds of the epoch, data loader included, and the rows.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

DIM, BATCH, HIDDEN, CROSS_LAYERS = 16, 4096, (256, 128, 64), 3


def rechub(rows: Any) -> Any:
    """torch-rechub's DCNv2, parallel, full matrix, with its own trainer and loader."""
    from torch_rechub.basic.features import DenseFeature, SparseFeature  # type: ignore[import-not-found, unused-ignore]
    from torch_rechub.models.ranking import DCNv2  # type: ignore[import-not-found, unused-ignore]
    from torch_rechub.trainers import CTRTrainer  # type: ignore[import-not-found, unused-ignore]
    from torch_rechub.utils.data import DataGenerator  # type: ignore[import-not-found, unused-ignore]

    dense = [DenseFeature(f"I{i}") for i in range(rows["dense"].shape[1])]
    sparse = [SparseFeature(f"C{i}", int(n), DIM) for i, n in enumerate(rows["cardinalities"])]
    model = DCNv2(dense + sparse, CROSS_LAYERS, {"dims": list(HIDDEN)}, use_low_rank_mixture=False)
    x = {f"I{i}": column for i, column in enumerate(rows["dense"].T.copy())}
    x |= {f"C{i}": column for i, column in enumerate(rows["ids"])}
    loader, _, _ = DataGenerator(x, rows["labels"]).generate_dataloader(split_ratio=[0.999, 0.0005], batch_size=BATCH)
    trainer = CTRTrainer(model, optimizer_params={"lr": 1e-3, "weight_decay": 0.0})
    return lambda: trainer.train_one_epoch(loader)


def deepctr(rows: Any) -> Any:
    """deepctr-torch's DCN with ``cross_parameterization="matrix"`` and its own loop."""
    from deepctr_torch.inputs import DenseFeat, SparseFeat  # type: ignore[import-not-found, unused-ignore]
    from deepctr_torch.models import DCN  # type: ignore[import-not-found, unused-ignore]

    columns: list[Any] = [DenseFeat(f"I{i}", 1) for i in range(rows["dense"].shape[1])]
    columns += [SparseFeat(f"C{i}", int(n), DIM) for i, n in enumerate(rows["cardinalities"])]
    model = DCN(
        columns,
        columns,
        cross_num=CROSS_LAYERS,
        cross_parameterization="matrix",
        dnn_hidden_units=HIDDEN,
        l2_reg_linear=0,
        l2_reg_embedding=0,
        l2_reg_cross=0,
    )
    model.compile("adam", "binary_crossentropy")
    x = {f"I{i}": column for i, column in enumerate(rows["dense"].T.copy())}
    x |= {f"C{i}": column.astype(np.float32) for i, column in enumerate(rows["ids"])}
    return lambda: model.fit(x, rows["labels"], batch_size=BATCH, epochs=1, verbose=0)


def main(path: Path, peer: str) -> None:
    """Build the peer's model, then time an epoch."""
    torch.set_num_threads(1)
    with np.load(path) as file:
        rows = {name: file[name] for name in file.files}
    with contextlib.redirect_stdout(io.StringIO()):
        epoch = {"torch-rechub": rechub, "deepctr-torch": deepctr}[peer](rows)
        start, wall = time.process_time(), time.perf_counter()
        epoch()
        cpu_s, wall_s = time.process_time() - start, time.perf_counter() - wall
    print(json.dumps({"name": f"{peer} DCN-matrix", "rows": len(rows["labels"]), "cpu_s": cpu_s, "wall_s": wall_s}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
