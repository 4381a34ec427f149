"""The command line of the preparation, and what docs/data.md shows."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from recsys.compare.plan import Experiment, make_plan
from recsys.data.parquet_source import PreparedData
from recsys.errors import ConfigError, DataError
from recsys.prepare import manifest
from scripts.prepare import CONFIGS, compose, main, make_settings
from tests.reference.clicks import read_split

ROOT = Path(__file__).resolve().parents[2]
FIXTURE = str(ROOT / "data/fixtures/criteo_kaggle_500.tsv")
ONE = "engine.workers=1"


def test_a_preparation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    words = ["source=criteo_kaggle", f"input={FIXTURE}", f"output={output}", "min_count=2", ONE]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert out == f"{output}: train 400, valid 50, test 50 rows; 0 quarantined\n"
    assert re.search(r"needs about \d+ \w+ of disk .* and \d+ MiB of memory for 1 worker", err)
    assert main(["verify", str(output)]) == 0
    assert len(pq.read_schema(output / "train/part-00000.parquet")) == 2 + 13 + 39
    (output / "features.json").write_text("{}")
    assert main(["verify", str(output)]) == 1
    assert "features.json: is not what was written" in capsys.readouterr().err


PRESETS = {"x4_001": (0, 39), "x4_002": (0, 39), "x1": (13, 26)}


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_of_criteo(tmp_path: Path, preset: str) -> None:
    words = ["source=criteo_kaggle", f"preset={preset}", f"input={FIXTURE}", f"output={tmp_path}", ONE]
    assert main([*words, "--quiet"]) == 0
    content = manifest.read(tmp_path)
    rows = content["notes"]["rows"]
    assert (
        rows == {"train": 360, "valid": 90, "test": 50} if preset == "x1" else {"train": 400, "valid": 50, "test": 50}
    )
    schema = content["settings"]["schema"]
    assert (len(schema["dense"]), len(schema["categorical"])) == PRESETS[preset]
    assert {c["min_count"] for c in schema["categorical"]} == {{"x4_001": 10, "x4_002": 2, "x1": 1}[preset]}


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*/*.yaml")), ids=lambda p: p.stem)
def test_every_option_composes(path: Path) -> None:
    words = [f"{path.parent.name}={path.stem}", "output=o", "input=i"]
    if path.parent.name == "preset":
        words.append("source=parquet")
    if path.stem in ("csv", "parquet", "time"):
        words.append("schema=data/schemas/movielens_1m.yaml")
    assert make_settings(compose(words)).schema.label == "label"


KAGGLE = ["source=criteo_kaggle", "input=x", "output=y"]
WRONG = [
    (["source=nope"], "Could not find 'source/nope'"),
    (["source=criteo_kaggle", "inputt=x"], "Could not override 'inputt'"),
    (["input=x", "output=y"], "source is not set; choose source=criteo_kaggle, criteo_1tb, csv or parquet"),
    (["source=csv", "input=x", "output=y"], "schema is not set; give a YAML file"),
    (["source=criteo_kaggle", "output=y"], "input is not set"),
    (["source=criteo_kaggle", "input=x"], "output is not set"),
    (["source=criteo_kaggle", "input=none.txt", "output=y"], "none.txt: no such file; set input to an existing one"),
    (["source=criteo_kaggle", "input=x", "output=y", "schema=none.yaml"], "schema=none.yaml: no such file"),
    (["source=criteo_kaggle", "input={train: a, tets: b}", "output=y"], "input.tets: there is no such split"),
    (["source=criteo_kaggle", "input=x", "output=y", "split.shares=[a,b,c]"], "must be 3 positive shares"),
    (["infer-schema"], "infer-schema takes one path"),
    ([*KAGGLE, "split=order"], "split=order: is a group of keys; set one of them, such as split.kind"),
    ([*KAGGLE, "engine=dask"], "engine=dask: is a group of keys; set one of them, such as engine.name"),
    ([*KAGGLE, "split.shares=0.8"], "split.shares=0.8 must be a list"),
    ([*KAGGLE, "expected={train: {md5: a}}"], "must name md5 and rows of train, valid and test files"),
    ([*KAGGLE, "label=5"], "label=5 must be one text"),
    ([*KAGGLE, "engine.chunk_mib=true"], "engine.chunk_mib=True must be above 0"),
    ([*KAGGLE, "split.fold=all"], "split.fold=all needs output and split.folds, at least 2, not None"),
    ([*KAGGLE, "split.fold=all", "split.folds=2", "split.kind=days"], "split.folds=2 needs split.kind=order or random"),
]


@pytest.mark.parametrize(("words", "message"), WRONG, ids=[m[:30] for _, m in WRONG])
def test_mistakes_are_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ") and message in err and err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_folds_of_any_source_are_prepared_compared_and_loaded(tmp_path: Path) -> None:
    n = 90
    table = pa.table({"y": [i % 2 for i in range(n)], "c": [f"v{i}" for i in range(n)]})
    pq.write_table(table, tmp_path / "t.parquet")
    (tmp_path / "s.yaml").write_text("label: y\ncategorical: [{name: c, min_count: 1}]\n")
    output = tmp_path / "folds"
    words = ["source=parquet", f"input={tmp_path}/t.parquet", f"schema={tmp_path}/s.yaml", "split.folds=3", ONE]
    assert main([*words, f"output={output}", "split.fold=all", "--quiet"]) == 0
    rows: list[int] = []
    for fold in range(3):
        test, train = (read_split(output / f"fold-{fold}", name)["row"].to_pylist() for name in ("test", "train"))
        rows += test
        vocabulary = pq.read_table(output / f"fold-{fold}/vocab/c.parquet")["value"].to_pylist()
        assert sorted(vocabulary) == sorted(f"v{row}" for row in train), "fitted on the train rows of this fold"
        data = PreparedData(str(output), folds=3, fold=fold).splits(10, 0)
        assert data.test.num_rows == len(test) == 30
    assert sorted(rows) == list(range(n))

    experiments = [Experiment("dlrm"), Experiment("dcnv2")]
    plan = make_plan(experiments, ["data=prepared", f"data.path={output}"], num_seeds=1, num_folds=3)
    assert [(c.cfg["data"]["folds"], c.cfg["data"]["fold"]) for c in plan.cells[::2]] == [(3, 0), (3, 1), (3, 2)]
    assert plan.folds_share_rows

    for folds, message in ((2, "is fold 0 of 3, not 0 of 2; set data.folds to 3"), (4, "is fold 0 of 3, not 0 of 4")):
        with pytest.raises(DataError, match=message):
            PreparedData(str(output), folds=folds).splits(10, 0)
    with pytest.raises(ConfigError, match=r"holds folds; set data\.folds"):
        PreparedData(str(output)).splits(10, 0)
    with pytest.raises(DataError, match="is one prepared set without folds, and its encodings are fitted on its own"):
        PreparedData(str(output / "fold-0"), folds=3).splits(10, 0)
    other = [word for word in words if not word.startswith("schema")] + [f"schema={tmp_path}/s.yaml", "min_count=2"]
    shutil.rmtree(output / "fold-1")
    with pytest.raises(DataError, match=r"fold-1/manifest\.json: not there; prepare all 3 folds"):
        PreparedData(str(output), folds=3).splits(10, 0)
    assert main([*other, f"output={output}/fold-1", "split.fold=1", "--quiet"]) == 0
    with pytest.raises(DataError, match=r"fold-1/manifest\.json: is of other rows or settings than fold-0"):
        PreparedData(str(output), folds=3).splits(10, 0)


def test_no_words_list_the_keys(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "rows_per_part" in capsys.readouterr().out


def test_the_page_on_your_own_parquet_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The schema and the commands of docs/data.md, on a small made-up table of MovieLens's columns."""
    page = (ROOT / "docs/data.md").read_text(encoding="utf-8").partition("## Your own parquet in 20 lines")[2]
    schema = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    commands = re.search(r"```\n(python .*?)```", page, re.DOTALL)
    assert schema is not None and commands is not None
    lines = [line for line in commands[1].splitlines() if line]
    assert len(schema[1].splitlines()) + len(lines) <= 20
    assert yaml.safe_load(schema[1]) == yaml.safe_load((ROOT / "data/schemas/movielens_1m.yaml").read_text())
    monkeypatch.chdir(tmp_path)
    n = 400
    table = pa.table(
        {
            "user_id": [i % 37 for i in range(n)],
            "item_id": [f"Film {i * i % 50}" for i in range(n)],
            "rating": [i % 5 + 1 for i in range(n)],
            "timestamp": list(range(n)),
            "age": [18 + i % 50 for i in range(n)],
            "gender": ["FM"[i % 2] for i in range(n)],
            "occupation": [i % 20 for i in range(n)],
            "zip_code": [f"{i % 60:05}" for i in range(n)],
            "release_year": [1950 + i % 50 for i in range(n)],
            "genre": [" ".join(["Action", "Comedy", "Drama"][: 1 + i % 3]) for i in range(n)],
            "label": [int(i % 5 > 2) for i in range(n)],
        }
    )
    pq.write_table(table, "movielens_1m.parquet")
    Path("schema.yaml").write_text(schema[1])
    for line in lines:
        words = shlex.split(line, comments=True)
        if words[1] == "scripts/prepare.py" and ">" not in words:
            assert main([*words[2:], "--quiet"]) == 0
    train, test = (read_split(tmp_path / "data/movielens", name) for name in ("train", "test"))
    assert train["time"].to_numpy().max() < test["time"].to_numpy().min()
    assert train["genres"].type == pa.list_(pa.int32())
