"""A model as the engine sees it: parts, what they read, and where gradients stop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Edge:
    """A part's input: the output of ``source``, through which gradient flows back or not.

    ``grad=False`` is the stop-gradient ``sg[z]`` of ERASE (arXiv 2608.18469, section 3).
    """

    source: str
    grad: bool = True


@dataclass(frozen=True)
class PartSpec:
    """A schedulable unit.

    Attributes:
        name: unique in its graph.
        inputs: what the part reads, besides the batch.
        has_loss: whether it computes a loss of its own.
        trainable: whether it owns parameters that an optimizer of its own updates. A part whose
            parameters are updated inside its backward (fused embedding optimizers) is not.
    """

    name: str
    inputs: tuple[Edge, ...] = ()
    has_loss: bool = False
    trainable: bool = True


@dataclass(frozen=True)
class PartGraph:
    """Parts in a topological order, which is also the order in which gradients are summed.

    Raises:
        ValueError: a name stands twice, or a part reads one that does not come before it.
    """

    parts: tuple[PartSpec, ...]

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for part in self.parts:
            unknown = [e.source for e in part.inputs if e.source not in seen]
            if unknown or part.name in seen:
                raise ValueError(f"part {part.name!r}: reads {unknown} before they exist, or its name stands twice")
            seen.add(part.name)

    @property
    def names(self) -> tuple[str, ...]:
        """Part names in topological order."""
        return tuple(p.name for p in self.parts)

    def __getitem__(self, name: str) -> PartSpec:
        return next(p for p in self.parts if p.name == name)

    @cached_property
    def _consumers(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {p.name: () for p in self.parts}
        # Later parts first: whether a consumer has a backward is known before its sources ask.
        for part in reversed(self.parts):
            if part.has_loss or found[part.name]:
                for source in dict.fromkeys(e.source for e in part.inputs if e.grad):
                    found[source] = (part.name, *found[source])
        return found

    def grad_consumers(self, name: str) -> tuple[str, ...]:
        """Parts that send gradient into ``name``, in model order; these must have run backward before it."""
        return self._consumers[name]

    def has_backward(self, name: str) -> bool:
        """Whether any gradient reaches the part: from a loss of its own or from a consumer."""
        return self[name].has_loss or bool(self._consumers[name])

    def sends_gradient(self, name: str) -> bool:
        """Whether the part's backward feeds another part's backward."""
        return any(e.grad for e in self[name].inputs)

    def backward_is_early(self, name: str) -> bool:
        """Whether the backward may start as soon as the part's own forward has ended."""
        return self[name].has_loss and not self.grad_consumers(name)
