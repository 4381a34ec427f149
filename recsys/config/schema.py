"""The configuration's keys, types and defaults-free schema. Light: importing it imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from omegaconf import MISSING


@dataclass
class DenseArchSchema:
    """Bottom MLP."""

    hidden: list[int] = MISSING
    tokens: int = MISSING
    bins: int = MISSING
    binned: list[str] = MISSING


@dataclass
class OverArchSchema:
    """Top MLP."""

    hidden: list[int] = MISSING
    dropout: float = MISSING


@dataclass
class LocalHeadSchema:
    """Head of a sub-architecture; no hidden layer makes it linear."""

    hidden: list[int] = MISSING


@dataclass
class ModelSchema:
    """Architecture and cuts; ``detach``, ``local_losses`` and ``embedding_grad_from`` are a word or a list."""

    interaction: dict[str, Any] = MISSING
    archs: dict[str, Any] = MISSING
    detach: Any = MISSING
    local_losses: Any = MISSING
    loss_weights: dict[str, float] = MISSING
    embedding_grad_from: Any = MISSING
    skip_tokens: bool = MISSING
    dense_arch: DenseArchSchema = field(default_factory=DenseArchSchema)
    over_arch: OverArchSchema = field(default_factory=OverArchSchema)
    local_head: LocalHeadSchema = field(default_factory=LocalHeadSchema)


@dataclass
class SparseSchema:
    """Embedding tables."""

    embedding_dim: int = MISSING
    optimizer: str = MISSING
    lr: float = MISSING
    eps: float = MISSING
    init_scale: float = MISSING
    l2: float = MISSING
    first_order: bool = MISSING
    first_order_l2: float = MISSING


@dataclass
class LrScheduleSchema:
    """Learning-rate schedule."""

    warmup_steps: int = MISSING
    decay: str = MISSING
    min_factor: float = MISSING
    decay_steps: int = MISSING


@dataclass
class OptimSchema:
    """Optimizer of the dense parts."""

    name: str = MISSING
    lr: float = MISSING
    weight_decay: float = MISSING
    eps: float = MISSING
    beta1: float = MISSING
    beta2: float = MISSING
    momentum: float = MISSING
    clip_norm: float | None = MISSING
    lr_schedule: LrScheduleSchema = field(default_factory=LrScheduleSchema)


@dataclass
class ScheduleSchema:
    """Order and lanes of a step's operations."""

    name: str = MISSING
    early_update: bool = MISSING
    lanes: dict[str, int] = MISSING
    update_lane: bool = MISSING
    priorities: bool = MISSING
    urgent: list[str] = MISSING
    trailing: bool = MISSING
    gemm_sms: int = MISSING
    compile: bool = MISSING
    strict: bool = MISSING
    warmup_steps: int = MISSING
    reduce: str = MISSING


@dataclass
class ShardingSchema:
    """Where embedding tables lie on several processes."""

    default: str = MISSING
    tables: dict[str, str] = MISSING
    kernel: str = MISSING
    cache_load_factor: float = MISSING
    memory_gib_per_rank: float | None = MISSING
    reserve: float = MISSING


@dataclass
class TimingSchema:
    """Interleaved timing of baseline and experiment."""

    rounds: int = MISSING
    steps: int = MISSING


@dataclass
class TrainerSchema:
    """The loop."""

    device: str = MISSING
    epochs: int = MISSING
    batch_size: int = MISSING
    accumulate_steps: int = MISSING
    processes: int = MISSING
    timeout_s: float = MISSING
    overlap_input: bool = MISSING
    precision: str = MISSING
    evals_per_epoch: int = MISSING
    keep_best: bool = MISSING
    blend: str = MISSING
    calibrate: bool = MISSING
    patience: int = MISSING
    on_nonfinite: str = MISSING
    max_skipped_steps: int = MISSING
    quiet: bool = MISSING
    cache_dir: str = MISSING
    reuse_baseline: bool = MISSING
    save_model: bool = MISSING
    reuse_jobs: bool = MISSING
    timing: TimingSchema = field(default_factory=TimingSchema)


@dataclass
class MetricsSchema:
    """NE while training."""

    window_rows: int | None = MISSING


@dataclass
class ChainTrainerSchema:
    """The loop of a chain."""

    device: str = MISSING
    epochs: int = MISSING
    batch_size: int = MISSING
    precision: str = MISSING
    quiet: bool = MISSING
    timing: TimingSchema = field(default_factory=TimingSchema)


@dataclass
class ChainRootSchema:
    """The whole configuration of an experiment that trains a chain (group ``chain``)."""

    name: str = MISSING
    seed: int = MISSING
    chain: dict[str, Any] = MISSING
    optim: OptimSchema = field(default_factory=OptimSchema)
    schedule: ScheduleSchema = field(default_factory=ScheduleSchema)
    trainer: ChainTrainerSchema = field(default_factory=ChainTrainerSchema)
    trackers: list[str] = MISSING


@dataclass
class CheckpointSchema:
    """When the run is saved; ``allow_changes`` is a word or a list."""

    folder: str | None = MISSING
    every_steps: int = MISSING
    every_seconds: float = MISSING
    keep_last: int = MISSING
    keep_best: int = MISSING
    async_save: bool = MISSING
    on_error: str = MISSING
    auto_resume: bool = MISSING
    allow_changes: Any = MISSING


@dataclass
class RootSchema:
    """The whole configuration of an experiment that trains a recommender."""

    name: str = MISSING
    seed: int = MISSING
    data: dict[str, Any] = MISSING
    sparse: SparseSchema = field(default_factory=SparseSchema)
    sharding: ShardingSchema = field(default_factory=ShardingSchema)
    model: ModelSchema = field(default_factory=ModelSchema)
    optim: OptimSchema = field(default_factory=OptimSchema)
    schedule: ScheduleSchema = field(default_factory=ScheduleSchema)
    trainer: TrainerSchema = field(default_factory=TrainerSchema)
    metrics: MetricsSchema = field(default_factory=MetricsSchema)
    trackers: list[str] = MISSING
    checkpoint: CheckpointSchema = field(default_factory=CheckpointSchema)
    resume: str | None = None
