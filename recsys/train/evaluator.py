"""Evaluation over every row of a source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from recsys.data.source import BatchSource
from recsys.distributed.gather import gather_rows
from recsys.distributed.world import ALONE, World
from recsys.metrics import EvalAccumulator
from recsys.models.recommender import OVER, Recommender
from recsys.schedule.infer import infer
from recsys.train.prediction import PLAIN, Prediction

Autocast = Callable[[], Any] | None


def evaluate(
    model: Recommender,
    source: BatchSource,
    device: torch.device,
    autocast: Autocast = None,
    prediction: Prediction = PLAIN,
    world: World = ALONE,
) -> EvalAccumulator:
    """Score every row of ``source`` once; dropout is off meanwhile.

    Args:
        model: what is evaluated.
        source: this rank's share of the rows.
        device: of the model.
        autocast: the context of the forward.
        prediction: makes the final logit. Where that is more than the over-arch's own, this one counts as a head.
        world: the ranks; each gets the rows of all.

    Raises:
        NonFiniteError: a logit is NaN or infinite.
    """
    # A position left by an earlier pass must not cut this one short.
    source.load_state_dict({"epoch": 0, "batch": 0})
    accumulator = EvalAccumulator(expected_rows=source.num_rows)
    modules = dict(model.parts.items())
    names = model.heads if prediction.is_plain else (OVER, *model.heads)
    was_training = model.training
    model.eval()
    try:
        for batch in source:
            moved = batch.to(device)
            logits = infer(model.graph, modules, moved, autocast).logits
            heads = {name: logits[name] for name in names}
            accumulator.update(prediction.combine(logits), moved.labels, moved.weights, heads)
    finally:
        model.train(was_training)
    accumulator = gather_rows(accumulator, world)
    assert accumulator.rows == source.num_rows, f"{accumulator.rows} rows evaluated of {source.num_rows}"
    return accumulator
