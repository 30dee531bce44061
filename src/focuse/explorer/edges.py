"""The facts around an entity: an index made once, so that no request looks at the whole graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph
from focuse.data.weights import WeightScaler

Rows = npt.NDArray[np.int64]
AMONG = 2000  # strongest edges of a shown entity in which links to other shown ones are sought


@dataclass(frozen=True)
class Around:
    """A neighbourhood: rows [m] of the index, strongest first, entities [k] with their distance, and the total."""

    rows: Rows
    entities: Rows
    distance: Rows
    total: int


class Edges:
    """All facts of a run (train, valid and test) by head and by tail, each entity's strongest first.

    `share` [n] is an edge's strength in [0, 1], the same in every relation whatever its unit. Two sorted lists of rows
    and their offsets: 24 bytes an edge beside the columns.
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        train = graphs[0]
        self.names = train
        self.head, self.relation, self.tail = (
            np.concatenate([getattr(graph, column) for graph in graphs]) for column in ("head", "relation", "tail")
        )
        self.weight = np.concatenate([graph.weight for graph in graphs])
        self.share = np.clip(WeightScaler.fit(train).to_unit(self.weight, self.relation), 0.0, 1.0).astype(np.float32)
        self.part = np.repeat(np.arange(len(graphs), dtype=np.int8), [len(graph) for graph in graphs])
        strongest = np.argsort(-self.share, kind="stable")
        self._lists = [self._list(column, strongest) for column in (self.head, self.tail)]
        loops = np.bincount(self.head[self.head == self.tail], minlength=len(train.entities))
        self.degree: Rows = np.diff(self._lists[0][1]) + np.diff(self._lists[1][1]) - loops  # a loop is one fact

    def _list(self, ends: npt.NDArray[np.int32], strongest: Rows) -> tuple[Rows, Rows]:
        """Rows sorted by their entity, strongest first within one, and where each entity's begin."""
        rows = strongest[np.argsort(ends[strongest], kind="stable")]
        counts = np.bincount(ends, minlength=len(self.names.entities))
        return rows, np.concatenate([[0], np.cumsum(counts)])

    def __len__(self) -> int:
        return len(self.head)

    def of(self, entity: int, relation: int | None = None, least: float | None = None, most: int | None = None) -> Rows:
        """The rows [m] of an entity in either direction, strongest first; a loop stands once."""
        found = []
        for place, (rows, offsets) in enumerate(self._lists):
            own = rows[offsets[entity] : offsets[entity + 1]]
            if relation is not None:
                own = own[self.relation[own] == relation]
            if place:  # a loop was found by its head already
                own = own[self.head[own] != entity]
            found.append(own if most is None else own[:most])
        both = np.concatenate(found)
        if least is not None:
            both = both[self.strong(both, least)]
        order: Rows = both[np.argsort(-self.share[both], kind="stable")]
        return order[:most]

    def strong(self, rows: Rows, least: float) -> npt.NDArray[np.bool_]:
        """Which rows weigh `least` or more: or less, where lower is better."""
        weight = self.weight[rows]
        return weight <= least if self.names.lower_is_better else weight >= least

    def relations_of(self, entity: int, tails: bool) -> Rows:
        """The relations [k] in which an entity is a head (or, with `tails`, a tail), most frequent first."""
        rows, offsets = self._lists[int(tails)]
        kinds, counts = np.unique(self.relation[rows[offsets[entity] : offsets[entity + 1]]], return_counts=True)
        return kinds[np.argsort(-counts, kind="stable")].astype(np.int64)

    def around(
        self, entity: int, depth: int, limit: int, relation: int | None = None, least: float | None = None
    ) -> Around:
        """The strongest `limit` edges within `depth` steps; of two steps the first has a third of them."""
        first = self.of(entity, relation, least)
        total = len(first)
        kept = first[: limit if depth == 1 else max(1, limit // 3)]
        distance = {entity: 0} | dict.fromkeys(self._others(kept, {entity}), 1)
        if depth > 1 and len(distance) > 1:
            room = limit - len(kept)
            each = max(2, room // (len(distance) - 1))
            more = np.concatenate([self.of(one, relation, least, each + 1) for one in list(distance)[1:]])
            more = more[~np.isin(more, kept)]
            more = more[np.sort(np.unique(more, return_index=True)[1])]
            total += len(more)
            more = more[np.argsort(-self.share[more], kind="stable")][:room]
            distance |= dict.fromkeys(self._others(more, set(distance)), 2)
            kept = np.concatenate([kept, more])
        kept = self._with_links_among(kept, np.array(list(distance)), relation, least, limit)
        shown = np.array(list(distance.items()), np.int64)
        return Around(kept, shown[:, 0], shown[:, 1], total)

    def _others(self, rows: Rows, seen: set[int]) -> list[int]:
        """The entities of rows that are not `seen`, in the rows' order."""
        ends = np.stack([self.head[rows], self.tail[rows]], axis=1).ravel().tolist()
        return [one for one in dict.fromkeys(ends) if one not in seen]

    def _with_links_among(self, kept: Rows, shown: Rows, relation: int | None, least: float | None, limit: int) -> Rows:
        """The rows and, while there is room, the strongest other facts between the shown entities."""
        if len(kept) >= limit or len(shown) < 2:
            return kept
        near = np.concatenate([self.of(int(one), relation, least, AMONG) for one in shown[1:]])
        inner = near[np.isin(self.head[near], shown) & np.isin(self.tail[near], shown) & ~np.isin(near, kept)]
        inner = np.unique(inner)
        strongest = inner[np.argsort(-self.share[inner], kind="stable")]
        return np.concatenate([kept, strongest[: limit - len(kept)]])
