"""Write the made-up rows in Criteo's Kaggle format that lie in data/fixtures/.

Run from the repository root: ``python scripts/make_fixtures.py``, or for a file of any size
``python scripts/make_fixtures.py --rows 3000000 --out clicks.tsv``. No real row is read or written: every value is
drawn from a seeded generator, and the label follows a small made-up rule so that there is something to learn.
"""

from __future__ import annotations

import argparse
import math
import random
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

FIXTURE = Path("data/fixtures/criteo_kaggle_500.tsv")
NUM_ROWS = 500
SEED = 2014

# Distinct values of C1..C26: some tiny, some with more values than the fixture has rows.
_CARDINALITIES = (
    30,
    60,
    900,
    700,
    20,
    8,
    200,
    15,
    3,
    150,
    120,
    900,
    90,
    12,
    100,
    800,
    10,
    80,
    40,
    4,
    850,
    6,
    10,
    300,
    20,
    200,
)
_MISSING_SHARES = (
    0.0,
    0.0,
    0.03,
    0.03,
    0.0,
    0.1,
    0.0,
    0.0,
    0.0,
    0.0,
    0.0,
    0.03,
    0.0,
    0.0,
    0.0,
    0.03,
    0.0,
    0.0,
    0.44,
    0.44,
)


def fixture_lines(num_rows: int, seed: int) -> Iterator[str]:
    """``num_rows`` lines: a label, 13 integers, 26 tokens of 8 hex digits; tabs between, empty where missing."""
    generator = random.Random(seed)
    return (_line(generator) + "\n" for _ in range(num_rows))


def fixture_text(num_rows: int, seed: int) -> str:
    """The lines of :func:`fixture_lines` as one text."""
    return "".join(fixture_lines(num_rows, seed))


def _line(generator: random.Random) -> str:
    integers = [_integer(generator, column) for column in range(13)]
    ranks = [_rank(generator, column) for column in range(26)]
    logit = -1.5 + 0.4 * math.log1p(max(integers[0] or 0, 0)) + (0.8 if (ranks[0] or 0) % 2 else -0.5)
    label = int(generator.random() < 1 / (1 + math.exp(-logit)))
    tokens = ["" if rank is None else f"{zlib.crc32(f'C{i + 1}/{rank}'.encode()):08x}" for i, rank in enumerate(ranks)]
    return "\t".join([str(label), *("" if x is None else str(x) for x in integers), *tokens])


def _integer(generator: random.Random, column: int) -> int | None:
    """A heavy-tailed count; the first and the last but one are often missing, the second may be negative."""
    if generator.random() < (0.45 if column in (0, 9) else 0.75 if column == 11 else 0.05):
        return None
    value = int(math.exp(generator.random() * (3 + column % 5 * 1.5))) - 1
    return value - 3 if column == 1 else value


def _rank(generator: random.Random, column: int) -> int | None:
    """A value's rank by frequency, Zipf-like."""
    missing_share = _MISSING_SHARES[column] if column < len(_MISSING_SHARES) else 0.2
    if generator.random() < missing_share:
        return None
    return int(_CARDINALITIES[column] ** generator.random()) - 1


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the fixture, or a larger file of such rows."""
    parser = argparse.ArgumentParser(description="Write made-up rows in Criteo's Kaggle format.")
    parser.add_argument("--rows", type=int, default=NUM_ROWS)
    parser.add_argument("--out", type=Path, default=FIXTURE)
    options = parser.parse_args(arguments)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="\n") as file:
        file.writelines(fixture_lines(options.rows, SEED))
    print(f"{options.out}: {options.rows} made-up rows")


if __name__ == "__main__":
    main()
