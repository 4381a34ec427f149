"""Predict with an exported model. Needs torch, numpy and safetensors only; this file is the package's ``load.py``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file


class Model:
    """``Model(folder)(dense_BN, ids, lengths)`` gives click probabilities (B,); ids are those of ``features.json``."""

    def __init__(self, folder: str | Path, *, compiled: bool = False) -> None:
        self.info = json.loads((Path(folder) / "package.json").read_text())
        self.sizes = torch.tensor(self.info["cardinalities"])
        self.first = self.sizes.cumsum(0) - self.sizes  # the tables stand below each other
        self.table = load_file(Path(folder) / "embeddings.safetensors")
        self.dense: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
        if compiled:
            self.dense = torch._inductor.aoti_load_package(str(Path(folder) / "dense_compiled.pt2"))
        else:
            self.dense = torch.export.load(Path(folder) / "dense.pt2").module()

    @torch.no_grad()
    def __call__(self, dense_BN: np.ndarray, ids: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
        """Float32 (B, N); ids of feature 1, of feature 2 ...; how many in each feature and row (F * B,), None: one."""
        num_bags = len(dense_BN) * len(self.sizes)
        counts = torch.ones(num_bags, dtype=torch.int64) if lengths is None else torch.as_tensor(lengths).long()
        bag = torch.repeat_interleave(torch.arange(num_bags), counts) // max(len(dense_BN), 1)
        rows = torch.as_tensor(ids).long()
        assert counts.sum() == len(rows) and bool(((rows >= 0) & (rows < self.sizes[bag])).all()), "an id has no row"
        rows, weight = rows + self.first[bag], self.table["weight"]
        if weight.dtype != torch.float32:  # only the rows that are needed become float32
            weight, rows = weight[rows].float(), torch.arange(len(rows))
        if "scale" in self.table:
            picked = torch.as_tensor(ids).long() + self.first[bag]
            weight = weight * self.table["scale"][picked] + self.table["bias"][picked]
        pooled = torch.nn.functional.embedding_bag(rows, weight, counts.cumsum(0) - counts, mode="sum")
        pooled_BFD = pooled.view(len(self.sizes), len(dense_BN), -1).transpose(0, 1).contiguous()
        return torch.sigmoid(self.dense(torch.as_tensor(dense_BN), pooled_BFD)).numpy()
