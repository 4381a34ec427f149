"""The data's folds: what one tests on, no other tests on, and nothing of it trains its model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recsys.data.source import BatchSource, DataSplits
from recsys.data.synthetic import SyntheticData
from recsys.errors import ConfigError
from recsys.prepare.criteo_kaggle import CriteoKaggle
from scripts.make_fixtures import fixture_text

NUM_ROWS = 101


@pytest.fixture
def train_txt(tmp_path: Path) -> Path:
    path = tmp_path / "train.txt"
    lines = fixture_text(NUM_ROWS, seed=1).splitlines()
    # I1 numbers the rows, so that each can be told from all others behind its encoding.
    path.write_text(
        "".join(
            "\t".join([*line.split("\t")[:1], str(i), *line.split("\t")[2:]]) + "\n" for i, line in enumerate(lines)
        )
    )
    return path


def splits(path: Path, **settings: Any) -> DataSplits:
    return CriteoKaggle(str(path), cache_dir=str(path.parent / "cache"), **settings).splits(1000, 0)


def dense(source: BatchSource) -> list[tuple[float, ...]]:
    return [tuple(row) for batch in source for row in batch.dense_features.tolist()]


def labels(source: BatchSource) -> list[float]:
    return [label for batch in source for label in batch.labels.tolist()]


def test_blocks_cover_the_file_once_and_stay_out_of_training(train_txt: Path) -> None:
    file_labels = [float(line[0]) for line in train_txt.read_text().splitlines()]
    tested: list[float] = []
    for fold in range(4):
        found = splits(train_txt, folds=4, fold=fold)
        begin, end = NUM_ROWS * fold // 4, NUM_ROWS * (fold + 1) // 4
        assert labels(found.test) == file_labels[begin:end]
        tested += labels(found.test)
        rest = file_labels[end:] + file_labels[:begin]
        cut = round(0.9 * len(rest))
        assert labels(found.valid) == rest[cut:]
        assert sorted(labels(found.train)) == sorted(rest[:cut])
        parts = [set(dense(source)) for source in (found.train, found.valid, found.test)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == NUM_ROWS
    assert tested == file_labels


def test_folds_have_fingerprints_of_their_own(train_txt: Path) -> None:
    prints = {splits(train_txt, **s).fingerprint for s in ({}, {"folds": 2}, {"folds": 2, "fold": 1}, {"folds": 3})}
    assert len(prints) == 4


def test_own_shares_of_the_rest(train_txt: Path) -> None:
    found = splits(train_txt, folds=2, split=[0.5, 0.5])
    assert [s.num_rows for s in (found.train, found.valid, found.test)] == [26, 25, 50]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"folds": 1}, r"data\.folds=1 must be an integer of at least 2, or null"),
        ({"folds": 2.5}, r"data\.folds=2\.5 must be an integer"),
        ({"folds": 3, "fold": 3}, r"data\.fold=3 must be an integer from 0 to 2"),
        ({"folds": 3, "fold": -1}, r"data\.fold=-1 must be an integer from 0 to 2"),
        ({"folds": 3, "test_path": "x"}, r"data\.folds=3 and data\.test_path both choose the test rows; set one null"),
        ({"folds": 3, "split": [0.8, 0.1, 0.1]}, r"data\.split=.* must be 2 positive shares \(train, valid\)"),
    ],
)
def test_impossible_folds_are_refused(train_txt: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        splits(train_txt, **settings)


def test_synthetic_ranges_are_moved_as_a_whole() -> None:
    sizes = {"train_rows": 30, "valid_rows": 10, "test_rows": 20, "max_cardinality": 50}
    near, far = (SyntheticData(**sizes, row_offset=offset) for offset in (0, 60))
    first, second = near.splits(100, 0), far.splits(100, 0)
    rows = [set(dense(source)) for found in (first, second) for source in (found.train, found.valid, found.test)]
    assert sum(map(len, rows)) == len(set.union(*rows)) == 120
    whole = SyntheticData(train_rows=60, valid_rows=30, test_rows=30, max_cardinality=50).splits(100, 0)
    assert dense(second.test) == dense(whole.test)[10:]
    assert second.notes["bayes_ne"] == far.bayes_ne(100, 120)


@pytest.mark.parametrize("offset", [-1, 0.5, 1 << 59])
def test_synthetic_offset_is_checked(offset: Any) -> None:
    with pytest.raises(ConfigError, match=r"data\.row_offset is .*; set data\.row_offset="):
        SyntheticData(row_offset=offset)
