"""Half a minute of the soak; scripts/soak.py runs thirty."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys.train.stop_signal import EXIT_STATUS
from scripts.soak import Samples, judge, soak


def test_memory_and_file_handles_stay_flat_over_evaluations_and_checkpoints(tmp_path: Path) -> None:
    verdict = soak(0.4, 1, tmp_path, ["data.train_rows=4000", "checkpoint.every_seconds=1", "data.max_cardinality=100"])
    assert verdict.status == EXIT_STATUS
    # Too short for the limit on memory of the long run, long enough for what leaks at every checkpoint.
    assert verdict.growth < 0.1 and verdict.handles[1] <= verdict.handles[0]
    assert all(wall > 0 for wall in verdict.fifths) and all(rate > 0 for rate in verdict.fifths_cpu)
    assert 3 <= verdict.checkpoints <= 4, "the last three and the best one"


@pytest.mark.parametrize(
    ("memory", "handles", "rows", "told"),
    [
        (lambda t: 1000, lambda t: 20, lambda t: 10 * t, []),
        (lambda t: 1000 + t, lambda t: 20, lambda t: 10 * t, ["memory grew by"]),
        (lambda t: 1000, lambda t: 20 + t // 100, lambda t: 10 * t, ["open files grew from 2"]),
        (lambda t: 1000, lambda t: 20, lambda t: 10 * t - max(0, t - 540), ["the last minute had 0.9"]),
    ],
)
def test_what_grows_or_slows_down_is_told(memory: object, handles: object, rows: object, told: list[str]) -> None:
    seconds = range(0, 601, 10)
    samples = Samples(*([(float(t), of(t)) for t in seconds] for of in (memory, handles, rows)))  # type: ignore[operator]
    problems = judge(samples, EXIT_STATUS, 3).problems()
    assert len(problems) == len(told) and all(p.startswith(t) for p, t in zip(problems, told, strict=True))


def test_rates_are_told_by_fifths_of_the_time_and_by_processor_time() -> None:
    seconds = range(0, 501, 10)
    rows = [(float(t), 10 * t if t <= 400 else 4000 + 5 * (t - 400)) for t in seconds]
    cpu = [(float(t), t / 2) for t in seconds]
    verdict = judge(Samples([(t, 1) for t, _ in cpu], [(t, 1) for t, _ in cpu], rows, cpu), EXIT_STATUS, 3)
    assert verdict.fifths == pytest.approx([10, 10, 10, 10, 5]) and verdict.fifths_cpu == pytest.approx([20] * 4 + [10])
