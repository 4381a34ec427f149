"""An estimate in words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recsys.compare.inference import Design, Estimate, Needed


class Word(StrEnum):
    """The four verdicts; a lower NE is better."""

    BETTER = "better"
    EQUIVALENT = "equivalent within the margin"
    WORSE = "worse"
    OPEN = "not resolved"


@dataclass(frozen=True)
class Verdict:
    """A word, and the sentence that goes with it."""

    word: Word
    sentence: str


def judge(gap: Estimate, margin: float, alpha: float = 0.05) -> Word:
    """The verdict on a gap in percent of NE.

    Equivalence comes first: a gap that is proven to lie inside the margin does not matter, whatever its sign.

    Args:
        gap: above 0 is worse.
        margin: percent; gaps inside it do not matter.
        alpha: error probability of each claim, two-sided for better or worse.
    """
    if gap.basis == "rows":
        return Word.OPEN
    if gap.p_equivalence(margin) < alpha:
        return Word.EQUIVALENT
    low, high = gap.interval(1 - alpha)
    if high < 0:
        return Word.BETTER
    return Word.WORSE if low > 0 else Word.OPEN


def explain(word: Word, gap: Estimate, margin: float, design: Design, needed: Needed | None) -> str:
    """One sentence with the figures behind ``word``."""
    if gap.basis == "rows":
        return "not resolved: one run a side shows nothing of the noise between runs; give --seeds or --folds"
    figures = f"{gap.mean:+.3f} %, p = {gap.p_difference():.2g} against no difference"
    if word is Word.EQUIVALENT:
        low, high = gap.interval()
        side = "" if low <= 0 <= high else f", though {'worse' if gap.mean > 0 else 'better'}"
        return f"equivalent within {margin:g} %{side}: {figures}, {gap.p_equivalence(margin):.2g} against a gap outside"
    if word is not Word.OPEN:
        return f"{word}: {figures}"
    return f"not resolved: {figures}; {_what_would(needed, design)}"


def _what_would(needed: Needed | None, design: Design) -> str:
    ways = []
    if needed is not None and needed.seeds is not None:
        where = "in each fold " if design.folds > 1 else ""
        ways.append(f"{needed.seeds} seeds {where}(now {design.seeds})")
    if needed is not None and needed.folds is not None:
        ways.append(f"{needed.folds} folds (now {design.folds})")
    if not ways:
        more = "seeds or folds alone" if design.folds > 1 else "seeds alone"
        return f"more {more} would not resolve it: the test rows are too few" + (
            "" if design.folds > 1 else ", see --folds"
        )
    return f"with 80 % probability {' or '.join(ways)} would resolve it, if this is the true gap"
