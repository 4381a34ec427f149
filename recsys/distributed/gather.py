"""Evaluation over ranks: every row once, in the order of the source."""

from __future__ import annotations

from recsys.distributed.world import World
from recsys.metrics import EvalAccumulator


def gather_rows(accumulator: EvalAccumulator, world: World) -> EvalAccumulator:
    """The rows that all ranks collected, on every rank, as one process would have collected them.

    Logits, labels and weights travel, not metrics: NE, AUC (ties and all) and calibration are those of all rows at
    once. Costs every rank the memory of all rows; see :class:`EvalAccumulator`.

    Args:
        accumulator: rows of this rank's slices, as many updates as on every other rank.
        world: the ranks.
    """
    if world.size == 1:
        return accumulator
    return EvalAccumulator.interleave(world.all_gather(accumulator))
