"""Rows of requests: every mistake names its row and field, and good rows are predicted as scored ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsys.serve.export import export_package
from recsys.serve.predictor import Predictor
from recsys.serve.trained import probability
from tests.serve.conftest import Run, synthetic_table


def criteo_rows(lines: bytes) -> list[dict[str, Any]]:
    rows = []
    for line in lines.decode().splitlines():
        _, *fields = line.split("\t")
        row: dict[str, Any] = {f"I{i + 1}": int(v) if v else None for i, v in enumerate(fields[:13])}
        rows.append(row | {f"C{i + 1}": v or None for i, v in enumerate(fields[13:])})
    return rows


@pytest.fixture(scope="module")
def predictors(criteo_run: Run, text_run: Run, synthetic_run: Run, tmp_path_factory: Any) -> dict[str, Predictor]:
    root: Path = tmp_path_factory.mktemp("packages")
    for name, run in (("criteo", criteo_run), ("text", text_run), ("ids", synthetic_run)):
        export_package(run.folder, root / name)
    return {name: Predictor(root / name) for name in ("criteo", "text", "ids")}


def test_tokens(predictors: dict[str, Predictor], criteo_run: Run) -> None:
    rows, predictor = criteo_rows(criteo_run.test_lines), predictors["criteo"]
    assert predictor.check(rows) == []
    np.testing.assert_allclose(predictor.predict(rows), probability(criteo_run.logits), atol=1e-5)


def test_texts_and_lists(predictors: dict[str, Predictor], text_run: Run) -> None:
    rows, predictor = [], predictors["text"]
    for line in text_run.test_lines.decode().splitlines()[1:]:
        _, _, price, city, user, tags, _ = line.split(",")
        number = float(price) if price else None
        rows.append({"price": number, "city": city, "user": user, "tags": tags.split(" ") if tags else None})
    assert predictor.check(rows) == []
    np.testing.assert_allclose(predictor.predict(rows), probability(text_run.logits), atol=1e-5)


def test_ids(predictors: dict[str, Predictor], synthetic_run: Run) -> None:
    rows, predictor = synthetic_table(synthetic_run).drop(["label"]).to_pylist(), predictors["ids"]
    assert predictor.check(rows) == []
    np.testing.assert_allclose(predictor.predict(rows), probability(synthetic_run.logits), atol=1e-5)


WRONG = [
    ("criteo", {"I1": "7"}, "I1", "'7' is no number"),
    ("criteo", {"I1": True}, "I1", "'True' is no number"),
    ("criteo", {"I1": 1e39}, "I1", "'1e+39' is no finite number of float32's range"),
    ("criteo", {"C1": "xyz"}, "C1", "'xyz' is no token of 1 to 8 hexadecimal digits"),
    ("criteo", {"C1": 7}, "C1", "'7' is no token of 1 to 8 hexadecimal digits"),
    ("criteo", {"C27": "a"}, "C27", "there is no such field"),
    ("text", {"city": 3}, "city", "'3' is no text; put it in quotes"),
    ("text", {"tags": "t1 t2"}, "tags", "'t1 t2' is no list"),
    ("text", {"tags": ["t1", 2]}, "tags", "'2' is no text; put it in quotes"),
    ("ids", {"C1": 40}, "C1", "40 is no id of the table of 40 rows"),
    ("ids", {"C1": 1.0}, "C1", "'1.0' is no whole number"),
    ("ids", {"C1": None}, "C1", "null, but a value is needed"),
    ("ids", {"C3": [1, 2, 3, 4]}, "C3", "a list of 4, more than 3"),
]


@pytest.mark.parametrize(("name", "change", "field", "message"), WRONG, ids=[f"{n} {m}" for n, _, _, m in WRONG])
def test_wrong_values(
    predictors: dict[str, Predictor], name: str, change: dict[str, Any], field: str, message: str
) -> None:
    predictor = predictors[name]
    good = {f.name: good_value(f.kind, f.is_list) for f in predictor.fields}
    assert predictor.check([good]) == []
    (error,) = predictor.check([good, good | change])
    assert (error.row, error.field, error.message) == (1, field, message)


def good_value(kind: str, is_list: bool) -> Any:
    value = {"number": 1.5, "token": "0a", "text": "a", "id": 0}[kind]
    return [value] if is_list else value


def test_absent_fields_and_rows_that_are_none(predictors: dict[str, Predictor]) -> None:
    errors = predictors["criteo"].check([5, {}])
    assert (errors[0].row, errors[0].field, errors[0].message) == (0, None, "is no object of fields")
    assert errors[1].message == "is absent; send null for a missing value" and len(errors) == 20
