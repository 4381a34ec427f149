"""Every experiment x schedule builds and steps, and everything can be swapped from the command line."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from recsys.archs.cross import CrossArch
from recsys.archs.dot import DotArch
from recsys.config.wire import build_autocast, build_data, build_device, build_model, build_stepper
from recsys.data.source import DataSplits
from recsys.errors import ConfigError
from recsys.models.parts import InteractionPart, SubArchPart
from recsys.models.recommender import OVER, SPARSE, Recommender
from recsys.schedule.op import Kind
from recsys.schedule.step import StepResult
from recsys.train.stepper import Stepper
from tests.reference.tiny_run import tiny_config

CONFIGS = Path(__file__).parents[2] / "configs"
# Chains have no recommender; tests/chains trains them.
EXPERIMENTS = sorted(p.stem for p in (CONFIGS / "experiment").glob("*.yaml") if "override /chain" not in p.read_text())
SCHEDULES = sorted(p.stem for p in (CONFIGS / "schedule").glob("*.yaml"))
SIX = ("mlp", "cross", "dot", "wukong", "attention", "masknet")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def data() -> DataSplits:
    return build_data(tiny_config("trainer.batch_size=16"))


def build(cfg: dict[str, Any], data: DataSplits) -> tuple[Recommender, Stepper]:
    model = build_model(cfg, data.spec, CPU).train()
    with warnings.catch_warnings():
        # Schedules with lanes say that a CPU has none.
        warnings.filterwarnings("ignore", "schedule ", UserWarning)
        return model, build_stepper(cfg, model, CPU, total_steps=2)


def step(stepper: Stepper, data: DataSplits, steps: int = 2) -> list[StepResult]:
    data.train.load_state_dict({"epoch": 0, "batch": 0})
    return [stepper(batch) for batch, _ in zip(data.train, range(steps), strict=False)]


def test_there_are_experiments_and_schedules() -> None:
    assert {"erase6", "baseline6", "heads6", "dlrm", "dcnv2"} <= set(EXPERIMENTS)
    assert {"sequential", "erase"} <= set(SCHEDULES)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_experiment_and_schedule_trains_every_part(experiment: str, schedule: str, data: DataSplits) -> None:
    narrow = ("sparse.embedding_dim=16", "model.over_arch.hidden=[16]", "model.dense_arch.hidden=[16]")
    cfg = tiny_config(f"+experiment={experiment}", f"schedule={schedule}", "optim.lr=0.01", *narrow)
    model, stepper = build(cfg, data)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    results = step(stepper, data)
    assert len(results) == 2
    for result in results:
        assert set(result.losses) == {OVER, *model.heads}
        assert all(loss.isfinite() for loss in result.losses.values())
        assert all(logits.shape == (16,) for logits in result.logits.values())
    untrained = [k for k, v in model.state_dict().items() if torch.equal(v, before[k])]
    assert untrained == []


def early_backwards(stepper: Stepper) -> list[str]:
    """Parts whose backward comes before the last forward."""
    ops = stepper.program.ops
    last_forward = max(i for i, op in enumerate(ops) if op.kind is Kind.FORWARD)
    return [op.part for op in ops[:last_forward] if op.kind is Kind.BACKWARD]


@pytest.mark.parametrize(
    ("override", "detached"),
    [
        ("detach=[]", ()),
        ("detach=all", SIX),
        ("detach=cross", ("cross",)),
        ("detach=[cross,attention]", ("cross", "attention")),
    ],
)
def test_detach(override: str, detached: tuple[str, ...], data: DataSplits) -> None:
    model, stepper = build(tiny_config("+experiment=erase6", f"model.{override}"), data)
    assert model.heads == detached
    assert early_backwards(stepper) == list(detached)
    (result,) = step(stepper, data, 1)
    assert set(result.losses) == {OVER, *detached}


def test_a_sub_architecture_can_be_left_out(data: DataSplits) -> None:
    model, stepper = build(tiny_config("+experiment=erase6", "~model.archs.attention"), data)
    assert model.heads == tuple(n for n in SIX if n != "attention")
    step(stepper, data, 1)


def test_a_sub_architecture_can_be_doubled_with_numbers_of_its_own(data: DataSplits) -> None:
    cfg = tiny_config("+experiment=erase6", "+arch@model.archs.cross2=cross", "model.archs.cross2.num_layers=1")
    model, stepper = build(cfg, data)
    assert model.heads == (*SIX, "cross2")
    one, two = model.parts["cross"], model.parts["cross2"]
    assert isinstance(one, SubArchPart) and isinstance(two, SubArchPart)
    assert isinstance(one.arch, CrossArch) and isinstance(two.arch, CrossArch)
    assert len(list(two.arch.parameters())) < len(list(one.arch.parameters()))
    name, ours = next(iter(two.arch.named_parameters()))
    assert not torch.equal(ours, dict(one.arch.named_parameters())[name])
    assert set(step(stepper, data, 1)[0].losses) == {OVER, *SIX, "cross2"}


def test_the_interaction_arch_can_be_swapped(data: DataSplits) -> None:
    for override, kind in (("arch@model.interaction=dot", DotArch), ("arch@model.interaction=cross", CrossArch)):
        model, stepper = build(tiny_config("+experiment=erase6", override), data)
        part = model.parts["interaction"]
        assert isinstance(part, InteractionPart) and isinstance(part.arch, kind)
        step(stepper, data, 1)


def test_dimensions_heads_and_loss_weights_come_from_the_configuration(data: DataSplits) -> None:
    cfg = tiny_config(
        "model.local_losses=[cross]",
        "+model.loss_weights.cross=0.25",
        "model.local_head.hidden=[5]",
        "model.archs.cross.rank=3",
        "sparse.embedding_dim=8",
    )
    model, _ = build(cfg, data)
    part = model.parts["cross"]
    assert isinstance(part, SubArchPart) and part.head is not None and part.loss_weight == 0.25
    assert part.head.mlp[0].out_features == 5
    assert any(3 in p.shape for p in part.arch.parameters())
    assert model.sparse_arch.dim == 8


def test_seed_decides_start_and_tables(data: DataSplits) -> None:
    states = [build(tiny_config(f"seed={seed}"), data)[0].state_dict() for seed in (0, 0, 1)]
    assert all(torch.equal(v, states[1][k]) for k, v in states[0].items())
    table = next(k for k in states[0] if k.startswith(f"parts.{SPARSE}"))
    assert not torch.equal(states[0][table], states[2][table])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("schedule.name=eras", r"schedule\.name=eras: .*erase"),
        ("model.archs.cross.rank=0", r"model\.archs\.cross: .*rank must be a whole number of at least 1, got 0"),
        ("model.archs.cross.dropout=1.5", r"model\.archs\.cross: dropout must be a number in \[0, 1\), got 1\.5"),
        ("model.archs.cross.dropout=some", r"model\.archs\.cross: dropout must be a number in \[0, 1\), got 'some'"),
        ("model.interaction.rank=0", r"model\.interaction: .*rank"),
        ("sparse.embedding_dim=6", r"sparse\.embedding_dim=6: use a multiple of 4"),
        ("optim.name=rmsprop", r"optim\.name=rmsprop: valid are adam, adamw"),
    ],
)
def test_a_value_that_cannot_be_built_names_its_key(override: str, message: str, data: DataSplits) -> None:
    with pytest.raises(ConfigError, match=message):
        build(tiny_config(override), data)


def test_device() -> None:
    assert build_device("cpu") == CPU
    with pytest.raises(ConfigError, match=r"trainer\.device=gpu: valid are auto, cpu, cuda"):
        build_device("gpu")
    if not torch.cuda.is_available():
        assert build_device("auto") == CPU
        with pytest.raises(ConfigError, match=r"trainer\.device=cuda: torch sees no GPU; see `make doctor`"):
            build_device("cuda")


def test_precision(data: DataSplits) -> None:
    cfg = tiny_config("+experiment=erase6", "trainer.precision=bf16")
    assert build_autocast(tiny_config(), CPU) is None
    model, stepper = build(cfg, data)
    (result,) = step(stepper, data, 1)
    assert all(loss.dtype == torch.float32 for loss in result.losses.values())
    assert next(iter(model.parameters())).dtype == torch.float32
    with pytest.raises(ConfigError, match=r"trainer\.precision=fp16: valid are fp32, tf32, bf16"):
        build_autocast(tiny_config("trainer.precision=fp16"), CPU)
    with pytest.raises(ConfigError, match=r"trainer\.precision=tf32: only a GPU has it"):
        build_autocast(tiny_config("trainer.precision=tf32"), CPU)
