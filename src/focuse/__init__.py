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
    from focuse import datasets
    from focuse.api import Run, extend, load, resume, train
    from focuse.config import Config
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

# Looked up on first use: reading and inspecting a graph must not wait for torch to load.
_HOMES = {
    "Callback": ("focuse.training.callbacks", "Callback"),
    "FocuseError": ("focuse.errors", "FocuseError"),
    "Graph": ("focuse.data.graph", "Graph"),
    "read": ("focuse.data.readers", "read"),
    "describe": ("focuse.data.statistics", "describe"),
    "split": ("focuse.data.splits", "split"),
    "Run": ("focuse.api", "Run"),
    "extend": ("focuse.api", "extend"),
    "load": ("focuse.api", "load"),
    "resume": ("focuse.api", "resume"),
    "train": ("focuse.api", "train"),
    "Config": ("focuse.config", "Config"),
    "read_config": ("focuse.storage.metadata", "read_config"),
    "datasets": ("focuse.datasets", ""),
}


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'focuse' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _HOMES[name]
    home = import_module(module)
    return getattr(home, attribute) if attribute else home
