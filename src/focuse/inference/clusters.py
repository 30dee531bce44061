"""Clusters of entities with similar embeddings, described by central entities and by typical edges."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from focuse.data.graph import Graph
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.inference.link_search import Ids
from focuse.inference.similarity import comparable_rows
from focuse.option_strings import choose
from focuse.results import ResultTable

METHODS = ("kmeans", "hdbscan")
TRIED_COUNTS = (2, 3, 5, 8, 12, 20, 30, 50)  # numbers of clusters that are compared if none is given
SILHOUETTE_SAMPLE = 2_000  # entities
MINI_BATCH_ENTITIES = 20_000  # more entities are clustered in small batches
LOW_SILHOUETTE = 0.1
MIN_LIFT = 1.2  # of a relation or neighbor that is typical of a cluster
SHOWN = 4  # central entities, relations and neighbors that describe a cluster
Floats = npt.NDArray[np.float32]


def find_clusters(
    scorer: TableScorer,
    graph: Graph,
    n_clusters: int | None = None,
    method: str = "kmeans",
    min_cluster_size: int = 5,
    seed: int = 0,
) -> ResultTable:
    """Cluster entities by the directions of their embeddings; see `Run.clusters`."""
    choose("method", method, METHODS)
    rows = comparable_rows(scorer).cpu().numpy().astype(np.float32)
    is_kmeans = method == "kmeans"
    labels, note = _kmeans(rows, n_clusters, seed) if is_kmeans else _hdbscan(rows, n_clusters, min_cluster_size)
    clusters = _number_by_size(labels)
    centroids = np.zeros((clusters.max(initial=0) + 1, rows.shape[1]), np.float32)
    np.add.at(centroids, clusters, rows)
    centroids[0] = 0  # of entities that are in no cluster
    centroids /= np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-30)
    similarity = np.einsum("ed,ed->e", rows, centroids[clusters]).astype(np.float64)
    sample = np.random.default_rng(seed).permutation(np.flatnonzero(clusters))[:SILHOUETTE_SAMPLE]
    silhouette = _silhouette(rows[sample], clusters[sample])
    notes = [note]
    if silhouette is not None and silhouette < LOW_SILHOUETTE:
        notes.append(f"the clusters are poorly separated (silhouette {silhouette:.2f})")
    if (clusters == 0).any():
        notes.append(f"{(clusters == 0).sum():,} entities are in no cluster")
    order = np.lexsort((-similarity, np.where(clusters, clusters, len(centroids))))
    columns = {
        "entity": graph.entities.take(order),
        "cluster": pa.array(clusters[order], mask=clusters[order] == 0),
        "similarity": np.where(clusters[order] == 0, np.nan, similarity[order]),
    }
    summary = ResultTable(_summary(graph, clusters, similarity), notes=notes, empty="no clusters")
    info = {"method": method, "silhouette": silhouette, "summary": summary}
    return ResultTable(columns, notes=notes, info=info, empty="no entities")


def _kmeans(rows: Floats, n_clusters: int | None, seed: int) -> tuple[Ids, str]:
    """Return labels [E] of k-means, and how they were made."""
    if n_clusters is not None:
        if isinstance(n_clusters, bool) or not isinstance(n_clusters, int) or not 1 <= n_clusters <= len(rows):
            raise FocuseError(f"n_clusters {n_clusters!r}: give a number from 1 to the {len(rows):,} entities")
        return _fit_kmeans(rows, n_clusters, seed), f"{n_clusters:,} clusters by k-means"
    sample = np.random.default_rng(seed).permutation(len(rows))[:SILHOUETTE_SAMPLE]
    tried = {count: _fit_kmeans(rows, count, seed) for count in TRIED_COUNTS if count < len(sample)}
    if not tried:
        return np.zeros(len(rows), np.int64), "1 cluster: too few entities for more"
    found = {count: _silhouette(rows[sample], labels[sample]) for count, labels in tried.items()}
    silhouettes = {count: -1.0 if value is None else value for count, value in found.items()}
    best = max(tried, key=lambda count: silhouettes[count])
    note = f"{best} clusters by k-means: the best silhouette ({silhouettes[best]:.2f}) of {', '.join(map(str, tried))}"
    return tried[best], note


def _fit_kmeans(rows: Floats, n_clusters: int, seed: int) -> Ids:
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # if there are fewer distinct rows than clusters
        if len(rows) <= MINI_BATCH_ENTITIES:
            return np.asarray(KMeans(n_clusters, n_init=3, random_state=seed).fit_predict(rows))
        return np.asarray(MiniBatchKMeans(n_clusters, n_init=3, batch_size=4096, random_state=seed).fit_predict(rows))


def _hdbscan(rows: Floats, n_clusters: int | None, min_cluster_size: int) -> tuple[Ids, str]:
    """Return labels [E] of HDBSCAN, −1 for entities in no cluster, and how they were made."""
    from sklearn.cluster import HDBSCAN

    if n_clusters is not None:
        raise FocuseError("hdbscan finds the number of clusters itself; leave n_clusters out, or use kmeans")
    if not 2 <= min_cluster_size <= len(rows):
        raise FocuseError(f"min_cluster_size {min_cluster_size}: give a number from 2 to the {len(rows):,} entities")
    labels = np.asarray(HDBSCAN(min_cluster_size=min_cluster_size, copy=True).fit_predict(rows))
    return labels, f"{labels.max(initial=-1) + 1:,} clusters by HDBSCAN, each of {min_cluster_size} or more entities"


def _silhouette(rows: Floats, labels: Ids) -> float | None:
    """Return the silhouette of some entities; None if they are all in one cluster, or each in its own."""
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(rows, labels)) if 1 < len(np.unique(labels)) < len(labels) else None


def _number_by_size(labels: Ids) -> Ids:
    """Return the number of the cluster of each entity: 1 for the largest, 0 for entities in no cluster (−1)."""
    found, index, sizes = np.unique(labels[labels >= 0], return_inverse=True, return_counts=True)
    number = np.empty(len(found), np.int64)
    number[np.argsort(-sizes, kind="stable")] = np.arange(1, len(found) + 1)
    clusters = np.zeros(len(labels), np.int64)
    clusters[labels >= 0] = number[index]
    return clusters


# ---- description of clusters ----------------------------------------------------------------------------------------


def _summary(graph: Graph, clusters: Ids, similarity: Any) -> dict[str, Any]:
    """Return the columns of the table that describes clusters."""
    count = int(clusters.max(initial=0))
    sizes = np.bincount(clusters, minlength=count + 1)[1:]
    order = np.lexsort((-similarity, clusters))
    order = order[clusters[order] > 0]
    members = np.split(order, np.cumsum(sizes)[:-1]) if count else []
    central = [", ".join(graph.entities.take(ids[:SHOWN]).to_pylist()) for ids in members]
    return {
        "cluster": np.arange(1, count + 1),
        "size": sizes,
        "cohesion": np.bincount(clusters, weights=similarity, minlength=count + 1)[1:] / sizes,
        "central": pa.array(central, pa.string()),
        "relations": _typical_edges(graph, clusters, count, with_neighbor=False),
        "neighbors": _typical_edges(graph, clusters, count, with_neighbor=True),
    }


def _typical_edges(graph: Graph, clusters: Ids, count: int, with_neighbor: bool) -> pa.Array:
    """Return the relations (and directions) that are typical of each cluster, or the neighbors by a relation.

    They are ordered by m · log(share of members that have it / share of all entities), a log-likelihood ratio, where m
    is the number of members that have it.
    """
    head, relation, tail = (ids.astype(np.int64) for ids in (graph.head, graph.relation, graph.tail))
    entity, other = np.concatenate([head, tail]), np.concatenate([tail, head])
    entities = max(len(graph.entities), 1)
    feature = np.concatenate([2 * relation, 2 * relation + 1]) * entities + (other if with_neighbor else 0)
    distinct, feature = np.unique(feature, return_inverse=True)
    once = np.unique(entity * len(distinct) + feature)  # repeated edges count once
    entity, feature = once // max(len(distinct), 1), once % max(len(distinct), 1)
    pair, members = np.unique(clusters[entity] * len(distinct) + feature, return_counts=True)
    cluster, feature = pair // max(len(distinct), 1), pair % max(len(distinct), 1)
    share = members / np.bincount(clusters, minlength=count + 1)[cluster]
    lift = share * len(clusters) / np.bincount(feature, weights=members)[feature]
    ratio = members * np.log(lift)
    rows = np.flatnonzero((cluster > 0) & (lift >= MIN_LIFT) & (members > 1))
    texts: list[list[str]] = [[] for _ in range(count)]
    for row in rows[np.lexsort((feature[rows], -ratio[rows], cluster[rows]))]:
        role, neighbor = divmod(int(distinct[feature[row]]), entities)
        name, found = graph.relations[role // 2], texts[cluster[row] - 1]
        if len(found) < SHOWN:
            edge = f"{'tail' if role % 2 else 'head'} of {name}"
            edge = f"{'←' if role % 2 else '→'} {name} {graph.entities[neighbor]}" if with_neighbor else edge
            found.append(f"{edge} ({share[row]:.0%})")
    return pa.array([", ".join(found) for found in texts], pa.string())
