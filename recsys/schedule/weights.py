"""Copies of matrix weights in the compute precision, kept from step to step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import nn


class CastWeights:
    """Copies of every parameter that autocast would cast in each forward.

    The copies are leaves: their gradients come in the low precision, as autocast's own do before they
    are cast back. Whoever updates the parameters updates the copies in the same breath, which takes the
    casts of weights and of their gradients out of forward and backward. Numbers are those of autocast.

    A parameter is copied if it belongs to an ``nn.Linear``, or to a module that names it in
    ``matmul_parameters``.

    Args:
        modules: part name -> module.
        dtype: the low precision.
    """

    def __init__(self, modules: Mapping[str, nn.Module], dtype: torch.dtype) -> None:
        self.by_part: dict[str, dict[str, torch.Tensor]] = {}
        self._copies: dict[nn.Parameter, torch.Tensor] = {}
        for part, module in modules.items():
            mine = self.by_part[part] = {}
            for prefix, child in module.named_modules():
                names = ("weight", "bias") if isinstance(child, nn.Linear) else getattr(child, "matmul_parameters", ())
                for name in names:
                    parameter = getattr(child, name)
                    if isinstance(parameter, nn.Parameter):
                        # Parts that share a parameter share its copy.
                        if parameter not in self._copies:
                            self._copies[parameter] = parameter.detach().to(dtype).requires_grad_()
                        copy = self._copies[parameter]
                        mine[f"{prefix}.{name}".lstrip(".")] = copy
        self._versions = self._read_versions()

    def of(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """The copy of ``parameter``, or None."""
        assert isinstance(parameter, nn.Parameter)
        return self._copies.get(parameter)

    def copies(self) -> Iterator[torch.Tensor]:
        """Every copy."""
        yield from self._copies.values()

    def refresh(self) -> None:
        """Copy again if a parameter was written by anyone else, such as a checkpoint."""
        versions = self._read_versions()
        if versions != self._versions:
            with torch.no_grad():
                torch._foreach_copy_(list(self._copies.values()), list(self._copies))
            self._versions = versions

    def written(self) -> None:
        """Say that the copies hold what the parameters hold now."""
        self._versions = self._read_versions()

    def _read_versions(self) -> int:
        return sum(p._version for p in self._copies)
