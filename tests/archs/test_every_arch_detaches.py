"""Every yaml in configs/arch works as a detached sub-architecture, under either schedule with the same numbers."""

from functools import partial

import pytest
import torch
from omegaconf import OmegaConf

from recsys.archs.cross import CrossArch
from recsys.config.cli import CONFIGS, compose
from recsys.config.target import build_factory
from recsys.models.dense_arch import DenseArch
from recsys.models.local_head import LocalHead
from recsys.models.recommender import Recommender
from recsys.schedule import builders
from recsys.schedule.executors.serial import SerialExecutor
from recsys.sparse.sparse_arch import SparseConfig
from tests.reference.toy import CPU, SPEC, cuts_for, make_batch, make_parts

ARCHS = sorted(p.stem for p in (CONFIGS / "arch").glob("*.yaml"))


def model_with(name: str) -> Recommender:
    node = OmegaConf.to_container(compose([f"+arch@model.archs.it={name}"]).model.archs.it)
    assert isinstance(node, dict)
    factory = build_factory({**node, "dropout": 0.1}, "model.archs.it")
    return Recommender(
        SPEC,
        SparseConfig(embedding_dim=8),
        {"it": factory},
        partial(CrossArch, out_features=4),
        LocalHead,
        cuts_for(("it",), ("it",)),
        dense=partial(DenseArch, hidden=[8]),
        over_hidden=[8],
        seed=1,
        device=CPU,
    ).train()


@pytest.mark.parametrize("name", ARCHS)
def test_erase_equals_sequential(name: str) -> None:
    states = []
    for order in (builders.sequential, builders.erase):
        model = model_with(name)
        parts, program = make_parts(model), order(model.graph)
        for step in range(2):
            SerialExecutor().run(program, parts, make_batch(seed=step))
        states.append(model.state_dict())
    start = model_with(name).state_dict()
    for key, value in states[0].items():
        assert torch.equal(value, states[1][key]), key
        assert not torch.equal(value, start[key]), f"{key} did not train"
