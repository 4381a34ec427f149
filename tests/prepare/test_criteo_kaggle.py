from __future__ import annotations

import gzip
import json
import logging
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from recsys.data.source import BatchSource, DataSplits
from recsys.errors import ConfigError, DataError
from recsys.prepare import criteo_kaggle
from recsys.prepare.criteo_kaggle import CriteoKaggle
from recsys.prepare.work import locked
from scripts.make_fixtures import fixture_text
from tests.reference.clicks import folder_bytes

ROOT = Path(__file__).parents[2]
NUM_ROWS = 300


@pytest.fixture
def train_txt(tmp_path: Path) -> Path:
    path = tmp_path / "train.txt"
    path.write_text(fixture_text(NUM_ROWS, seed=1))
    return path


def prepare(path: Path, **settings: Any) -> DataSplits:
    settings.setdefault("cache_dir", str(path.parent / "cache"))
    return CriteoKaggle(str(path), **settings).splits(32, 0)


def columns(source: BatchSource) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Labels, dense and ids ``(F, R)`` of a whole epoch."""
    batches = list(source)
    ids = [b.sparse_features.values().view(len(source.spec.sparse), -1) for b in batches]
    return (
        torch.cat([b.labels for b in batches]),
        torch.cat([b.dense_features for b in batches]),
        torch.cat(ids, dim=1),
    )


def assert_same_rows(left: DataSplits, right: DataSplits) -> None:
    assert left.spec == right.spec
    assert left.notes == right.notes
    for a, b in ((left.train, right.train), (left.valid, right.valid), (left.test, right.test)):
        for x, y in zip(columns(a), columns(b), strict=True):
            assert torch.equal(x, y)


def frozen(splits: DataSplits) -> tuple[Any, ...]:
    """All that a cache folder gives, for after the folder is gone."""
    rows = [columns(source) for source in (splits.train, splits.valid, splits.test)]
    return splits.spec, splits.notes, splits.fingerprint, rows


def assert_frozen(splits: DataSplits, kept: tuple[Any, ...]) -> None:
    *facts, rows = frozen(splits)
    assert tuple(facts) == kept[:3]
    assert all(torch.equal(x, y) for a, b in zip(rows, kept[3], strict=True) for x, y in zip(a, b, strict=True))


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def labels_of(path: Path) -> list[float]:
    return [float(line[0]) for line in path.read_text().splitlines()]


def test_splits_follow_the_file(train_txt: Path) -> None:
    splits = prepare(train_txt)
    labels = labels_of(train_txt)
    assert [s.num_rows for s in (splits.train, splits.valid, splits.test)] == [240, 30, 30]
    assert columns(splits.valid)[0].tolist() == labels[240:270]
    assert columns(splits.test)[0].tolist() == labels[270:]
    train_labels = columns(splits.train)[0]
    assert train_labels.sum() == sum(labels[:240])
    assert train_labels.tolist() != labels[:240], "train rows are shuffled"
    assert splits.notes["rows"] == {"train": 240, "valid": 30, "test": 30}
    assert splits.notes["click_rate"]["valid"] == pytest.approx(sum(labels[240:270]) / 30)


@pytest.mark.parametrize("num_rows", [15, 17, 23, 99, 101])
def test_no_row_is_lost(tmp_path: Path, num_rows: int) -> None:
    path = tmp_path / "train.txt"
    path.write_text(fixture_text(num_rows, seed=2))
    splits = prepare(path)
    assert splits.train.num_rows + splits.valid.num_rows + splits.test.num_rows == num_rows


def test_separate_test_file(tmp_path: Path, train_txt: Path) -> None:
    test_txt = tmp_path / "other.txt"
    test_txt.write_text(fixture_text(40, seed=9))
    splits = prepare(train_txt, test_path=str(test_txt))
    assert [s.num_rows for s in (splits.train, splits.valid, splits.test)] == [270, 30, 40]
    assert columns(splits.valid)[0].tolist() == labels_of(train_txt)[270:]
    assert columns(splits.test)[0].tolist() == labels_of(test_txt)


def test_own_split_and_max_rows(train_txt: Path) -> None:
    splits = prepare(train_txt, split=[0.5, 0.3, 0.2], max_rows=200)
    assert [s.num_rows for s in (splits.train, splits.valid, splits.test)] == [100, 60, 40]


def test_encoding_is_fitted_on_train_rows_only(train_txt: Path) -> None:
    lines = train_txt.read_text().splitlines()
    before = prepare(train_txt)
    # Other values in the valid and test rows change neither the spec nor the train rows.
    changed = lines[:240]
    for line in lines[240:]:
        fields = line.split("\t")
        fields[1:14] = ["123456789"] * 13
        fields[14:] = ["0badf00d"] * 26
        changed.append("\t".join(fields))
    train_txt.write_text("\n".join(changed))
    after = prepare(train_txt)
    assert after.fingerprint != before.fingerprint
    assert after.spec == before.spec
    for x, y in zip(columns(before.train), columns(after.train), strict=True):
        assert torch.equal(x, y)
    ids = columns(after.test)[2]
    assert (ids[:26] == 0).all(), "unseen values have the out-of-vocabulary id"
    assert after.notes["unseen_ids"]["test"]["C3"] == 30
    assert set(after.notes["unseen_ids"]) == {"valid", "test"}


def test_ids_by_hand(tmp_path: Path) -> None:
    def line(label: int, i1: str, c1: str) -> str:
        return "\t".join([str(label), i1, *["0"] * 12, c1, *["aa"] * 25])

    train = (
        [line(i % 2, "3", "f1") for i in range(4)] + [line(i % 2, "", "f2") for i in range(3)] + [line(0, "900", "f3")]
    )
    rest = [line(0, "3", "f2"), line(1, "", "f3"), line(0, "900", ""), line(1, "5000", "f4")]
    path, test = tmp_path / "train.txt", tmp_path / "test.txt"
    path.write_text("\n".join([*train, line(0, "0", "f1")]))
    test.write_text("\n".join(rest))
    splits = prepare(path, test_path=str(test), min_count=2, dense_as_categorical=True)
    names = splits.spec.sparse_names
    assert names == [*(f"C{i}" for i in range(1, 27)), *(f"I{i}_bin" for i in range(1, 14))]
    assert splits.spec.sparse[0].cardinality == 4, "out of vocabulary, missing, f1, f2"
    ids = columns(splits.test)[2]
    assert ids[names.index("C1")].tolist() == [3, 0, 1, 0]
    assert ids[names.index("I1_bin")].tolist() == [2, 1, 0, 0]
    assert splits.notes["unseen_ids"]["test"]["C1"] == 1, "f4; f3 is only rare"
    assert splits.notes["unseen_ids"]["test"]["I1_bin"] == 1
    dense = columns(splits.test)[1][:, 0]
    logs = np.log([4] * 4 + [901])
    np.testing.assert_allclose(dense[[0, 1, 2]], [(np.log(4) - logs.mean()) / logs.std(), 0.0, 2.0], rtol=1e-5)


def test_without_binned_integers(train_txt: Path) -> None:
    splits = prepare(train_txt, dense_as_categorical=False)
    assert splits.spec.sparse_names == [f"C{i}" for i in range(1, 27)]
    assert splits.spec.dense == tuple(f"I{i}" for i in range(1, 14))


def test_min_count_shrinks_the_vocabulary(train_txt: Path) -> None:
    sizes = [sum(f.cardinality for f in prepare(train_txt, min_count=m).spec.sparse) for m in (1, 2, 5)]
    assert sizes[0] > sizes[1] > sizes[2]


def test_train_order_depends_on_the_seed_only(train_txt: Path) -> None:
    reader = CriteoKaggle(str(train_txt), cache_dir=str(train_txt.parent / "cache"))
    first, same, other = (columns(reader.splits(32, seed).train)[2] for seed in (3, 3, 4))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("ending", ["plain", "gz", "no final newline"])
def test_gzip_and_a_final_newline_do_not_matter(tmp_path: Path, train_txt: Path, ending: str) -> None:
    text = train_txt.read_text()
    path = tmp_path / "other.txt"
    if ending == "gz":
        path = tmp_path / "other.txt.gz"
        # Two members, as `cat a.gz b.gz` and parallel packers write them.
        path.write_bytes(gzip.compress(text[:5000].encode()) + gzip.compress(text[5000:].encode()))
    else:
        path.write_text(text if ending == "plain" else text[:-1])
    assert_same_rows(prepare(train_txt), prepare(path))


def test_second_run_reads_the_cache(train_txt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = prepare(train_txt)
    (folder,) = (train_txt.parent / "cache").iterdir()
    assert folder.name == cold.fingerprint[:16]
    monkeypatch.setattr(criteo_kaggle, "prepare", lambda *_: pytest.fail("the file was parsed again"))
    warm = prepare(train_txt)
    assert warm.fingerprint == cold.fingerprint
    assert_same_rows(cold, warm)
    # The same content under another name is the same data.
    moved = train_txt.rename(train_txt.with_name("renamed.txt"))
    assert prepare(moved).fingerprint == cold.fingerprint


def test_damaged_cache_is_prepared_again(train_txt: Path, caplog: pytest.LogCaptureFixture) -> None:
    cold = frozen(prepare(train_txt))
    (folder,) = (train_txt.parent / "cache").iterdir()
    part = folder / "train" / "part-00000.parquet"
    flip_a_bit(part)
    with caplog.at_level(logging.WARNING):
        again = prepare(train_txt)
    assert re.search(rf"the cache is damaged \({part}: is not what was written .*\); preparing it again", caplog.text)
    assert_frozen(again, cold)
    assert [p.name for p in (train_txt.parent / "cache").iterdir()] == [folder.name]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "bit": lambda folder: flip_a_bit(folder / "train/part-00000.parquet"),
    "short": lambda folder: os.truncate(folder / "test/part-00000.parquet", 500),
    "file gone": lambda folder: (folder / "valid/part-00000.parquet").unlink(),
    "file more": lambda folder: (folder / "train/part-00001.parquet").write_text(""),
    "vocabulary": lambda folder: flip_a_bit(next((folder / "vocab").iterdir())),
    "features": lambda folder: (folder / "features.json").write_text("{}"),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "broken manifest": lambda folder: (folder / "manifest.json").write_text("{"),
    "other manifest": lambda folder: (folder / "manifest.json").write_text("[]"),
    "empty manifest": lambda folder: (folder / "manifest.json").write_text("{}"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_said_and_mended(train_txt: Path, caplog: pytest.LogCaptureFixture, damage: str) -> None:
    cold = frozen(prepare(train_txt))
    (folder,) = (train_txt.parent / "cache").iterdir()
    before = folder_bytes(folder)
    DAMAGE[damage](folder)
    with caplog.at_level(logging.WARNING):
        assert_frozen(prepare(train_txt), cold)
    assert f"{folder}: the cache is damaged" in caplog.text
    assert folder_bytes(folder) == before


def test_cut_off_preparation_is_told_and_ended(
    train_txt: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("recsys.prepare.run.fit", killed)
        prepare(train_txt)
    (folder,) = (train_txt.parent / "cache").iterdir()
    with caplog.at_level(logging.WARNING):
        splits = prepare(train_txt)
    assert f"{folder}: the cache is unfinished" in caplog.text
    assert_same_rows(splits, prepare(train_txt, cache_dir=str(train_txt.parent / "other")))


def test_second_of_two_runs_waits_for_the_first(train_txt: Path, caplog: pytest.LogCaptureFixture) -> None:
    cold = prepare(train_txt)
    (folder,) = (train_txt.parent / "cache").iterdir()
    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.WARNING):
        with locked(folder):
            (folder / "manifest.json").rename(train_txt.parent / "kept")
            second = pool.submit(prepare, train_txt)
            while "waiting: " not in caplog.text:
                assert not second.done()
            (train_txt.parent / "kept").rename(folder / "manifest.json")
        assert_same_rows(cold, second.result())
    assert "damaged" not in caplog.text


def test_fingerprint_follows_content_and_settings(train_txt: Path) -> None:
    other = train_txt.with_name("later.txt")
    other.write_text(fixture_text(NUM_ROWS, seed=9))
    settings: list[dict[str, Any]] = [
        {},
        {"min_count": 3},
        {"dense_as_categorical": False},
        {"max_rows": 200},
        {"split": [0.7, 0.2, 0.1]},
        {"test_path": str(other)},
    ]
    prints = [prepare(train_txt, **s).fingerprint for s in settings]
    assert prepare(train_txt, split=[0.8, 0.1, 0.1]).fingerprint == prints[0], "the default said aloud"
    train_txt.write_text(fixture_text(NUM_ROWS, seed=2))
    prints.append(prepare(train_txt).fingerprint)
    assert len(set(prints)) == len(prints)


def test_notes_are_plain_json(train_txt: Path) -> None:
    notes = prepare(train_txt).notes
    assert json.loads(json.dumps(notes)) == notes


@pytest.mark.parametrize("path", [None, "", "???"])
def test_path_must_be_given(path: str | None) -> None:
    with pytest.raises(ConfigError, match=r"data\.path is not set; give .* data\.path=FILE \(data/README\.md"):
        CriteoKaggle(path).splits(32, 0)


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        ({"min_count": 0}, r"data\.min_count=0 must be an integer of at least 1"),
        ({"min_count": 2.5}, r"data\.min_count=2\.5 must be an integer"),
        ({"min_count": None}, r"data\.min_count=None must be an integer"),
        ({"max_rows": 0}, r"data\.max_rows=0 must be an integer of at least 1, or null"),
        ({"max_rows": "many"}, r"data\.max_rows=many must be an integer of at least 1, or null"),
        ({"dense_as_categorical": "yes"}, r"data\.dense_as_categorical=yes must be true or false"),
        ({"cache_dir": None}, r"data\.cache_dir is not set; give the folder"),
        ({"split": 0.8}, r"data\.split=0\.8 must be 3 positive shares"),
        ({"split": "abc"}, r"data\.split=abc must be 3 positive shares"),
        ({"split": [0.8, 0.1]}, r"data\.split=\[0\.8, 0\.1\] must be 3 positive shares \(train, valid, test\)"),
        ({"split": [0.8, 0.1, 0.2]}, r"data\.split=.* that sum to 1"),
        ({"split": [1.0, 0.0, 0.0]}, r"data\.split=.* positive shares"),
        ({"split": [0.8, 0.1, 0.1], "test_path": "x"}, r"data\.split=.* must be 2 positive shares \(train, valid\)"),
        ({"split": []}, r"data\.split=\[\] must be 3"),
    ],
)
def test_impossible_settings(train_txt: Path, settings: dict[str, Any], pattern: str) -> None:
    with pytest.raises(ConfigError, match=pattern):
        prepare(train_txt, **settings)


def test_one_class_train_rows(tmp_path: Path) -> None:
    lines = ["0" + line[1:] for line in fixture_text(100, seed=1).splitlines()]
    lines[-1] = "1" + lines[-1][1:]
    path = tmp_path / "train.txt"
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=rf"{re.escape(str(path))}, lines 1 to 80: every train row has label 0.*shuf"):
        prepare(path)


def test_too_few_rows_for_the_splits(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text(fixture_text(3, seed=1))
    with pytest.raises(DataError, match=rf"{re.escape(str(path))}, line 3 .* split is empty; give a larger file"):
        prepare(path)


def test_cache_dir_that_cannot_be_written(tmp_path: Path, train_txt: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot write the prepared rows .* set data\.cache_dir"):
        prepare(train_txt, cache_dir=str(tmp_path / "file" / "cache"))


def test_yaml_has_the_fields_and_defaults_of_the_class() -> None:
    settings = dict(OmegaConf.load(ROOT / "configs/data/criteo_kaggle.yaml"))
    assert settings.pop("_target_") == "recsys.prepare.criteo_kaggle.CriteoKaggle"
    assert settings == vars(CriteoKaggle(None))


@pytest.mark.criteo
def test_real_sample(criteo_sample: Path, tmp_path: Path) -> None:
    splits = prepare(criteo_sample, cache_dir=str(tmp_path))
    rows = splits.notes["rows"]
    assert rows == {"train": 122_714, "valid": 15_340, "test": 15_339}
    num_clicks = sum(splits.notes["click_rate"][name] * rows[name] for name in rows)
    assert num_clicks / sum(rows.values()) == pytest.approx(0.2569, abs=1e-4)
    assert splits.notes["unseen_ids"]["test"]["C3"] > 0.3 * rows["test"]


def test_a_fold_without_folds_is_refused(train_txt: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.fold=1 needs data\.folds"):
        CriteoKaggle(str(train_txt), fold=1, cache_dir=str(train_txt.parent / "cache")).splits(8, 0)
