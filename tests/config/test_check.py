"""Values that no run could use."""

from __future__ import annotations

from typing import Any

import pytest

from recsys.config.check import check_config
from recsys.errors import ConfigError
from tests.reference.tiny_run import changed, tiny_config


@pytest.fixture(scope="module")
def base() -> dict[str, Any]:
    return tiny_config("+experiment=erase6")


def test_the_default_is_fine(base: dict[str, Any]) -> None:
    check_config(base)
    check_config(changed(base, "metrics.window_rows", None))
    check_config(changed(base, "schedule.lanes", {"cross": 1, "dot": 1}))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("trainer.epochs", 0, r"^trainer\.epochs=0: must be at least 1$"),
        ("trainer.epochs", -2, r"^trainer\.epochs=-2: must be at least 1$"),
        ("trainer.batch_size", 0, r"^trainer\.batch_size=0: "),
        ("trainer.evals_per_epoch", 0, r"^trainer\.evals_per_epoch=0: "),
        ("trainer.timing.rounds", 0, r"^trainer\.timing\.rounds=0: "),
        ("trainer.timing.steps", -1, r"^trainer\.timing\.steps=-1: "),
        ("trainer.patience", -1, r"^trainer\.patience=-1: must be at least 0"),
        ("metrics.window_rows", 0, r"^metrics\.window_rows=0: .*or null"),
        ("seed", -1, r"^seed=-1: must be in \[0, "),
        ("seed", 2**63, r"^seed=9223372036854775808: must be in \[0, "),
        ("model.over_arch.dropout", 1.0, r"^model\.over_arch\.dropout=1\.0: must be in \[0, 1\)"),
        ("model.over_arch.hidden", [8, 0], r"^model\.over_arch\.hidden=\[8, 0\]: must be widths of at least 1"),
        ("model.local_head.hidden", [-8], r"^model\.local_head\.hidden=\[-8\]: "),
        ("model.detach", ["crosss"], r"^model\.detach: there is no part 'crosss'"),
        ("model.archs.cross.rnak", 3, r"no config key 'model\.archs\.cross\.rnak'; nearest valid: rank"),
        ("model.archs.cross", 3, r"^model\.archs\.cross: choose an option of a group"),
        ("model.interaction.rnak", 3, r"no config key 'model\.interaction\.rnak'; nearest valid: rank"),
        ("data.foo", 3, r"no config key 'data\.foo'"),
        ("schedule.lanes", {"crosss": 1}, r"^schedule\.lanes\.crosss: there is no part 'crosss'; valid are mlp, cross"),
        ("schedule.lanes", {"cross": 0}, r"^schedule\.lanes\.cross=0: must be at least 1"),
        (
            "schedule",
            {"name": "sequential", "lanes": {"cross": 1}},
            r"^schedule\.lanes: schedule\.name=sequential has no",
        ),
        ("sparse.embedding_dim", 6, r"^sparse\.embedding_dim=6: use a multiple of 4"),
        ("sparse.optimizer", "ada", r"^sparse\.optimizer=ada: valid are adagrad, adam, rowwise_adagrad, sgd"),
        ("sparse.lr", 0.0, r"^sparse\.lr=0\.0: must be above 0"),
        ("sparse.init_scale", -1.0, r"^sparse\.eps=1e-08 and sparse\.init_scale=-1\.0: must be at least 0"),
        ("trainer.blend", "half", r"^trainer\.blend=half: valid are none, mean, fitted"),
        ("model.dense_arch.tokens", 0, r"^model\.dense_arch\.tokens=0: must be at least 1"),
        ("model.dense_arch.bins", -1, r"^model\.dense_arch\.bins=-1: must be at least 0"),
        ("sparse.l2", -1.0, r"^sparse\.l2=-1\.0: must be at least 0 and finite"),
        ("sparse.first_order_l2", 0.1, r"^sparse\.first_order_l2=0\.1: needs sparse\.first_order=true"),
        ("optim.name", "rmsprop", r"^optim\.name=rmsprop: valid are adam, adamw, adagrad, sgd"),
        ("optim.lr", float("nan"), r"^optim\.lr=nan: must be above 0"),
        ("optim.weight_decay", -0.1, r"^optim\.weight_decay=-0\.1: must be at least 0"),
        ("optim.beta2", 1.0, r"^optim\.beta2=1\.0: must be in \[0, 1\)"),
        ("optim.lr_schedule.decay", "step", r"^optim\.lr_schedule\.decay=step: valid are constant, linear, cosine"),
        ("optim.lr_schedule.min_factor", 2.0, r"^optim\.lr_schedule: .*min_factor in \[0, 1\]"),
    ],
)
def test_a_value_out_of_range_names_its_key(key: str, value: object, message: str, base: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        check_config(changed(base, key, value))
