"""Which runs are one model, and what it is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys.overview.entries import Entry, make_entries
from recsys.overview.gather import gather


@pytest.fixture(scope="module")
def entries(desk: Path) -> dict[str, Entry]:
    return {entry.label: entry for entry in make_entries(gather([desk / "sweep"]).runs)}


def test_seeds_are_one_model_and_names_tell_models_apart(entries: dict[str, Entry]) -> None:
    assert list(entries) == ["baseline", "erase6 detach=[mlp]", "erase6 detach=[mlp,cross]"]
    assert [len(entry.runs) for entry in entries.values()] == [2, 2, 2]


def test_a_shared_baseline_counts_once_a_seed(entries: dict[str, Entry]) -> None:
    assert sorted(r.seed for r in entries["baseline"].reports) == [0, 1]


def test_figures_are_over_the_runs(entries: dict[str, Entry]) -> None:
    entry = entries["erase6 detach=[mlp]"]
    nes = [report.ne for report in entry.reports]
    assert None not in nes and nes[0] != nes[1]
    assert entry.ne == pytest.approx(sum(ne for ne in nes if ne is not None) / 2)
    assert entry.ne_sd == pytest.approx(abs((nes[0] or 0) - (nes[1] or 0)) / 2**0.5)
    assert entry.rows_per_s == 1110.0 and entry.speedup == pytest.approx(1.15)
    assert entries["baseline"].speedup == 1.0


def test_the_baseline_takes_no_part_in_the_cuts(entries: dict[str, Entry]) -> None:
    assert entries["baseline"].config == {"data.rows": 7, "optim.lr": 0.001}
    assert entries["baseline"].data == entries["erase6 detach=[mlp]"].data
