"""The option `--smoke` of every benchmark: run in seconds on the embedded graph, to see that the script works.

A script parses its options by `parse`, gives the smaller values of a smoke run there, and loads its graphs by `load`.
What a smoke run cannot do without (a GPU, another library, files from elsewhere) it names by `missing`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from focuse import Graph, Run
    from focuse.data.datasets import Dataset

GRAPH = "smoke"  # the name of a small part of the embedded graph
PART = 10  # one of so many edges
HELP = "run in seconds on the embedded graph; the figures mean nothing"


def asked() -> bool:
    """Whether this is a smoke run; for scripts that cannot import all they need without asking."""
    return "--smoke" in sys.argv


def parse(parser: argparse.ArgumentParser, words: Sequence[str] | None = None, **smaller: Any) -> argparse.Namespace:
    """Parse the options. With `--smoke` the defaults are those of `smaller`; what is asked for by name stays."""
    parser.add_argument("--smoke", action="store_true", help=HELP)
    given = list(sys.argv[1:] if words is None else words)
    if "--smoke" in given:
        parser.set_defaults(**smaller)
        for action in parser._actions:  # what is required has its value, or the script goes without
            action.required = False
    return parser.parse_args(given)


def graph() -> Graph:
    """A small part of the embedded graph."""
    import numpy as np

    import focuse
    from focuse.data.datasets import careers

    whole = careers()
    return focuse.read(whole.select(np.arange(0, len(whole), PART)).to_arrow())


def load(name: str) -> Dataset:
    """A data set by its name, or the splits of `graph`."""
    from focuse import datasets

    if name != GRAPH:
        return datasets.load(name)
    from focuse.data.splits import split

    parts = split(graph())
    return datasets.Dataset(name, name, parts.train, parts.valid, parts.test, Path())


def write(folder: Path) -> dict[str, Path]:
    """The splits of `graph` as files without a header: the path of each by its name."""
    data = load(GRAPH)
    paths = {name: folder / f"{name}.tsv" for name in ("train", "valid", "test")}
    for name, path in paths.items():
        getattr(data, name).write(path)
    return paths


def train(folder: Path | None = None) -> Run:
    """A run on `graph` that has learned next to nothing."""
    import focuse

    return focuse.train(graph(), dim=8, epochs=1, label_exponent=1.0, device="cpu", out=folder, progress=False)


def missing(what: str) -> NoReturn:
    """End a smoke run that can do no more, and say what is missing."""
    print(f"the smoke run ends here: {what}", flush=True)
    raise SystemExit(0)
