"""Initial rows of new entities, compared with plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import focuse
from focuse.data.splits import split
from focuse.data.weights import fit_normalizer
from focuse.objective.negatives import Batch, Negatives
from focuse.training.callbacks import Reporter
from focuse.training.cold_start import WEIGHT_OFFSET, ColdStartPlacement, NewRowsOptimizer, sibling_means
from focuse.training.extend import RequestedChange, update_graph
from focuse.training.problem import TrainingProblem

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
        center = sum(row[name] * amount for name, amount in alike) / sum(amount for _, amount in alike)
        counts = share(number, kind) / math.log(2 + len(alike))
        sums, total = sums + counts * center, total + counts
    assert found.tolist() == [0, 1]
    assert np.allclose(mean[0].numpy(), sums / total, rtol=1e-4)
    heads = [(e[0], share(e[3], "r")) for e in ROWS if e[1] == "r"]  # nobody else leads to z: all heads of r
    center = sum(row[name] * amount for name, amount in heads) / sum(amount for _, amount in heads)
    assert np.allclose(mean[1].numpy(), center, rtol=1e-4)


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


def cold_start(sampling: str) -> tuple[ColdStartPlacement, Batch, list[Negatives]]:
    """The first batch of an extension whose new entities have many edges, with its negatives."""
    random = np.random.default_rng(0)
    rows = [(f"h{h}", "r", f"t{t}", 1.0) for h, t in random.integers(0, 9, (60, 2)).tolist()]
    new = [(f"n{n}", "r", f"t{t}", 1.0) for n in range(2) for t in range(8)]
    splits, given = split(focuse.read(rows), 0.0, 0.0), {"model": "distmult", "dim": 4, "weight_mode": "none"}
    config = focuse.Config.from_kwargs(negative_sampling=sampling, num_negatives=5, filter_negatives=True, **given)
    config = config.resolve(splits.train, "cpu")
    update = update_graph(config, splits, fit_normalizer("none", splits.train), RequestedChange(new), lambda _: None)
    problem = TrainingProblem.build(config, update.splits, update.normalizer)
    placement = ColdStartPlacement(problem, update, problem.init_tables(lambda _: None), reached=1)
    placement.start_epoch(0)
    batch = placement.take(next(placement.batches(0, 0, 1))[0])
    return placement, batch, placement.sample(batch, placement.seed(0, 0))


@pytest.mark.parametrize("sampling", ["per-triple", "shared"])
def test_new_entities_are_filtered_negatives_of_anchors(sampling: str) -> None:
    placement, batch, groups = cold_start(sampling)
    known, first_new = placement.problem.negative_sampler.known, placement.update.entities
    assert known is not None
    new = placement.new_in_batch
    assert len(batch) > new
    forced = 0
    for group in groups:
        entities = group.entities if group.entities.dim() == 2 else group.entities.expand(len(batch), -1)
        tails = group.replaces_tail if group.side == "both" else torch.full_like(entities, group.side == "tail").bool()
        head = torch.where(tails, batch.head[:, None], entities)
        tail = torch.where(tails, entities, batch.tail[:, None])
        is_known = known.contains(head, batch.relation[:, None].expand_as(head), tail)
        mask = group.valid_mask(placement.problem.entities)
        assert not (mask & is_known).any()
        forced += int((mask & (entities >= first_new))[new:].sum())
    assert forced
