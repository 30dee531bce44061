"""Small data sets by the names of the paper's, for processes that cannot see the objects of a test."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np

from focuse.data.datasets import Dataset
from focuse.data.readers import read
from focuse.data.splits import split
from focuse.errors import FocuseError


@cache
def load_small(name: str) -> Dataset:
    """Return the same small graph for every name but onet20k, which is missing."""
    if name == "onet20k":
        raise FocuseError("onet20k: cannot be found")
    random = np.random.default_rng(0)
    triples = {(f"e{h}", f"r{r}", f"e{t}") for h, r, t in random.integers(0, [40, 3, 40], (600, 3))}
    rows = [(*triple, weight) for triple, weight in zip(sorted(triples), random.random(600), strict=False)]
    parts = split(read(rows))
    return Dataset(name, name, parts.train, parts.valid, parts.test, Path("no such folder"))


def load_for_a_process_that_dies(name: str) -> Dataset:
    """Return a small graph in the process of a test, and end every other process."""
    if os.environ.get("PYTEST_PROCESS") != str(os.getpid()):
        os._exit(7)
    return load_small(name)
