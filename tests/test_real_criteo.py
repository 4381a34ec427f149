"""What the product promises on real Criteo rows: a good baseline, and ERASE within half a percent of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys.config.cli import compose, to_plain
from recsys.run import run


@pytest.mark.criteo
@pytest.mark.timeout(600)  # two models, each trained on some 122 k rows
def test_erase6_and_its_baseline_on_real_rows(criteo_sample: Path, tmp_path: Path) -> None:
    overrides = [
        *("+experiment=erase6", "data=criteo_kaggle", f"data.path={criteo_sample}"),
        *(f"{group}.cache_dir={tmp_path / 'cache'}" for group in ("data", "trainer")),
        *("trainer.device=cpu", "trainer.quiet=true", "trainer.timing.rounds=2", "trainer.timing.steps=2"),
    ]
    report = run(to_plain(compose(overrides)), tmp_path / "run")
    baseline, gap = report.baseline, report.ne_gap_percent
    # FuxiCTR's untuned models reach .860 to .868 on these rows, a hashed logistic regression .853.
    assert baseline.ne is not None and baseline.ne <= 0.860
    assert gap is not None and gap <= 0.5, f"{gap:+.2f} % behind the baseline's {baseline.ne:.4f}"
    assert baseline.coverage == report.erase.coverage == 1.0
