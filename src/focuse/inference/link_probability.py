"""The probability that a link is true, which is the same number in every command, report and page.

**Definition.** The probability of a link is the share of true links among the links that the graph lacks and that the
model sees as this one, if the graph lacks as many links as validation holds.

Candidates are the links that train lacks between entities that are plausible on their sides of the relation
(`focuse.inference.link_search.plausible_keys`). The evidence for a link is cheap to compute for any link, however it
was found: its score; the logarithm of its softmax among the candidates of its head, and among those of its tail; how
many links train has there; and its relation. The evidence is compared between the links of validation and a sample of
the candidates, most of which are among the best of some entity: these are the links that one looks at, and random ones
are hardly ever mistaken for true ones.

A candidate that is not in validation may be true nevertheless. If the graph lacks as many links as validation holds,
every link of validation stands for a true one among the other candidates with the same evidence, so the probability is
the ratio p of both numbers, not the share p / (1 + p) of validation's links among all. A line over the evidence is
fitted by the likelihood of this share, and its curve is corrected where the ratio is measured to differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.data.graph import Graph, Side, concatenate, find_sorted
from focuse.data.splits import ValidationParts
from focuse.data.triple_index import TripleIndex, build_triple_index
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError
from focuse.evaluation.baselines import AnyIds, Predictor
from focuse.evaluation.metrics import FloatArray
from focuse.evaluation.ranking import DIVERGED
from focuse.inference.link_search import EXCLUDED, CandidateSpace, Ids, RelationScorer
from focuse.random_streams import RandomStream
from focuse.system import chunks

EVIDENCE = ("score", "softmax in tails", "softmax in heads", "known tails", "known heads", "tails", "heads", "density")
MAX_COMPARED, MIN_COMPARED = 1 << 14, 1 << 8  # candidates that are compared per query; of more, a sample is
MAX_SCORES = 5e8  # that a fit computes per side, unless MIN_COMPARED candidates per query are more
SCORES_AT_ONCE = 1 << 21  # 8 MB, which fit in the cache
LIKELY, OTHERS = 40_000, 15_000  # sampled candidates: per side in proportion to how likely they are, and uniformly
OUTSIDE = 2_000  # links of implausible type that are sampled
RIDGE, FEW_POSITIVES = 1.0, 50  # penalty of coefficients, which grows if there are fewer positives
MIN_BIN, MAX_BINS, BIN_WIDTH = 50, 10, 0.1  # positives per point of the curve, points, and probabilities of one
SEPARATE = 1.5  # standard errors between the points of a curve
ROOM = 0.01  # that probabilities above the last point of the curve may rise
LEAST = 1e-12
SCORE_DECIMALS = 5  # of scores, whose last bits depend on how they are computed
DECIMALS = 3  # of logarithms of sums, whose last bits depend on how many queries are scored together
PREFERRED = (
    "ordered by probability · weight^{exponent:g}: the probability is the share of such links that are true, if the "
    "graph lacks as many as validation holds; prefer 'likely' ignores weights, 'strong' counts them most"
)
ORDERED = (
    "ordered by probability: the share of such links that are true, if the graph lacks as many as validation holds"
)


# ---- evidence -------------------------------------------------------------------------------------------------------


class LinkEvidence:
    """The evidence for links: ids [n] of heads, relations and tails -> float64 [n, len(EVIDENCE)].

    The evidence of a link does not depend on the other links that it is computed with. Both directions of a pair of an
    undirected relation have the same evidence.
    """

    def __init__(self, scorer: TableScorer, train: Graph, score: Predictor, seed: int = 0) -> None:
        self.scorer, self.train, self.score = scorer, train, score
        self.entities, self.relations = len(train.entities), len(train.relations)
        self.space = CandidateSpace(train, np.arange(self.relations))
        self.known: TripleIndex = build_triple_index([train], scorer.device)
        self.keys, first = np.unique(train.keys, return_index=True)
        head, relation, tail = (ids[first].astype(np.int64) for ids in (train.head, train.relation, train.tail))
        self.tail_queries, self.num_tails = np.unique(head * self.relations + relation, return_counts=True)
        self.head_queries, self.num_heads = np.unique(tail * self.relations + relation, return_counts=True)
        ends = [self.space.ends(index) for index in range(self.relations)]
        self.ends: dict[Side, list[Ids]] = {"head": [h for h, _ in ends], "tail": [t for _, t in ends]}
        self.sizes = {side: np.array([len(ids) for ids in self.ends[side]]) for side in self.ends}
        self.pairs = np.maximum(self.sizes["head"] * self.sizes["tail"], 1)
        count = np.bincount(relation, minlength=self.relations)
        self.density = np.log((count + 0.5) / self.pairs)
        self._compared = {side: self._candidates_to_compare(side, seed) for side in self.ends}
        self._totals: dict[Side, FloatArray] = {side: np.full(len(self.queries(side)), np.nan) for side in self.ends}

    def queries(self, side: Side) -> Ids:
        """Return the queries of train whose answers are on a side: sorted keys of given entity and relation."""
        found: Ids = self.tail_queries if side == "tail" else self.head_queries
        return found

    def _candidates_to_compare(self, side: Side, seed: int) -> list[Ids]:
        """Return the candidates of each relation that the answers on a side are compared with."""
        queries = np.bincount(self.queries(side) % self.relations, minlength=self.relations)
        size = MAX_COMPARED
        while size > MIN_COMPARED and queries @ np.minimum(self.sizes[side], size) > MAX_SCORES:
            size //= 2
        random = np.random.default_rng([seed, RandomStream.DISCOVERY_CALIBRATION])
        return [_sample(random, ids, size) for ids in self.ends[side]]

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        h, r, t = (np.asarray(ids, np.int64) for ids in self.train.ordered(head, relation, tail))
        score = self.score(h, r, t).round(SCORE_DECIMALS)
        if not np.isfinite(score).all():
            raise FocuseError(DIVERGED)
        key: Any = self.train.keys_of  # which accepts ids of any width
        is_candidate = ~find_sorted(self.keys, key(h, r, t))[1] & self.plausible(h, r, t)
        sums = self.totals(h, r, "tail"), self.totals(t, r, "head")
        # A link that train has, or of implausible type, is added to the candidates that it is compared with.
        totals = tuple(np.where(is_candidate, total, np.logaddexp(total, score)) for total in sums)
        num_tails = _counts(self.tail_queries, self.num_tails, h * self.relations + r)
        num_heads = _counts(self.head_queries, self.num_heads, t * self.relations + r)
        columns = [
            score,
            *(np.minimum(score - total, 0.0) for total in totals),
            np.log1p(num_tails),
            np.log1p(num_heads),
        ]
        columns += [np.log1p(self.sizes["tail"][r]), np.log1p(self.sizes["head"][r]), self.density[r]]
        return np.column_stack(columns)

    def plausible(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> npt.NDArray[np.bool_]:
        """Return whether both ends of links [n] are plausible on these sides of their relations."""
        h, r, t = (np.asarray(ids, np.int64) for ids in (head, relation, tail))
        is_head = find_sorted(self.space.keys("head"), r * self.entities + h)[1]
        return np.asarray(is_head & find_sorted(self.space.keys("tail"), r * self.entities + t)[1], np.bool_)

    @torch.no_grad()
    def scores(
        self, given: Ids, relation: int, candidates: Ids, side: Side, known: TripleIndex | None = None
    ) -> Tensor:
        """Return the scores of candidates of queries, [B], [N] -> [B, N]; `known` ones, of train, are excluded."""
        device = self.scorer.device
        query, others = (torch.from_numpy(ids).to(device) for ids in (given, candidates))
        if side == "tail":
            found = RelationScorer(self.scorer, relation, others).scores(query)
        else:
            found = RelationScorer(self.scorer, relation, query).scores(others).T.contiguous()
        column = torch.full((self.entities,), -1, dtype=torch.int64, device=device)
        column[others] = torch.arange(len(others), device=device)
        rows, answers = (known or self.known).known_answers(query, torch.full_like(query, relation), side)
        excluded = [(rows.to(device), column[answers.to(device)])]
        if not self.space.has_self_loops[relation]:
            excluded.append((torch.arange(len(query), device=device), column[query]))
        for row, place in excluded:
            found[row[place >= 0], place[place >= 0]] = EXCLUDED
        return found

    def totals(self, given: Ids, relation: Ids, side: Side) -> FloatArray:
        """Return the logarithm of the sum of exponential scores of all candidates of queries [n], [n] -> [n]."""
        place, known = find_sorted(self.queries(side), given * self.relations + relation)
        totals, found = self._totals[side], np.full(len(given), -np.inf)
        missing = np.unique(place[known])
        missing = missing[np.isnan(totals[missing])]
        entity, of_relation = np.divmod(self.queries(side)[missing], self.relations)
        totals[missing] = self._compute_totals(entity, of_relation, side)
        found[known] = totals[place[known]]
        new, group = np.unique(given[~known] * self.relations + relation[~known], return_inverse=True)
        found[~known] = self._compute_totals(*np.divmod(new, self.relations), side)[group]
        return found

    def _compute_totals(self, given: Ids, relation: Ids, side: Side) -> FloatArray:
        found = np.full(len(given), -np.inf)
        for index in np.unique(relation).tolist():
            candidates = self._compared[side][index]
            mine = np.flatnonzero(relation == index)
            if len(candidates):
                share = len(candidates) / self.sizes[side][index]
                for rows in chunks(len(mine), max(1, SCORES_AT_ONCE // len(candidates))):
                    scores = self.scores(given[mine[rows]], index, candidates, side)
                    found[mine[rows]] = torch.logsumexp(scores, 1).double().cpu().numpy() - np.log(share)
        return found.round(DECIMALS)


def _counts(keys: Ids, count: Ids, asked: Ids) -> Ids:
    place, found = find_sorted(keys, asked)
    return np.where(found, count[place], 0) if len(keys) else np.zeros(len(asked), np.int64)


def _sample(random: np.random.Generator, ids: Ids, size: int) -> Ids:
    return ids if len(ids) <= size else np.sort(random.choice(ids, size, replace=False))


# ---- probability ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LinkProbability:
    """The probability of links: a line over their evidence, and a curve that corrects it.

    Attributes
    ----------
    evidence : LinkEvidence
    line : float64 [len(EVIDENCE) + 1]
        Coefficients of the evidence, and a constant.
    bounds : float64 [2, len(EVIDENCE)]
        The range of the evidence that the line was fitted to; beyond it, evidence counts as its end.
    offsets : float64 [R]
        What is added for each relation.
    points, logits : float64 [K]
        The curve: log-odds of the probability at values of the line, both ascending; none leaves the line as it is.
    implausible : float
        What is added for links of implausible type, at most 0.
    estimated_rate : float
        The share of true links among all candidates.
    base_rate : float or None
        Another share, to which the odds are scaled.
    positives : int
        The number of validation links that it was fitted to.
    """

    evidence: LinkEvidence = field(repr=False)
    line: FloatArray
    bounds: FloatArray
    offsets: FloatArray
    points: FloatArray
    logits: FloatArray
    implausible: float
    estimated_rate: float
    base_rate: float | None
    positives: int

    @property
    def method(self) -> str:
        """Whether the line is corrected by a curve ('isotonic') or not ('platt')."""
        return "isotonic" if len(self.points) else "platt"

    def __call__(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        """Return probabilities, ids [n] -> [n]."""
        return _logistic(self.log_odds(head, relation, tail))

    def log_odds(self, head: AnyIds, relation: AnyIds, tail: AnyIds) -> FloatArray:
        """Return the log-odds of the probabilities, ids [n] -> [n], which have fewer ties."""
        if not len(head):
            return np.empty(0)
        rows = self.evidence(head, relation, tail)
        found = self.corrected(self.on_line(rows, np.asarray(relation, np.int64)))
        found = found + np.where(self.evidence.plausible(head, relation, tail), 0.0, self.implausible)
        return np.asarray(found + self.shift, np.float64)

    def on_line(self, rows: FloatArray, relation: AnyIds) -> FloatArray:
        """Return the values of the line for evidence [n, len(EVIDENCE)] and relations [n]."""
        inside = np.clip(rows, self.bounds[0], self.bounds[1])
        # A matrix product would round a row differently among other rows.
        on_line = (inside * self.line[:-1]).sum(1)
        return np.asarray(on_line + self.line[-1] + self.offsets[relation], np.float64)

    def corrected(self, value: FloatArray) -> FloatArray:
        """Return the log-odds that the curve assigns to values of the line [n]; it rises everywhere."""
        if not len(self.points):
            return value
        first, last = self.points[[0, -1]]
        found = np.interp(value, self.points, self.logits)
        found = np.where(value < first, self.logits[0] + (value - first), found)
        top = float(_logistic(self.logits[-1:])[0])
        above = np.maximum(value - last, 0.0)
        chance = top + min(ROOM, (1 - top) / 2) * (1 - 1 / (1 + above))
        return np.asarray(np.where(value > last, _logit(chance), found), np.float64)

    @cached_property
    def shift(self) -> float:
        """The change of the log-odds by another base rate."""
        if self.base_rate is None:
            return 0.0
        asked, estimated = _logit(np.array([self.base_rate, self.estimated_rate]))
        return float(asked - estimated)

    def at(self, base_rate: float | None) -> LinkProbability:
        """Return the same for another share of true links among all candidates; None is the estimated one."""
        return replace(self, base_rate=base_rate)


def _logistic(value: FloatArray) -> FloatArray:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * value)), np.float64)


def _logit(chance: FloatArray) -> FloatArray:
    safe = np.clip(chance, LEAST, 1 - LEAST)
    return np.asarray(np.log(safe / (1 - safe)), np.float64)


# ---- fitting --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Links of validation and a sample of the other candidates, with the number of links that each stands for."""

    evidence: FloatArray
    relation: Ids
    positive: npt.NDArray[np.bool_]
    weight: FloatArray

    def select(self, rows: Any) -> Sample:
        return Sample(*(getattr(self, name)[rows] for name in ("evidence", "relation", "positive", "weight")))


def fit_link_probability(
    evidence: LinkEvidence, valid: Graph, parts: ValidationParts, method: str = "isotonic", seed: int = 0
) -> LinkProbability | None:
    """Fit the probability of links to the parts of validation that did not stop the training; None without links."""
    random = np.random.default_rng([seed, RandomStream.DISCOVERY_CALIBRATION])
    every, held = _distinct(evidence, valid), _distinct(evidence, concatenate([parts.calibration, parts.conformal]))
    if not len(held):
        return None
    per_link = len(every) / len(held)
    usual = evidence.plausible(held.head, held.relation, held.tail)
    if not usual.any():
        return None
    known = np.unique(np.concatenate([evidence.train.keys, valid.keys]))
    sample = sample_candidates(evidence, held.select(usual), per_link, known, random)
    if sample.positive.all():  # train and validation have all candidates
        return None
    line, bounds, offsets = _fit_line(sample, evidence.relations)
    nothing = np.empty(0)
    made = LinkProbability(evidence, line, bounds, offsets, nothing, nothing, 0.0, 0.5, None, int(usual.sum()))
    if method == "isotonic" and usual.sum() >= 3 * MIN_BIN:
        points, logits = _fit_curve(sample, _held_out_values(sample, evidence.relations, random))
        made = replace(made, points=points, logits=logits)
    negative = sample.select(~sample.positive)
    chance = _logistic(made.corrected(made.on_line(negative.evidence, negative.relation)))
    rate = float(np.clip(np.average(chance, weights=negative.weight), 1e-9, 0.5))
    made = replace(made, estimated_rate=rate)
    return replace(made, implausible=_fit_implausible(made, (~usual).sum() * per_link, known, random))


def _distinct(evidence: LinkEvidence, graph: Graph) -> Graph:
    """Return the triples of a graph that train lacks, each once."""
    first = np.unique(graph.keys, return_index=True)[1]
    return graph.select(first[~np.isin(graph.keys[first], evidence.train.keys)])


def sample_candidates(
    evidence: LinkEvidence, positives: Graph, per_link: float, known: Any, random: np.random.Generator
) -> Sample:
    """Return the positives, each for `per_link` links, and a sample of the candidates that are not `known`.

    Most of the sampled candidates are among the best of their head or tail, and the others are drawn uniformly. Each
    stands for the inverse of the probability with which it was drawn.
    """
    pairs = evidence.pairs.sum()
    share = min(1.0, MAX_SCORES / pairs)
    heads_of, entities = evidence.space.keys("head"), max(evidence.entities, 1)
    asked = heads_of[random.random(len(heads_of)) < share]
    each = min(1.0, OTHERS / (share * pairs))
    sizes = len(evidence.space.keys("tail")), len(heads_of)  # of the queries for heads and of those for tails
    rates = [LIKELY / (share * (len(evidence.keys) + size)) for size in sizes]
    parts: list[Any] = [np.empty((4, 0))]
    for index in np.unique(asked // entities).tolist():
        heads = asked[asked // entities == index] % entities
        parts += _draw_candidates(evidence, index, heads, each, (rates[1], rates[0]), random)
    head, relation, tail = (ids.astype(np.int64) for ids in np.concatenate(parts, axis=1)[:3])
    weight = 1 / (share * np.concatenate(parts, axis=1)[3])
    new = ~np.isin(evidence.train.keys_of(head, relation, tail), known)
    rows = evidence(head[new], relation[new], tail[new])
    true = evidence(positives.head, positives.relation, positives.tail)
    return Sample(
        np.concatenate([true, rows]),
        np.concatenate([positives.relation.astype(np.int64), relation[new]]),
        np.arange(len(true) + len(rows)) < len(true),
        np.concatenate([np.full(len(true), per_link), weight[new]]),
    )


@torch.no_grad()
def _draw_candidates(
    evidence: LinkEvidence,
    relation: int,
    heads: Ids,
    each: float,
    rates: tuple[float, float],
    random: np.random.Generator,
) -> list[Any]:
    """Draw candidates of one relation: parts of head, relation, tail and probability of being drawn, [4, n].

    Each candidate is drawn with probability `each`, plus a rate times its softmax and the number of known answers, for
    the query of its head and for that of its tail.
    """
    tails, device = evidence.ends["tail"][relation], evidence.scorer.device
    totals = evidence.totals(tails, np.full(len(tails), relation), "head")
    known = _counts(evidence.head_queries, evidence.num_heads, tails * evidence.relations + relation)
    by_tail = torch.from_numpy(np.log(rates[1] * (1 + known)) - totals).to(device, torch.float32)
    totals = evidence.totals(heads, np.full(len(heads), relation), "tail")
    known = _counts(evidence.tail_queries, evidence.num_tails, heads * evidence.relations + relation)
    by_head = torch.from_numpy(np.log(rates[0] * (1 + known)) - totals).to(device, torch.float32)
    parts = []
    for rows in chunks(len(heads), max(1, SCORES_AT_ONCE // len(tails))):
        scores = evidence.scores(heads[rows], relation, tails, "tail")
        chance = torch.exp(scores + by_head[rows, None]).add_(torch.exp(scores + by_tail)).add_(each).clamp_(max=1.0)
        drawn = torch.from_numpy(random.random(scores.shape, np.float32)).to(device) < chance
        cells = torch.nonzero(drawn & (scores > EXCLUDED), as_tuple=True)
        found = chance[cells].double().cpu().numpy()
        row, column = (ids.cpu().numpy() for ids in cells)
        parts.append(np.stack([heads[rows][row], np.full(len(row), relation), tails[column], found]))
    return parts


def _fit_line(sample: Sample, relations: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return coefficients, bounds of the evidence and offsets of relations, of the greatest penalized likelihood.

    With the probability p, a link is one of validation with probability p / (1 + p), see the top of this module.
    """
    from scipy.optimize import minimize  # type: ignore[import-untyped, unused-ignore]

    rows, relation, true, weight = sample.evidence, sample.relation, sample.positive, sample.weight
    bounds = np.stack([rows.min(0), rows.max(0)])
    mean, deviation = rows.mean(0), np.where(rows.std(0) > 1e-9, rows.std(0), 1.0)
    scaled, size = (rows - mean) / deviation, rows.shape[1]
    transposed, is_true = np.ascontiguousarray(scaled.T), np.flatnonzero(true)
    penalty = RIDGE * max(1.0, FEW_POSITIVES / true.sum())

    def loss(values: FloatArray) -> tuple[float, FloatArray]:
        line, constant, offsets = values[:size], values[size], values[size + 1 :]
        z = scaled @ line + constant + offsets[relation]
        chance = _logistic(z)
        total = float(weight @ np.log1p(chance) + weight[is_true] @ np.logaddexp(0.0, -z[is_true]))
        total += penalty / 2 * float(line @ line + offsets @ offsets)
        slope = weight * (1 - chance) * (chance / (1 + chance) - true)
        gradient = np.concatenate([transposed @ slope, [slope.sum()], np.bincount(relation, slope, relations)])
        gradient[:size] += penalty * line
        gradient[size + 1 :] += penalty * offsets
        return total, gradient

    start = np.zeros(size + 1 + relations)
    start[size] = np.log(weight[true].sum() / weight[~true].sum())
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 100, "ftol": 1e-8}).x
    line = found[:size] / deviation
    return np.append(line, found[size] - float(line @ mean)), bounds, found[size + 1 :]


def _held_out_values(sample: Sample, relations: int, random: np.random.Generator) -> FloatArray:
    """Return the values [n] of lines that were fitted to the other half of the sample."""
    half = random.random(len(sample.weight)) < 0.5
    found = np.zeros(len(half))
    for rows in (half, ~half):
        line, bounds, offsets = _fit_line(sample.select(~rows), relations)
        inside = np.clip(sample.evidence[rows], bounds[0], bounds[1])
        found[rows] = inside @ line[:-1] + line[-1] + offsets[sample.relation[rows]]
    return found


def _fit_curve(sample: Sample, value: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the points of the curve at values of the line [n], and their log-odds.

    The values are divided into bins. In each, the log-odds of the line are corrected by
    what the ratio of validation's links to the other candidates differs from the expected one.
    """
    from sklearn.isotonic import isotonic_regression  # type: ignore[import-untyped, unused-ignore]

    true, weight = sample.positive, sample.weight
    edges = _bin_edges(np.sort(value[true]))
    bins = len(edges)
    place = np.clip(np.searchsorted(edges, value, side="right") - 1, 0, bins - 1)
    count = np.bincount(place[true], minlength=bins)
    links = np.bincount(place[true], weight[true], bins)
    others = np.bincount(place[~true], weight[~true], bins)
    expected = np.bincount(place[~true], (weight * _logistic(value))[~true], bins)
    ratio = np.minimum(links / np.maximum(others, LEAST), 1 - 1 / (count + 2))
    planned = np.clip(expected / np.maximum(others, LEAST), LEAST, 1 - LEAST)
    points = np.bincount(place[true], value[true], bins) / np.maximum(count, 1)
    logits = points + _logit(ratio) - _logit(planned)
    keep = (count > 0) & (others > 0)
    points, logits, count = points[keep], np.minimum(logits, _logit(1 - 1 / (count + 2)))[keep], count[keep]
    error = np.sqrt(1 / count + 1 / np.maximum(np.bincount(place[~true], minlength=bins)[keep], 1))  # of log-ratios
    error /= 1 - ratio[keep]
    return _merge_points(points, isotonic_regression(logits, sample_weight=count), count.astype(np.float64), error)


def _bin_edges(ordered: FloatArray) -> FloatArray:
    """Return the lower ends of bins of ascending values [n] of positives; the first one is open.

    A bin ends with its share of the positives, or earlier if its probabilities differ much, but not before MIN_BIN.
    """
    chance, size = _logistic(ordered), len(ordered) // MAX_BINS
    starts = [0]
    while starts[-1] < len(ordered):
        start = starts[-1]
        end = max(start + MIN_BIN, min(int(np.searchsorted(chance, chance[start] + BIN_WIDTH)), start + size))
        starts.append(end if end <= len(ordered) - MIN_BIN else len(ordered))
    return np.append(-np.inf, ordered[starts[1:-1]])


def _merge_points(
    points: FloatArray, logits: FloatArray, count: FloatArray, error: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Merge neighboring points [n] until the log-odds of all neighbors differ by more than SEPARATE standard errors."""
    variance = error**2
    while len(points) > 1:
        apart = np.diff(logits) / np.sqrt(variance[1:] + variance[:-1])
        at = int(np.argmin(apart))
        if apart[at] > SEPARATE:
            break
        pair = slice(at, at + 2)
        share = count[pair] / count[pair].sum()
        points[at], logits[at], count[at] = share @ points[pair], share @ logits[pair], count[pair].sum()
        variance[at] = share**2 @ variance[pair]
        points, logits, count, variance = (np.delete(part, at + 1) for part in (points, logits, count, variance))
    return points, logits


def _fit_implausible(made: LinkProbability, links: float, known: Any, random: np.random.Generator) -> float:
    """Return what is added to the log-odds of links of implausible type, of which validation has `links`."""
    evidence, count = made.evidence, OUTSIDE
    head, tail = random.integers(0, evidence.entities, (2, count))
    relation = random.integers(0, evidence.relations, count)
    outside = ~evidence.plausible(head, relation, tail)
    key: Any = evidence.train.keys_of  # which accepts ids of any width
    outside &= ~np.isin(key(head, relation, tail), known)
    if not outside.any():
        return 0.0
    head, relation, tail = (ids[outside] for ids in (head, relation, tail))
    chance = _logistic(made.corrected(made.on_line(evidence(head, relation, tail), relation)))
    every = float(evidence.entities) ** 2 * evidence.relations * outside.mean()
    return float(min(np.log((links + 0.5) / max(every * float(chance.mean()), LEAST)), 0.0))


# ---- use ------------------------------------------------------------------------------------------------------------


def best_new_links(
    evidence: LinkEvidence, valid: Graph, queries: int, seed: int, best: int = 10
) -> tuple[Any, Any, Any]:
    """Return the `best` links by score of random queries (head, relation, ?) and (?, relation, tail) of train.

    The links, ids [n] each, are distinct, and neither train nor validation has them.
    """
    random = np.random.default_rng([seed, RandomStream.DISCOVERY_CALIBRATION, 1])
    parts: list[Any] = [np.empty((3, 0), np.int64)]
    index = build_triple_index([evidence.train, valid], evidence.scorer.device)
    sides: tuple[Side, Side] = ("tail", "head")
    for side in sides:
        given, relation = np.divmod(_sample(random, evidence.queries(side), queries), evidence.relations)
        for kind in np.unique(relation).tolist():
            candidates, mine = evidence.ends[side][kind], given[relation == kind]
            for rows in chunks(len(mine), max(1, SCORES_AT_ONCE // len(candidates))):
                scores = evidence.scores(mine[rows], kind, candidates, side, index)
                value, place = torch.topk(scores, min(best, len(candidates)), dim=1)
                row, column = (ids.cpu().numpy() for ids in torch.nonzero(value > EXCLUDED, as_tuple=True))
                ends = mine[rows][row], candidates[place.cpu().numpy()[row, column]]
                head, tail = ends if side == "tail" else ends[::-1]
                parts.append(np.stack([head, np.full(len(head), kind), tail]))
    head, relation, tail = np.concatenate(parts, axis=1)
    keys: Any = evidence.train.keys_of  # which accepts ids of any width
    first = np.unique(keys(head, relation, tail), return_index=True)[1]
    return head[first], relation[first], tail[first]


def at_rate_of_rows(chance: FloatArray, rate: float) -> FloatArray:
    """Scale the odds of probabilities [n] such that their mean is `rate`.

    >>> at_rate_of_rows(np.array([0.1, 0.1]), 0.5).round(6).tolist()
    [0.5, 0.5]
    """
    logits, low, high = _logit(chance), -60.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _logistic(logits + middle).mean() < rate else (low, middle)
    return _logistic(logits + low)


def ordering_key(probability: LinkProbability | None, score: FloatArray, ids: tuple[Any, Any, Any]) -> FloatArray:
    """Return the number [n] by which links with these scores and ids, [n] each, are ordered, the largest first."""
    return score if probability is None else probability.log_odds(*ids)
