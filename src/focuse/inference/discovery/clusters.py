"""Groups of entities with like embeddings, each described by who stands in its middle and what is typical of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from focuse.data.graph import Graph
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError, printable
from focuse.inference.answers import write_table
from focuse.inference.discovery.likeness import unit_rows
from focuse.inference.discovery.scope import Ids
from focuse.option_strings import choose

METHODS = ("kmeans", "hdbscan")
COUNTS = (2, 3, 5, 8, 12, 20, 30, 50)  # numbers of clusters that are tried where none is given
JUDGED = 2_000  # entities that decide between them
SMALL = 20_000  # entities up to which k-means sees all at each step
MIDDLE = 5  # central entities shown
HARDLY = 0.1  # silhouette below which groups are hardly apart
TYPICAL = 4  # relations, and neighbours, shown
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Cluster:
    """A group: its `size`, the entities nearest to its middle, and what is typical of it, strongest first.

    `relations` are (relation, side, share): of the ends of edges in the group, such a share are heads (or tails) of
    this relation, more than elsewhere. `neighbours` are (relation, direction, entity, members): so many members have
    an edge of this relation to (or from) that entity. `cohesion` is the mean cosine of members with their middle.
    """

    number: int
    size: int
    central: tuple[str, ...]
    relations: tuple[tuple[str, str, float], ...]
    neighbours: tuple[tuple[str, str, str, int], ...]
    cohesion: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "size": self.size,
            "central": list(self.central),
            "relations": [dict(zip(("relation", "side", "share"), row, strict=True)) for row in self.relations],
            "neighbours": [
                dict(zip(("relation", "direction", "entity", "members"), row, strict=True)) for row in self.neighbours
            ],
            "cohesion": self.cohesion,
        }


class Clusters(list[Cluster]):
    """Clusters, the largest first; `labels` [E] are their numbers, 0 for entities in none; `write` makes a file of all.

    `similarity` [E] is each entity's cosine with the middle of its cluster, `silhouette` how far apart clusters are
    (1: far, 0: not at all; of a sample, None where there is one cluster); `notes` say where that is hardly so.
    """

    def __init__(
        self,
        names: Graph,
        labels: Ids,
        similarity: Floats,
        groups: list[Cluster],
        how: str,
        silhouette: float | None = None,
    ) -> None:
        super().__init__(groups)
        self.names, self.labels, self.similarity, self.how = names, labels, similarity, how
        self.silhouette = silhouette

    @property
    def notes(self) -> tuple[str, ...]:
        if self.silhouette is None or self.silhouette >= HARDLY:
            return ()
        return (f"the groups are hardly apart (silhouette {self.silhouette:.2f}): their bounds say little",)

    @property
    def alone(self) -> int:
        """Entities in no cluster."""
        return int((self.labels == 0).sum())

    def of(self, entity: str) -> int:
        """The number of an entity's cluster, 0 if it is in none."""
        return int(self.labels[self.names.entities.id(entity, "entity")])

    def members(self, number: int) -> list[str]:
        """The entities of a cluster, the most central first."""
        rows = np.flatnonzero(self.labels == number)
        order = rows[np.argsort(-self.similarity[rows], kind="stable")]
        return [str(name) for name in self.names.entities.take(order).to_pylist()]

    def to_dict(self) -> dict[str, Any]:
        groups = [group.to_dict() for group in self]
        notes, apart = list(self.notes), self.silhouette
        return {"clusters": groups, "alone": self.alone, "how": self.how, "silhouette": apart, "notes": notes}

    def to_arrow(self) -> pa.Table:
        """entity, cluster (0: in none) and similarity to its middle, one row an entity."""
        return pa.table({"entity": self.names.entities.column, "cluster": self.labels, "similarity": self.similarity})

    def write(self, path: str | Path) -> None:
        """Write all assignments to .tsv, .csv (with a header) or .parquet, whole or not at all."""
        write_table(self.to_arrow(), Path(path))

    def __str__(self) -> str:
        lines = [self.how]
        for group in self:
            middle = ", ".join(map(printable, group.central))
            lines.append(f"{group.number:>3}  {group.size:,} entities, cohesion {group.cohesion:.2f}: {middle}")
            ends = [f"{side} of {printable(name)} ({share:.0%})" for name, side, share in group.relations]
            if ends:
                lines.append(f"     often {', '.join(ends)}")
            links = [
                f"{'→' if way == 'to' else '←'} {printable(name)} {printable(other)} ({count})"
                for name, way, other, count in group.neighbours
            ]
            if links:
                lines.append(f"     linked {', '.join(links)}")
        if self.alone:
            lines.append(f"{self.alone:,} entities are in no cluster")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)


def find_clusters(
    scorer: TableScorer,
    names: Graph,
    count: int | None = None,
    method: str = "kmeans",
    smallest: int = 5,
    seed: int = 0,
) -> Clusters:
    """Group the entities of a graph by their embeddings' directions.

    `count` clusters of k-means (None: the number that separates best, of a few), or as many as HDBSCAN finds with at
    least `smallest` members.
    """
    choose("method", method, METHODS)
    rows = unit_rows(scorer).cpu().numpy().astype(np.float32)
    if method == "hdbscan":
        found, how = _by_density(rows, count, smallest)
    else:
        found, how = _by_means(rows, count, seed)
    kinds, labels, sizes = np.unique(found[found >= 0], return_inverse=True, return_counts=True)
    places = np.full(len(rows), 0, np.int64)
    order = np.argsort(-sizes, kind="stable")
    number = np.empty(len(kinds), np.int64)
    number[order] = np.arange(1, len(kinds) + 1)
    places[found >= 0] = number[labels]
    middles = _middles(rows, places, len(kinds))
    similarity = np.einsum("ed,ed->e", rows, middles[places]).astype(np.float32)
    groups = _described(names, places, similarity, len(kinds))
    placed = np.flatnonzero(places)
    sample = np.random.default_rng(seed).permutation(placed)[:JUDGED]
    apart = _separation(rows[sample], places[sample])
    return Clusters(names, places, similarity, groups, how, apart)


def _by_means(rows: Floats, count: int | None, seed: int) -> tuple[npt.NDArray[Any], str]:
    if count is not None and (isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= len(rows)):
        raise FocuseError(f"count {count!r}: give a number of clusters from 1 to the {len(rows):,} entities")
    if count is not None:
        return _means(rows, count, seed), f"{count:,} clusters by k-means"
    sample = np.random.default_rng(seed).permutation(len(rows))[:JUDGED]
    tried = [number for number in COUNTS if number < len(sample)] or [1]
    made = {number: _means(rows, number, seed) for number in tried}
    if tried == [1]:
        return made[1], "1 cluster: too few entities for more"
    told = {number: _separation(rows[sample], labels[sample]) for number, labels in made.items()}
    judged = {number: -1.0 if apart is None else apart for number, apart in told.items()}
    best = max(tried, key=lambda number: judged[number])
    of = ", ".join(map(str, tried))
    return made[best], f"{best} clusters by k-means, the best separated of {of} (silhouette {judged[best]:.2f})"


def _separation(rows: Floats, labels: npt.NDArray[Any]) -> float | None:
    """The silhouette of a sample; None where it says nothing."""
    from sklearn.metrics import silhouette_score

    if not 1 < len(np.unique(labels)) < len(labels):
        return None
    return float(silhouette_score(rows, labels))


def _means(rows: Floats, count: int, seed: int) -> npt.NDArray[Any]:
    import warnings

    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than clusters: some stay empty
        if len(rows) <= SMALL:
            return np.asarray(KMeans(count, n_init=3, random_state=seed).fit_predict(rows))
        return np.asarray(MiniBatchKMeans(count, n_init=3, batch_size=4096, random_state=seed).fit_predict(rows))


def _by_density(rows: Floats, count: int | None, smallest: int) -> tuple[npt.NDArray[Any], str]:
    from sklearn.cluster import HDBSCAN

    if count is not None:
        raise FocuseError("hdbscan finds the number of clusters itself; leave count out, or use kmeans")
    if smallest < 2:
        raise FocuseError(f"smallest {smallest}: give at least 2 members a cluster")
    if len(rows) < smallest:
        raise FocuseError(f"smallest {smallest}: the graph has {len(rows):,} entities; give fewer")
    found = np.asarray(HDBSCAN(min_cluster_size=smallest, copy=True).fit_predict(rows))
    return found, f"{len(np.unique(found[found >= 0])):,} clusters by HDBSCAN, {smallest} members or more each"


def _middles(rows: Floats, labels: Ids, count: int) -> Floats:
    """Directions of the clusters [count + 1, d]; the first, of those in none, is 0."""
    sums = np.zeros((count + 1, rows.shape[1]), np.float32)
    np.add.at(sums, labels, rows)
    sums[0] = 0
    length = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.asarray(sums / np.where(length > 0, length, 1), np.float32)


def _described(names: Graph, labels: Ids, similarity: Floats, count: int) -> list[Cluster]:
    sizes = np.bincount(labels, minlength=count + 1)
    relations, neighbours = _typical_relations(names, labels), _typical_neighbours(names, labels)
    groups = []
    for number in range(1, count + 1):
        members = np.flatnonzero(labels == number)
        central = members[np.argsort(-similarity[members], kind="stable")[:MIDDLE]]
        groups.append(
            Cluster(
                number,
                int(sizes[number]),
                tuple(str(name) for name in names.entities.take(central).to_pylist()),
                tuple(relations.get(number, [])),
                tuple(neighbours.get(number, [])),
                float(similarity[members].mean()),
            )
        )
    return groups


def _ends(names: Graph) -> tuple[Ids, Ids, Ids]:
    """Every edge from both its ends: the entity, what it is there (2 · relation + 1 for a tail), and the other."""
    head, relation, tail = (ids.astype(np.int64) for ids in (names.head, names.relation, names.tail))
    return np.concatenate([head, tail]), np.concatenate([2 * relation, 2 * relation + 1]), np.concatenate([tail, head])


def _typical(group: Ids, kind: Ids, kinds: int) -> tuple[Ids, Ids, Ids, npt.NDArray[np.float64]]:
    """The pairs (group, kind) that occur more often than by chance, most telling first: group, kind, count, share.

    Telling is count · log(share in the group / share elsewhere), a log-likelihood.
    """
    pair, count = np.unique(group * kinds + kind, return_counts=True)
    of, what = pair // kinds, pair % kinds
    here, overall = np.bincount(of, weights=count), np.bincount(what, weights=count, minlength=kinds)
    share = count / here[of]
    lift = count * np.log(share / (overall[what] / count.sum()))
    rows = np.flatnonzero((of > 0) & (lift > 0))
    rows = rows[np.lexsort((what[rows], -lift[rows], of[rows]))]
    return of[rows], what[rows], count[rows], share[rows]


def _typical_relations(names: Graph, labels: Ids) -> dict[int, list[tuple[str, str, float]]]:
    entity, kind, _ = _ends(names)
    found: dict[int, list[tuple[str, str, float]]] = {}
    for of, what, _, share in zip(*_typical(labels[entity], kind, 2 * len(names.relations)), strict=True):
        listed = found.setdefault(int(of), [])
        if len(listed) < TYPICAL:
            listed.append((names.relations[what // 2], "tail" if what % 2 else "head", float(share)))
    return found


def _typical_neighbours(names: Graph, labels: Ids) -> dict[int, list[tuple[str, str, str, int]]]:
    entity, kind, other = _ends(names)
    entities = max(len(names.entities), 1)
    once = np.unique(np.stack([entity, kind * entities + other], 1), axis=0)  # an edge that repeats counts once
    distinct, place = np.unique(once[:, 1], return_inverse=True)
    of, what, count, _ = _typical(labels[once[:, 0]], place.ravel(), len(distinct))
    first = np.r_[True, of[1:] != of[:-1]] if len(of) else np.empty(0, bool)
    since = np.arange(len(of)) - np.maximum.accumulate(np.where(first, np.arange(len(of)), 0))
    found: dict[int, list[tuple[str, str, str, int]]] = {}
    for at in np.flatnonzero((since < TYPICAL) & (count > 1)):
        role, neighbour = divmod(int(distinct[what[at]]), entities)
        way = "from" if role % 2 else "to"
        row = names.relations[role // 2], way, names.entities[neighbour], int(count[at])
        found.setdefault(int(of[at]), []).append(row)
    return found
