"""Which jobs a command line means, and that each is checked before any folder is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys.config import check
from recsys.config.cli import compose, to_plain
from recsys.errors import ConfigError, DataError
from recsys.sweep.plan import SweepPlan, plan_sweep


def labels(*arguments: str, without_check: pytest.MonkeyPatch | None = None) -> list[str]:
    _, plan = plan_sweep(["+experiment=erase6", *arguments])
    return [plan.label(number) for number in range(len(plan.jobs))]


@pytest.fixture
def composed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Composing hundreds of jobs takes a while: here the plan is looked at, not the check."""
    base = compose(["+experiment=erase6"])
    real = compose

    def fake(overrides: list[str], *, with_hydra: bool = False) -> object:
        return real(overrides, with_hydra=True) if with_hydra else base

    monkeypatch.setattr("recsys.sweep.plan.compose", fake)
    monkeypatch.setattr(check, "check_config", lambda cfg: None)


@pytest.mark.usefixtures("composed")
@pytest.mark.parametrize(
    ("sweep", "number", "first", "last"),
    [
        ("detach_subsets", 64, "model.detach=[]", "model.detach=[mlp,cross,dot,wukong,attention,masknet]"),
        ("detach_pairs", 22, "model.detach=[]", "model.detach=[attention,masknet]"),
        ("detach_sizes", 7, "model.detach=[]", "model.detach=[mlp,cross,dot,wukong,attention,masknet]"),
        ("batch", 5, "trainer.batch_size=256", "trainer.batch_size=4096"),
        ("seeds", 5, "seed=0", "seed=4"),
    ],
)
def test_the_sweeps_of_the_house(sweep: str, number: int, first: str, last: str) -> None:
    found = labels(f"+sweep={sweep}")
    assert (len(found), len(set(found)), found[0], found[-1]) == (number, number, first, last)


@pytest.mark.usefixtures("composed")
def test_sweeps_multiply_and_follow_the_model() -> None:
    assert len(labels("+sweep=detach_subsets", "~model.archs.wukong")) == 32
    assert len(labels("+sweep=[detach_sizes,seeds]")) == 35
    assert len(labels("+sweep=detach_sizes", "seed=range(0,3)")) == 21
    # The command line replaces a sweep's own values.
    assert labels("+sweep=detach_sizes", "model.detach=[],[dot]") == ["model.detach=[]", "model.detach=[dot]"]


def test_every_weight_of_a_lambda_sweep_reaches_the_model() -> None:
    _, plan = plan_sweep(["+experiment=erase6", "+sweep=lambda"])
    weights = []
    for job in plan.jobs:
        cfg = to_plain(compose([f"{key}={value}" for key, value in job.items()]))
        (weight,) = set(cfg["model"]["loss_weights"].values())
        assert len(cfg["model"]["loss_weights"]) == 6
        weights.append(weight)
    assert weights == [0.1, 0.3, 1, 3, 10]
    assert plan.label(0).startswith("model.loss_weights={mlp:0.1,")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.detach=[],[cros]"], r"job 1 of 2 \(model\.detach=\[cros\]\): model\.detach: there is no part 'cros'"),
        (["trainer.batch_size=64,0"], r"job 1 of 2 \(trainer\.batch_size=0\): trainer\.batch_size=0: must be at least"),
        (["optim=adam,sdg"], r"job 1 of 2 .*optim=sdg: there is no such option"),
        (["seed=1,2", "optim.lr=1,fast"], r"job 1 of 4 \(seed=1 optim\.lr=fast\): optim\.lr: Value 'fast'"),
        (["+sweep=detach_sbsets"], r"sweep=detach_sbsets: there is no such option .*detach_subsets"),
        (["+launcher=jobib"], r"launcher=jobib: there is no such option .*joblib"),
    ],
)
def test_a_mistake_in_any_job_is_told_first(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_sweep(["+experiment=erase6", *arguments])


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    folder, plan = plan_sweep(["+experiment=dlrm", "seed=0,1", f"hydra.sweep.dir={tmp_path / 'here'}"])
    assert folder == tmp_path / "here" and not folder.exists()
    plan.write(folder)
    assert SweepPlan.read(folder) == plan
    assert plan.jobs == [{"+experiment": "dlrm", "seed": "0"}, {"+experiment": "dlrm", "seed": "1"}]
    (folder / "sweep.json").write_text("{")
    with pytest.raises(DataError, match=r"sweep\.json: damaged"):
        SweepPlan.read(folder)
    with pytest.raises(DataError, match=r"no such file; give the folder of a sweep"):
        SweepPlan.read(tmp_path)


def test_a_sweep_of_one_job_has_a_name() -> None:
    plan = SweepPlan([], [{"+experiment": "erase6", "seed": "3"}])
    assert plan.label(0) == "seed=3"


def test_a_launcher_that_is_not_installed_is_told() -> None:
    with pytest.raises(ConfigError, match=r"hydra/launcher=ray_aws: .*pip install hydra-ray-launcher"):
        plan_sweep(["+experiment=dlrm", "hydra/launcher=ray_aws"])


def test_launchers_are_set_up_by_config() -> None:
    parallel = compose(["+experiment=dlrm", "+launcher=joblib"], with_hydra=True).hydra.launcher
    assert parallel._target_.endswith("JoblibLauncher") and parallel.n_jobs == -1
    slurm = compose(["+experiment=dlrm", "+launcher=submitit", "hydra.launcher.partition=a"], with_hydra=True)
    assert slurm.hydra.launcher._target_.endswith("SlurmLauncher") and slurm.hydra.launcher.partition == "a"
    assert slurm.hydra.launcher.cpus_per_task == 4
