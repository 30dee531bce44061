"""Choose the engine and the device of a training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Engine, FusableOptimizer, TableOptimizer, fused_objective
from focuse.engines.fused_cpu import FusedCpuEngine
from focuse.engines.gpu import CudaGraphEngine, FusedGpuEngine
from focuse.engines.process_group import PEER_LOST, ProcessGroup, current_group, is_peer_lost
from focuse.engines.scorer import TableScorer
from focuse.engines.sharded import EmbeddingExchange, ShardedEngine, ShardedScorer
from focuse.errors import FocuseError
from focuse.models.base import Model
from focuse.objective.losses import ObjectiveFunction


def make_engine(
    name: str,
    model: Model,
    tables: dict[str, Tensor],
    optimizer: TableOptimizer,
    entities: int | None = None,
    inverse_relations: bool = False,
    objective: ObjectiveFunction | None = None,
) -> Engine:
    """Return the engine `name` over `tables`; 'auto' selects the fused engine if it supports model and objective.

    The sharded engine takes this process's rows of the table of all `entities`. With `inverse_relations` the relation
    table has the rows r and r + R for each relation r.
    """
    name = "auto" if name == "partitioned" else name  # it runs on the partitions that are in memory
    if name == "sharded":
        lacking = ShardedEngine.unsupported_reason(model)
        if lacking:
            raise FocuseError(f"engine {name!r}: {lacking}; use the engine 'auto'")
        count = entities or len(tables["entity"])
        return ShardedEngine(model, tables, optimizer, inverse_relations, current_group(), count)
    device = tables["entity"].device
    fused = FusedCpuEngine if device.type == "cpu" else FusedGpuEngine
    lacking = fused.unsupported_reason(model, device, optimizer, inverse_relations)
    if objective is not None and fused_objective(objective) is None:
        lacking = lacking or "its kernels cannot compute this loss"
    if name == "native" and lacking:
        raise FocuseError(f"engine 'native': {lacking}; use the engine 'auto'")
    engine_class: type[AutogradEngine] = fused
    if name == "torch" or lacking:
        recorded = name == "auto" and device.type == "cuda" and isinstance(optimizer, FusableOptimizer)
        engine_class = CudaGraphEngine if recorded else AutogradEngine
    engine = engine_class(model, tables, optimizer, inverse_relations)
    engine.fallback_reason = lacking if name == "auto" and engine_class is AutogradEngine else ""
    return engine


def make_group_scorer(
    model: Model, tables: Mapping[str, Tensor], entities: int, group: ProcessGroup, inverse_relations: bool = False
) -> TableScorer:
    """Return a scorer over trained tables; with several processes, each process holds its shard of all `entities`."""
    if group.is_single:
        return TableScorer(model, tables, inverse_relations)
    exchange = EmbeddingExchange(tables["entity"], entities, group)
    return ShardedScorer(model, tables, exchange, inverse_relations)


def choose_device(name: str, engine: str = "auto") -> str:
    """Return the device to use, a GPU or 'cpu'; 'auto' selects a GPU if there is one and the engine supports it."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() and engine != "partitioned" else "cpu"
    try:
        kind = torch.empty(0, device=name).device.type
    except (RuntimeError, AssertionError):
        kind = ""
    if kind not in ("cpu", "cuda"):
        raise FocuseError(f"device {name!r} is not available; use 'auto' or 'cpu'")
    return "cpu" if kind == "cpu" else name


@contextmanager
def explain_memory_errors() -> Iterator[None]:
    """Convert out-of-memory errors and the loss of another process to a FocuseError that says what to do."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        messages = ("allocate memory", "size calculation overflowed")
        if is_peer_lost(error):
            raise FocuseError(PEER_LOST) from None
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in str(error) for words in messages):
            raise FocuseError("not enough memory; lower dim, batch_size or num_negatives") from None
        raise
