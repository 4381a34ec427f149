"""From the config group ``schedule`` to a program and what runs it."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import torch

from recsys.errors import ConfigError
from recsys.schedule import builders
from recsys.schedule.executors.base import Executor
from recsys.schedule.executors.cuda_graph import GraphExecutor, StaticInputs
from recsys.schedule.executors.serial import SerialExecutor
from recsys.schedule.executors.streams import StreamExecutor
from recsys.schedule.executors.threads import ThreadedExecutor
from recsys.schedule.executors.trailing import TrailingExecutor
from recsys.schedule.graph import PartGraph
from recsys.schedule.op import Kind
from recsys.schedule.program import Program

# name -> (order, uses lanes, executor). ``erase`` is the best that the device has.
_LADDER = {
    "sequential": ("sequential", False, "serial"),
    "sequential_graph": ("sequential", False, "graph"),
    "branch": ("sequential", True, "streams"),
    "branch_graph": ("sequential", True, "graph"),
    "erase": ("erase", True, "best"),
    "erase_blocking": ("erase", True, "streams"),
    "erase_threads": ("erase", True, "threads"),
    "erase_graph": ("erase", True, "graph"),
}
NAMES = tuple(_LADDER)


@dataclass(frozen=True)
class ScheduleConfig:
    """Order, lanes and executor of a step (config group ``schedule``).

    Attributes:
        name: a rung of the ladder, one of ``NAMES``.
        early_update: update a part right after its backward; otherwise all parts at once at the end.
        lanes: part -> lane >= 1, for parts that shall share one; others get a lane of their own.
        update_lane: with ``early_update``, whether main-lane parts are updated on a lane beside the main
            one, so that the main lane's backward need not wait for it.
        priorities: whether streams have priorities: main lane first, updates last.
        urgent: parts whose lanes come right after the main lane, most urgent first: those whose forward the main lane
            waits for longest.
        trailing: whether detached parts that own no embedding gradient run their backward and update on into
            the next step (of graphs).
        gemm_sms: multiprocessors that the matrix products of a captured step are planned for, so that lanes
            can share the device; 0 for all of them.
        compile: whether parts are compiled; read by the caller, see ``recsys.schedule.compile``.
        strict: whether running with less than asked for is an error instead of a warning.
        warmup_steps: eager steps before a capture.
        reduce: on several processes, when gradients of dense parts are summed: ``early``, each part's as soon as its
            backward is done, or ``joint``, all in one piece at the end.
    """

    name: str = "sequential"
    early_update: bool = False
    lanes: Mapping[str, int] = field(default_factory=dict)
    update_lane: bool = True
    priorities: bool = True
    urgent: Sequence[str] = ()
    trailing: bool = False
    gemm_sms: int = 0
    compile: bool = False
    strict: bool = False
    warmup_steps: int = 3
    reduce: str = "early"

    def __post_init__(self) -> None:
        if self.name not in _LADDER:
            near = difflib.get_close_matches(str(self.name), NAMES, n=2)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise ConfigError(f"schedule.name={self.name}: {hint}Valid: {', '.join(NAMES)}")
        if self.reduce not in get_args(builders.Reduce):
            raise ConfigError(f"schedule.reduce={self.reduce}: valid are {', '.join(get_args(builders.Reduce))}")
        if self.warmup_steps < 1:
            raise ConfigError(
                f"schedule.warmup_steps={self.warmup_steps}: optimizers make their state in an eager step"
            )
        if bad := sorted(p for p, lane in self.lanes.items() if lane < 1):
            raise ConfigError(f"schedule.lanes.{bad[0]}={self.lanes[bad[0]]}: lane 0 is the main lane; use 1 or more")

    @property
    def captures(self) -> bool:
        """Whether this schedule is a CUDA graph on a GPU."""
        return _LADDER[self.name][2] in ("graph", "best")


def build_program(
    config: ScheduleConfig, graph: PartGraph, main: frozenset[str], *, reduces: bool = False, updates: bool = True
) -> Program:
    """The program that ``config`` asks for.

    Args:
        config: the schedule.
        graph: the parts.
        main: parts that stay on lane 0.
        reduces: whether gradients are summed over ranks.
        updates: False for a pass whose gradients a later one takes up.

    Raises:
        ConfigError: ``lanes`` names a part that the graph does not have, or ranks cannot reduce in this order.
    """
    for key, parts in (("lanes", config.lanes), ("urgent", config.urgent)):
        if unknown := sorted(set(parts) - set(graph.names)):
            raise ConfigError(f"schedule.{key}: there is no part {unknown[0]!r}; valid are {', '.join(graph.names)}")
    order, has_lanes, _ = _LADDER[config.name]
    make = builders.erase if order == "erase" else builders.sequential
    if reduces:
        _check_reduces(config)
    options: dict[str, Any] = {"early_update": config.early_update, "updates": updates}
    options["reduce"] = config.reduce if reduces else None
    if not has_lanes:
        return make(graph, **options)
    lanes = builders.lane_per_part(graph, main, config.lanes)
    return make(graph, lanes, update_lanes=_update_lanes(config, graph, lanes), **options)


def _check_reduces(config: ScheduleConfig) -> None:
    if config.reduce == "joint" and config.early_update:
        raise ConfigError(
            "schedule.reduce=joint: it comes after the last backward, but schedule.early_update=true updates parts "
            "before; add schedule.early_update=false"
        )
    if config.reduce == "early" and _LADDER[config.name][2] == "threads":
        raise ConfigError(
            f"schedule.name={config.name}: lanes of their own threads reduce in another order on every rank, which "
            "would hang; add schedule.reduce=joint, or use schedule=erase_blocking"
        )
    if config.trailing:
        raise ConfigError(
            "schedule.trailing=true: a trailing part's reduction would meet the next step's; leave it out"
        )


def _update_lanes(config: ScheduleConfig, graph: PartGraph, lanes: Mapping[str, int]) -> dict[str, int]:
    if not config.early_update:
        # All on the main lane, one after the other: executors make one fused update of these.
        return dict.fromkeys(graph.names, 0)
    if not config.update_lane:
        return {}
    beside = 1 + max(lanes.values(), default=0)
    return {name: beside for name in graph.names if lanes.get(name, 0) == 0}


def build_executor(
    config: ScheduleConfig,
    program: Program,
    device: torch.device,
    inputs: StaticInputs | None = None,
    *,
    outside: frozenset[str] = frozenset(),
    uncapturable: str | None = None,
) -> Executor:
    """What runs ``program`` on ``device``.

    Args:
        config: the schedule.
        program: of ``build_program``.
        device: where the parts live.
        inputs: how batches reach static addresses; needed by schedules that capture.
        outside: parts that a capture leaves out; see :class:`GraphExecutor`.
        uncapturable: why a capture would be wrong, or None.

    Raises:
        ConfigError: with ``strict``, where the device or the optimizer cannot give what ``name`` says.
    """
    kind = _LADDER[config.name][2]
    if device.type != "cuda":
        if kind not in ("serial", "best"):
            _settle_for_less(config, "parts run one after the other", "lanes and graphs need a GPU")
        return SerialExecutor()
    priorities = _priorities(config, program) if config.priorities else {}
    if kind in ("graph", "best") and uncapturable is not None:
        _settle_for_less(config, "steps run eagerly", uncapturable)
        kind = "streams"
    if kind in ("graph", "best"):
        assert inputs is not None, "a captured schedule needs static inputs"
        return _graph_executor(config, device, inputs, priorities, outside)
    if kind == "threads":
        return ThreadedExecutor(device, priorities)
    # One lane: streams without a fork, and updates in one kernel.
    return StreamExecutor(device, priorities)


def _graph_executor(
    config: ScheduleConfig,
    device: torch.device,
    inputs: StaticInputs,
    priorities: Mapping[int, int],
    outside: frozenset[str],
) -> Executor:
    sms = config.gemm_sms or None
    if not config.trailing:
        return GraphExecutor(
            device,
            inputs,
            priorities,
            outside=outside,
            warmup_steps=config.warmup_steps,
            strict=config.strict,
            gemm_sms=sms,
        )
    if outside:
        raise ConfigError(
            "schedule.trailing=true: needs one id a feature and row, and a constant learning rate of tables"
        )
    return TrailingExecutor(
        device, inputs, priorities, warmup_steps=config.warmup_steps, strict=config.strict, gemm_sms=sms
    )


def _settle_for_less(config: ScheduleConfig, what: str, why: str) -> None:
    if config.strict:
        raise ConfigError(f"schedule.name={config.name} with schedule.strict=true: {why}")
    warnings.warn(f"schedule {config.name}: {what}, because {why}", stacklevel=3)


def _priorities(config: ScheduleConfig, program: Program) -> dict[int, int]:
    """Main lane first, then urgent lanes, other lanes, and lanes of updates alone; lower is more urgent."""
    works = {op.lane for op in program.ops if op.kind in (Kind.FORWARD, Kind.BACKWARD)}
    ranks = {lane: -1 if lane in works else 0 for lane in range(program.num_lanes)}
    # CUDA knows six priorities, 0 to -5, so the later of many urgent parts share one.
    for place, part in reversed(list(enumerate(config.urgent))):
        ranks |= {op.lane: min(-4 + place, -2) for op in program.ops if op.kind is Kind.FORWARD and op.part == part}
    return ranks | {0: -5}
