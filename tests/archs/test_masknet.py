from __future__ import annotations

import torch
from torch.nn import functional

from recsys.archs.base import TokenShape
from recsys.archs.masknet import MaskNetArch


def arch_of() -> MaskNetArch:
    torch.manual_seed(0)
    arch = MaskNetArch(TokenShape(3, 2), num_blocks=2, mask_hidden=4, block_features=5).double()
    for parameter in arch.parameters():
        torch.nn.init.normal_(parameter)
    return arch


def naive_mask(arch: MaskNetArch, block: int, v: torch.Tensor) -> torch.Tensor:
    """``W2 ReLU(W1 V + b1) + b2`` of one block and one row, element by element."""
    w_1, b_1 = arch.mask_in.weight[block * 4 : block * 4 + 4], arch.mask_in.bias[block * 4 : block * 4 + 4]
    w_2, b_2 = arch.mask_out.weight[block], arch.mask_out.bias[block, 0]
    hidden = [max(0.0, b_1[h].item() + sum(w_1[h, i].item() * v[i].item() for i in range(6))) for h in range(4)]
    mask = [b_2[i].item() + sum(hidden[h] * w_2[h, i].item() for h in range(4)) for i in range(6)]
    return torch.tensor(mask, dtype=torch.float64)


def naive_block(arch: MaskNetArch, block: int, x_TD: torch.Tensor) -> torch.Tensor:
    normed = functional.layer_norm(x_TD, (2,), arch.token_norm.weight, arch.token_norm.bias)
    masked = naive_mask(arch, block, x_TD.flatten()) * normed.flatten()
    hidden = masked @ arch.block.weight[block] + arch.block.bias[block, 0]
    scale, shift = arch.block_scale[block, 0], arch.block_shift[block, 0]
    return functional.layer_norm(hidden, (5,), scale, shift).clamp(min=0)


def test_masks_follow_the_paper() -> None:
    arch, tokens_BTD = arch_of(), torch.randn(3, 3, 2, dtype=torch.float64)
    masks = arch.masks(tokens_BTD)
    for block in range(2):
        expected = torch.stack([naive_mask(arch, block, x.flatten()) for x in tokens_BTD])
        torch.testing.assert_close(masks[block], expected)


def test_blocks_are_concatenated_into_the_mlp() -> None:
    arch, x_TD = arch_of(), torch.randn(3, 2, dtype=torch.float64)
    blocks = torch.cat([naive_block(arch, block, x_TD) for block in range(2)])
    torch.testing.assert_close(arch(x_TD[None])[0], arch.top(blocks))
