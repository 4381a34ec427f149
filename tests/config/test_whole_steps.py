"""Clipping, accumulation and sharding: what goes together, and equal numbers where it does."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from recsys.config.check import check_config
from recsys.config.wire import build_data, build_model, build_stepper
from recsys.errors import ConfigError
from tests.reference.tiny_run import tiny_config

CPU = torch.device("cpu")
FEW = ("+experiment=erase6", *(f"~model.archs.{name}" for name in ("mlp", "wukong", "attention", "masknet")))
EXACT = ("sharding=data_parallel", "model.over_arch.dropout=0", "optim=sgd", "sparse.optimizer=sgd")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("trainer.accumulate_steps=2",), "trainer.accumulate_steps=2: tables with a fused optimizer"),
        (
            ("sharding=data_parallel", "+sharding.tables.C1=row_wise", "trainer.accumulate_steps=2"),
            "add sharding=data_parallel",
        ),
        (("optim.clip_norm=1.0",), r"optim.clip_norm=1.0: the global norm is known after the last backward"),
        (("optim.clip_norm=0",), r"optim.clip_norm=0.0: must be above 0"),
        (("sharding.default=row_wize",), "did you mean row_wise"),
        (("sharding.kernel=hbm",), "valid are fused, uvm_caching"),
        (("trainer.timeout_s=0",), "trainer.timeout_s=0.0: must be above 0"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_config(tiny_config(*FEW, *overrides))


def test_a_cache_on_the_gpu_needs_sharded_tables() -> None:
    cfg = tiny_config(*FEW, "sharding=uvm_caching")
    with pytest.raises(ConfigError, match="use torchrun --nproc_per_node 1"):
        build_model(cfg, build_data(cfg).spec, CPU)


@pytest.mark.parametrize("schedule", ["sequential", "erase"])
@pytest.mark.parametrize("extra", [(), ("optim.clip_norm=0.05", "schedule.early_update=false")])
def test_accumulation_over_slices_changes_no_number(schedule: str, extra: tuple[str, ...]) -> None:
    ends = []
    for passes in (1, 3):
        cfg = tiny_config(*FEW, *EXACT, f"schedule={schedule}", f"trainer.accumulate_steps={passes}", *extra)
        check_config(cfg)
        data = build_data(cfg)
        model = build_model(cfg, data.spec, CPU).train()
        stepper = build_stepper(cfg, model, CPU, 3)
        results = [stepper(batch) for batch in islice(data.train, 3)]
        ends.append(([r.losses["over"] for r in results], results[-1].logits["cross"], model.state_dict()))
    torch.testing.assert_close(ends[1][0], ends[0][0], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ends[1][1], ends[0][1], rtol=1e-5, atol=1e-6)
    for name, value in ends[0][2].items():
        torch.testing.assert_close(ends[1][2][name], value, rtol=1e-5, atol=1e-7, msg=name)


def test_bf16_accumulates_and_clips() -> None:
    cfg = tiny_config(*FEW, *EXACT, "schedule=sequential", "trainer.precision=bf16", "optim.clip_norm=0.05")
    cfg["trainer"]["accumulate_steps"] = 2
    data = build_data(cfg)
    model = build_model(cfg, data.spec, CPU).train()
    stepper = build_stepper(cfg, model, CPU, 3)
    assert all(stepper(batch).losses["over"].isfinite() for batch in data.train)
