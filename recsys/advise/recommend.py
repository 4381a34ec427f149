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
        low, high: 95 % interval of the median, from the order of the turns' ratios; free of any distribution.
    """

    median: float
    low: float
    high: float

    @property
    def is_certain(self) -> bool:
        """Whether it is faster, and not by chance."""
        return self.low > 1.0


def gain(baseline_s: Sequence[float], seconds: Sequence[float]) -> Gain:
    """From seconds of turns; ``baseline_s[i]`` and ``seconds[i]`` are for the same batches, one right after the other."""
    from scipy.stats import binom

    assert len(baseline_s) == len(seconds) > 0, "turns are in pairs"
    ratios = sorted(a / b for a, b in zip(baseline_s, seconds, strict=True))
    # P(X < k) and P(X > n - k) of a binomial with p = 1/2 are what lies outside of the k-th ratios from both ends.
    outside = max(0, int(binom.ppf(0.025, len(ratios), 0.5)) - 1)
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
    gains = {detach: gain(baseline_s, seconds) for detach, seconds in measured_s.items() if detach}
    certain = {detach: found for detach, found in gains.items() if found.is_certain}
    if not certain:
        return Recommendation(frozenset(), 1.0, None, _nothing(gains))
    best = max(certain, key=lambda detach: certain[detach].median)
    # Whether the best is certainly faster, over the turns that they took together.
    equal = [detach for detach in certain if not gain(measured_s[detach], measured_s[best]).is_certain]
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
