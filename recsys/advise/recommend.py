"""From measured turns to one recommendation in words. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DetachSet = frozenset[str]


@dataclass(frozen=True)
class Gain:
    """How many times faster than the baseline.

    Attributes:
        median: over the turns, each a pair of times for the same batches.
        low, high: interval of the median, from the order of the turns' ratios; free of any distribution. 95 % for all
            sets that are compared together (Bonferroni).
    """

    median: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        """Whether it is faster, and not by chance."""
        return self.low > 1.0


def gain(baseline_s: Sequence[float], seconds: Sequence[float], comparisons: int = 1) -> Gain:
    """From seconds of turns: ``baseline_s[i]`` and ``seconds[i]`` are for the same batches, one soon after the other.

    Args:
        baseline_s, seconds: one value a turn.
        comparisons: how many sets are looked at together.
    """
    from scipy.stats import binom

    assert len(baseline_s) == len(seconds) > 0, "turns are in pairs"
    ratios = sorted(a / b for a, b in zip(baseline_s, seconds, strict=True))
    # With chance 1/2 a ratio lies below the true median: how many may be left out at each end is binomial.
    outside = max(0, int(binom.ppf(0.025 / comparisons, len(ratios), 0.5)) - 1)
    return Gain(statistics.median(ratios), ratios[outside], ratios[-1 - outside])


@dataclass(frozen=True)
class Recommendation:
    """What to detach; empty where nothing is to be gained.

    Attributes:
        detach: the set.
        predicted: its predicted gain; 1 for the empty set.
        measured: its measured gain; None for the empty set.
        text: in words.
    """

    detach: DetachSet
    predicted: float
    measured: Gain | None
    text: str


def recommend(
    baseline_s: Sequence[float], measured_s: Mapping[DetachSet, Sequence[float]], predicted: Mapping[DetachSet, float]
) -> Recommendation:
    """The fastest set; of those that are not certainly slower than it, the one that detaches least.

    Detaching can cost NE, so a part is detached only where that certainly makes the step faster.

    Args:
        baseline_s: seconds a turn of the end-to-end baseline.
        measured_s: seconds a turn of each measured set.
        predicted: gain over the baseline of each set.
    """
    number = len(measured_s)
    gains = {detach: gain(baseline_s, seconds, number) for detach, seconds in measured_s.items() if detach}
    certain = {detach: found for detach, found in gains.items() if found.is_certain}
    if not certain:
        return Recommendation(frozenset(), 1.0, None, _nothing(gains))
    best = max(certain, key=lambda detach: certain[detach].median)
    # Whether the best is certainly faster, over the turns that they took together.
    equal = [detach for detach in certain if not gain(measured_s[detach], measured_s[best], number).is_certain]
    chosen = min([*equal, best], key=lambda detach: (len(detach), -certain[detach].median))
    found = certain[chosen]
    text = (
        f"detach {_show(chosen)}: {predicted[chosen]:.3f} times the baseline's speed predicted, {found.median:.3f} "
        f"measured (95 % {found.low:.3f} .. {found.high:.3f})"
    )
    if chosen != best:
        text += f"; {_show(best)} with {certain[best].median:.3f} is not certainly faster and detaches more"
    return Recommendation(chosen, predicted[chosen], found, text)


def _nothing(gains: Mapping[DetachSet, Gain]) -> str:
    if not gains:
        return "nothing is to be gained: no set of parts was worth measuring"
    best = max(gains, key=lambda detach: gains[detach].median)
    found = gains[best]
    return (
        f"nothing is to be gained here: the best measured set, {_show(best)}, has {found.median:.3f} times the "
        f"baseline's speed (95 % {found.low:.3f} .. {found.high:.3f}); keep every part end to end"
    )


def _show(detach: DetachSet) -> str:
    return f"[{','.join(sorted(detach))}]"
