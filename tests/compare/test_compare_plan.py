from __future__ import annotations

import pytest

from recsys.compare.plan import CONTROLS, Experiment, Plan, make_plan, split_arguments, with_controls
from recsys.config.cli import compose, to_plain
from recsys.errors import ConfigError

from .conftest import config_of


def plan(*labels: str, common: tuple[str, ...] = (), seeds: int = 2, folds: int = 1, **settings: str) -> Plan:
    experiments = [Experiment.parse(label) for label in labels]
    return make_plan(
        experiments, common, num_seeds=seeds, num_folds=folds, compose_config=config_of, **settings
    )  # fmt: skip


def test_commas_inside_brackets_do_not_end_an_override() -> None:
    text = "erase6:model.detach=[cross,dot],model.loss_weights={a:1,b:2},seed=3"
    experiment = Experiment.parse(text)
    assert experiment.name == "erase6"
    assert experiment.overrides == ("model.detach=[cross,dot]", "model.loss_weights={a:1,b:2}", "seed=3")
    assert experiment.label == text


@pytest.mark.parametrize("text", [":a=1", "erase6:abc", ""])
def test_what_is_no_experiment_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is no experiment; write name or name:key=value,key=value"):
        Experiment.parse(text)


def test_overrides_for_all_are_told_from_experiments() -> None:
    experiments, common = split_arguments(["erase6", "data.path=a:b", "+debug=smoke", "~x", "dlrm:seed=1", "erase6"])
    assert [e.label for e in experiments] == ["erase6", "dlrm:seed=1"]
    assert common == ["data.path=a:b", "+debug=smoke", "~x"]


def test_the_four_controls_stand_with_erase6_and_its_variants() -> None:
    labels = [e.label for e in with_controls([Experiment("dlrm"), Experiment("erase6", ("lr=1",))])]
    assert labels == [*CONTROLS, "dlrm", "erase6:lr=1"]
    assert with_controls([Experiment("dlrm"), Experiment("baseline6")]) == [
        Experiment("dlrm"),
        Experiment("baseline6"),
    ]


def test_pairs_share_seed_and_rows_and_folds_share_neither() -> None:
    cells = plan("a", "b", seeds=2, folds=2).cells
    found = [(c.label, c.cfg["seed"], c.cfg["data"]["row_offset"]) for c in cells]
    assert found == [
        ("a", 0, 100), ("b", 0, 100), ("a", 1, 100), ("b", 1, 100),
        ("a", 1000, 200), ("b", 1000, 200), ("a", 1001, 200), ("b", 1001, 200),
    ]  # fmt: skip
    assert cells[-1].overrides == ("+experiment=b", "seed=1001", "data.row_offset=200")
    assert all(cell.cfg["trainer"]["quiet"] for cell in cells)


def test_blocks_of_a_file_are_folds() -> None:
    blocks = plan("a", "b", common=("data=blocks", "seed=7"), seeds=1, folds=3)
    assert [(c.cfg["data"]["folds"], c.cfg["data"]["fold"]) for c in blocks.cells[::2]] == [(3, 0), (3, 1), (3, 2)]
    assert blocks.cells[-1].overrides == ("+experiment=b", "data=blocks", "seed=2007", "data.folds=3", "data.fold=2")
    assert blocks.folds_share_rows
    assert not plan("a", "b", folds=2).folds_share_rows


def test_one_fold_leaves_the_split_alone() -> None:
    assert plan("a", "b", common=("data=plain",)).cells[0].cfg["data"] == {"_target_": "somewhere.Plain"}


def test_twins_differ_in_their_schedule_only() -> None:
    assert plan("baseline6", "heads6", "late6", "erase6").twins() == [("late6", "erase6")]
    assert plan("late6:lr=2", "erase6", "heads6:schedule=branch", "heads6").twins() == [
        ("heads6:schedule=branch", "heads6")
    ]


def test_the_first_experiment_is_the_reference() -> None:
    assert plan("a", "b").reference == "a"
    assert plan("a", "b", reference="b").reference == "b"


@pytest.mark.parametrize(
    ("labels", "settings", "message"),
    [
        (("a",), {}, "needs two experiments or more, got a"),
        (("a", "b"), {"seeds": 0}, "--seeds 0 --folds 1: both at least 1"),
        (("a", "b"), {"seeds": 1001}, "at most 1000 seeds"),
        (("a", "b"), {"reference": "c"}, "--reference c: is none of the experiments compared, a, b"),
        (("a", "b"), {"folds": 2, "common": ("data=plain",)}, "somewhere.Plain has no folds; use --folds 1"),
    ],
)
def test_impossible_plans_are_refused(labels: tuple[str, ...], settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(*labels, **settings)  # type: ignore[arg-type]


def test_late6_is_erase6_with_another_schedule() -> None:
    late, early = (to_plain(compose([f"+experiment={name}"])) for name in ("late6", "erase6"))
    assert (late.pop("name"), early.pop("name")) == ("late6", "erase6")
    assert late.pop("schedule")["name"] == "sequential"
    assert early.pop("schedule")["name"] == "erase"
    assert late == early
