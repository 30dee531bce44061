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
    from focuse.errors import FocuseError
    from focuse.graph import Graph, read
    from focuse.graph.audit import audit as inspect
    from focuse.graph.splits import split
    from focuse.living import extend
    from focuse.run import Run, load, resume, train
    from focuse.training.callbacks import Callback
    from focuse.training.configuration import read_settings
    from focuse.training.settings import Settings

__all__ = [
    "Callback",
    "FocuseError",
    "Graph",
    "Run",
    "Settings",
    "datasets",
    "extend",
    "inspect",
    "load",
    "read",
    "read_settings",
    "resume",
    "split",
    "train",
]

# Looked up on first use: reading and inspecting a graph must not wait for torch to load.
_HOMES = {
    "Callback": ("focuse.training.callbacks", "Callback"),
    "FocuseError": ("focuse.errors", "FocuseError"),
    "Graph": ("focuse.graph", "Graph"),
    "read": ("focuse.graph", "read"),
    "inspect": ("focuse.graph.audit", "audit"),
    "split": ("focuse.graph.splits", "split"),
    "Run": ("focuse.run", "Run"),
    "extend": ("focuse.living", "extend"),
    "load": ("focuse.run", "load"),
    "resume": ("focuse.run", "resume"),
    "train": ("focuse.run", "train"),
    "Settings": ("focuse.training.settings", "Settings"),
    "read_settings": ("focuse.training.configuration", "read_settings"),
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
