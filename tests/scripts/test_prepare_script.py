"""The command line of the preparation, and what docs/data.md shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

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
