"""Compare entities by their embeddings: similar entities, analogies, clusters and duplicates."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.data.graph import Graph
from focuse.data.weights import WeightScaler, heavy_tail_offsets
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.inference.calibration import plain_probability
from focuse.inference.link_search import Ids, TopLinks
from focuse.inference.predict import MISSING, BatchPredictor, Names, as_list, find_names, top_scores
from focuse.inference.weight_predictor import can_predict_weights
from focuse.option_strings import check_count, check_fraction, check_seed
from focuse.results import ResultTable
from focuse.system import chunks

if TYPE_CHECKING:
    from focuse.api import Run

BLOCK_SIMILARITIES = 1 << 24  # 64 MB
Floats = npt.NDArray[np.float64]


def entity_rows(scorer: TableScorer) -> Tensor:
    """Return the embeddings [E, d] that the model compares, scaled to length 1.

    They are encoded if the model has an encoder, and without node attributes.
    """
    rows = scorer.encoded_tables()["entity"] if scorer.model.encoder is not None else scorer.tables["entity"]
    if not torch.isfinite(rows).all():
        raise FocuseError("the embeddings are not finite: training diverged; lower the learning rate")
    return F.normalize(rows, dim=1)


# ---- similar entities -----------------------------------------------------------------------------------------------


@torch.no_grad()
def similar(run: Run, entity: str | Sequence[str], top: int, candidates: Names, mean: bool) -> ResultTable:
    """Return the entities with the most similar embeddings; see `Run.similar`."""
    top, entities, graph = check_count("top", top), as_list(entity), run.splits.train
    if not entities:
        raise FocuseError("similar: give at least one entity")
    among = find_names(candidates, graph.entities, "entity")
    given = np.array([graph.entities.id(name, "entity") for name in entities])
    rows = entity_rows(run.scorer)
    queries = rows[torch.from_numpy(given).to(rows.device)]
    excluded = given[:, None]
    if mean:
        excluded, entities = given[None], [" + ".join(entities)]
        queries = F.normalize(queries.mean(0, keepdim=True), dim=1)
    some = rows if among is None else rows[torch.from_numpy(among).to(rows.device)]
    count = min(top + excluded.shape[1], len(some))
    blocks = chunks(len(queries), max(1, BLOCK_SIMILARITIES // max(len(some), 1)))
    found = [top_scores(queries[block] @ some.T, count) for block in blocks]
    similarity, neighbor = (torch.cat(part).cpu().numpy() for part in zip(*found, strict=True))
    neighbor = neighbor if among is None else among[neighbor]
    shown = (neighbor[:, :, None] != excluded[:, None]).all(2)
    shown &= shown.cumsum(1) <= top
    row, column = np.nonzero(shown)
    columns = {
        "entity": pa.array(list(entities), pa.string()).take(pa.array(row)),
        "rank": shown.cumsum(1)[row, column],
        "neighbor": graph.entities.take(neighbor[row, column]),
        "similarity": similarity[row, column].astype(np.float64),
    }
    return ResultTable(columns, empty="no similar entities")


# ---- analogies ------------------------------------------------------------------------------------------------------

MAX_LINKS = 3  # relations from A to B that an analogy follows
MIN_LINK_STRENGTH = 0.5  # of a relation from A to B, relative to the strongest one
ANSWERS_PER_RELATION = 200  # the best by score, which are then ordered by probability
ANSWER_COLUMNS = ("rank", "entity", "strength", "relation", "direction", "probability", "known")


def analogies(run: Run, a: str, b: str, c: str, top: int, new_only: bool) -> ResultTable:
    """Complete the analogy: a is to b as c is to what? See `Run.analogies`."""
    check_count("top", top)
    graph = run.splits.train
    a_id, b_id, c_id = (graph.entities.id(name, "entity") for name in (a, b, c))
    links, answers = _links(run, a_id, b_id), []
    for link in links:
        relation, forward = graph.relations.id(link["relation"]), link["direction"] == "forward"
        side = "tail" if forward else "head"
        seen = np.unique(getattr(graph, side)[graph.relation == relation]).astype(np.int64)  # train has them there
        asked = (c_id, relation, MISSING) if forward else (MISSING, relation, c_id)
        for row in _complete(run, asked, ANSWERS_PER_RELATION, seen):
            answer = {"entity": getattr(row, side), "probability": row.probability, "known": row.known}
            answers.append(link | answer | {"strength": link["strength"] * _strength(row)})
    ids = graph.entities.ids([row["entity"] for row in answers])
    order = np.lexsort((ids, [-row["strength"] for row in answers]))
    order = order[np.sort(np.unique(ids[order], return_index=True)[1])]  # the strongest link to each entity
    ranked = enumerate((answers[row] for row in order if ids[row] not in (a_id, c_id)), 1)
    rows = [{"rank": rank, **row} for rank, row in ranked if not (new_only and row["known"])][:top]
    note = f"relations from {a} to {b} that were followed: {', '.join(link['relation'] for link in links)}"
    columns = {name: [row[name] for row in rows] for name in ANSWER_COLUMNS}
    return ResultTable(columns, notes=[note], info={"links": ResultTable(pa.Table.from_pylist(links))})


def _complete(run: Run, asked: tuple[int, int, int], top: int, candidates: Ids | None = None) -> ResultTable:
    """Return the best completions of a triple of ids, one of which is MISSING."""
    graphs = [run.splits.train, run.splits.valid, run.splits.test]
    predictor = BatchPredictor(run.scorer, graphs, top, candidates=candidates)
    weights = run.weight_predictor(full=True) if can_predict_weights(run) else None
    return predictor.predict(np.array(asked)[:, None], weights)


def _links(run: Run, a: int, b: int) -> list[dict[str, Any]]:
    """Return the strongest links between A and B: relation, direction, strength (1 if known), and whether known."""
    graph, found = run.splits.train, []
    for direction, head, tail in (("forward", a, b), ("backward", b, a)):
        seen = (set(graph.relation[graph.head == head].tolist()), set(graph.relation[graph.tail == tail].tolist()))
        rows = _complete(run, (head, MISSING, tail), len(graph.relations))
        for relation, row in sorted((graph.relations.id(row.relation), row) for row in rows):
            link = {"relation": row.relation, "direction": direction}
            link |= {"strength": 1.0 if row.known else _strength(row), "known": row.known}
            # A relation that never has these entities on its sides is unlikely, whatever the model predicts.
            found.append((sum(relation in side for side in seen), link))
    most = max(sides for sides, _ in found)
    found.sort(key=lambda one: (not one[1]["known"], -one[0], -one[1]["strength"]))
    best = [link for sides, link in found[:MAX_LINKS] if link["known"] or sides == most]
    best = [link for link in best if link["strength"] >= MIN_LINK_STRENGTH * best[0]["strength"]]
    return [link for link in best if link["known"]] or best


def _strength(row: Any) -> float:
    """Return the probability of a predicted link, or its confidence or the logistic of its score if it has none."""
    for value in (row.probability, row.confidence):
        if value is not None:
            return float(value)
    return float(plain_probability(np.array(row.score)))


# ---- clusters -------------------------------------------------------------------------------------------------------

TRIED_COUNTS = (2, 3, 5, 8, 12, 20, 30, 50)  # numbers of clusters that are compared if none is given
SILHOUETTE_SAMPLE = 2_000  # entities
MINI_BATCH_ENTITIES = 20_000  # more entities are clustered in small batches
LOW_SILHOUETTE = 0.1
MIN_LIFT = 1.2  # of a relation or neighbor that is typical of a cluster
SHOWN = 4  # central entities, relations and neighbors that describe a cluster


def find_clusters(scorer: TableScorer, graph: Graph, n_clusters: int | None = None, seed: int = 0) -> ResultTable:
    """Cluster entities by the directions of their embeddings; see `Run.clusters`."""
    rows = entity_rows(scorer).cpu().numpy().astype(np.float32)
    labels, silhouette, note = _kmeans(rows, n_clusters, seed)
    _, labels, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    by_size = np.argsort(-sizes, kind="stable")
    sizes, clusters = sizes[by_size], np.argsort(by_size)[labels]  # from 0, the largest first
    centroids = np.zeros((len(sizes), rows.shape[1]), np.float32)
    np.add.at(centroids, clusters, rows)
    centroids /= np.maximum(np.linalg.norm(centroids, axis=1, keepdims=True), 1e-30)
    similarity = np.einsum("ed,ed->e", rows, centroids[clusters]).astype(np.float64)
    notes = [note]
    if silhouette is not None and silhouette < LOW_SILHOUETTE:
        notes.append(f"the clusters are poorly separated (silhouette {silhouette:.2f})")
    order = np.lexsort((-similarity, clusters))
    members = np.split(order, np.cumsum(sizes)[:-1])
    central = [", ".join(graph.entities.take(ids[:SHOWN]).to_pylist()) for ids in members]
    summary = {
        "cluster": np.arange(1, len(sizes) + 1),
        "size": sizes,
        "cohesion": np.bincount(clusters, weights=similarity) / sizes,
        "central": pa.array(central, pa.string()),
        "relations": _typical_edges(graph, clusters, with_neighbor=False),
        "neighbors": _typical_edges(graph, clusters, with_neighbor=True),
    }
    info = {"silhouette": silhouette, "summary": ResultTable(summary, notes=notes)}
    columns = {
        "entity": graph.entities.take(order),
        "cluster": clusters[order] + 1,
        "similarity": similarity[order],
    }
    return ResultTable(columns, notes=notes, info=info)


def _kmeans(rows: npt.NDArray[np.float32], n_clusters: int | None, seed: int) -> tuple[Ids, float | None, str]:
    """Return labels [E], their silhouette (None for a single cluster), and how they were made."""
    from sklearn.cluster import KMeans, MiniBatchKMeans  # type: ignore[import-untyped, unused-ignore]
    from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped, unused-ignore]
    from sklearn.metrics import silhouette_score  # type: ignore[import-untyped, unused-ignore]

    sample = np.random.default_rng(check_seed(seed)).permutation(len(rows))[:SILHOUETTE_SAMPLE]

    def fit(count: int) -> tuple[Ids, float | None]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # if there are fewer distinct rows than clusters
            if len(rows) <= MINI_BATCH_ENTITIES:
                found = KMeans(count, n_init=3, random_state=seed).fit_predict(rows)
            else:
                found = MiniBatchKMeans(count, n_init=3, batch_size=4096, random_state=seed).fit_predict(rows)
        few = 1 < len(np.unique(found[sample])) < len(sample)
        return np.asarray(found), float(silhouette_score(rows[sample], found[sample])) if few else None

    if n_clusters is not None:
        if check_count("n_clusters", n_clusters) > len(rows):
            raise FocuseError(f"n_clusters {n_clusters}: the graph has only {len(rows):,} entities; give fewer")
        return *fit(n_clusters), f"{n_clusters:,} clusters by k-means"
    tried = {count: fit(count) for count in TRIED_COUNTS if count < len(sample)}
    if not tried:
        return np.zeros(len(rows), np.int64), None, "1 cluster: too few entities for more"
    silhouettes = {count: -1.0 if found is None else found for count, (_, found) in tried.items()}
    best = max(tried, key=lambda count: silhouettes[count])
    note = f"{best} clusters by k-means: the best silhouette ({silhouettes[best]:.2f}) of {', '.join(map(str, tried))}"
    return *tried[best], note


def _typical_edges(graph: Graph, clusters: Ids, with_neighbor: bool) -> pa.Array:
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
    share = members / np.bincount(clusters)[cluster]
    lift = share * len(clusters) / np.bincount(feature, weights=members)[feature]
    ratio = members * np.log(lift)
    rows = np.flatnonzero((lift >= MIN_LIFT) & (members > 1))
    texts: list[list[str]] = [[] for _ in range(clusters.max() + 1)]
    for row in rows[np.lexsort((feature[rows], -ratio[rows], cluster[rows]))]:
        role, neighbor = divmod(int(distinct[feature[row]]), entities)
        name, found = graph.relations[role // 2], texts[cluster[row]]
        if len(found) < SHOWN:
            edge = f"{'tail' if role % 2 else 'head'} of {name}"
            edge = f"{'←' if role % 2 else '→'} {name} {graph.entities[neighbor]}" if with_neighbor else edge
            found.append(f"{edge} ({share[row]:.0%})")
    return pa.array([", ".join(found) for found in texts], pa.string())


# ---- duplicates -----------------------------------------------------------------------------------------------------

BLOCK_COSINES = 1 << 22  # 16 MB
PAIRS_AT_ONCE = 1 << 14
RANDOM_PAIRS = 20_000  # random pairs that determine the default thresholds
DEVIATIONS = 6.0  # of a default threshold above the mean of random pairs
SIMILARITY_RANGE = (0.5, 0.98)  # of the default thresholds
OVERLAP_RANGE = (0.1, 0.5)
COMPARED_PER_RESULT = 20  # pairs that are compared by their edges, per pair that is returned


@torch.no_grad()
def find_duplicates(
    scorer: TableScorer,
    graph: Graph,
    min_similarity: float | None = None,
    min_overlap: float | None = None,
    top: int = 100,
    seed: int = 0,
) -> ResultTable:
    """Return pairs of entities that may be the same; see `Run.duplicates`.

    The cosines of all pairs are computed in blocks; the most similar 20 · `top` pairs are compared by their edges.
    """
    check_count("top", top)
    for name, value in (("min_similarity", min_similarity), ("min_overlap", min_overlap)):
        if value is not None:
            check_fraction(name, value)
    rows, edges = entity_rows(scorer), _edge_matrix(graph)
    drawn = np.random.default_rng(seed).integers(0, max(len(rows), 1), (2, RANDOM_PAIRS))
    drawn = drawn[:, drawn[0] != drawn[1]]
    if min_similarity is None:
        one, other = (rows[torch.from_numpy(ids).to(rows.device)] for ids in drawn)
        min_similarity = _threshold((one * other).sum(1).cpu().numpy(), SIMILARITY_RANGE)
    if min_overlap is None:
        min_overlap = _threshold(_overlap(edges, *drawn)[0], OVERLAP_RANGE)
    first, second, cosine = _closest_pairs(rows, min_similarity, COMPARED_PER_RESULT * top)
    overlap, shared = _overlap(edges, first, second)
    keep = np.flatnonzero(overlap >= min_overlap)
    keep = keep[np.lexsort((second[keep], first[keep], -(cosine * overlap)[keep]))][:top]
    columns = {
        "first": graph.entities.take(first[keep]),
        "second": graph.entities.take(second[keep]),
        "similarity": cosine[keep],
        "overlap": overlap[keep],
        "shared_edges": shared[keep],
        "group": _groups(first[keep], second[keep]),
    }
    bounds = f"similarity of at least {min_similarity:.2f} and overlap of at least {min_overlap:.2f}"
    return ResultTable(
        columns,
        notes=[f"pairs with a {bounds}"] if len(keep) else [],
        info={"min_similarity": float(min_similarity), "min_overlap": float(min_overlap)},
        empty=f"no pairs of entities with a {bounds}",
    )


def _threshold(values: Floats, bounds: tuple[float, float]) -> float:
    """Return a value far above those of random pairs, within bounds."""
    return float(np.clip(values.mean() + DEVIATIONS * values.std(), *bounds)) if len(values) else bounds[0]


def _closest_pairs(rows: Tensor, min_similarity: float, count: int) -> tuple[Ids, Ids, Floats]:
    """Return the closest pairs of rows of length 1 with at least this cosine: both row numbers, and the cosine."""
    entities, top = len(rows), TopLinks(count)
    min_similarity -= 1e-6  # the cosine of equal rows is 1 up to rounding
    size = max(1, BLOCK_COSINES // max(entities, 1))
    for start in range(0, entities, size):
        block = rows[start : start + size] @ rows[start:].T
        row, column = torch.nonzero(block >= max(min_similarity, top.threshold), as_tuple=True)
        later = column > row  # each pair once, and no entity with itself
        row, column = row[later], column[later]
        top.add(block[row, column], (row + start) * entities + column + start)
    cosine, keys = (part.cpu().numpy() for part in top.best())
    return keys // max(entities, 1), keys % max(entities, 1), np.clip(cosine.astype(np.float64), -1.0, 1.0)


def _edge_matrix(graph: Graph) -> Any:
    """Return a sparse matrix of entities by (relation, direction, other entity).

    An edge counts (1 + w) / 2, where w is its weight scaled to [0, 1].
    """
    from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

    once = graph.merge_repeated("max")
    scaler = WeightScaler.fit(graph, heavy_tail_offsets(graph))
    weight = np.clip(scaler.to_unit(once.weight, once.relation), 0.0, 1.0)
    head, relation, tail = (ids.astype(np.int64) for ids in (once.head, once.relation, once.tail))
    entities = max(len(graph.entities), 1)
    keys = np.concatenate([2 * relation * entities + tail, (2 * relation + 1) * entities + head])
    distinct, column = np.unique(keys, return_inverse=True)
    entries = np.tile((1 + weight) / 2, 2), (np.concatenate([head, tail]), column)
    return sparse.csr_matrix(entries, shape=(entities, len(distinct)))


def _overlap(edges: Any, first: Ids, second: Ids) -> tuple[Floats, Ids]:
    """Return Σ min / Σ max of the rows of pairs [n], and the number of entries that both have [n]."""
    overlaps, counts = [np.empty(0)], [np.empty(0, np.int64)]
    total = np.asarray(edges.sum(1)).ravel()
    for rows in chunks(len(first), PAIRS_AT_ONCE):
        one, other = first[rows], second[rows]
        common = edges[one].minimum(edges[other])
        smaller = np.asarray(common.sum(1)).ravel()
        larger = total[one] + total[other] - smaller
        overlaps.append(np.divide(smaller, larger, out=np.zeros(len(one)), where=larger > 0))
        counts.append(np.diff(common.tocsr().indptr).astype(np.int64))
    return np.concatenate(overlaps), np.concatenate(counts)


def _groups(first: Ids, second: Ids) -> Ids:
    """Return the group of each pair [n], counted from 1 for the largest; pairs that share an entity are in one."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped, unused-ignore]

    ids, index = np.unique(np.concatenate([first, second]), return_inverse=True)
    ends = index[: len(first)], index[len(first) :]
    links = sparse.csr_matrix((np.ones(len(first)), ends), shape=(len(ids), len(ids)))
    label = connected_components(links, directed=False)[1] if len(ids) else np.empty(0, np.int64)
    number = np.argsort(np.argsort(-np.bincount(label), kind="stable")) + 1
    return np.asarray(number[label[ends[0]]], np.int64)
