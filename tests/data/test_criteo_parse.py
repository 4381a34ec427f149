from __future__ import annotations

from pathlib import Path

import numpy as np
from omegaconf import OmegaConf

from recsys.data.criteo_lines import NUM_COLUMNS
from recsys.data.criteo_parse import CATEGORY_NAMES, COLUMN_NAMES, INTEGER_NAMES, read_rows
from scripts.make_fixtures import fixture_text

ROOT = Path(__file__).parents[2]


def test_values_by_hand(tmp_path: Path) -> None:
    first = ["1", "5", "-3", *[""] * 10, "9223372036854775807", "68fd1e64", "ABCDEF01", "7", *[""] * 22, "ffffffff"]
    second = ["0", "", "0", *["12"] * 11, "68FD1E64", "abcdef01", "00000007", *["0"] * 23]
    path = tmp_path / "two.txt"
    path.write_text("\t".join(first) + "\n" + "\t".join(second))  # no final newline
    rows = read_rows(path)
    assert rows.num_rows == 2
    assert rows.labels.tolist() == [1, 0]
    assert rows.integers[:3].tolist() == [[5, 0], [-3, 0], [0, 12]]
    assert rows.integers[12].tolist() == [2**63 - 1, 12]
    assert rows.integers_missing[:3].tolist() == [[False, True], [False, False], [True, False]]
    # Tokens are 32-bit numbers: case and leading zeros do not matter.
    assert rows.categories[:3].tolist() == [[0x68FD1E64] * 2, [0xABCDEF01] * 2, [7, 7]]
    assert rows.categories[25].tolist() == [2**32 - 1, 0]
    assert rows.categories_missing[[0, 3, 25]].tolist() == [[False, False], [True, False], [False, False]]


def test_parsed_rows_say_what_the_text_says(tmp_path: Path) -> None:
    text = fixture_text(200, seed=4)
    path = tmp_path / "train.txt"
    path.write_text(text)
    rows = read_rows(path)
    fields = np.array([line.split("\t") for line in text.splitlines()])
    assert fields.shape == (200, NUM_COLUMNS)
    assert (rows.labels == fields[:, 0].astype(int)).all()
    for i in range(13):
        expected = [int(x) if x else None for x in fields[:, 1 + i]]
        assert [
            None if m else int(v) for v, m in zip(rows.integers[i], rows.integers_missing[i], strict=True)
        ] == expected
    for i in range(26):
        tokens = [int(x, 16) if x else None for x in fields[:, 14 + i]]
        got = [None if m else int(v) for v, m in zip(rows.categories[i], rows.categories_missing[i], strict=True)]
        assert got == tokens


def test_schema_file_lists_the_columns() -> None:
    schema = OmegaConf.load(ROOT / "data/schemas/criteo_kaggle.yaml")
    assert [tuple(group.names) for group in schema.columns] == [("label",), INTEGER_NAMES, CATEGORY_NAMES]
    assert len(COLUMN_NAMES) == NUM_COLUMNS


def test_committed_fixture_is_made_up_by_the_script() -> None:
    from scripts.make_fixtures import FIXTURE, NUM_ROWS, SEED

    assert (ROOT / FIXTURE).read_text() == fixture_text(NUM_ROWS, SEED)
    assert read_rows(ROOT / FIXTURE).num_rows == NUM_ROWS
