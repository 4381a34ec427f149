"""The command line: one message for a mistake, help at once, a folder of its own for every run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]

from recsys.config.cli import _check_run_folder, check_overrides, compose, main, to_plain
from recsys.errors import ConfigError, DataError

ROOT = Path(__file__).parents[2]

Job = tuple[dict[str, Any], Path]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[Job]:
    """Run ``main`` with these arguments and give what the task was called with."""
    monkeypatch.setattr(sys, "argv", ["train.py", *arguments])
    jobs: list[Job] = []
    main(lambda cfg, folder: jobs.append((cfg, folder)))
    return jobs


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("+experiment=erase7", r"experiment=erase7: .*nearest valid: erase6"),
        ("experiment=erase6", r"experiment: this group is not in the defaults; write \+experiment=<option>"),
        ("+experimnt=erase6", r"no config key 'experimnt'; nearest valid: experiment"),
        ("arch@model.interaction=dto", r"arch=dto: .*nearest valid: dot"),
        ("+arch=cross", r"arch: say where; arch@model\.interaction=<option>"),
        ("+optim=sgd", r"optim: an option is chosen already; write optim=<option>"),
        ("model=null", r"model=null: choose an option of the group by name; nearest valid: main_path, six"),
        ("trainer.epoch=3", r"no config key 'trainer\.epoch'; nearest valid: trainer\.epochs"),
        ("+trainer.foo=1", r"no config key 'trainer\.foo'; nearest valid: trainer"),
        ("+metrics.window=1", r"no config key 'metrics\.window'; nearest valid: metrics\.window_rows"),
        ("data=criteo_kaggle data.pth=x", r"no config key 'data\.pth'; nearest valid: data\.path"),
        ("data.path=x", r"no config key 'data\.path' here; .* add data=criteo_kaggle"),
        (
            "model.archs.cross.rnak=3",
            r"no config key 'model\.archs\.cross\.rnak'; nearest valid: model\.archs\.cross\.rank",
        ),
        ("model.loss_weights.cross=2", r"model\.loss_weights\.cross: .*write \+model\.loss_weights\.cross=<value>"),
        ("~model.archs.attentio", r"~model\.archs\.attentio: .*nearest valid: model\.archs\.attention"),
        ("trainer.epochs=1.5", r"trainer\.epochs: Value '1\.5' of type 'float' could not be converted to Integer"),
        ("optim.lr=fast", r"optim\.lr: Value 'fast' .* Float"),
        ("trainer.quiet=maybe", r"trainer\.quiet: Value 'maybe' is not a valid bool"),
        ("model.dense_arch.hidden=64", r"model\.dense_arch\.hidden: give a list such as \[64,32\]"),
        ("seed=null", r"seed=null: a value is needed"),
        ("~trainer.epochs", r"trainer\.epochs: a value is needed; add trainer\.epochs=<value>"),
        ("epochs", r"'epochs' is no override; write key=value"),
        ("seed=1,2", r"seed=1,2: write seed=\[1,2\] for a list, or add -m"),
    ],
)
def test_a_mistake_is_named_with_the_nearest_valid_ones(overrides: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check_overrides(overrides.split())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "overrides",
    [
        "+experiment=erase6 model.detach=[cross,attention] seed=1",
        "~model.archs.attention +arch@model.archs.cross2=cross arch@model.interaction=dot",
        "+model.loss_weights.cross=0.5 metrics.window_rows=null optim=sgd",
        "data=criteo_kaggle data.path=train.tsv.gz hydra.run.dir=anywhere",
    ],
)
def test_these_are_no_mistakes(overrides: str) -> None:
    check_overrides(overrides.split())


def test_a_mistake_ends_with_status_1_before_a_folder_is_made(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        call(monkeypatch, "+experiment=erase6", "trainer.epoch=2")
    assert caught.value.code == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: there is no config key 'trainer.epoch'") and len(err.splitlines()) == 1
    assert list(here.iterdir()) == []


def test_a_user_error_inside_the_run_is_one_message_and_status_1(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def task(cfg: dict[str, Any], folder: Path) -> None:
        raise DataError("train.tsv, line 3: wrong; mend it")

    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as caught:
        main(task)
    assert caught.value.code == 1
    assert capfd.readouterr().err == "error: train.tsv, line 3: wrong; mend it\n"


def test_runs_of_one_second_and_one_process_get_folders_of_their_own(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "strftime", lambda form: "2026-01-01/12-00-00")
    monkeypatch.setattr(os, "getpid", lambda: 7)
    folders = [call(monkeypatch, "name=one")[0][1] for _ in range(2)]
    assert len(set(folders)) == 2
    for folder in folders:
        assert folder.is_relative_to(here / "runs" / "2026-01-01")
        assert yaml.safe_load((folder / ".hydra" / "config.yaml").read_text())["name"] == "one"


def test_run_dir_can_be_chosen(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (job,) = call(monkeypatch, "+experiment=erase6", f"hydra.run.dir={here / 'chosen'}")
    assert job[1] == here / "chosen" and job[1].is_dir()
    assert job[0]["name"] == "erase6" and job[0]["model"]["detach"] == "all"


def test_a_sweep_runs_every_choice_in_a_folder_of_its_own(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = call(monkeypatch, "-m", "+experiment=erase6", "model.detach=[],[cross],all")
    assert [cfg["model"]["detach"] for cfg, _ in jobs] == [[], ["cross"], "all"]
    assert len({folder for _, folder in jobs}) == 3
    assert all(folder.is_relative_to(here / "multirun") and folder.is_dir() for _, folder in jobs)


def test_a_mistake_in_a_sweep_is_told_before_the_first_job(
    here: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        call(monkeypatch, "-m", "seed=1,2", "trainer.epoch=1,2")
    assert "no config key 'trainer.epoch'" in capfd.readouterr().err
    assert list(here.iterdir()) == []


def test_help_shows_groups_and_examples_and_imports_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import runpy, sys\n"
        f"sys.argv = [{str(ROOT / 'train.py')!r}, '+experiment=erase6', '--help']\n"
        f"sys.path.insert(0, {str(ROOT)!r})\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally:\n    heavy = {'torch', 'torchrec', 'numpy', 'pandas', 'matplotlib'}\n"
        "    print('loaded', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "python train.py +experiment=erase6" in done.stdout
    for group in (
        "arch",
        "checkpoint",
        "data",
        "debug",
        "experiment",
        "metrics",
        "model",
        "optim",
        "schedule",
        "sparse",
        "trainer",
    ):
        assert f"\n{group}: " in done.stdout, group
    assert "baseline6, " in done.stdout and "detach: all" in done.stdout
    assert done.stdout.endswith("loaded []\n")
    assert list(tmp_path.iterdir()) == []


def test_every_experiment_says_how_to_run_it() -> None:
    for path in sorted((ROOT / "configs" / "experiment").glob("*.yaml")):
        head = path.read_text().splitlines()[:3]
        assert any(line.startswith("# python ") and path.stem in line for line in head), path.name


def test_plain_values_have_the_types_of_the_schema() -> None:
    cfg = to_plain(compose(["optim.lr=1", "trainer.epochs=2"]))
    assert isinstance(cfg["optim"]["lr"], float) and cfg["trainer"]["epochs"] == 2
    assert isinstance(cfg["data"], dict) and isinstance(cfg["model"]["dense_arch"]["hidden"], list)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.archs={}", r"model\.archs=\{\}: an empty mapping changes nothing; write ~model\.archs\.<name>"),
        ("+trainer.foo=1", r"nearest valid: trainer, trainer\.epochs$"),
    ],
)
def test_what_would_change_nothing_is_refused(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_overrides(["+experiment=erase6", override])


def test_a_run_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"hydra\.run\.dir=.*/file/x: Not a directory; name a folder"):
        _check_run_folder([f"hydra.run.dir={tmp_path / 'file' / 'x'}"])
