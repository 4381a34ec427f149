"""A run that stopped goes on with other numbers of processes as if nothing had been."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from recsys.config.wire import Config
from recsys.distributed.world import ALONE
from tests.distributed.jobs import Saved, train_and_resume, train_and_save
from tests.distributed.ranks import run_ranks
from tests.distributed.test_parity import COMMON
from tests.reference.tiny_run import tiny_config

# Rowwise Adagrad keeps state with the tables, Adam with the dense parts; the step is in the middle of an epoch.
SAVING = ("sparse.optimizer=rowwise_adagrad", "optim=adam", "checkpoint.every_steps=4", "checkpoint.keep_last=9")
STEP = "checkpoints/experiment/step_00000004"


def config(root: Path, resumes: str = "", plan: str = "row_wise") -> Config:
    cfg = tiny_config(*COMMON, *SAVING, "trainer.epochs=3", "trainer.keep_best=true", f"sharding={plan}")
    return {**cfg, "resume": str(root / resumes / STEP) if resumes else None}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Saved], list[dict[str, Saved]]]:
    root = tmp_path_factory.mktemp("runs")
    alone = {"one": train_and_save(ALONE, config(root), root / "one")}
    two = {
        "two": config(root),
        "two to two": config(root, "two"),
        "one to two": config(root, "one", "table_wise"),
    }
    ranks = run_ranks(2, train_and_resume, two, root)
    alone["two to one"] = train_and_save(ALONE, config(root, "two"), root / "two to one")
    return root, alone, ranks


def test_resumed_on_as_many_processes_it_is_the_same(
    runs: tuple[Path, dict[str, Saved], list[dict[str, Saved]]],
) -> None:
    for rank in runs[2]:
        assert rank["two to two"] == rank["two"]


def test_resumed_on_another_number_it_is_the_same_to_rounding(
    runs: tuple[Path, dict[str, Saved], list[dict[str, Saved]]],
) -> None:
    _, alone, ranks = runs
    wanted = alone["one"]
    for found in (alone["two to one"], *(rank[name] for rank in ranks for name in ("two", "one to two"))):
        assert [rows for rows, _ in found.curve] == [rows for rows, _ in wanted.curve]
        torch.testing.assert_close([ne for _, ne in found.curve], [ne for _, ne in wanted.curve], rtol=0, atol=1e-6)
        torch.testing.assert_close(found.logits, wanted.logits, rtol=1e-4, atol=1e-5)


def test_the_saved_model_is_whole_and_has_the_names_of_one_process(
    runs: tuple[Path, dict[str, Saved], list[dict[str, Saved]]],
) -> None:
    one, two = (load_file(runs[0] / name / "model.safetensors") for name in ("one", "one to two"))
    assert set(one) == set(two)
    torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-6)
