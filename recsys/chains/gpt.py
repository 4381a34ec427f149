"""A small GPT over made-up sentences: a few transformer blocks a stage."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from recsys.chains.base import Chain, ChainBatch, ChainData, ChainModel, check_at_least
from recsys.chains.sentences import ALPHABET, draw_windows
from recsys.errors import ConfigError
from recsys.schedule.step import PartOutput
from recsys.seeding import keyed_init


class Block(nn.Module):
    """Causal self-attention and an MLP, each over a layer norm and added to its input (Radford et al., 2019)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x_BTW: torch.Tensor) -> torch.Tensor:
        """``(B, T, W)`` to the same."""
        rows, context, width = x_BTW.shape
        qkv = self.qkv(self.norm1(x_BTW)).view(rows, context, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind()
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_BTW = x_BTW + self.out(mixed.transpose(1, 2).reshape(rows, context, width))
        return x_BTW + self.down(functional.gelu(self.up(self.norm2(x_BTW))))


class BlocksStage(nn.Module):
    """Blocks: ``(B, T, W)``. The first stage also embeds characters and positions."""

    def __init__(self, width: int, heads: int, blocks: int, *, classes: int, context: int, first: bool) -> None:
        super().__init__()
        self.characters = nn.Embedding(classes, width) if first else None
        self.positions = nn.Parameter(0.02 * torch.randn(context, width)) if first else None
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))

    def forward(self, batch: ChainBatch, *before: torch.Tensor) -> PartOutput:
        """The blocks over the stage before it, or over the characters."""
        return self.compute(before[0] if before else batch.inputs)

    def compute(self, x: torch.Tensor) -> PartOutput:
        """The stage on tensors alone, the form that ``torch.compile`` takes."""
        if self.characters is not None and self.positions is not None:
            x = self.characters(x) + self.positions
        return PartOutput(self.blocks(x))


class CharacterHead(nn.Module):
    """Layer norm and a linear head with its loss, the mean cross-entropy of the next character in nats."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.linear = nn.Linear(width, classes)

    def forward(self, batch: ChainBatch, x_BTW: torch.Tensor) -> PartOutput:
        """Logits ``(B, T, classes)`` and loss."""
        return self.compute(x_BTW, batch.targets)

    def compute(self, x_BTW: torch.Tensor, targets_BT: torch.Tensor) -> PartOutput:
        """The head on tensors alone, the form that ``torch.compile`` takes."""
        logits = self.linear(self.norm(x_BTW)).float()
        return PartOutput(logits, functional.cross_entropy(logits.flatten(0, 1), targets_BT.flatten()), logits)


class GptChain(Chain):
    """``stages`` stages of ``blocks`` transformer blocks.

    Args:
        stages: number of stages.
        blocks: blocks of a stage.
        width: of the residual stream.
        heads: attention heads of a block; they divide ``width``.
        context: characters of a window.
        cut_every, num_lanes, train_rows, test_rows: see :class:`Chain`; a row is a window.
    """

    def __init__(
        self,
        *,
        stages: int,
        blocks: int,
        width: int,
        heads: int,
        context: int,
        cut_every: int,
        num_lanes: int,
        train_rows: int,
        test_rows: int,
    ) -> None:
        super().__init__(cut_every=cut_every, num_lanes=num_lanes, train_rows=train_rows, test_rows=test_rows)
        check_at_least(1, stages=stages, blocks=blocks, width=width, heads=heads, context=context)
        if width % heads:
            raise ConfigError(f"chain.heads={heads}: does not divide chain.width={width}")
        self.stages, self.blocks, self.width, self.heads, self.context = stages, blocks, width, heads, context

    def make_data(self, seed: int) -> ChainData:
        """Windows of text."""
        train, test = (draw_windows(rows, self.context, seed + i) for i, rows in enumerate(
            (self.train_rows, self.test_rows)))  # fmt: skip
        return ChainData(train, test, len(ALPHABET))

    def build(self, data: ChainData, seed: int, *, cut: bool) -> ChainModel:
        """See :class:`Chain`."""
        stages, heads = [], []
        for i in range(self.stages):
            with keyed_init(seed, f"stage{i + 1}"):
                stages.append(BlocksStage(self.width, self.heads, self.blocks, classes=data.classes,
                                          context=self.context, first=i == 0))  # fmt: skip
            with keyed_init(seed, f"stage{i + 1}_head"):
                heads.append(CharacterHead(self.width, data.classes))
        return self.assemble(stages, heads, cut=cut)
