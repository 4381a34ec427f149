"""The columns of a data set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recsys.errors import DataError
from recsys.features import FeatureSpec, SparseFeature

SPEC = FeatureSpec(("I1", "I2"), (SparseFeature("C1", 10), SparseFeature("C2", 3, max_length=4)))


def test_names_and_kinds() -> None:
    assert SPEC.sparse_names == ["C1", "C2"]
    assert not SPEC.is_one_hot
    assert FeatureSpec(("I1",), SPEC.sparse[:1]).is_one_hot
    assert FeatureSpec((), ()).is_one_hot


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    SPEC.write(tmp_path / "features.json")
    assert FeatureSpec.read(tmp_path / "features.json") == SPEC


@pytest.mark.parametrize(
    ("dense", "sparse", "message"),
    [
        (("x", "x"), (), r"feature names must be unique, but \['x'\] stand more than once; rename them"),
        (("x",), (SparseFeature("x", 2),), r"\['x'\] stand more than once"),
        ((), (SparseFeature("c", 0),), r"feature 'c': cardinality 0 and max_length 1 must be at least 1"),
        ((), (SparseFeature("c", 2, max_length=0),), r"feature 'c': cardinality 2 and max_length 0"),
    ],
)
def test_a_spec_that_cannot_be_is_refused(
    dense: tuple[str, ...], sparse: tuple[SparseFeature, ...], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        FeatureSpec(dense, sparse)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        json.dumps({"dense": []}),
        json.dumps({"dense": [], "sparse": [{"name": "c"}]}),
        json.dumps({"dense": [], "sparse": [{"name": "c", "cardinality": 2, "colour": 1}]}),
        json.dumps({"dense": [], "sparse": [{"name": "c", "cardinality": "two"}]}),
    ],
)
def test_a_damaged_file_is_named(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "features.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=r"features\.json: cannot be read as a feature spec .*prepare the data again"):
        FeatureSpec.read(path)
