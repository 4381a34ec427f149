"""NE while training equals exact NE over the rows in its window."""

from __future__ import annotations

import pytest
import torch

from recsys.metrics import RunningNE, ne


def batches(num: int, size: int = 8) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(2)
    made = []
    for _ in range(num):
        logits = 3 * torch.randn(size, generator=generator)
        labels = (torch.rand(size, generator=generator) < 0.4).float()
        made.append((logits, labels, torch.rand(size, generator=generator)))
    return made


def exact(parts: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> float | None:
    return ne(*(torch.cat(column).numpy() for column in zip(*parts, strict=True)))


@pytest.mark.parametrize(("window_rows", "counted"), [(None, 10), (1, 1), (8, 1), (9, 2), (24, 3), (1000, 10)])
def test_window(window_rows: int | None, counted: int) -> None:
    parts = batches(10)
    running = RunningNE(window_rows)
    for part in parts:
        running.update(*part)
    assert running.compute() == pytest.approx(exact(parts[-counted:]), rel=1e-12)
    assert running.compute() == running.compute()


def test_undefined() -> None:
    running = RunningNE()
    assert running.compute() is None
    running.update(torch.zeros(2), torch.zeros(2), torch.ones(2))
    assert running.compute() is None
    running.update(torch.zeros(2), torch.ones(2), torch.zeros(2))
    assert running.compute() is None
    running.update(torch.zeros(2), torch.ones(2), torch.ones(2))
    assert running.compute() == pytest.approx(1.0)
    running.reset()
    assert running.compute() is None


def test_padding_and_extreme_logits() -> None:
    running = RunningNE()
    labels, weights = torch.tensor([1.0, 0.0, 1.0]), torch.tensor([1.0, 1.0, 0.0])
    running.update(torch.tensor([100.0, 100.0, float("nan")], requires_grad=True), labels, weights)
    assert running.compute() == pytest.approx(ne([100.0, 100.0], [1, 0]))


def test_no_read_of_a_value_in_update() -> None:
    """On the meta device a tensor has no value: any read in ``update`` would raise."""
    running = RunningNE(window_rows=4)
    meta = torch.zeros(2, device="meta")
    for _ in range(5):
        running.update(meta, meta, meta)
    cumulative = RunningNE()
    for _ in range(2):
        cumulative.update(meta, meta, meta)
