"""How one training step is computed."""

from __future__ import annotations

from torch import Tensor

from focuse.engines.base import Batch, Corruptions, Hints, OpenOptimiser, TableOptimiser
from focuse.engines.cpu import CpuEngine
from focuse.engines.gpu import GpuEngine
from focuse.engines.recorded import RecordedEngine
from focuse.engines.reference import ReferenceEngine
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
    "make_engine",
]

ENGINES = ("auto", "reference", "fused")


def make_engine(name: str, model: Model, tables: dict[str, Tensor], optimiser: TableOptimiser) -> ReferenceEngine:
    """The engine called `name` over `tables`; 'auto' is the fused one for their device where it serves."""
    choose("engine", name, ENGINES)
    device = tables["entity"].device
    fused = CpuEngine if device.type == "cpu" else GpuEngine
    lacking = fused.lacks(model, device, optimiser)
    if name == "fused" and lacking:
        raise FocuseError(f"engine 'fused': {lacking}; use the engine 'auto'")
    kind: type[ReferenceEngine] = fused
    if name == "reference" or lacking:
        recorded = name == "auto" and device.type == "cuda" and isinstance(optimiser, OpenOptimiser)
        kind = RecordedEngine if recorded else ReferenceEngine
    dense = {name: table for name, table in tables.items() if name not in ("entity", "relation")}
    engine: ReferenceEngine = kind(model, tables["entity"], tables["relation"], optimiser, dense)
    engine.instead = lacking if name == "auto" and kind is ReferenceEngine else ""
    return engine
