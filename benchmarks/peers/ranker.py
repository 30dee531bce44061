"""One ranker for all systems: focuse's evaluation of saved embeddings, on the whole test set or on some of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import smoke
import torch

import focuse
from focuse.data.datasets import careers
from focuse.data.graph import Graph
from focuse.data.splits import split
from focuse.data.triple_index import build_triple_index
from focuse.engines.scorer import TableScorer
from focuse.evaluation.ranking import rank_graph
from focuse.models.registry import make_model


@dataclass(frozen=True)
class Splits:
    """Three graphs in train's ids; rows of valid and test that name what train has not are left out."""

    train: Graph
    valid: Graph
    test: Graph

    @classmethod
    def of(cls, train: Graph, valid: Graph, test: Graph) -> Splits:
        return cls(train, valid.align(train).graph, test.align(train).graph)

    @classmethod
    def named(cls, name: str) -> Splits:
        """Of a data set of the literature, or 'careers', the graph that comes with focuse."""
        if name == "careers":
            parts = split(careers())
            return cls(parts.train, parts.valid, parts.test)
        data = smoke.load(name)
        return cls.of(data.train, data.valid, data.test)

    @classmethod
    def read(cls, train: Path, valid: Path, test: Path) -> Splits:
        """Of files that `write` made."""
        return cls.of(*(focuse.read(path, header=False) for path in (train, valid, test)))

    def write(self, folder: Path) -> dict[str, Path]:
        """Plain text that every peer reads; the path of each part."""
        paths = {name: folder / f"{name}.tsv" for name in ("train", "valid", "test")}
        for name, path in paths.items():
            getattr(self, name).write(path)
        return paths


class Ranker:
    """Filtered MRR of both sides, ties at their worst."""

    def __init__(self, splits: Splits) -> None:
        self.splits = splits
        self.known = build_triple_index([splits.train, splits.valid, splits.test])

    def mrr(self, model: str, entity: torch.Tensor, relation: torch.Tensor, rows: Any = None) -> float:
        """Of tables in train's ids; `rows` of test, else all of it."""
        test = self.splits.test if rows is None else self.splits.test.select(rows)
        scorer = TableScorer(make_model(model), {"entity": entity, "relation": relation})
        ranking = rank_graph(scorer, test, self.known)
        return float((1.0 / ranking.filtered.ranks("worst", "per-side")).mean())

    def saved(self, path: Path, rows: Any = None) -> float:
        """Of a file that a peer wrote: its rows are put into train's order by their names."""
        with np.load(path) as file:
            found = {name: file[name] for name in file.files}
        train = self.splits.train
        tables = []
        kinds = (("entity", "entities", train.entities), ("relation", "relations", train.relations))
        for table, names, vocabulary in kinds:
            places = vocabulary.ids(found[names].tolist())
            if (places < 0).any() or len(np.unique(places)) != len(vocabulary):
                raise ValueError(f"{path}: its {names} are not those of {train.source}")
            ordered = np.empty_like(found[table])
            ordered[places] = found[table]
            tables.append(torch.from_numpy(ordered))
        return self.mrr(str(found["model"]), *tables, rows=rows)
