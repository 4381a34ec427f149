"""What lies in folders is found once, and what is damaged is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recsys.compare.result import Comparison
from recsys.errors import DataError
from recsys.overview.gather import gather
from tests.overview.conftest import bench_file, made_up_comparison, trace_file, write_made_up_run


def test_everything_is_found_once(desk: Path) -> None:
    found = gather([desk, desk / "sweep"])
    assert [run.folder.name for run in found.runs] == ["1-0", "1-1", "2-0", "2-1"]
    assert len(found.comparisons) == len(found.traces) == 1 and not found.missing
    assert [(bench.experiment, bench.batch_size) for bench in found.benches] == [
        ("bench_proxy", 256),
        ("bench_proxy", 512),
    ]
    assert found.traces[0].timeline["sequential"][1] == ("B:mlp@0", 10.0, 20.0, 0)


def test_a_comparison_brings_its_runs(desk: Path) -> None:
    found = gather([desk / "compare"])
    assert [run.folder for run in found.runs] == [desk / "sweep" / "1-0"]


def test_a_comparison_survives_json(tmp_path: Path) -> None:
    comparison = made_up_comparison(tmp_path)
    assert Comparison.from_dict(json.loads(json.dumps(comparison.to_dict()))) == comparison


def test_runs_that_are_gone_are_told(tmp_path: Path) -> None:
    raw = made_up_comparison(tmp_path / "gone").to_dict()
    (tmp_path / "comparison.json").write_text(json.dumps(raw))
    assert gather([tmp_path]).missing == [str(tmp_path / "gone")]


def test_other_files_that_end_in_a_number_are_no_benchmark(tmp_path: Path) -> None:
    trace_file(tmp_path)
    bench_file(tmp_path, 64)
    (tmp_path / "loader_8.json").write_text('{"batch_size": 8}')
    assert [bench.batch_size for bench in gather([tmp_path]).benches] == [64]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("comparison.json", "{}", r"comparison\.json: cannot be read \(KeyError"),
        ("overlap.json", "[", r"overlap\.json: cannot be read"),
        ("overlap.json", '{"median_ms": {}}', r"overlap\.json: cannot be read \(KeyError: 'overlap'\); make it again"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        gather([tmp_path])


def test_nothing_to_show(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no run .*python train\.py"):
        gather([tmp_path])
    with pytest.raises(DataError, match=r"absent: no such folder"):
        gather([tmp_path / "absent"])


def test_a_run_without_configuration_is_named(tmp_path: Path) -> None:
    from recsys.overview.entries import make_entries

    folder = write_made_up_run(tmp_path / "run", name="erase6", seed=0, noise=0.4, detach=["mlp"])
    (folder / "config.yaml").unlink()
    with pytest.raises(DataError, match=r"holds neither config\.yaml"):
        make_entries(gather([tmp_path]).runs)
