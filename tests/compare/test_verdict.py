from __future__ import annotations

import pytest

from recsys.compare.inference import Design, Estimate, Needed
from recsys.compare.verdict import Word, explain, judge

DESIGN, ONE_FOLD = Design(5, 3, 1000), Design(1, 3, 1000)


def gap(mean: float, se: float, basis: str = "folds") -> Estimate:
    return Estimate(mean, se, 8, basis)


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (gap(-0.3, 0.05), Word.BETTER),
        (gap(0.3, 0.05), Word.WORSE),
        (gap(0.0, 0.005), Word.EQUIVALENT),
        (gap(0.0, 0.05), Word.OPEN),
        (gap(0.019, 0.005), Word.WORSE),
        (gap(0.01, 0.0001), Word.EQUIVALENT),
        (gap(-0.3, 0.0001, "rows"), Word.OPEN),
    ],
)
def test_words(found: Estimate, word: Word) -> None:
    assert judge(found, 0.02) is word
    assert explain(word, found, 0.02, DESIGN, None).startswith(str(word).removesuffix(" the margin"))


def test_a_proven_gap_inside_the_margin_is_named() -> None:
    sentence = explain(Word.EQUIVALENT, gap(0.01, 0.0001), 0.02, DESIGN, None)
    assert sentence.startswith("equivalent within 0.02 %, though worse: +0.010 %, p = ")
    assert "though" not in explain(Word.EQUIVALENT, gap(0.001, 0.005), 0.02, DESIGN, None)


@pytest.mark.parametrize(
    ("needed", "design", "end"),
    [
        (Needed(9, 12), DESIGN, "probability 9 seeds in each fold (now 3) or 12 folds (now 5) would resolve it"),
        (Needed(9, None), ONE_FOLD, "80 % probability 9 seeds (now 3) would resolve it"),
        (Needed(None, None), ONE_FOLD, "seeds alone would not resolve it: the test rows are too few, see --folds"),
        (Needed(None, None), DESIGN, "more seeds or folds alone would not resolve it: the test rows are too few"),
    ],
)  # fmt: skip
def test_an_open_question_says_what_would_settle_it(needed: Needed, design: Design, end: str) -> None:
    sentence = explain(Word.OPEN, gap(0.1, 0.1), 0.02, design, needed)
    assert sentence.startswith("not resolved: +0.100 %, p = 0.35 against no difference; ")
    assert sentence.removesuffix(", if this is the true gap").endswith(end)


def test_one_run_a_side_asks_for_more() -> None:
    sentence = explain(Word.OPEN, gap(0.1, 0.1, "rows"), 0.02, Design(1, 1, 1000), None)
    assert "one run a side" in sentence
    assert "give --seeds or --folds" in sentence
