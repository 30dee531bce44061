"""First rows for what a run has never seen.

An entity begins where those stand that have the same edges: the mean row of the entities x with an edge (x, r, o), over
its own edges (·, r, o), each by its weight and the more the fewer such x there are. A relation begins as the known one
that tells its edges best from corruptions of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.engines import ReferenceEngine
from focuse.graph.graph import Graph, Weights
from focuse.models import Model
from focuse.training.checkpoints import Tables
from focuse.training.growing import Grown
from focuse.training.loop import initial_tables
from focuse.training.settings import Settings

Ids = npt.NDArray[np.int64]
SIBLINGS = 64  # entities with the same edge that are looked at, at most
TRIED = 256  # edges of a new relation that known ones are tried on
LIGHT = 0.1  # what an edge of weight 0 still counts
PIECE = 1 << 16  # rows gathered at once
FALLBACK = 1e-6  # how much an edge counts that tells no more than its relation and side


@dataclass(frozen=True)
class Ends:
    """Edges as their ends see them: an `entity`, its side (0: head) and the relation as one number, the `other` end."""

    entity: Ids
    kind: Ids
    other: Ids
    weight: Weights

    @classmethod
    def of(cls, graph: Graph, weight: Weights, rows: npt.NDArray[np.bool_] | None = None) -> Ends:
        """Both ends of every edge, heads first."""
        graph, weight = (graph, weight) if rows is None else (graph.select(rows), weight[rows])
        head, kind, tail = (column.astype(np.int64) for column in (graph.head, graph.relation, graph.tail))
        kinds = np.concatenate([2 * kind, 2 * kind + 1])
        return cls(np.concatenate([head, tail]), kinds, np.concatenate([tail, head]), np.tile(weight, 2))

    def take(self, rows: npt.NDArray[Any]) -> Ends:
        return Ends(self.entity[rows], self.kind[rows], self.other[rows], self.weight[rows])


def with_first_rows(settings: Settings, grown: Grown, tables: Tables, model: Model) -> Tables:
    """The tables with rows behind them for the new names; all tensors are copies."""
    train, seed = grown.splits.train, settings.seed + len(grown.splits.train.entities)
    known = {"entity": grown.entities, "relation": grown.relations}
    more = {"entity": len(train.entities) - grown.entities, "relation": len(train.relations) - grown.relations}
    chance = initial_tables(replace(settings, seed=seed), model, more["entity"], more["relation"])
    made = {name: table.clone() for name, table in tables.items() if name not in known}
    for name in known:
        made[name] = torch.cat([tables[name], _sized(chance[name].to(tables[name]), tables[name])])
    if more["entity"]:
        mean, found = siblings_mean(grown, tables["entity"], settings.seed)
        made["entity"][grown.entities + found] = mean.to(made["entity"])
    if more["relation"]:
        made["relation"][grown.relations :] = _known_relations(grown, made, model, settings.seed)
    return made


def _sized(rows: Tensor, table: Tensor) -> Tensor:
    """Rows by chance, as large as a table's usual ones: untrained ones may be far smaller or larger."""
    size = usual_size(rows)
    return rows * (usual_size(table) / size) if size > 0 else rows


def usual_size(table: Tensor) -> float:
    """The root of the mean square of a table's numbers; of very many rows some are enough."""
    some = table[:: max(1, len(table) // 10_000)]
    return float(some.double().pow(2).mean().sqrt()) if some.numel() else 0.0


def siblings_mean(grown: Grown, table: Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Mean rows [m, d] of those that stand as the new entities do, and which of these they are for, int64 [m].

    Where nobody has the same edge, the mean of all that stand on that side of the relation.
    """
    train = grown.splits.train
    touching = grown.touching(train)
    weight = grown.normaliser.transform(train.weight[touching], train.relation[touching])
    mine = Ends.of(train.select(touching), weight + LIGHT)
    mine = mine.take((mine.entity >= grown.entities) & (mine.other < grown.entities))
    mine = mine.take(mine.kind < 2 * grown.relations)
    size, random = len(train.entities), np.random.default_rng([seed, 0x51B])
    theirs = _known_ends(train, grown, mine)
    sums, total = torch.zeros(size - grown.entities, table.shape[1]), torch.zeros(size - grown.entities)
    for theirs_key, mine_key, counts in (
        (theirs.kind * size + theirs.other, mine.kind * size + mine.other, 1.0),
        (theirs.kind, mine.kind, FALLBACK),
    ):
        groups, place = np.unique(mine_key, return_inverse=True)
        means, sizes = _group_means(table, theirs, theirs_key, groups, random)
        worth = np.where(sizes > 0, counts / np.log(2.0 + sizes), 0.0)[place] * mine.weight
        at, amount = torch.from_numpy(mine.entity - grown.entities), torch.from_numpy(worth).float()
        sums.index_add_(0, at, means[torch.from_numpy(place)] * amount[:, None])
        total.index_add_(0, at, amount)
    found = torch.nonzero(total > 0).ravel()
    return sums[found] / total[found, None], found


def _known_ends(train: Graph, grown: Grown, mine: Ends) -> Ends:
    """Ends of known edges that could be siblings': those of the same kinds, the same other end or a sample."""
    wanted = np.zeros(len(train.entities), bool)
    wanted[mine.other] = True
    kinds = np.zeros(2 * len(train.relations), bool)
    kinds[mine.kind] = True
    step = max(1, len(train) // 200_000)  # for the side of a relation some edges are enough
    sample = np.zeros(len(train), bool)
    sample[::step] = True
    rows = (kinds[2 * train.relation] & (wanted[train.tail] | sample)) | (
        kinds[2 * train.relation + 1] & (wanted[train.head] | sample)
    )
    rows &= ~grown.touching(train)
    near = train.select(rows)
    return Ends.of(near, grown.normaliser.transform(near.weight, near.relation) + LIGHT)


def _group_means(
    table: Tensor, theirs: Ends, keys: Ids, groups: Ids, random: np.random.Generator
) -> tuple[Tensor, npt.NDArray[np.int64]]:
    """For each of the sorted `groups` the mean row of ends with that key, by weight, and how many there are."""
    place = np.minimum(np.searchsorted(groups, keys), max(len(groups) - 1, 0))
    rows = np.flatnonzero(groups[place] == keys) if len(groups) else np.empty(0, np.int64)
    sizes = np.bincount(place[rows], minlength=len(groups))
    rows = random.permutation(rows)
    rows = rows[np.argsort(place[rows], kind="stable")]
    rank = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    rows = rows[rank < SIBLINGS]
    sums, total = torch.zeros(len(groups), table.shape[1]), torch.zeros(len(groups))
    for piece in np.array_split(rows, max(1, -(-len(rows) // PIECE))):
        at, amount = torch.from_numpy(place[piece]), torch.from_numpy(theirs.weight[piece]).float()
        found = table[torch.from_numpy(theirs.entity[piece]).to(table.device)].cpu().float()
        sums.index_add_(0, at, found * amount[:, None])
        total.index_add_(0, at, amount)
    return sums / total.clamp(min=1e-12)[:, None], sizes


@torch.no_grad()
def _known_relations(grown: Grown, tables: Tables, model: Model, seed: int) -> Tensor:
    """For each new relation the row of the known one that tells its edges best from corrupted ones: [new, r]."""
    train, random = grown.splits.train, np.random.default_rng([seed, 0x4E1])
    dense = {name: table for name, table in tables.items() if name not in ("entity", "relation")}
    engine = ReferenceEngine(model, tables["entity"], tables["relation"], dense=dense)
    best = []
    for relation in range(grown.relations, len(train.relations)):
        edges = random.permutation(np.flatnonzero(train.relation == relation))[:TRIED]
        head, tail = (torch.from_numpy(column[edges].astype(np.int64)) for column in (train.head, train.tail))
        other = torch.from_numpy(random.integers(len(train.entities), size=len(edges)))
        margins = []
        for kind in range(grown.relations):
            kinds = torch.full_like(head, kind)
            ids = [part.to(engine.device) for part in (head, kinds, tail, other)]
            margins.append(float((engine.score(*ids[:3]) - engine.score(ids[0], ids[1], ids[3])).mean()))
        best.append(int(np.argmax(margins)))
    return tables["relation"][best].clone()
