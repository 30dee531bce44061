"""The most probable missing links: a pass by score over all of them, then the best of each relation by probability.

Scores of different relations cannot be compared; probabilities can. Within a relation a higher score means a higher
probability where that follows from the score alone; where the surroundings have a say, only the `pool` best of each
relation by score are asked for it. So the pass is exhaustive in scores, and the order by probability is that of the
pool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from focuse.data.graph import Graph
from focuse.data.triple_index import TripleIndex
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.evaluation.metrics import FloatArray
from focuse.inference.calibration import Probability, evidence
from focuse.inference.discovery.chances import Chances
from focuse.inference.discovery.discoveries import Discoveries
from focuse.inference.discovery.scope import Ids, Scope, check_strategy
from focuse.inference.discovery.sweep import Found, near_work, sweep, sweep_near
from focuse.inference.discovery.watching import watched
from focuse.inference.weight_predictor import WeightPredictor

LIMIT = 2e10  # scores: minutes on two cores
DEAR = 50  # times as long as others takes a model that is dear to rank with, and a pair by itself
POOL = 2_000  # links a relation that are compared by probability, or as many as are asked for
WEIGHED = 100_000  # links of all relations together, unless more are asked for
SPARE = 4  # times as many links of a head are kept as `per_head` wants, for probability to choose from


@dataclass(frozen=True)
class Wish:
    """What is wanted of the links that are found; see `Run.discover`."""

    top: int = 100
    min_probability: float = 0.0
    per_relation: int | None = None
    per_head: int | None = None
    pool: int | None = None
    limit: float = LIMIT

    def check(self) -> None:
        """Raise for what cannot be wished."""
        for name in ("top", "per_relation", "per_head", "pool"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise FocuseError(f"{name} {value!r}: give a whole number, at least 1")
        if not 0 <= self.min_probability <= 1:
            raise FocuseError(f"min_probability {self.min_probability!r}: give a number in [0, 1]")

    def size(self, relations: int) -> int:
        """How many links of a relation the pass keeps."""
        if self.pool is not None:
            return max(self.pool, 1)
        wanted = self.top if self.per_relation is None else min(self.top, self.per_relation)
        return max(wanted, min(max(POOL, 2 * wanted), WEIGHED // max(relations, 1)))


def discover(
    scorer: TableScorer,
    known: TripleIndex,
    scope: Scope,
    predictor: WeightPredictor,
    wish: Wish,
    teller: WeightPredictor | None = None,
    progress: bool = False,
) -> Discoveries:
    """The best missing links of a scope. What is `known` is none; `teller` says what they would weigh."""
    wish.check()
    check_strategy(scope.strategy, scope.sample)
    size, near = wish.size(len(scope.relations)), scope.strategy == "neighbourhood"
    work = near_work(scope) * len(scope.relations) if near else scope.pairs
    _check_work(work * (DEAR if near else 1) * (DEAR if scorer.expensive_to_rank else 1), work, wish.limit, near)
    spare = None if wish.per_head is None else SPARE * wish.per_head
    total = _heads(scope) if near else work
    with watched("scoring links", total, progress) as watch:
        found = (sweep_near if near else sweep)(scorer, scope, known, size, watch, spare)
        stopped, share = watch.stopped, watch.share
    made = _ranked(scope.train, found, predictor, teller or predictor, wish)
    made.scored, made.strategy, made.stopped = found.scored, scope.strategy, stopped
    made.notes += _notes(scope, found, made, predictor.probability)
    if stopped:
        made.notes += (f"stopped after {share:.0%} of the links: these are the best of those",)
    return made


def _heads(scope: Scope) -> int:
    return len(scope.train.entities) if scope.heads is None else len(scope.heads)


def _check_work(cost: float, links: int, limit: float, near: bool) -> None:
    if cost <= limit:
        return
    other = "'popular' or 'sampled'" if near else "'neighbourhood', 'popular' or 'sampled'"
    raise FocuseError(
        f"discover: {links:,} links to score, about {cost / limit:,.1f} times what is done unasked; name relations, "
        f"heads or tails, choose candidates {other} (--candidates), or raise the limit (--limit {cost:.0e})"
    )


def _ranked(names: Graph, found: Found, predictor: WeightPredictor, teller: WeightPredictor, wish: Wish) -> Discoveries:
    """The pool by probability, cut to what is wished, with all that is told of it."""
    ids = found.head, found.relation, found.tail
    first, second, order_by = _strength(predictor, *ids)
    order = np.lexsort((names.keys_of(*ids), -second, -first))  # type: ignore[arg-type]
    if order_by == "probability":
        order = order[first[order] >= wish.min_probability]
    order = _diverse(order, found, wish)
    head, relation, tail = (column[order] for column in ids)
    told = _told(predictor, teller, head, relation, tail)
    made = Discoveries(names, (head, relation, tail), told)
    made.weighed, made.order = len(found.head), order_by
    if order_by != "probability" and wish.min_probability > 0:
        raise FocuseError("min_probability: the run has no probabilities; train it with validation (--valid-fraction)")
    return made


def _strength(predictor: WeightPredictor, head: Ids, relation: Ids, tail: Ids) -> tuple[FloatArray, FloatArray, str]:
    """What links are ordered by, what decides where that is equal, [n] each, and the name of the first."""
    score = predictor.score(head, relation, tail)
    made = predictor.probability
    if made is not None:
        link = None if predictor.estimator is None else predictor.estimator(head, relation, tail).link
        return made.of(score, link, relation), evidence(made.line, score, link), "probability"
    if predictor.scorer.model.confidence_head is not None:
        return predictor.confidence(score, relation), score, "confidence"
    # Scores of one relation say nothing of another's: the best of each come first, then the second best of each.
    order = np.lexsort((tail, head, -score, relation))
    count = np.bincount(relation) if len(relation) else np.empty(0, np.int64)
    place = np.empty(len(order))
    place[order] = np.arange(len(order)) - np.repeat(np.cumsum(count) - count, count)
    return -place, np.zeros(len(order)), "place within the relation"


def _diverse(order: Ids, found: Found, wish: Wish) -> npt.NDArray[Any]:
    """The first `top` of `order`, no more of a relation or of a head than is wished."""
    if wish.per_relation is None and wish.per_head is None:
        return order[: wish.top]
    most = {"relation": wish.per_relation or len(order), "head": wish.per_head or len(order)}
    taken: dict[str, dict[int, int]] = {"relation": {}, "head": {}}
    chosen: list[int] = []
    kinds = {"relation": found.relation[order].tolist(), "head": found.head[order].tolist()}
    for place in range(len(order)):  # what is left out makes room for others: no way around one after the other
        if len(chosen) == wish.top:
            break
        if all(taken[name].get(kinds[name][place], 0) < most[name] for name in most):
            chosen.append(place)
            for name in most:
                taken[name][kinds[name][place]] = taken[name].get(kinds[name][place], 0) + 1
    return order[np.array(chosen, np.int64)]


def _told(
    predictor: WeightPredictor, teller: WeightPredictor, head: Ids, relation: Ids, tail: Ids
) -> dict[str, FloatArray]:
    if not len(head):
        return dict.fromkeys(("score", "probability", "expected_weight", "low", "high"), np.empty(0))
    told = teller.predict_unseen(head, relation, tail)
    if teller is not predictor and predictor.probability is not None:
        told["probability"] = predictor.probable(head, relation, tail)
    columns = {"probability": told["probability"], "low": told["weight_low"], "high": told["weight_high"]}
    return {"score": predictor.score(head, relation, tail), "expected_weight": told["weight_mean"], **columns}


def _notes(scope: Scope, found: Found, made: Discoveries, made_by: Probability | None) -> tuple[str, ...]:
    notes = []
    if made.order == "confidence":
        notes.append("ordered by the model's own confidence: the run has no validation triples to calibrate on")
    elif made.order != "probability":
        notes.append(
            "no probabilities: the run has no validation triples to calibrate on; scores order the links of one "
            "relation only, so the best of each relation come first, then the second best of each"
        )
    elif isinstance(made_by, Chances) and len(made) and not made_by.asked:
        notes.append(
            "probability: the share of such links that are facts, if the graph lacks as many as were held out of it; "
            "--base-rate tells it for another share"
        )
    if not len(made) and not scope.anywhere and not found.scored:
        notes.append("train has none of these entities on that side of these relations; --anywhere looks there too")
    return tuple(notes)


def at_rate(predictor: WeightPredictor, base_rate: float | None) -> WeightPredictor:
    """The same with probabilities for another share of facts among the links that are asked about."""
    if base_rate is None or predictor.probability is None:
        return predictor
    return replace(predictor, probability=predictor.probability.at(base_rate))
