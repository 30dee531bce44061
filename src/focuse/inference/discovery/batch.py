"""Answers to many half-known triples, scored in blocks: what `predict` says to each, all at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from focuse.data.graph import Graph, find_sorted
from focuse.data.triple_index import TripleIndex, build_triple_index
from focuse.engines.base import Scorer
from focuse.errors import FocuseError
from focuse.evaluation.baselines import KeyedWeights
from focuse.inference.answers import Rows
from focuse.inference.discovery.blocks import check_finite
from focuse.inference.discovery.pool import NOTHING
from focuse.inference.discovery.queries import MISSING, PARTS, Queries
from focuse.inference.discovery.scope import Ids
from focuse.inference.discovery.watching import Watch, watched
from focuse.inference.predict import Prediction, told_of
from focuse.inference.weight_predictor import WeightPredictor
from focuse.models.base import Side

SCORES_AT_ONCE = 1 << 22  # 16 MB; four times that on a GPU
NUMBERS = ("expected_weight", "low", "high", "probability", "confidence")


@dataclass(frozen=True)
class Answer(Prediction):
    """A prediction, and the number of the query that it answers, from 1."""

    query: int = 0


class Answers(Rows[Answer]):
    """Answers to many queries, query by query and best first, in columns [n]; `write` makes a file, `print` a table."""

    shown, nothing = 100, "nothing to predict"

    def __init__(self, names: Graph, columns: dict[str, Any], queries: int) -> None:
        self.names, self.columns, self.queries = names, columns, queries
        self.stopped = False

    def __len__(self) -> int:
        return len(self.columns["query"])

    def row(self, place: int) -> Answer:
        row = {name: column[place].item() for name, column in self.columns.items()}
        made: dict[str, Any] = {name: row[name] for name in ("query", "rank", "score", "known")}
        made |= {"head": self.names.entities[row["head"]], "tail": self.names.entities[row["tail"]]}
        made["relation"] = self.names.relations[row["relation"]]
        numbers = [name for name in ("weight", *NUMBERS) if name in row]
        made |= {name: row[name] if np.isfinite(row[name]) else None for name in numbers}
        return Answer(**made)

    def to_dict(self) -> dict[str, Any]:
        return {"queries": self.queries, "answers": [asdict(row) for row in self], "notes": list(self.notes)}

    def to_arrow(self) -> pa.Table:
        """query, rank, head, relation, tail, score, known, weight and what is told of each."""
        columns: dict[str, Any] = {name: self.columns[name] for name in ("query", "rank")}
        columns |= {"head": self.names.entities.take(self.columns["head"])}
        columns |= {"relation": self.names.relations.take(self.columns["relation"])}
        columns |= {"tail": self.names.entities.take(self.columns["tail"])}
        columns |= {name: self.columns[name] for name in ("score", "known")}
        numbers = [name for name in ("weight", *NUMBERS) if name in self.columns]
        return pa.table(columns | {name: pa.array(self.columns[name], from_pandas=True) for name in numbers})

    def line(self, row: Answer, names: str) -> str:
        mark = f"known, weight {row.weight:g}" if row.known else "new"
        sure = "" if row.probability is None else f"  probability {row.probability:.2f}"
        if not row.known and row.expected_weight is not None:
            sure += f"  weight ≈ {row.expected_weight:<8.3g}"
        return f"{row.query:>5} {row.rank:>4}  {names}  {row.score:9.3f}{sure}  {mark}"


@dataclass
class Many:
    """How queries are answered: `top` of each, all or `new_only`, among all entities or some ids `among` [n].

    Ranks are places among all completions, known ones too, or among those of `among`.
    """

    scorer: Scorer
    graphs: list[Graph]
    top: int = 10
    new_only: bool = False
    among: Ids | None = None

    def __post_init__(self) -> None:
        if isinstance(self.top, bool) or not isinstance(self.top, int) or self.top < 1:
            raise FocuseError(f"top {self.top!r}: give at least 1")

    @cached_property
    def known(self) -> TripleIndex:
        return build_triple_index(self.graphs, self.scorer.device)

    def answer(self, queries: Queries, watch: Watch) -> dict[str, Any]:
        """Columns [m] of the answers to queries [n]: query, rank, head, relation, tail, score, known and weight."""
        asked = np.stack([queries.head, queries.relation, queries.tail])
        whole = (asked != MISSING).all(0)
        if self.new_only and whole.any():
            row = int(np.flatnonzero(whole)[0]) + 1
            raise FocuseError(
                f"query {row}: a whole triple is shown, known or not; leave one part out to rank new ones"
            )
        missing = {part: asked[at] == MISSING for at, part in enumerate(PARTS)} | {"whole": whole}
        parts = [self._group(asked, np.flatnonzero(rows), part, watch) for part, rows in missing.items()]
        made = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        order = np.lexsort((made["rank"], made["query"]))
        return self._with_facts({name: column[order] for name, column in made.items()})

    def _group(self, asked: Ids, rows: Ids, missing: str, watch: Watch) -> dict[str, Any]:
        """Answers to the queries `rows` that lack the same part, in blocks; 'whole' ones ask for their own place."""
        names = self.graphs[0]
        many = len(names.relations if missing == "relation" else names.entities)
        size = max(1, SCORES_AT_ONCE * (4 if self.scorer.device.type != "cpu" else 1) // max(many, 1))
        found = [self._columns(asked, rows[:0], rows[:0], rows[:0], rows[:0], torch.empty(0), "tail")]
        for start in range(0, len(rows), size):
            if watch.stopped:
                break
            some = rows[start : start + size]
            found.append((self._place if missing == "whole" else self._best)(asked[:, some], some, missing))
            watch.advance(len(some))
        return {name: np.concatenate([part[name] for part in found]) for name in found[0]}

    @torch.no_grad()
    def _best(self, asked: Ids, rows: Ids, missing: str) -> dict[str, Any]:
        """The best completions of a block of queries [3, B]."""
        head, relation, tail = (torch.from_numpy(ids).to(self.scorer.device) for ids in asked)
        scores = self._scores(head, relation, tail, missing)
        check_finite(scores.amax(1))
        value, place = top_scores(scores, self.top + self._spare(head, relation, tail, missing))
        shown = value > NOTHING
        if self.new_only:
            ends = {"head": head[:, None], "relation": relation[:, None], "tail": tail[:, None], missing: place}
            shown &= ~self.known.contains(*(ends[part].expand_as(place) for part in PARTS))
        shown &= shown.cumsum(1) <= self.top
        row, column = torch.nonzero(shown, as_tuple=True)
        which, rank = row.cpu().numpy(), column.cpu().numpy() + 1
        return self._columns(asked, rows, which, place[row, column].cpu().numpy(), rank, value[row, column], missing)

    @torch.no_grad()
    def _place(self, asked: Ids, rows: Ids, missing: str) -> dict[str, Any]:
        """Where whole triples stand among their tails."""
        head, relation, tail = (torch.from_numpy(ids).to(self.scorer.device) for ids in asked)
        scores = self.scorer.score_all(head, relation, "tail")
        check_finite(scores.amax(1))
        mine = scores.gather(1, tail[:, None])
        before = torch.arange(scores.shape[1], device=scores.device)[None] < tail[:, None]  # of equal ones these
        rank = (scores > mine).sum(1) + ((scores == mine) & before).sum(1) + 1
        return self._columns(asked, rows, np.arange(len(rows)), asked[2], rank.cpu().numpy(), mine[:, 0], "tail")

    def _scores(self, head: Tensor, relation: Tensor, tail: Tensor, missing: str) -> Tensor:
        """Of every completion, [B, E] or [B, R]; −∞ for entities that are not wanted."""
        scorer = self.scorer
        if missing == "relation":
            many = len(self.graphs[0].relations)
            every = torch.arange(many, device=scorer.device).repeat(len(head))
            return scorer.score(head.repeat_interleave(many), every, tail.repeat_interleave(many)).view(-1, many)
        side: Side = "head" if missing == "head" else "tail"
        scores = scorer.score_all(tail if side == "head" else head, relation, side)
        if self.among is not None:
            others = torch.ones(scores.shape[1], dtype=torch.bool, device=scorer.device)
            others[torch.from_numpy(self.among).to(scorer.device)] = False
            scores = scores.masked_fill(others, NOTHING)
        return scores

    def _spare(self, head: Tensor, relation: Tensor, tail: Tensor, missing: str) -> int:
        """How many known answers a query of the block has at most, where those are left out."""
        if not self.new_only:
            return 0
        if missing == "relation":
            return len(self.graphs[0].relations)
        side: Side = "head" if missing == "head" else "tail"
        first, behind = self.known.answer_ranges(self.known.query_key(tail if side == "head" else head, relation), side)
        return int((behind - first).max())

    def _columns(
        self, asked: Ids, rows: Ids, which: Ids, answers: Ids, rank: Ids, score: Tensor, missing: str
    ) -> dict[str, Any]:
        ends = {part: asked[at][which] for at, part in enumerate(PARTS)} if len(which) else dict.fromkeys(PARTS, which)
        return {"query": rows[which] + 1, "rank": rank, **ends, missing: answers, "score": score.cpu().numpy()}

    def _with_facts(self, made: dict[str, Any]) -> dict[str, Any]:
        """The same with what the graph has: whether each is known, and its strongest weight."""
        names = self.graphs[0]
        keys = names.keys_of(made["head"], made["relation"], made["tail"])
        rows = [graph.select(np.isin(graph.keys, keys)) for graph in self.graphs]
        facts = KeyedWeights(np.concatenate([row.keys for row in rows]), np.concatenate([row.weight for row in rows]))
        strongest = facts.lookup("min" if names.lower_is_better else "max", keys, np.nan)
        return {**made, "known": find_sorted(facts.keys, keys)[1], "weight": strongest}


def top_scores(scores: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """The `top` largest of each row and their places, [B, E] -> [B, n] each; equal ones by place."""
    top = min(top, scores.shape[1])
    value, place = torch.topk(scores, top, dim=1)
    place, by_place = torch.sort(place, dim=1)
    value, order = torch.sort(value.gather(1, by_place), dim=1, descending=True, stable=True)
    place = place.gather(1, order)
    # Where the last one ties with some that did not fit in, any of them may have come.
    least = value[:, -1:]
    tied = torch.nonzero((scores == least).sum(1) > (value == least).sum(1))[:, 0]
    if len(tied):
        whole, where = torch.sort(scores[tied], dim=1, descending=True, stable=True)
        value[tied], place[tied] = whole[:, :top], where[:, :top]
    return value, place


def predict_batch(
    many: Many, queries: Queries, predictor: WeightPredictor | None = None, progress: bool = False
) -> Answers:
    """The best answers to every query; with a `predictor` also what each would weigh, and how probable it is."""
    with watched("answering queries", len(queries), progress) as watch:
        made = many.answer(queries, watch)
        stopped, share = watch.stopped, watch.share
    if predictor is not None and len(made["query"]):
        made |= told_of(predictor, made["score"], made["head"], made["relation"], made["tail"])
    found = Answers(many.graphs[0], made, len(queries))
    if stopped:
        found.stopped = True
        found.notes = (f"stopped after {share:.0%} of the queries",)
    return found
