"""Entities with similar embeddings, and analogies: A is to B as C is to what?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.data.graph import Graph, Side, isin_sorted
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.inference.calibration import plain_probability
from focuse.inference.link_search import Ids, Names, check_count, find_names, top_scores
from focuse.inference.weight_predictor import WeightPredictor
from focuse.option_strings import choose
from focuse.results import ResultTable
from focuse.system import chunks

if TYPE_CHECKING:
    from focuse.api import Run

METRICS = ("cosine", "euclidean")
BLOCK_SIMILARITIES = 1 << 24  # 64 MB
METHODS = ("relations", "offset")
MAX_LINKS = 3  # relations from A to B that an analogy follows
MIN_LINK_STRENGTH = 0.5  # of a relation from A to B, relative to the strongest one
ANSWERS_PER_RELATION = 200  # the best by score, which are then ordered by probability


def entity_rows(scorer: TableScorer) -> Tensor:
    """Return the embeddings [E, d] that the model compares: encoded if it has an encoder, without node attributes."""
    rows = scorer.encoded_tables()["entity"] if scorer.model.encoder is not None else scorer.tables["entity"]
    if not torch.isfinite(rows).all():
        raise FocuseError("the embeddings are not finite: training diverged; lower the learning rate")
    return rows


def comparable_rows(scorer: TableScorer, metric: str = "cosine") -> Tensor:
    """Return the embeddings [E, d], scaled to length 1 if their cosines are compared."""
    return F.normalize(entity_rows(scorer), dim=1) if metric == "cosine" else entity_rows(scorer)


# ---- similar entities -----------------------------------------------------------------------------------------------


def similar(
    run: Run, entity: str | Sequence[str], top: int, candidates: Names, metric: str, mean: bool, pairwise: bool
) -> ResultTable:
    """Return the entities with the most similar embeddings; see `Run.similar`."""
    choose("metric", metric, METRICS)
    check_count("top", top)
    entities, graph = [entity] if isinstance(entity, str) else list(entity), run.splits.train
    if not entities:
        raise FocuseError("similar: give at least one entity")
    among = find_names(entities if pairwise else candidates, graph.entities, "entity")
    given = np.array([graph.entities.id(name, "entity") for name in entities])
    rows = comparable_rows(run.scorer, metric)
    queries = rows[torch.from_numpy(given).to(rows.device)]
    excluded = given[:, None]
    if mean:
        queries, excluded, entities = queries.mean(0, keepdim=True), given[None], [" + ".join(entities)]
        queries = F.normalize(queries, dim=1) if metric == "cosine" else queries
    count = top + excluded.shape[1]
    some = rows if among is None else rows[torch.from_numpy(among).to(rows.device)]
    similarity, neighbor = (part.cpu().numpy() for part in nearest_rows(queries, some, count, metric))
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


@torch.no_grad()
def nearest_rows(queries: Tensor, rows: Tensor, top: int, metric: str = "cosine") -> tuple[Tensor, Tensor]:
    """Return the `top` rows most similar to each query: [B, d], [N, d] -> similarities [B, n], row numbers [B, n].

    The similarity is the cosine of rows of length 1, or minus the Euclidean distance. Ties are ordered by row number.
    """
    top = min(top, len(rows))
    values, places = [rows.new_empty(0, top)], [torch.empty(0, top, dtype=torch.int64, device=rows.device)]
    for block in chunks(len(queries), max(1, BLOCK_SIMILARITIES // max(len(rows), 1))):
        similarity = queries[block] @ rows.T if metric == "cosine" else -torch.cdist(queries[block], rows)
        value, place = top_scores(similarity, top)
        values.append(value)
        places.append(place)
    return torch.cat(values), torch.cat(places)


# ---- analogies ------------------------------------------------------------------------------------------------------


def analogies(run: Run, a: str, b: str, c: str, top: int, method: str, new_only: bool) -> ResultTable:
    """Complete the analogy: a is to b as c is to what? See `Run.analogies`."""
    choose("method", method, METHODS)
    check_count("top", top)
    graph = run.splits.train
    ids = a_id, b_id, c_id = [graph.entities.id(name, "entity") for name in (a, b, c)]
    if method == "offset":
        if new_only:
            raise FocuseError("analogies by offset have no link that could be new; use the method relations")
        return _by_offset(run.scorer, graph, ids, top)
    predictor = run.weight_predictor(full=True)
    known = np.unique(np.concatenate([part.keys for part in (graph, run.splits.valid, run.splits.test)]))
    relation, forward, certainty, link_known = _links(graph, predictor, known, a_id, b_id)
    parts = [_answers(run.scorer, graph, predictor, known, c_id, *link) for link in zip(relation, forward, strict=True)]
    link = np.repeat(np.arange(len(relation)), [len(part[0]) for part in parts])
    entity, probability, is_known = (np.concatenate(column) for column in zip(*parts, strict=True))
    strength = certainty[link] * probability
    order = np.lexsort((entity, -strength))
    order = order[np.sort(np.unique(entity[order], return_index=True)[1])]  # the strongest link to each entity
    order = order[~np.isin(entity[order], [a_id, c_id])]
    keep = np.flatnonzero(~is_known[order] | (not new_only))[:top]
    order = order[keep]
    direction = np.where(forward, "forward", "backward").astype(object)
    columns = {
        "rank": keep + 1,
        "entity": graph.entities.take(entity[order]),
        "strength": strength[order],
        "relation": graph.relations.take(relation[link[order]]),
        "direction": pa.array(direction[link[order]], pa.string()),
        "probability": np.where(predictor.probability is None, np.nan, probability[order]),
        "known": is_known[order],
    }
    names = graph.relations.take(relation)
    links = {"relation": names, "direction": direction, "strength": certainty, "known": link_known}
    note = f"relations from {a} to {b} that were followed: {', '.join(names.to_pylist())}"
    return ResultTable(columns, notes=[note], info={"method": method, "links": ResultTable(links)})


def _links(graph: Graph, predictor: WeightPredictor, known: Ids, a: int, b: int) -> tuple[Any, Any, Any, Any]:
    """Return the strongest links between A and B: relation, whether forward, strength (1 if known), whether known."""
    relation: Any = np.tile(np.arange(len(graph.relations)), 2)
    forward = np.repeat([True, False], len(graph.relations))
    head, tail = np.where(forward, a, b), np.where(forward, b, a)
    is_known = isin_sorted(graph.keys_of(head, relation, tail), known)
    strength = np.where(is_known, 1.0, _probability(predictor, head, relation, tail))
    # A relation that never has these entities on its sides is unlikely, whatever the model predicts.
    sides_seen = np.concatenate([_sides_seen(graph, a, b), _sides_seen(graph, b, a)])
    order = np.lexsort((~forward, -strength, -sides_seen, ~is_known))[:MAX_LINKS]
    order = order[strength[order] >= MIN_LINK_STRENGTH * strength[order[0]]]
    order = order[is_known[order] | (sides_seen[order] == sides_seen.max())]
    order = order[is_known[order]] if is_known[order].any() else order
    return relation[order], forward[order], strength[order], is_known[order]


def _sides_seen(graph: Graph, head: int, tail: int) -> Any:
    """Return for each relation [R] on how many of its sides train has these entities: 0, 1 or 2."""
    relations = np.arange(len(graph.relations))
    sides = graph.relation[graph.head == head], graph.relation[graph.tail == tail]
    return sum(np.isin(relations, side).astype(np.int64) for side in sides)


def _answers(
    scorer: TableScorer, graph: Graph, predictor: WeightPredictor, known: Ids, c: int, relation: Any, forward: Any
) -> tuple[Ids, Any, Any]:
    """Return the entities [n] that complete a link of C, the best by score, their probabilities and whether known.

    Only entities that train has on that side of the relation are returned.
    """
    side: Side = "tail" if forward else "head"
    given, asked = (torch.tensor([int(one)], device=scorer.device) for one in (c, relation))
    seen = np.unique(getattr(graph, side)[graph.relation == relation]).astype(np.int64)
    scores = scorer.score_all(given, asked, side)[0].cpu()[torch.from_numpy(seen)]
    ids = seen[torch.topk(scores, min(ANSWERS_PER_RELATION, len(seen))).indices.numpy()]
    fixed, relations = np.full(len(ids), c), np.full(len(ids), relation)
    head, tail = (fixed, ids) if forward else (ids, fixed)
    is_known = isin_sorted(graph.keys_of(head, relations, tail), known)
    return ids, _probability(predictor, head, relations, tail), is_known


def _probability(predictor: WeightPredictor, head: Any, relation: Any, tail: Any) -> Any:
    """Return the probability [n] of links, or the confidence or the logistic of the score if the run has none."""
    if predictor.probability is not None:
        return predictor.probable(head, relation, tail)
    score = predictor.score(head, relation, tail)
    has_confidence = predictor.scorer.model.confidence_head is not None
    return predictor.confidence(score, relation) if has_confidence else plain_probability(score)


def _by_offset(scorer: TableScorer, graph: Graph, ids: Sequence[int], top: int) -> ResultTable:
    """Return the entities whose embeddings have the largest cosine with B − A + C."""
    rows = comparable_rows(scorer)
    a, b, c = (rows[one] for one in ids)
    similarity, entity = (part[0].cpu().numpy() for part in nearest_rows(F.normalize((b - a + c)[None]), rows, top + 3))
    keep = ~np.isin(entity, ids)
    found = graph.entities.take(entity[keep][:top])
    columns = {"rank": np.arange(1, len(found) + 1), "entity": found, "strength": similarity[keep][:top].astype(float)}
    return ResultTable(columns, info={"method": "offset"})
