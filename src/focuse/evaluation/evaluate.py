"""Evaluation of a model or a baseline: rank metrics of a test set, overall and by weight, and nDCG.

As in the paper, metrics are computed over all test triples and over their top and bottom decile by weight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch

from focuse.data.graph import AlignedGraph, Graph, concatenate
from focuse.data.statistics import REPEATED_ADVICE, leakage_note
from focuse.data.triple_index import TripleIndex, contained_in, id_tensors, relevant_triple_index
from focuse.data.weights import Strength, strength
from focuse.engines.base import Scorer
from focuse.errors import FocuseError, counted
from focuse.evaluation.baselines import FREQUENCY, LINKED, FrequencyScorer, LinkedScorer
from focuse.evaluation.metrics import (
    HITS,
    NDCG,
    Metrics,
    RankMetrics,
    WeightedPrecision,
    WeightOrder,
    format_number,
    json_value,
    mean_ndcg,
    query_keys,
    rank_metrics,
    weight_order,
    weighted_median,
    weighted_precision,
)
from focuse.evaluation.metrics import deciles as decile_shares
from focuse.evaluation.ranking import TIES, Ranking, rank, sample_size
from focuse.option_strings import choose
from focuse.results import TableExport, format_table

DECILES = {"relation": "within each relation", "global": "of all weights"}  # the rules, as they are shown


@dataclass(frozen=True)
class Evaluation(TableExport, Metrics):
    """The metrics of a test set; `print` shows a table, and `--json` prints the result of `to_dict`.

    `top` and `bottom` are the deciles of highest and of lowest weight; `weighted` counts every triple by its weight.
    `order` measures how well scores order true triples by weight, and `suggestions` measures short lists of answers.
    `scores` [n] and the decile memberships `top_share` and `bottom_share` [n] are for plots of distributions, and
    `ranks` [n, 2] (tail, head) are for metrics of a subset. `compared` holds the evaluations of other rankings of the
    same triples: by the run from likely to strong links, and by frequency in train.
    """

    all: RankMetrics
    top: RankMetrics
    bottom: RankMetrics
    weighted: RankMetrics
    delta_mrr: float
    delta_median: float
    settings: dict[str, str | int]
    notes: tuple[str, ...] = field(default=(), repr=False)
    unseen_rows: int = 0
    rows_in_train: int = 0
    scores: npt.NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32), repr=False)
    top_share: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)
    bottom_share: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)
    order: WeightOrder | None = None
    suggestions: WeightedPrecision | None = None
    ranks: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 2)), repr=False)
    compared: dict[str, Evaluation] = field(default_factory=dict, repr=False)

    @property
    def parts(self) -> dict[str, RankMetrics]:
        """The rank metrics by the name of their triples."""
        parts = (self.all, self.top, self.bottom, self.weighted)
        return dict(zip(("all", "top 10 %", "bottom 10 %", "weighted mean"), parts, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics by name, those of the compared rankings under 'compared'."""
        compared = {name: other.summary() for name, other in self.compared.items()}
        return {**super().to_dict(), **({"compared": compared} if compared else {})}

    def summary(self) -> dict[str, float | None]:
        """Return the few metrics that tell rankings apart."""
        first = {} if self.suggestions is None else {row.n: row.weight for row in self.suggestions.first}
        numbers = {
            "mrr": self.all.mrr,
            "mrr_top": self.top.mrr,
            "mrr_bottom": self.bottom.mrr,
            "delta_mrr": self.delta_mrr,
            "concordance": math.nan if self.order is None else self.order.relation.share,
            "weighted_precision@10": first.get(10, math.nan),
        }
        return {name: json_value(value) for name, value in numbers.items()}

    def _comparison(self) -> list[str]:
        """Return a table with one row per compared ranking."""
        headings = ["MRR", "all", "top 10 %", "bottom 10 %", "ΔMRR", "concordance", "weighted precision@10"]
        rows = [[name, *map(format_number, other.summary().values())] for name, other in self.compared.items()]
        return [format_table(headings, rows), ""] if rows else []

    def to_arrow(self) -> pa.Table:
        """Return one row per set of triples (all, top and bottom decile, weighted mean) with n, mr, mrr and hits@k."""
        return pa.Table.from_pylist([{"triples": name, **part.to_dict()} for name, part in self.parts.items()])

    def __str__(self) -> str:
        rows = [
            [name, f"{part.n:,}", f"{part.mr:.1f}", f"{part.mrr:.3f}", *(f"{part.hits[k]:.3f}" for k in HITS)]
            for name, part in self.parts.items()
        ]
        lines = [format_table(["", "n", "MR", "MRR", *(f"Hits@{k}" for k in HITS)], rows)]
        lines.append(f"ΔMRR {self.delta_mrr:.3f}   ΔM {self.delta_median:.3f}")
        lines += [str(part) for part in (self.order, self.suggestions) if part is not None]
        lines.append(", ".join(f"{key} {value}" for key, value in self.settings.items()))
        return "\n".join([*self._comparison(), *lines, *self.notes])


def evaluate(
    scorer: Scorer,
    test: AlignedGraph,
    train: Graph,
    known: TripleIndex,
    ties: str = "worst",
    protocol: str = "per-side",
    filtered: bool = True,
    valid: Graph | None = None,
    sample_candidates: int | None = None,
    deciles: str | None = None,
    ranking: Ranking | None = None,
) -> Evaluation:
    """Rank every triple of `test`, which has train's ids, and compute all metrics.

    Parameters
    ----------
    known
        The triples of train, `valid` and test; ranks are filtered by them unless `filtered` is False.
    ties, protocol
        The rule for equal scores, and whether both sides are one list; see `CompetitorCounts.ranks`.
    valid
        Validation triples; like training triples, they are left out of suggestions.
    sample_candidates
        The number of sampled entities to rank against, without suggestions; see `sample_size`.
    deciles
        The rule by which everything that depends on weights compares them: 'relation' within each relation, 'global'
        across all, or None to let the units of train decide; see `focuse.data.weights.strength`. If lower weights are
        better in train, the top decile has the smallest weights.
    ranking
        The ranks, if they are computed already.
    """
    graph = test.graph
    if not len(graph):
        raise FocuseError(f"{graph.source}: no test triple has all its names in train; {str(test) or 'it is empty'}")
    sample = sample_size(scorer, sample_candidates, known.entities)
    ranking = ranking or rank(scorer, *id_tensors(graph), known, candidates=sample)
    ranks = (ranking.filtered if filtered else ranking.raw).ranks(ties, protocol)
    found = strength(graph, train, deciles)
    weight = found.middle
    bottom_share, top_share = decile_shares(found.low, found.high)
    size = round(float(top_share.sum()))
    top, bottom = rank_metrics(ranks, top_share, size), rank_metrics(ranks, bottom_share, size)
    score = ranking.score.astype(np.float64)
    in_train = contained_in(graph, train)
    known_before = in_train if valid is None else in_train | contained_in(graph, valid)
    order, suggestions = _metrics_by_weight(graph, weight, ranking, known_before)
    medians = [weighted_median(score, share) for share in (top_share, bottom_share)]
    return Evaluation(
        all=rank_metrics(ranks),
        top=top,
        bottom=bottom,
        weighted=rank_metrics(ranks, weight),
        delta_mrr=top.mrr - bottom.mrr,
        delta_median=abs(medians[0] - medians[1]),
        settings={"ranks": "filtered" if filtered else "unfiltered", "ties": ties, "protocol": protocol}
        | {"deciles": DECILES[found.rule]}
        | ({} if sample is None else {"candidates": sample}),
        notes=tuple(_notes(test, train, int(in_train.sum()), sample, found)),
        unseen_rows=test.unseen.rows,
        rows_in_train=int(in_train.sum()),
        scores=ranking.score,
        top_share=top_share,
        bottom_share=bottom_share,
        order=order,
        suggestions=suggestions if sample is None else None,
        ranks=ranks,
    )


def _metrics_by_weight(
    graph: Graph, weight: npt.NDArray[np.float64], ranking: Ranking, known_before: npt.NDArray[np.bool_]
) -> tuple[WeightOrder, WeightedPrecision]:
    """Return the metrics that depend on weights, over the distinct test triples, each with its highest weight.

    Triples that are `known_before` [n] are left out of suggestions, because they would not be suggested.
    """
    rows = np.lexsort((-weight, graph.keys))
    rows = rows[np.diff(graph.keys[rows], prepend=-1) != 0]
    tail_score, head_score = ranking.tail_score, ranking.head_score
    order = weight_order(graph.select(rows), weight[rows], tail_score[rows], head_score[rows], ranking.score[rows])
    new = rows[~known_before[rows]]
    ranks = ranking.filtered.ranks("worst")[new]
    return order, weighted_precision(graph.select(new), weight[new], tail_score[new], head_score[new], ranks)


def _notes(test: AlignedGraph, train: Graph, in_train: int, sample: int | None, found: Strength) -> list[str]:
    """Return notes on the test set that matter for reading the metrics, one line each."""
    graph = test.graph
    notes = [str(test)] if test.unseen.rows else []
    if graph.undirected:
        pairs = len(np.unique(graph.pair_keys[graph.is_undirected[graph.relation]]))
        notes.append(f"{graph.source}: {counted(pairs, 'pairs', 'are')} undirected, and ranked in both directions")
    leakage = leakage_note(train, graph)
    notes += [leakage] if leakage else []
    if in_train and not leakage.endswith(REPEATED_ADVICE):
        notes.append(f"{graph.source}: {in_train:,} of {len(graph):,} triples are in train as well")
    if np.ptp(graph.weight) == 0:
        notes.append(f"{graph.source}: all weights are equal, so top and bottom are the same triples")
    elif (found.high - found.low == 1).all():
        same = "every relation has a single weight, so top and bottom are the same triples"
        notes.append(f"{graph.source}: {same}; deciles='global' compares the relations")
    if sample is not None:
        sampled = f"ranked against {sample:,} sampled entities per side, not all {len(graph.entities):,}"
        notes.append(f"{sampled}: not comparable with full ranks, which are larger")
    return notes


# ---- baselines ----------------------------------------------------------------------------------------------------


def evaluate_baselines(
    train: Graph,
    valid: Graph,
    test: AlignedGraph,
    graphs: list[Graph],
    device: torch.device | str = "cpu",
    sample_candidates: int | None = None,
) -> dict[str, Evaluation]:
    """Evaluate the ranking baselines on `test` (in train's ids), by name; `graphs` hold the known triples.

    With `sample_candidates`, they rank the same sampled entities as every other scorer.
    """
    known = relevant_triple_index([*graphs, test.graph], test.graph, device)
    evaluations = {
        name: evaluate(scorer(train, device), test, train, known, valid=valid, sample_candidates=sample_candidates)
        for name, scorer in {FREQUENCY: FrequencyScorer, LINKED: LinkedScorer}.items()
    }
    # Notes are removed, because the model's evaluation has the same ones.
    return {name: replace(evaluation, notes=()) for name, evaluation in evaluations.items()}


# ---- nDCG among all entities --------------------------------------------------------------------------------------


def ndcg_queries(test: Graph, graphs: Iterable[Graph]) -> Graph:
    """Return queries for `ndcg`: every (head, relation) of `test`, with its tails in `test` and in all `graphs`.

    All graphs use train's ids. Repeated triples count once, with their highest weight.
    """
    combined = concatenate([test, *graphs])
    in_test = np.isin(query_keys(combined), query_keys(test))
    return combined.select(in_test).merge_repeated("max")


def ndcg(
    scorer: Scorer, queries: Graph, ties: str = "worst", max_scores: int | None = None, rule: str | None = None
) -> NDCG:
    """Compute the mean nDCG of a scorer over queries (head, relation, ?), as UKGE does.

    It is high if high-weight tails are ranked before low-weight tails, and both before all other entities. Each tail of
    a query is ranked among all entities, including the query's other tails (nothing is filtered):

        nDCG = Σ gain(w) / log2(rank + 1)  /  Σ gain(w) / log2(i + 1)      i = 1, 2, … by decreasing weight

    with the gain w (linear) or 2^w − 1 (exponential).

    The edges of one (head, relation) in `queries`, which have train's ids, form a query. Weights in other units than
    [0, 1] count by their strength among the queries; `rule` is as in `focuse.data.weights.strength`. Queries whose
    weights are all 0 have no gain and are left out. For equal scores, the code of UKGE uses the rule "best", by which a
    constant score ranks every tail first. `max_scores` is as in `rank`.
    """
    choose("tie rule", ties, TIES)
    triples = queries.merge_repeated("max")
    if not len(triples):
        return NDCG(0, math.nan, math.nan, ties)
    weight = strength(triples, triples, rule).middle
    order = np.lexsort((-weight, query_keys(triples)))
    triples, weight = triples.select(order), weight[order]
    first = np.unique(query_keys(triples), return_index=True)[1]
    empty = torch.empty(0, dtype=torch.int64, device=scorer.device)
    unfiltered = TripleIndex(empty, empty, empty, len(triples.entities), len(triples.relations))
    ranks = rank(scorer, *id_tensors(triples), unfiltered, max_scores, sides=("tail",)).raw.ranks(ties)[:, 0]
    linear, exponential = (mean_ndcg(gain, ranks, first) for gain in (weight, np.exp2(weight) - 1.0))
    return NDCG(int((np.maximum.reduceat(weight, first) > 0).sum()), linear, exponential, ties)
