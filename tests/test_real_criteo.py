"""The promise on real Criteo rows: a baseline as good as untuned models elsewhere, ERASE next to it."""

from pathlib import Path

import pytest

from recsys.run import run
from tests.reference.tiny_run import compose_plain


@pytest.mark.criteo
@pytest.mark.timeout(600)  # trains two models on 122 k rows
def test_erase6_is_within_half_a_percent_of_a_good_baseline(criteo_sample: Path, tmp_path: Path) -> None:
    caches = [f"{group}.cache_dir={tmp_path / 'cache'}" for group in ("data", "trainer")]
    given = ("+experiment=erase6", "data=criteo_kaggle", f"data.path={criteo_sample}")
    quick = ("trainer.device=cpu", "trainer.quiet=true", "trainer.timing.rounds=2", "trainer.timing.steps=2")
    report = run(compose_plain(*given, *caches, *quick), tmp_path / "run")
    baseline, erase = report.baseline.metrics, report.erase.metrics
