"""Instantiation with errors that name the config key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from recsys.config.target import build_factory, build_target, check_target
from recsys.errors import ConfigError, DataError
from tests.reference.tiny_run import tiny_config

HERE = __name__


@dataclass
class Thing:
    """What the nodes below ask for."""

    size: int
    colour: str = "red"

    def __post_init__(self) -> None:
        if self.size < 0:
            raise DataError("thing.txt, line 1: too small")
        if self.size == 0:
            raise ZeroDivisionError("nothing there")


def make(shape: int, *, width: int, depth: int = 1) -> Thing:
    if width < 1:
        raise ConfigError(f"width must be at least 1, got {width}")
    return Thing(shape * width * depth)


def thing(**fields: Any) -> dict[str, Any]:
    return {"_target_": f"{HERE}.Thing", **fields}


def factory(**fields: Any) -> dict[str, Any]:
    return {"_target_": f"{HERE}.make", "_partial_": True, "_convert_": "all", **fields}


def test_build() -> None:
    assert build_target(thing(size=2), "data") == Thing(2)
    assert build_factory(factory(width=3), "model.archs.x")(5) == Thing(15)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (thing(size=1, color="blue"), r"no config key 'k\.color'; nearest valid: colour"),
        (thing(size=1, q="blue"), r"no config key 'k\.q'; nearest valid: size, colour"),
        (thing(colour="blue"), r"k\.size: a value is needed; add \+k\.size=<value>"),
        (factory(depth=2), r"k\.width: a value is needed"),
        (factory(width=2, shape=2), r"no config key 'k\.shape'"),
        ({"size": 1}, r"k: .*holds no _target_"),
        (3, r"k: .*holds no _target_"),
        ({"_target_": "recsys.nowhere.Thing"}, r"k\._target_=recsys\.nowhere\.Thing: cannot be imported"),
        ({"_target_": "recsys.__version__"}, r"k\._target_=recsys\.__version__: is nothing that could be called"),
    ],
)
def test_a_node_that_does_not_fit_is_refused(node: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_target(node, "k")
    with pytest.raises(ConfigError, match=message):
        build_target(node, "k")


def test_a_user_error_of_the_constructor_stays_as_it_is() -> None:
    with pytest.raises(DataError, match=r"^thing\.txt, line 1: too small$"):
        build_target(thing(size=-1), "data")


def test_any_other_error_of_the_constructor_names_the_key() -> None:
    with pytest.raises(ConfigError, match=r"^data: nothing there$"):
        build_target(thing(size=0), "data")


def test_an_error_of_a_factory_names_the_key() -> None:
    with pytest.raises(ConfigError, match=r"^model\.archs\.x: width must be at least 1, got 0$"):
        build_factory(factory(width=0), "model.archs.x")(5)


@pytest.mark.parametrize("group", ["synthetic", "criteo_kaggle"])
def test_every_data_option_fits_its_constructor(group: str) -> None:
    from recsys.config.cli import compose, to_plain

    check_target(to_plain(compose([f"data={group}"]))["data"], "data")


def test_keys_of_the_free_groups_are_checked() -> None:
    for override, message in (
        ("+data.foo=1", r"no config key 'data\.foo'; nearest valid: "),
        ("+data.train_row=1", r"no config key 'data\.train_row'; nearest valid: train_rows"),
        ("+model.archs.cross.rnak=3", r"no config key 'model\.archs\.cross\.rnak'; nearest valid: rank"),
    ):
        cfg = tiny_config(override)
        with pytest.raises(ConfigError, match=message):
            for key, node in (("data", cfg["data"]), ("model.archs.cross", cfg["model"]["archs"]["cross"])):
                check_target(node, key)
