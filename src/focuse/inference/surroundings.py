"""What train says around a triple: numbers of a (head, relation, tail) that need no model.

Weights of the same triple, of the edge back and of the pair by other relations; how heavy the edges of both ends are,
and how many; low-rank guesses of what is missing. A triple's own row must not be in the graph that is asked: the rows a
forest learns from are asked of train without their fold (estimate.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.evaluation.baselines import RELATION_MEAN, AnyIds, Floats, fit_trivial
from focuse.graph.graph import Graph

Keys = npt.NDArray[np.int64]
ABSENT = -2.0  # stands for "train has none": below every share and every difference of shares
SHRINK = 3.0  # edges at which an entity's own mean counts half
RANK = 16  # of residual weights
LINK_RANK = 32  # of links
NEIGHBOURS = 512  # of an entity that count as common ones; hubs would cost their degree for each triple
FEATURES = 55  # columns of `rows`
AT_ONCE = 1 << 15  # triples whose neighbours are compared at once


@dataclass(frozen=True, eq=False)
class Table:
    """For each distinct key [k], sorted: how many values it has, and their mean, least, middle and greatest."""

    keys: Keys
    columns: dict[str, Floats]

    @classmethod
    def of(cls, keys: Keys, value: Floats) -> Table:
        """From keys [n] with repeats and a value [n] each.

        >>> Table.of(np.array([7, 5, 7]), np.array([1.0, 0.0, 0.5])).get("mean", np.array([7, 6]))
        array([ 0.75, -2.  ])
        """
        distinct, group, count = np.unique(keys, return_inverse=True, return_counts=True)
        ordered = value[np.lexsort((value, group))]
        end = np.cumsum(count)
        start = end - count
        columns = {
            "count": count.astype(np.float64),
            "mean": np.bincount(group, weights=value, minlength=len(count)) / count,
            "least": ordered[start],
            "middle": ordered[(start + end - 1) // 2],
            "greatest": ordered[end - 1],
        }
        return cls(distinct, columns)

    def get(self, column: str, keys: Keys, otherwise: float = ABSENT) -> Floats:
        """One column at `keys` [n]; `otherwise` where a key is unknown."""
        place, found = find(self.keys, keys)
        return (
            np.where(found, self.columns[column][place], otherwise) if len(self.keys) else np.full(len(keys), otherwise)
        )

    def shrunk(self, keys: Keys) -> Floats:
        """Means at `keys` [n], pulled to 0 where few values stand behind them."""
        count = self.get("count", keys, 0.0)
        return self.get("mean", keys, 0.0) * count / (count + SHRINK)


def find(ordered: Keys, keys: Keys) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """Where `keys` [n] stand among sorted distinct ones, and whether they do."""
    if not len(ordered):
        return np.zeros(len(keys), np.intp), np.zeros(len(keys), bool)
    place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    return place, ordered[place] == keys


@dataclass(frozen=True, eq=False)
class LowRank:
    """A sparse matrix of entities by keys in few dimensions: `left` [E, d], `right` [k, d] for sorted `keys` [k]."""

    left: Floats
    right: Floats
    keys: Keys

    @classmethod
    def of(cls, rows: Keys, columns: Keys, value: Floats, entities: int, rank: int, normed: bool = False) -> LowRank:
        """The best approximation of rank `rank` of the entries (rows [n], columns [n]) = value [n]; others are 0.

        `normed` divides each by the roots of its row's and its column's number of entries: links to hubs say less.
        """
        from scipy import sparse  # type: ignore[import-untyped, unused-ignore]
        from sklearn.utils.extmath import randomized_svd  # type: ignore[import-untyped, unused-ignore]

        keys, place = np.unique(columns, return_inverse=True)
        if normed:
            value = value / np.sqrt(np.bincount(rows, minlength=entities)[rows] * np.bincount(place)[place])
        matrix = sparse.csr_matrix((value, (rows, place)), shape=(entities, len(keys)))
        dimensions = max(1, min(rank, entities - 1, len(keys) - 1))
        left, size, right = randomized_svd(matrix, dimensions, n_iter=3, random_state=0)
        return cls(np.ascontiguousarray(left * size), np.ascontiguousarray(right.T), keys)

    def __call__(self, rows: Keys, columns: Keys, otherwise: float = 0.0) -> Floats:
        """The approximation at rows [n] and columns [n]; `otherwise` for an unknown column."""
        place, found = find(self.keys, columns)
        return np.where(found, np.einsum("nd,nd->n", self.left[rows], self.right[place]), otherwise)


@dataclass(frozen=True, eq=False)
class Echoes:
    """What an edge between two entities says of another one: a line from the weight of one to that of the other.

    For each (relation asked, relation seen, same or opposite direction) that occurs, sorted: how the one weighs, given
    the other, and how far off that is (`spread`, a variance). Means over repeats of a triple.
    """

    edges: Graph
    pairs: Keys
    order: npt.NDArray[np.intp]
    kinds: Keys
    middle_seen: Floats
    middle_asked: Floats
    slope: Floats
    spread: Floats

    @classmethod
    def of(cls, train: Graph, trust: float = 5.0) -> Echoes:
        """Lines of least squares over all pairs of edges in train, each held to flat as if by `trust` more."""
        edges = train.merge_repeated("mean")
        pairs = edges.head.astype(np.int64) * len(edges.entities) + edges.tail
        order = np.argsort(pairs, kind="stable")
        nothing = np.empty(0)
        bare = cls(edges, pairs[order], order, np.empty(0, np.int64), nothing, nothing, nothing, nothing)
        asked, seen, back = bare._meetings(edges.head, edges.tail)
        other = asked != seen
        asked, seen, back = asked[other], seen[other], back[other]
        if not len(asked):
            return bare
        kinds, group, count = np.unique(
            bare._kinds(edges.relation[asked], seen, back), return_inverse=True, return_counts=True
        )
        relations = len(edges.relations)
        mean = fit_trivial(edges)[RELATION_MEAN].elsewhere(np.arange(relations))
        y, x, variance = edges.weight[asked], edges.weight[seen], float(edges.weight.var()) or 1.0

        def total(value: Floats) -> Floats:
            return np.asarray(np.bincount(group, weights=value), np.float64)

        middle_seen = (total(x) + trust * mean[kinds // 2 % relations]) / (count + trust)
        middle_asked = (total(y) + trust * mean[kinds // 2 // relations]) / (count + trust)
        dx, dy = x - middle_seen[group], y - middle_asked[group]
        slope = total(dx * dy) / (total(dx * dx) + trust * variance / 2)
        spread = (total((dy - slope[group] * dx) ** 2) + trust * variance) / (count + trust) + variance / 100
        return cls(edges, bare.pairs, order, kinds, middle_seen, middle_asked, slope, spread / variance)

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> tuple[Floats, Floats]:
        """Weights [n] that edges between head and tail speak for, each by how near its line runs, and how loudly."""
        asked, seen, back = self._meetings(head, tail)
        place, found = find(self.kinds, self._kinds(relation[asked], seen, back))
        asked, seen, place = asked[found], seen[found], place[found]
        guess = self.middle_asked[place] + self.slope[place] * (self.edges.weight[seen] - self.middle_seen[place])
        sure = 1 / self.spread[place]
        voices = np.asarray(np.bincount(asked, weights=sure, minlength=len(head)), np.float64)
        sums = np.bincount(asked, weights=sure * guess, minlength=len(head))
        return np.divide(sums, voices, out=np.full(len(head), ABSENT), where=voices > 0), voices

    def _meetings(self, head: AnyIds, tail: AnyIds) -> tuple[Keys, Keys, Keys]:
        """Each triple with each edge between its two entities: places [m] of both, and 1 where the edge runs back."""
        found: list[tuple[Keys, Keys, Keys]] = []
        for back, (first, second) in enumerate(((head, tail), (tail, head))):
            keys = first.astype(np.int64) * len(self.edges.entities) + second
            start = np.searchsorted(self.pairs, keys, "left")
            count = np.searchsorted(self.pairs, keys, "right") - start
            asked = np.repeat(np.arange(len(keys)), count)
            place = np.arange(len(asked)) + np.repeat(start - (np.cumsum(count) - count), count)
            found.append((asked, self.order[place], np.full(len(asked), back, np.int64)))
        asked, seen, back_ = (np.concatenate(part) for part in zip(*found, strict=True))
        return asked, seen, back_

    def _kinds(self, relation: AnyIds, seen: Keys, back: Keys) -> Keys:
        many = len(self.edges.relations)
        return np.asarray((relation.astype(np.int64) * many + self.edges.relation[seen]) * 2 + back, np.int64)


class Surroundings:
    """The numbers of any triple, asked of one graph whose weights are shares in [0, 1].

    `rows(head, relation, tail)` takes ids [n] and gives float64 [n, features]; `names` says what the columns are.
    """

    def __init__(self, train: Graph) -> None:
        self.train = train
        self.entities, self.relations = len(train.entities), len(train.relations)
        head, relation, tail = (ids.astype(np.int64) for ids in (train.head, train.relation, train.tail))
        weight = train.weight
        self.by_relation = Table.of(relation, weight)
        self.overall = float(weight.mean()) if len(weight) else 0.0
        off = weight - self._usual(relation)
        heads, tails = head * self.relations + relation, tail * self.relations + relation
        self.of_head, self.of_tail = Table.of(heads, off), Table.of(tails, off)
        self.as_head, self.as_tail = Table.of(head, off), Table.of(tail, off)
        self.either = Table.of(np.concatenate([head, tail]), np.concatenate([off, off]))
        self.triples, self.pairs = Table.of(train.keys, weight), Table.of(head * self.entities + tail, weight)
        self.echoes = Echoes.of(train)
        left = off - 0.7 * (self.of_head.shrunk(heads) + self.of_tail.shrunk(tails))
        one = np.ones(len(weight))
        self.weights_out = LowRank.of(head, tails, left, self.entities, RANK)
        self.weights_in = LowRank.of(tail, heads, left, self.entities, RANK)
        self.links_out = LowRank.of(head, tails, one, self.entities, LINK_RANK, normed=True)
        self.links_in = LowRank.of(tail, heads, one, self.entities, LINK_RANK, normed=True)
        ends, sides = np.concatenate([head, tail]), np.concatenate([2 * relation, 2 * relation + 1])
        self.roles = LowRank.of(ends, sides, np.ones(len(ends)), self.entities, LINK_RANK, normed=True)
        self.neighbours, self.nearness = _neighbours(train)
        self.names: tuple[str, ...] = ()

    def _usual(self, relation: Keys) -> Floats:
        """A relation's mean [n], pulled to the mean of all where few edges stand behind it."""
        count = self.by_relation.get("count", relation, 0.0)
        mean = self.by_relation.get("mean", relation, self.overall)
        return np.asarray((mean * count + 5 * self.overall) / (count + 5), np.float64)

    def rows(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> Floats:
        """The numbers of triples, ids [n] -> [n, features]."""
        h, r, t = (ids.astype(np.int64) for ids in (head, relation, tail))
        columns = self._ends(h, r, t) | self._between(h, r, t) | self._guesses(h, r, t)
        self.names = tuple(columns)
        return np.column_stack(list(columns.values()))

    def _ends(self, h: Keys, r: Keys, t: Keys) -> dict[str, Floats]:
        """How heavy, and how many, the edges of the relation and of both ends are."""
        hr, tr = h * self.relations + r, t * self.relations + r
        found = {"relation": r.astype(np.float64), "usual": self._usual(r), "middle": self.by_relation.get("middle", r)}
        for name, table, keys in (("head", self.of_head, hr), ("tail", self.of_tail, tr)):
            found[f"{name} here"] = table.shrunk(keys)
            found |= {f"{name} here, {column}": table.get(column, keys) for column in ("least", "middle", "greatest")}
            found[f"{name} here, count"] = table.get("count", keys, 0.0)
        tables = {"as head": self.as_head, "as tail": self.as_tail, "at all": self.either}
        for name, ids in (("head", h), ("tail", t)):
            for role, table in tables.items():
                found[f"{name} {role}"] = table.shrunk(ids)
                found[f"{name} {role}, count"] = table.get("count", ids, 0.0)
        found["tail as head here"] = self.of_head.shrunk(tr)
        found["head as tail here"] = self.of_tail.shrunk(hr)
        return found

    def _between(self, h: Keys, r: Keys, t: Keys) -> dict[str, Floats]:
        """Weights that train has between the two ends."""
        key: Any = self.train.keys_of  # ids of any width will do
        asked = {
            "same": (self.triples, key(h, r, t)),
            "back": (self.triples, key(t, r, h)),
            "pair": (self.pairs, h * self.entities + t),
            "pair back": (self.pairs, t * self.entities + h),
        }
        found: dict[str, Floats] = {}
        for name, (table, keys) in asked.items():
            found |= {f"{name}, {column}": table.get(column, keys) for column in ("mean", "least", "greatest")}
            found[f"{name}, count"] = table.get("count", keys, 0.0)
        found["echo"], found["echo, voices"] = self.echoes(h, r, t)
        return found

    def _guesses(self, h: Keys, r: Keys, t: Keys) -> dict[str, Floats]:
        """What few dimensions, and common neighbours, make likely."""
        hr, tr = h * self.relations + r, t * self.relations + r
        left = self.links_out.left
        length = np.linalg.norm(left, axis=1) + 1e-12
        common, near, heavy = self._common(h, t)
        return {
            "weight out": self.weights_out(h, tr, ABSENT),
            "weight in": self.weights_in(t, hr, ABSENT),
            "link out": self.links_out(h, tr),
            "link in": self.links_in(t, hr),
            "head's role": self.roles(h, 2 * r),
            "tail's role": self.roles(t, 2 * r + 1),
            "alike": np.einsum("nd,nd->n", left[h], left[t]) / (length[h] * length[t]),
            "common": common,
            "common, rare": near,
            "common, weight": heavy,
        }

    def _common(self, h: Keys, t: Keys) -> tuple[Floats, Floats, Floats]:
        """Neighbours of both ends: how many, how rare ones (Adamic and Adar), and how heavy their edges are."""
        parts: list[tuple[Any, Any, Any]] = []
        for start in range(0, len(h), AT_ONCE):
            rows = slice(start, start + AT_ONCE)
            first, second = self.neighbours[h[rows]], self.neighbours[t[rows]]
            both = first.multiply(second)
            shared = (both > 0).astype(np.float64)
            count = np.asarray(shared.sum(1)).ravel()
            parts.append((count, shared @ self.nearness, np.asarray(both.sum(1)).ravel() / np.maximum(count, 1)))
        if not parts:
            return np.empty(0), np.empty(0), np.empty(0)
        common, near, heavy = (np.concatenate(part) for part in zip(*parts, strict=True))
        return common, near, heavy


def _neighbours(train: Graph) -> tuple[Any, Floats]:
    """Entities by entities, either direction, the heaviest edge of each (plus 1, so that none is 0).

    And 1 / log degree [E]. Of a hub only the first neighbours stay.
    """
    from scipy import sparse

    entities = len(train.entities)
    first = np.concatenate([train.head, train.tail]).astype(np.int64)
    keys = first * entities + np.concatenate([train.tail, train.head])
    table = Table.of(keys, np.concatenate([train.weight, train.weight]) + 1.0)
    row = table.keys // entities
    degree = np.bincount(row, minlength=entities)
    place = np.arange(len(row)) - (np.cumsum(degree) - degree)[row]
    kept = place < NEIGHBOURS
    entries = (table.columns["greatest"][kept], (row[kept], table.keys[kept] % entities))
    return sparse.csr_matrix(entries, shape=(entities, entities)), 1 / np.log(degree + 2.0)
