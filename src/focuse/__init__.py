"""focuse: embeddings of knowledge graphs whose edges carry numbers.

graph = focuse.read("skills.tsv")
run = focuse.train(graph, model="complex", dim=100)
print(run.evaluate())
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# Torch's threads wait for their next task by spinning for milliseconds, on cores that our own loops need next: an epoch
# took half as long again. Read when torch is loaded, so it must stand here; your own setting wins.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__version__ = "0.1.0"

if TYPE_CHECKING:
    from focuse.api import Run, extend, load, resume, train
    from focuse.config import Config
    from focuse.data import datasets
    from focuse.data.graph import Graph
    from focuse.data.readers import read
    from focuse.data.splits import split
    from focuse.data.statistics import describe
    from focuse.errors import FocuseError
    from focuse.storage.metadata import read_config
    from focuse.training.callbacks import Callback

__all__ = [
    "Callback",
    "Config",
    "FocuseError",
    "Graph",
    "Run",
    "datasets",
    "describe",
    "extend",
    "load",
    "read",
    "read_config",
    "resume",
    "split",
    "train",
]

# Imported on first use: reading and inspecting a graph must not wait for torch to load.
_HOMES = {
    "focuse.api": ("Run", "extend", "load", "resume", "train"),
    "focuse.config": ("Config",),
    "focuse.data.graph": ("Graph",),
    "focuse.data.readers": ("read",),
    "focuse.data.splits": ("split",),
    "focuse.data.statistics": ("describe",),
    "focuse.errors": ("FocuseError",),
    "focuse.storage.metadata": ("read_config",),
    "focuse.training.callbacks": ("Callback",),
}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "datasets":
        return import_module("focuse.data.datasets")
    for module, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(module), name)
            return found
    raise AttributeError(f"module 'focuse' has no attribute {name!r}")
