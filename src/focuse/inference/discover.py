"""Find likely and strong missing links: search by score, then order the best links of each relation.

Scores of different relations cannot be compared, probabilities can. The probability of a link is computed for the best
links of each relation by score only (`rerank`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from focuse.data.graph import Graph, triple_columns
from focuse.data.triple_index import TripleIndex, build_triple_index
from focuse.errors import FocuseError
from focuse.evaluation.preference import Prefer, strength_scorer
from focuse.inference.calibration import check_base_rate
from focuse.inference.link_search import SAMPLE_SIZE, CandidateSpace, FoundLinks, Ids, search_all
from focuse.inference.predict import Names, find_names
from focuse.inference.weight_predictor import WeightPredictor, probability_predictor
from focuse.option_strings import check_count, check_fraction
from focuse.results import ResultTable
from focuse.training.callbacks import track_progress

if TYPE_CHECKING:
    from focuse.api import Run

MAX_SCORES = 2e10  # takes minutes on two cores
EXPENSIVE = 50  # how much longer it takes to score a link with an expensive model
RERANK, MAX_RERANK = 2_000, 100_000  # links per relation and of all relations, unless more are wanted
SPARE_PER_HEAD = 20  # times max_per_head links of a head are kept, so that the probability can choose among them
PREDICTED = ("score", "probability", "weight_mean", "weight_median", "weight_low", "weight_high")
PRINTED = ("rank", "head", "relation", "tail", "score", "probability", "weight_mean", "weight_low", "weight_high")


def discover(
    run: Run,
    heads: Names = None,
    relations: Names = None,
    tails: Names = None,
    top: int = 100,
    *,
    min_probability: float = 0.0,
    max_per_head: int | None = None,
    any_type: bool = False,
    strategy: str = "exhaustive",
    sample_size: int = SAMPLE_SIZE,
    seed: int = 0,
    rerank: int | None = None,
    max_scores: float = MAX_SCORES,
    base_rate: float | None = None,
    weights: bool = True,
    prefer: Prefer = None,
    progress: bool = False,
) -> ResultTable:
    """Return the most probable missing links; see `Run.discover`."""
    check_count("top", top)
    for name, count in (("max_per_head", max_per_head), ("rerank", rerank)):
        if count is not None:
            check_count(name, count)
    if (strategy == "exhaustive" and sample_size != SAMPLE_SIZE) or (strategy != "sampled" and seed != 0):
        raise FocuseError("sample_size requires the strategy 'popular' or 'sampled', and seed 'sampled'")
    check_fraction("min_probability", min_probability)
    train = run.splits.train
    wanted = find_names(relations, train.relations, "relation")
    space = CandidateSpace(
        train,
        np.arange(len(train.relations)) if wanted is None else wanted,
        find_names(heads, train.entities, "entity"),
        find_names(tails, train.entities, "entity"),
        any_type,
        strategy,
        sample_size,
        seed,
        run.fitted.entities_by_relation,
    )
    _check_cost(run, space, max_scores)
    predictor = _predictor(run, weights, base_rate).preferring(run, prefer)
    if min_probability > 0 and predictor.probability is None:
        raise FocuseError(
            "min_probability: the run has no probabilities; train it with validation triples (valid or valid_fraction)"
        )
    spare = None if max_per_head is None else SPARE_PER_HEAD * max_per_head
    size = rerank or max(top, min(max(RERANK, 2 * top), MAX_RERANK // max(len(space.relations), 1)))
    with track_progress("Scoring links", space.num_pairs, progress) as tracked:
        found = search_all(
            _search_scorer(run, predictor),
            space,
            _known_triples(run),
            size * (2 if train.undirected else 1),
            tracked,
            spare,
        )
    found = _without_reversed(train, found)
    order, ordered_by = _order(train, found, predictor, min_probability, max_per_head)
    one_group = np.zeros(len(order), np.int64)
    parts = found.head[order], found.relation[order], found.tail[order]
    order = order[predictor.in_shown_order(one_group, *parts, top)][:top]
    ids = found.head[order], found.relation[order], found.tail[order]
    predicted: dict[str, Any] = dict.fromkeys(PREDICTED, np.empty(0))
    if len(order):
        predicted |= {"score": predictor.score(*ids), **predictor.predict_unseen(*ids)}
    columns = {"rank": np.arange(1, len(order) + 1), **triple_columns(train, *ids), **predicted}
    notes = _notes(ordered_by, predictor, base_rate is not None, not found.scored and not tracked.stopped)
    if tracked.stopped:
        notes.append(f"stopped after {tracked.fraction:.0%} of the links: these are the best of those")
    info = {"ordered_by": ordered_by, "strategy": strategy, "scored": found.scored}
    info |= {"reranked": len(found.head), "stopped": tracked.stopped}
    return ResultTable(columns, notes=notes, info=info, printed=PRINTED, empty="no missing links found")


def _check_cost(run: Run, space: CandidateSpace, max_scores: float) -> None:
    """Raise FocuseError if there are more links to score than `max_scores`."""
    if not max_scores > 0:
        raise FocuseError(f"max_scores {max_scores}: give a number above 0")
    cost = space.num_pairs * (EXPENSIVE if run.scorer.expensive_to_rank else 1)
    if cost > max_scores:
        raise FocuseError(
            f"discover: {space.num_pairs:,} links to score, {cost / max_scores:,.1f} times the limit; name relations, "
            f"heads or tails, choose strategy 'popular' or 'sampled', or raise max_scores to {cost:,}"
        )


def _predictor(run: Run, weights: bool, base_rate: float | None) -> WeightPredictor:
    """Return the predictor of a run, with probabilities at another base rate if it is given."""
    if base_rate is not None:
        check_base_rate(base_rate)
    predictor = run.weight_predictor(full=True) if weights else probability_predictor(run)
    if base_rate is None or predictor.probability is None:
        return predictor
    return replace(predictor, probability=predictor.probability.at(base_rate))


def _without_reversed(train: Graph, found: FoundLinks) -> FoundLinks:
    """Leave out the lower one of both directions of a pair of an undirected relation."""
    if not train.undirected:
        return found
    keys: Any = train.pair_keys_of(found.head, found.relation, found.tail)  # type: ignore[arg-type]
    first = np.sort(np.unique(keys, return_index=True)[1])  # links of a relation are ordered by score
    return replace(found, head=found.head[first], relation=found.relation[first], tail=found.tail[first])


def _known_triples(run: Run) -> TripleIndex:
    """Return the index of all known triples and known negatives, which is sorted once per run."""
    if run.fitted.known_triples is None:
        splits = run.splits
        graphs = [splits.train, splits.valid, splits.test, splits.known_negatives]
        index = build_triple_index([graph for graph in graphs if graph is not None], run.scorer.device)
        run.fitted.known_triples = index
    return run.fitted.known_triples


def _order(
    graph: Graph, found: FoundLinks, predictor: WeightPredictor, min_probability: float, max_per_head: int | None
) -> tuple[Ids, str]:
    """Return the rows of the best links, best first, and the name of what orders them."""
    ids: tuple[Any, Any, Any] = found.head, found.relation, found.tail
    score, probability = predictor.score(*ids), predictor.probability
    key = predictor.ordering_key(score, *ids)
    if probability is not None:
        value, ordered_by = key, predictor.ordered_by
    elif predictor.scorer.model.confidence_head is not None:
        value, ordered_by = predictor.confidence(score, found.relation), "confidence"
    else:  # the best link of each relation, then the second best of each
        value, ordered_by = np.empty(len(score)), "rank within the relation"
        by_relation = np.lexsort((found.tail, found.head, -key, found.relation))
        relation = found.relation[by_relation]
        value[by_relation] = np.searchsorted(relation, relation) - np.arange(len(relation))
    order = np.lexsort((graph.keys_of(*ids), -score, -value))
    if probability is not None and min_probability > 0:
        order = order[probability(*(part[order] for part in ids)) >= min_probability]
    if max_per_head is not None:
        by_head = np.argsort(found.head[order], kind="stable")
        heads = found.head[order][by_head]
        place = np.empty(len(order), np.int64)  # among the links of the same head, best first
        place[by_head] = np.arange(len(heads)) - np.searchsorted(heads, heads)
        order = order[place < max_per_head]
    return order, ordered_by


def _search_scorer(run: Run, predictor: WeightPredictor) -> Any:
    """Return the scorer by which the links of a relation are searched."""
    weights = None if predictor.weight_model is None else predictor.weight_model.scorer  # not used if the exponent is 0
    return strength_scorer(run.scorer, weights, predictor.exponent)


def _notes(ordered_by: str, predictor: WeightPredictor, given_base_rate: bool, nothing_scored: bool) -> list[str]:
    notes = []
    if predictor.probability is not None and not given_base_rate:
        notes.append(f"{predictor.ordering_notes()[0]} (base_rate sets another share)")
    elif predictor.probability is None:
        notes.append(
            f"no probabilities: the run has no validation triples to calibrate on; ordered by {ordered_by} (scores of "
            "different relations cannot be compared)"
        )
    if nothing_scored:
        notes.append("none of these entities is plausible on that side of these relations (any_type includes them)")
    return notes
