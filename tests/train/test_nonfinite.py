"""NaN and Inf in one part's loss or gradient: named, and with on_nonfinite=skip without a trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from recsys import run as module
from recsys.errors import ConfigError, NonFiniteError
from recsys.models.recommender import OVER
from scripts.fault_job import Job, job_config, job_data
from tests.reference.tiny_run import changed, tiny_config

SKIP = changed(
    changed(changed(job_config(), "trainer.on_nonfinite", "skip"), "schedule.early_update", False),
    "trainer.max_skipped_steps",
    2,
)
STOP = changed(SKIP, "trainer.on_nonfinite", "stop")
EARLY = changed(STOP, "schedule.early_update", True)


def spoil(job: Job, part: str, kind: str, steps: set[int]) -> None:
    """Make the loss of ``part`` NaN, or one of its gradients infinite while its loss is fine, in ``steps``."""
    module = job.model.parts[part]

    def spoil_loss(_: Any, inputs: Any, output: Any) -> Any:
        is_due = module.training and job.fit._state.step in steps
        return output._replace(loss=output.loss * float("nan")) if is_due else output

    if kind == "loss":
        module.register_forward_hook(spoil_loss)
    else:
        parameter = next(module.parameters())
        parameter.register_hook(lambda grad: grad * float("inf") if job.fit._state.step in steps else grad)


@pytest.mark.parametrize("cfg", [STOP, EARLY], ids=["late", "early"])
@pytest.mark.parametrize(("part", "kind"), [("cross", "loss"), ("dot", "gradient"), (OVER, "gradient")])
def test_the_part_and_the_step_are_named(part: str, kind: str, cfg: dict[str, Any], tmp_path: Path) -> None:
    job = Job(tmp_path, cfg)
    spoil(job, part, kind, {1})
    with pytest.raises(
        NonFiniteError, match=rf"^the {kind} of part '{part}' became NaN or infinite in step 1, counted"
    ):
        job.run()
    assert [p.name for p in tmp_path.iterdir()] == ["step_00000001"], "what is lost must not be saved"


@pytest.mark.parametrize(("part", "kind"), [("cross", "loss"), ("dot", "gradient"), (OVER, "gradient")])
def test_a_skipped_step_leaves_weights_tables_and_optimizers_alone(
    part: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(tmp_path, SKIP)
    spoil(job, part, kind, {0})
    job_data().train.load_state_dict({"epoch": 0, "batch": 0})
    batches = iter(job_data().train)
    job.model.train()
    before = {name: value.clone() for name, value in job.state().items() if not name.startswith("random/")}
    result = job.stepper(next(batches))
    assert result.fault is not None and result.fault.startswith(f"the {kind} of part '{part}'")
    after = {name: value for name, value in job.state().items() if not name.startswith("random/")}
    assert before.keys() == after.keys() and all(torch.equal(after[n], before[n]) for n in before)
    job.fit._state.step = 1
    assert job.stepper(next(batches)).fault is None
    moved = job.state()
    tables = [n for n in before if "embedding_bags" in n]
    assert tables and any(not torch.equal(moved[n], before[n]) for n in tables), "so the test shows something"


def test_skipped_steps_are_counted_told_saved_and_limited(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = Job(tmp_path / "two", SKIP)
    spoil(job, "cross", "loss", {0, 3})
    job.run()
    assert job.fit._state.skipped == 2
    told = capsys.readouterr().out
    assert "the loss of part 'cross' is NaN or infinite in step 3, counted from 0: its batch is skipped (2 of" in told
    resumed = Job(tmp_path / "two", SKIP)
    resumed.run()
    assert resumed.fit._state.skipped == 2
    job = Job(tmp_path / "three", SKIP)
    spoil(job, "cross", "loss", {0, 3, 4})
    with pytest.raises(NonFiniteError, match=r"in step 4, .* after 2 steps that were skipped$"):
        job.run()


def test_skipping_that_would_leave_a_trace_is_refused_before_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "build_data", lambda cfg: pytest.fail("data was made"))
    cfg = tiny_config("+experiment=erase6", "trainer.on_nonfinite=skip")
    with pytest.raises(ConfigError, match=r"^trainer\.on_nonfinite=skip: .*add schedule\.early_update=false$"):
        module.run(cfg, tmp_path)
