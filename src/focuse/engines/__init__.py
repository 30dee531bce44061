"""How one training step is computed."""

from __future__ import annotations

from torch import Tensor

from focuse.engines.base import Batch, Corruptions, Hints, OpenOptimiser, TableOptimiser
from focuse.engines.company import joined
from focuse.engines.cpu import CpuEngine
from focuse.engines.gpu import GpuEngine
from focuse.engines.recorded import RecordedEngine
from focuse.engines.reference import ReferenceEngine, make_scorer
from focuse.engines.sharded import SHARDED, ShardedEngine
from focuse.errors import FocuseError, choose
from focuse.models import Model

__all__ = [
    "ENGINES",
    "Batch",
    "Corruptions",
    "CpuEngine",
    "GpuEngine",
    "Hints",
    "RecordedEngine",
    "ReferenceEngine",
    "ShardedEngine",
    "make_engine",
    "make_scorer",
]

# 'partitioned' is one of the others over those partitions of the tables that are in memory.
ENGINES = ("auto", "reference", "fused", "partitioned", *SHARDED)


def make_engine(
    name: str, model: Model, tables: dict[str, Tensor], optimiser: TableOptimiser, entities: int | None = None
) -> ReferenceEngine:
    """The engine called `name` over `tables`; 'auto' is the fused one for their device where it serves.

    A sharded one is given the process's own rows of all `entities`.
    """
    name = "auto" if choose("engine", name, ENGINES) == "partitioned" else name
    dense = {name: table for name, table in tables.items() if name not in ("entity", "relation")}
    if name in SHARDED:
        lacking = ShardedEngine.lacks(model)
        if lacking:
            raise FocuseError(f"engine {name!r}: {lacking}; use the engine 'auto'")
        own = tables["entity"], tables["relation"], optimiser, dense
        return ShardedEngine(model, *own, joined(), entities or len(tables["entity"]), name)
    device = tables["entity"].device
    fused = CpuEngine if device.type == "cpu" else GpuEngine
    lacking = fused.lacks(model, device, optimiser)
    if name == "fused" and lacking:
        raise FocuseError(f"engine 'fused': {lacking}; use the engine 'auto'")
    kind: type[ReferenceEngine] = fused
    if name == "reference" or lacking:
        recorded = name == "auto" and device.type == "cuda" and isinstance(optimiser, OpenOptimiser)
        kind = RecordedEngine if recorded else ReferenceEngine
    engine: ReferenceEngine = kind(model, tables["entity"], tables["relation"], optimiser, dense)
    engine.instead = lacking if name == "auto" and kind is ReferenceEngine else ""
    return engine
