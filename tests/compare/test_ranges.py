from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recsys.compare.ranges import Ranges, draw_settings, overrides_of, read_ranges, show
from recsys.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
RANGES: Ranges = {
    "a.x": ({"a.x": 1}, {"a.x": 2}, {"a.x": 3}),
    "b": ({"b": True}, {"b": False}),
}
CFG: dict[str, Any] = {"model": {"archs": {"mlp": {"dropout": 0.0}, "dot": {"rank": 2}, "cross": {"dropout": 0.0}}}}


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "ranges.yaml"
    path.write_text(text)
    return path


def test_single_keys_and_keys_that_go_together(tmp_path: Path) -> None:
    path = written(tmp_path, "optim.lr: [5e-4, 1e-3]\ndropout:\n  - {a: 0.2, b.*.c: 0.1}\n  - {a: 0.0, b.*.c: 0.0}\n")
    ranges = read_ranges(path)
    assert ranges["optim.lr"] == ({"optim.lr": 5e-4}, {"optim.lr": 1e-3})
    assert ranges["dropout"][0] == {"a": 0.2, "b.*.c": 0.1}
    assert show(ranges["dropout"][0]) == "0.2, 0.1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no ranges; write one 'config.key: .value, value.' a line"),
        ("- 1", "holds no ranges"),
        ("a: 1", "a must be a list of values, such as .*, not 1"),
        ("a: []", "a must be a list of values"),
        ("a: [1, 2, 1]", "a lists a value twice: 1, 2, 1"),
        ("a: [{x: 1}, {y: 2}]", "every choice of a must set the same keys"),
        ("a: [{}]", "every choice of a must set the same keys"),
        ("a: [1", "the ranges cannot be read"),
        ("a: ['${b}']", "the ranges cannot be read"),
    ],
)
def test_faults_of_the_file_name_it(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match=f"^{path}: .*{message}"):
        read_ranges(path)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere.yaml: the ranges cannot be read .*No such file"):
        read_ranges(tmp_path / "nowhere.yaml")


def test_draws_differ_from_each_other_and_exhaust_the_ranges() -> None:
    settings = draw_settings(RANGES, 6, seed=1)
    assert len({str(setting) for setting in settings}) == 6
    for number in (0, 7):
        with pytest.raises(ConfigError, match=f"--trials {number}: must lie from 1 to 6"):
            draw_settings(RANGES, number, seed=1)


def test_more_trials_and_more_ranges_leave_the_first_draws_as_they_are() -> None:
    wide = {name: tuple({name: value} for value in range(50)) for name in ("a", "b")}
    few = draw_settings(wide, 5, seed=3)
    assert draw_settings(wide, 20, seed=3)[:5] == few
    assert draw_settings(wide, 5, seed=4) != few
    more = draw_settings({**wide, "c": ({"c": 0}, {"c": 1})}, 5, seed=3)
    assert [{k: v for k, v in setting.items() if k != "c"} for setting in more] == few


def test_choices_are_equally_likely() -> None:
    wide = {"a": RANGES["a.x"], "many": tuple({"many": value} for value in range(10_000))}
    counts = Counter(show(setting["a"]) for setting in draw_settings(wide, 3000, seed=0))
    assert all(abs(count - 1000) < 130 for count in counts.values()), "5 standard deviations"


def test_overrides_as_hydra_reads_them() -> None:
    setting = {n: {n: v} for n, v in {"a": 1e-05, "b": True, "c": None, "d": [64, 32], "e": "bf16"}.items()}
    assert overrides_of(setting, CFG) == ("a=1e-05", "b=true", "c=null", "d=[64,32]", "e=bf16")


def test_a_star_is_every_part_that_has_the_key() -> None:
    choice = {"dropout": {"model.archs.*.dropout": 0.1}}
    assert overrides_of(choice, CFG) == ("model.archs.mlp.dropout=0.1", "model.archs.cross.dropout=0.1")
    assert overrides_of(choice, {"model": {"archs": {}}}) == (), "a model without such parts"
    with pytest.raises(ConfigError, match=r"model\.archs\.\*\.dorpout: nothing in the experiment's configuration"):
        overrides_of({"dropout": {"model.archs.*.dorpout": 0.1}}, CFG)
    with pytest.raises(ConfigError, match=r"modle\.archs\.\*\.dropout: nothing"):
        overrides_of({"dropout": {"modle.archs.*.dropout": 0.1}}, CFG)


@pytest.mark.parametrize("path", sorted((ROOT / "scripts" / "ranges").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_written_ranges_can_be_drawn_from(path: Path) -> None:
    assert len(draw_settings(read_ranges(path), 20, seed=0)) == 20
