"""The paper's evaluation: all of test, its heaviest and its lightest tenth, and what lies between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from focuse.errors import FocuseError
from focuse.evaluation.asked import LARGE, facts_about, stand_in
from focuse.evaluation.known import Known
from focuse.evaluation.metrics import HITS, Figures, decile_size, deciles, figures, weighted_median
from focuse.evaluation.order import Order, order_of
from focuse.evaluation.ranking import Ranking, Scorer, rank
from focuse.evaluation.sampled import SomeScorer, rank_sampled, sample_size
from focuse.evaluation.suggestions import Suggestions, suggestions_of
from focuse.graph.graph import Aligned, Graph
from focuse.graph.weights import strength


@dataclass(frozen=True)
class Evaluation:
    """Figures of a test set; `print` shows a table, `to_dict` is what `--json` prints.

    `weighted` counts every triple by its weight. `order` says how scores order facts by weight, `suggestions` what a
    short list holds. `scores` and the shares of `top` and `bottom` are kept for drawing distributions, `ranks` of
    each side [n, 2] (tail, head) for figures of a part.
    """

    all: Figures
    top: Figures
    bottom: Figures
    weighted: Figures
    delta_mrr: float
    delta_median: float
    settings: dict[str, str | int]
    notes: tuple[str, ...] = ()
    unseen_rows: int = 0
    rows_in_train: int = 0
    scores: npt.NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32), repr=False)
    top_share: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)
    bottom_share: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty(0), repr=False)
    order: Order | None = None
    suggestions: Suggestions | None = None
    ranks: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 2)), repr=False)

    def to_dict(self) -> dict[str, Any]:
        parts = {name: getattr(self, name).to_dict() for name in ("all", "top", "bottom", "weighted")}
        return {
            **parts,
            "delta_mrr": None if np.isnan(self.delta_mrr) else self.delta_mrr,
            "delta_median": None if np.isnan(self.delta_median) else self.delta_median,
            "order": None if self.order is None else self.order.to_dict(),
            "suggestions": None if self.suggestions is None else self.suggestions.to_dict(),
            "settings": self.settings,
            "unseen_rows": self.unseen_rows,
            "rows_in_train": self.rows_in_train,
        }

    def __str__(self) -> str:
        lines = [f"{'':14}{'n':>8}{'MR':>10}{'MRR':>8}" + "".join(f"{f'Hits@{k}':>9}" for k in HITS)]
        names = {"all": "all", "top": "top 10 %", "bottom": "bottom 10 %", "weighted": "weighted by w"}
        for key, name in names.items():
            row: Figures = getattr(self, key)
            cells = "".join(f"{row.hits[k]:9.3f}" for k in HITS)
            lines.append(f"{name:14}{row.n:8,}{row.mr:10.1f}{row.mrr:8.3f}{cells}")
        lines.append(f"ΔMRR {self.delta_mrr:.3f}   ΔM {self.delta_median:.3f}")
        lines += [str(part) for part in (self.order, self.suggestions) if part is not None]
        lines.append(", ".join(f"{key} {value}" for key, value in self.settings.items()))
        return "\n".join([*lines, *self.notes])


def evaluate(
    scorer: Scorer,
    test: Aligned,
    train: Graph,
    known: Known,
    ties: str = "worst",
    protocol: str = "sides",
    filtered: bool = True,
    valid: Graph | None = None,
    candidates: int | None = None,
) -> Evaluation:
    """Rank every triple of `test` (in train's ids) and sum up.

    `known` holds test's own facts and those of train and `valid`. Ranks are filtered by them unless `filtered` is
    False. Deciles look at the weights as they are if all lie in [0, 1], else at global min–max; where lower is better
    in train, the top one has the smallest. With `candidates`, and for a dear model without, ranks are among a sample
    of entities; then nothing is said of suggestions.
    """
    graph = test.graph
    if not len(graph):
        raise FocuseError(f"{graph.source}: no test triple has all its names in train; {str(test) or 'it is empty'}")
    ranking, sample = rank_graph(scorer, graph, known, candidates), sample_size(scorer, candidates, known.entities)
    ranks = (ranking.filtered if filtered else ranking.raw).ranks(ties, protocol)
    weight = strength(graph, train)
    bottom_share, top_share = deciles(weight)
    size = decile_size(len(graph))
    top, bottom = figures(ranks, top_share, size), figures(ranks, bottom_share, size)
    score = ranking.score.astype(np.float64)
    in_train = stand_in(graph, train)
    elsewhere = in_train if valid is None else in_train | stand_in(graph, valid)
    order, suggestions = _by_weight(graph, weight, ranking, elsewhere)
    medians = [weighted_median(score, share) for share in (top_share, bottom_share)]
    return Evaluation(
        all=figures(ranks),
        top=top,
        bottom=bottom,
        weighted=figures(ranks, weight),
        delta_mrr=top.mrr - bottom.mrr,
        delta_median=abs(medians[0] - medians[1]),
        settings={"ranks": "filtered" if filtered else "raw", "ties": ties, "protocol": protocol, **_told(sample)},
        notes=(*_notes(test, int(in_train.sum())), *_warning(sample, known.entities)),
        unseen_rows=test.unseen.rows,
        rows_in_train=int(in_train.sum()),
        scores=ranking.score,
        top_share=top_share,
        bottom_share=bottom_share,
        order=order,
        suggestions=suggestions if sample is None else None,
        ranks=ranks,
    )


def _told(sample: int | None) -> dict[str, int]:
    return {} if sample is None else {"candidates": sample}


def _warning(sample: int | None, entities: int) -> list[str]:
    """What no reader of sampled figures may miss."""
    if sample is None:
        return []
    return [
        f"ranked against {sample:,} sampled entities a side, not all {entities:,}: not comparable with full ranks, "
        "which are larger"
    ]


def _by_weight(
    graph: Graph, weight: npt.NDArray[np.float64], ranking: Ranking, elsewhere: npt.NDArray[np.bool_]
) -> tuple[Order, Suggestions]:
    """Both measures that count by weight, of test's distinct facts, each at its heaviest.

    Facts that stand `elsewhere` too, [n], are left out of suggestions: nobody would be told them.
    """
    rows = np.lexsort((-weight, graph.keys))
    rows = rows[np.diff(graph.keys[rows], prepend=-1) != 0]
    scores = (part[rows] for part in (ranking.tail_score, ranking.head_score, ranking.score))
    order = order_of(graph.select(rows), weight[rows], *scores)
    new = rows[~elsewhere[rows]]
    return order, suggestions_of(graph.select(new), weight[new], ranking.select(new))


def _notes(test: Aligned, in_train: int) -> list[str]:
    """What a reader of the figures should know of the test set, one line each."""
    graph = test.graph
    notes = [str(test)] if test.unseen.rows else []
    if in_train:
        notes.append(f"{graph.source}: {in_train:,} of {len(graph):,} triples stand in train as well")
    if np.ptp(graph.weight) == 0:
        notes.append(f"{graph.source}: all weights are equal, so top and bottom are the same triples")
    return notes


def rank_graph(scorer: Scorer, graph: Graph, known: Known, candidates: int | None = None) -> Ranking:
    """Rank all edges of a graph in train's ids, against all or `candidates` sampled entities (dear models: 500)."""
    sample = sample_size(scorer, candidates, known.entities)
    if sample is None:
        return rank(scorer, *ids_of(graph), known)
    if not isinstance(scorer, SomeScorer):
        raise TypeError("ranking against a sample needs a scorer with 'score_some'")
    return rank_sampled(scorer, *ids_of(graph), known, sample)


def ids_of(graph: Graph) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Heads, relations and tails as int64 tensors [n]."""
    columns = (graph.head, graph.relation, graph.tail)
    head, relation, tail = (torch.from_numpy(column.astype(np.int64)) for column in columns)
    return head, relation, tail


def facts_for(asked: Graph, graphs: list[Graph], device: torch.device | str = "cpu") -> Known:
    """What the ranks of `asked` are filtered by: all facts, or of very many those that bear on it."""
    return facts_about(graphs, asked, device) if sum(map(len, graphs)) >= LARGE else known_facts(graphs, device)


def known_facts(graphs: list[Graph], device: torch.device | str = "cpu") -> Known:
    """All triples of some graphs with one vocabulary, ready for look-ups."""
    parts = zip(*(ids_of(graph) for graph in graphs), strict=True)
    head, relation, tail = (torch.cat(columns).to(device) for columns in parts)
    return Known(head, relation, tail, len(graphs[0].entities), len(graphs[0].relations))
