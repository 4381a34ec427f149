"""Forward without a schedule: what evaluation and scoring run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from recsys.schedule.graph import PartGraph
from recsys.schedule.step import PartOutput, StepResult


@torch.no_grad()
def infer(
    graph: PartGraph, modules: Mapping[str, nn.Module], batch: Any, autocast: Callable[[], Any] | None = None
) -> StepResult:
    """Run every part's forward in model order and give losses and logits by part name.

    The modules' training flag is the caller's: put them in ``eval()`` first.
    """
    outputs: dict[str, torch.Tensor] = {}
    result = StepResult()
    for part in graph.parts:
        with nullcontext() if autocast is None else autocast():
            output: PartOutput = modules[part.name](batch, *(outputs[e.source] for e in part.inputs))
        outputs[part.name] = output.out
        if output.loss is not None:
            result.losses[part.name] = output.loss
        if output.logits is not None:
            result.logits[part.name] = output.logits
    return result
