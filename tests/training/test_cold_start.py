"""Initial rows of new entities, compared with plain Python."""

from __future__ import annotations

import math

import numpy as np
import torch

import focuse
from focuse.data.splits import split
from focuse.data.weights import fit_normalizer
from focuse.training.callbacks import Reporter
from focuse.training.cold_start import WEIGHT_OFFSET, NewRowsOptimizer, sibling_means
from focuse.training.extend import RequestedChange, update_graph

ROWS = [
    ("a", "r", "x", 1.0), ("b", "r", "x", 0.0), ("c", "r", "y", 0.5), ("x", "s", "a", 0.4), ("y", "s", "b", 0.6),
    ("x", "s", "c", 0.8), ("z", "r", "y", 0.3),
]  # fmt: skip
NEW = [("n", "r", "x", 0.5), ("n", "r", "y", 1.0), ("y", "s", "n", 0.6), ("lone", "r", "z", 0.4)]


def test_new_entity_starts_at_the_mean_of_entities_with_the_same_edges() -> None:
    graph = focuse.read(ROWS)
    splits = split(graph, 0.0, 0.0)
    settings = focuse.Config.from_kwargs(dim=2, model="distmult", label_exponent=1.0).resolve(splits.train, "cpu")
    grown = update_graph(
        settings, splits, fit_normalizer("relation", splits.train), RequestedChange(NEW), Reporter().note
    )
    table = torch.arange(12.0).view(6, 2) ** 1.5
    mean, found = sibling_means(grown, table)
    names, weight = list(grown.splits.train.entities), grown.normalizer
    row = {name: table[place].double().numpy() for place, name in enumerate(names[:6])}
    kinds = list(grown.splits.train.relations)

    def share(number: float, kind: str) -> float:
        return float(weight.transform(np.array([number]), np.array([kinds.index(kind)]))[0]) + WEIGHT_OFFSET

    sums, total = np.zeros(2), 0.0
    for kind, side, other, number in (("r", 0, "x", 0.5), ("r", 0, "y", 1.0), ("s", 2, "y", 0.6)):
        alike = [(e[side], share(e[3], kind)) for e in ROWS if e[1] == kind and e[2 - side] == other]
        centre = sum(row[name] * amount for name, amount in alike) / sum(amount for _, amount in alike)
        counts = share(number, kind) / math.log(2 + len(alike))
        sums, total = sums + counts * centre, total + counts
    assert found.tolist() == [0, 1]
    assert np.allclose(mean[0].numpy(), sums / total, rtol=1e-4)
    heads = [(e[0], share(e[3], "r")) for e in ROWS if e[1] == "r"]  # nobody else leads to z: all heads of r
    centre = sum(row[name] * amount for name, amount in heads) / sum(amount for _, amount in heads)
    assert np.allclose(mean[1].numpy(), centre, rtol=1e-4)


def test_new_rows_optimizer_changes_only_new_rows() -> None:
    tables = {"entity": torch.ones(5, 3), "relation": torch.ones(2, 3)}
    optimizer = NewRowsOptimizer(tables, {"entity": 3, "relation": 2}, steps=2)
    ids, gradient = torch.tensor([0, 3, 4]), torch.tensor([[1.0] * 3, [1.0] * 3, [-1.0] * 3])
    optimizer.update({"entity": (ids, gradient), "relation": (torch.tensor([0]), torch.ones(1, 3))})
    assert torch.equal(tables["entity"][:3], torch.ones(3, 3))
    assert torch.equal(tables["relation"], torch.ones(2, 3))
    assert (tables["entity"][3] < 1).all()
    assert (tables["entity"][4] > 1).all()
    whole = torch.ones(5, 3)
    optimizer.update({"entity": (None, whole), "relation": (None, torch.ones(2, 3))})
    assert torch.equal(tables["entity"][:3], torch.ones(3, 3))
