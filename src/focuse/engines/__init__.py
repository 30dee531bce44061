"""How one training step is computed."""

from __future__ import annotations

from torch import Tensor

from focuse.engines.base import Batch, Corruptions, Hints, TableOptimiser
from focuse.engines.fused import FusedEngine
from focuse.engines.reference import ReferenceEngine
from focuse.errors import FocuseError, choose
from focuse.models import Model

__all__ = ["ENGINES", "Batch", "Corruptions", "FusedEngine", "Hints", "ReferenceEngine", "make_engine"]

ENGINES = ("auto", "reference", "fused")


def make_engine(name: str, model: Model, tables: dict[str, Tensor], optimiser: TableOptimiser) -> ReferenceEngine:
    """The engine called `name` over `tables`; 'auto' is the fused one where it serves."""
    choose("engine", name, ENGINES)
    lacking = FusedEngine.lacks(model, tables["entity"].device, optimiser)
    if name == "fused" and lacking:
        raise FocuseError(f"engine 'fused': {lacking}; use the engine 'auto'")
    kind = ReferenceEngine if name == "reference" or lacking else FusedEngine
    dense = {name: tables[name] for name in model.dense}
    return kind(model, tables["entity"], tables["relation"], optimiser, dense)  # type: ignore[arg-type]
