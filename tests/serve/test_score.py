"""Scoring raw rows gives what evaluation gave."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from recsys.errors import ConfigError, DataError
from recsys.serve.pipeline import ScoreSettings
from recsys.serve.score import score
from recsys.serve.trained import probability
from tests.serve.conftest import Run, synthetic_table


def scores(path: Path, settings: ScoreSettings, **options: Any) -> Any:
    score(settings, path, **options)
    return pq.read_table(path)


def test_scores_of_raw_test_rows_are_those_of_the_evaluation(criteo_run: Run, tmp_path: Path) -> None:
    rows = tmp_path / "test.tsv"
    rows.write_bytes(criteo_run.test_lines)
    table = scores(tmp_path / "out.parquet", ScoreSettings(criteo_run.folder, str(rows)))
    assert table.column_names == ["row", "probability"]
    assert table["row"].to_pylist() == list(range(50))
    wanted = probability(criteo_run.logits)
    # The same batches of the same numbers on the same threads.
    np.testing.assert_array_equal(table["probability"].to_numpy(), wanted)
    assert len(np.unique(wanted)) > 40


def test_a_run_folder_needs_neither_its_data_nor_its_place(criteo_run: Run, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(criteo_run.folder, moved)
    config = (moved / "config.yaml").read_text()
    (moved / "config.yaml").write_text(config.replace(str(criteo_run.folder.parent), "/nowhere"))
    (tmp_path / "test.tsv").write_bytes(criteo_run.test_lines)
    table = scores(tmp_path / "out.parquet", ScoreSettings(moved, str(tmp_path / "test.tsv")))
    np.testing.assert_array_equal(table["probability"].to_numpy(), probability(criteo_run.logits))


def test_workers_chunks_compression_and_batches_change_nothing(criteo_run: Run, tmp_path: Path) -> None:
    lines = criteo_run.test_lines.splitlines(keepends=True)
    first, second = tmp_path / "a_2.tsv", tmp_path / "a_10.tsv.gz"
    first.write_bytes(b"".join(lines[:20]))
    second.write_bytes(gzip.compress(b"".join(lines[20:])))
    settings = ScoreSettings(
        criteo_run.folder,
        [str(first), str(second)],
        carried=("C1", "I2"),
        workers=2,
        chunk_mib=2e-3,
        batch_size=7,
    )
    seen: list[int] = []
    table = scores(tmp_path / "out.parquet", settings, heads=True, on_rows=seen.append)
    assert sum(seen) == 50 and len(seen) > 3
    heads = ["probability_cross", "probability_dot"]
    assert table.column_names == ["row", "C1", "I2", "probability", *heads]
    np.testing.assert_allclose(table["probability"].to_numpy(), probability(criteo_run.logits), atol=1e-6)
    assert not np.allclose(table[heads[0]].to_numpy(), table[heads[1]].to_numpy(), atol=1e-3)
    fields = [line.decode().split("\t") for line in lines]
    assert table["C1"].to_pylist() == [f[14] or None for f in fields]
    assert table["I2"].to_pylist() == [int(f[2]) if f[2] else None for f in fields]


def test_rows_without_labels(criteo_run: Run, tmp_path: Path) -> None:
    path = tmp_path / "test.txt"
    path.write_bytes(b"".join(line[2:] for line in criteo_run.test_lines.splitlines(keepends=True)))
    table = scores(tmp_path / "out.parquet", ScoreSettings(criteo_run.folder, str(path)))
    np.testing.assert_array_equal(table["probability"].to_numpy(), probability(criteo_run.logits))


def test_bad_rows(criteo_run: Run, tmp_path: Path) -> None:
    lines = criteo_run.test_lines.splitlines(keepends=True)
    fields = lines[3].split(b"\t")
    fields[5] = b"many"
    lines[3] = b"\t".join(fields)
    lines[10] = b"1\t2\n"
    path, out = tmp_path / "rows.tsv", tmp_path / "out.parquet"
    path.write_bytes(b"".join(lines))
    with pytest.raises(DataError, match=r"rows\.tsv, line 4: column I5: 'many' is not an integer"):
        score(ScoreSettings(criteo_run.folder, str(path)), out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rows.tsv"], "nothing is left of a scoring that failed"
    with pytest.raises(DataError, match=r"line 11: more than bad_rows\.limit=1 bad rows"):
        score(ScoreSettings(criteo_run.folder, str(path), bad_rows="quarantine", bad_rows_limit=1), out)
    summary = score(ScoreSettings(criteo_run.folder, str(path), bad_rows="quarantine"), out)
    table = pq.read_table(out)
    kept = [i for i in range(50) if i not in (3, 10)]
    assert table["row"].to_pylist() == kept and (summary.rows, summary.quarantined) == (48, 2)
    np.testing.assert_allclose(table["probability"].to_numpy(), probability(criteo_run.logits)[kept], atol=1e-6)
    assert summary.quarantine is not None
    bad = [json.loads(line) for line in summary.quarantine.read_text().splitlines()]
    assert [row["place"].rpartition(", ")[2] for row in bad] == ["line 4", "line 11"]
    assert bad[0]["text"] == lines[3].decode().rstrip("\n")


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet"])
def test_texts_hashes_and_lists_in_any_format(text_run: Run, tmp_path: Path, form: str) -> None:
    path = tmp_path / f"rows.{form}"
    if form == "csv":
        path.write_bytes(text_run.test_lines)
    elif form == "tsv":
        path.write_bytes(text_run.test_lines.replace(b",", b"\t"))
    else:
        (tmp_path / "rows.csv").write_bytes(text_run.test_lines)
        texts = pa.csv.ConvertOptions(column_types={"user": pa.string()}, strings_can_be_null=True)
        pq.write_table(pa.csv.read_csv(tmp_path / "rows.csv", convert_options=texts).drop(["click", "at"]), path)
    table = scores(tmp_path / "out.parquet", ScoreSettings(text_run.folder, str(path), format=form, carried=("note",)))
    np.testing.assert_array_equal(table["probability"].to_numpy(), probability(text_run.logits))
    assert table["note"].to_pylist() == [f"n{(270 + i) % 3}" for i in range(30)]


def test_numbers_for_texts_are_refused(text_run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    columns = {"price": [1.0], "city": ["a"], "user": [7], "tags": [["t1"]]}
    pq.write_table(pa.table(columns), path)
    with pytest.raises(DataError, match=r"rows\.parquet: column user: holds numbers, but texts in training"):
        score(ScoreSettings(text_run.folder, str(path)), tmp_path / "out.parquet")


def test_rows_that_hold_ids(synthetic_run: Run, tmp_path: Path) -> None:
    table = synthetic_table(synthetic_run)
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=33)
    settings = ScoreSettings(synthetic_run.folder, str(tmp_path / "rows.parquet"))
    found = scores(tmp_path / "out.parquet", settings)
    np.testing.assert_allclose(found["probability"].to_numpy(), probability(synthetic_run.logits), atol=1e-6)

    ids = table["C1"].to_pylist()
    ids[40] = 10**6
    bad = table.set_column(table.column_names.index("C1"), "C1", pa.array(ids))
    pq.write_table(bad, tmp_path / "bad.parquet", row_group_size=33)
    settings = ScoreSettings(synthetic_run.folder, str(tmp_path / "bad.parquet"))
    with pytest.raises(DataError, match=r"bad\.parquet, row 41: column C1: '1000000' is no id of the table of 40 rows"):
        score(settings, tmp_path / "out.parquet")


def test_prepared_parts_are_scored_as_they_are(text_run: Run, tmp_path: Path) -> None:
    parts = text_run.folder.parent / "data/test"
    settings = ScoreSettings(text_run.folder, str(parts), format="parquet", encoded=True, carried=("time",))
    table = scores(tmp_path / "out.parquet", settings)
    np.testing.assert_array_equal(table["probability"].to_numpy(), probability(text_run.logits))
    assert table["time"].to_pylist() == [1_700_000_000 + 40_000 * i for i in range(270, 300)]


def test_values_out_of_the_vocabulary_are_counted(text_run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"price,city,user,tags\n1,nowhere,u,t1 tX tY\n2,,u,\n")
    summary = score(ScoreSettings(text_run.folder, str(path)), tmp_path / "out.parquet")
    assert summary.out_of_vocabulary == {"city": 1, "tags": 2}


MISTAKES = [
    ({"format": "xml"}, "--format xml: valid are criteo, csv, tsv, parquet"),
    ({"bad_rows": "skip"}, "--bad-rows skip: valid are error, quarantine"),
    ({"workers": 0}, "--workers must be at least 1"),
    ({"batch_size": 0}, "--batch-size 0: must be at least 1"),
    ({"side": "baseline"}, "holds no model 'baseline'; there are: erase"),
    ({"carried": ("row",)}, "--keep row: the output has a column of this name"),
    ({"carried": ("C99",)}, "there is no column 'C99' in Criteo's format; nearest: "),
    ({"encoded": True}, "--format: say csv, tsv or parquet"),
]


@pytest.mark.parametrize(("options", "message"), MISTAKES, ids=[m for _, m in MISTAKES])
def test_mistakes(criteo_run: Run, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    (tmp_path / "rows.tsv").write_bytes(criteo_run.test_lines)
    with pytest.raises((ConfigError, DataError)) as error:
        score(ScoreSettings(criteo_run.folder, str(tmp_path / "rows.tsv"), **options), tmp_path / "out.parquet")
    assert message in str(error.value)
    assert [p.name for p in tmp_path.iterdir()] == ["rows.tsv"]
