"""What every sub-architecture in configs/arch promises; a new yaml is picked up by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

from recsys.archs.base import SubArch, TokenShape
from recsys.archs.dropout import bind_generator

CONFIGS = sorted((Path(__file__).parents[2] / "configs" / "arch").glob("*.yaml"))
SHAPES = [TokenShape(2, 4), TokenShape(27, 16)]
SHAPE = TokenShape(5, 8)

Build = Callable[..., SubArch]


@pytest.fixture(params=CONFIGS, ids=lambda path: path.stem)
def build(request: pytest.FixtureRequest) -> Iterator[Build]:
    """Build the arch of one yaml from a seed, as a keyed init does: global random state unchanged."""

    def make(shape: TokenShape = SHAPE, seed: int = 0, **fields: Any) -> SubArch:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            arch: SubArch = instantiate(OmegaConf.load(request.param))(shape, **fields)
        return arch

    yield make


def tokens(num_rows: int, shape: TokenShape = SHAPE) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(num_rows, shape.num_tokens, shape.dim, generator=generator)


def test_there_are_configs() -> None:
    assert {path.stem for path in CONFIGS} >= {"mlp", "cross", "dot", "wukong", "attention", "masknet"}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"T{s.num_tokens}D{s.dim}")
@pytest.mark.parametrize("num_rows", [1, 3])
def test_output_has_out_features(build: Build, shape: TokenShape, num_rows: int) -> None:
    arch = build(shape)
    assert isinstance(arch, SubArch)
    assert arch(tokens(num_rows, shape)).shape == (num_rows, arch.out_features)


def test_out_features_is_a_field(build: Build) -> None:
    arch = build(out_features=7)
    assert arch.out_features == 7
    assert arch(tokens(3)).shape == (3, 7)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"T{s.num_tokens}D{s.dim}")
def test_every_parameter_and_token_gets_a_gradient(build: Build, shape: TokenShape) -> None:
    arch = build(shape)
    x = tokens(64, shape).requires_grad_()
    arch(x).square().sum().backward()
    for name, parameter in arch.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name
    assert x.grad is not None
    assert x.grad.abs().sum(dim=(0, 2)).gt(0).all(), "a token is not read"


@pytest.mark.parametrize("training", [True, False])
def test_rows_are_independent(build: Build, training: bool) -> None:
    arch = build().train(training)
    x = tokens(8)
    expected = arch(x)
    others_broken = x.clone()
    others_broken[[0, 1, 2, 4, 5, 6, 7]] = float("nan")
    torch.testing.assert_close(arch(others_broken)[3], expected[3], rtol=0.0, atol=1e-6)
    order = torch.tensor([5, 2, 7, 0, 3, 6, 1, 4])
    torch.testing.assert_close(arch(x[order]), expected[order], rtol=0.0, atol=1e-6)


def test_input_is_untouched(build: Build) -> None:
    x = tokens(8)
    before = x.clone()
    leaf = x.requires_grad_()
    build()(leaf).sum().backward()
    assert torch.equal(x.detach(), before)


def test_seed_decides_the_parameters(build: Build) -> None:
    first, again, other = build().state_dict(), build().state_dict(), build(seed=1).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_dropout_draws_from_the_bound_generator_only(build: Build) -> None:
    arch = build(dropout=0.5)
    generator = torch.Generator()
    bind_generator(arch, generator)
    x = tokens(8)
    global_state = torch.get_rng_state()
    outputs = [arch(x) for _ in map(generator.manual_seed, [3, 3, 4])]
    assert torch.equal(torch.get_rng_state(), global_state)
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    assert torch.equal(arch.eval()(x), arch(x))


def test_bf16_autocast(build: Build) -> None:
    arch = build()
    x = tokens(32).requires_grad_()
    expected = arch(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = arch(x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected, rtol=0.1, atol=0.1)
    out.float().square().sum().backward()
    for name, parameter in arch.named_parameters():
        assert parameter.grad is not None and parameter.grad.dtype == torch.float32, name
        assert parameter.grad.isfinite().all(), name


def test_traces_without_a_graph_break_or_a_host_read(build: Build) -> None:
    arch = build()
    x = tokens(4)
    traced = torch.compile(arch, backend="eager", fullgraph=True)
    torch.testing.assert_close(traced(x), arch(x))
