"""Rank the completions of triples with one missing part: of a single query, or of many from a file or a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.data import readers
from focuse.data.graph import Graph, Side, Vocabulary, concatenate, find_sorted, lookup_sorted, triple_columns
from focuse.data.roles import endpoints, relation_column, words_of
from focuse.data.sniffer import TableLayout, first_rows, join_words
from focuse.data.triple_index import TripleIndex, build_triple_index
from focuse.engines.base import Scorer
from focuse.engines.scorer import StrengthScorer, TableScorer
from focuse.errors import FocuseError
from focuse.evaluation.preference import Prefer
from focuse.inference.link_search import EXCLUDED, CandidateSpace, Ids, check_finite, has_self_loops
from focuse.inference.weight_predictor import WeightPredictor, can_predict_weights, order_name, places
from focuse.option_strings import check_count
from focuse.results import ResultTable
from focuse.training.callbacks import Progress, track_progress

if TYPE_CHECKING:
    from focuse.api import Run

PARTS = ("head", "relation", "tail")
Names = str | Sequence[str] | None
PartialTriple = tuple[str | None, str | None, str | None]
MISSING = -1  # the id of the part that is asked for
POOL, POOL_PER_SHOWN = 200, 10  # best completions by score and weight that are ordered by probability and weight
BLOCK_SCORES = 1 << 22  # 16 MB; four times as many on a GPU
RELATION_ADVICE, ENTITY_ADVICE = "give it as the relation", "give it as the head or tail"
PREDICTED = ("weight_mean", "weight_median", "weight_low", "weight_high", "probability", "confidence")
NOTHING = "nothing to predict"
PRINTED = ("rank", *PARTS, "score", "probability", "weight_mean", "weight_low", "weight_high", "known", "weight")


def predict(
    run: Run,
    triple: PartialTriple,
    top: int,
    new_only: bool,
    candidates: Names = None,
    weights: bool = True,
    any_type: bool = False,
    prefer: Prefer = None,
) -> ResultTable:
    """Rank the completions of one triple; see `Run.predict`."""
    found = _complete(run, find_query(run.splits.train, triple), top, new_only, candidates, weights, any_type, prefer)
    info = {"ordered_by": found.ordered_by}
    return ResultTable(
        found.to_arrow().drop_columns("query"), notes=found.notes, info=info, printed=PRINTED, empty=NOTHING
    )


def predict_batch(
    run: Run,
    queries: Any,
    top: int,
    new_only: bool,
    candidates: Names,
    weights: bool,
    any_type: bool,
    prefer: Prefer,
    progress: bool,
) -> ResultTable:
    """Rank the completions of many triples; see `Run.predict_batch`."""
    asked = read_queries(queries, run.splits.train)
    return _complete(run, asked, top, new_only, candidates, weights, any_type, prefer, progress)


def _complete(
    run: Run,
    asked: Ids,
    top: int,
    new_only: bool,
    candidates: Names,
    weights: bool,
    any_type: bool,
    prefer: Prefer,
    progress: bool = False,
) -> ResultTable:
    graphs = [run.splits.train, run.splits.valid, run.splits.test]
    entities = find_names(candidates, graphs[0].entities, "entity")
    seen = run.fitted.entities_by_relation
    exponent, model = run.exponent(prefer), run.weight_model
    strengths = None if model is None else model.scorer
    ranking = BatchPredictor(run.scorer, graphs, top, new_only, entities, any_type, seen, strengths, exponent)
    predictor = None
    if weights and can_predict_weights(run):
        predictor = run.weight_predictor(full=True).preferring(run, prefer)
    return ranking.predict(asked, predictor, progress)


def find_query(names: Graph, triple: PartialTriple) -> Ids:
    """Return the ids [3, 1] of a triple with at most one missing part; a graph's only relation need not be given."""
    head, relation, tail = triple
    if relation is None and len(names.relations) == 1:
        relation = names.relations[0]
    if (head, relation, tail).count(None) > 1:
        raise FocuseError("predict: give two of head, relation and tail (or all three); the third is ranked")
    h, t = (MISSING if end is None else names.entities.id(end, "entity", RELATION_ADVICE) for end in (head, tail))
    r = MISSING if relation is None else names.relations.id(relation, "relation", ENTITY_ADVICE)
    return np.array([[h], [r], [t]])


# ---- ranking --------------------------------------------------------------------------------------------------------


@dataclass
class BatchPredictor:
    """Ranks the completions of queries in blocks, and returns the `top` of each.

    The best completions by score and weight, `POOL` or ten times as many as are returned, are ordered by probability
    and weight if a predictor gives them one; otherwise, the order is that of the scores.

    Attributes
    ----------
    graphs : list of Graph
        The known triples, train first.
    new_only : bool
        Whether known triples are left out. Ranks count them nevertheless.
    candidates : sorted ids, or None
        The entities that are ranked, by default those that are plausible on the missing side of the relation.
    any_type : bool
        Whether all entities are ranked by default.
    entities_by_relation : dict
        A cache, see `CandidateSpace`.
    weights, exponent : scorer of the weight model, and float
        The completions are ranked by f + exponent · ln ŵ, see `focuse.evaluation.preference`.
    """

    scorer: Scorer
    graphs: list[Graph]
    top: int = 10
    new_only: bool = False
    candidates: Ids | None = None
    any_type: bool = False
    entities_by_relation: dict[str, Ids] = field(default_factory=dict, repr=False)
    weights: TableScorer | None = None
    exponent: float = 0.0

    def __post_init__(self) -> None:
        self.top = check_count("top", self.top)
        train = self.graphs[0]
        every = np.arange(len(train.relations))
        self._space = CandidateSpace(train, every, entities_by_relation=self.entities_by_relation)

    def predict(self, asked: Ids, predictor: WeightPredictor | None = None, progress: bool = False) -> ResultTable:
        """Rank the completions of queries; `predictor` adds weights and probabilities.

        `asked` [3, n] are the ids of heads, relations and tails, of which at most one is MISSING. A complete triple
        gets its rank by score among all tails that are candidates.
        """
        complete, both_ends = ((part != MISSING).all(0) for part in (asked, asked[::2]))
        for row in np.flatnonzero(complete & self.new_only)[:1]:
            raise FocuseError(f"query {row + 1}: new_only requires a missing part; leave one part out")
        for row in np.flatnonzero(both_ends & (self.candidates is not None))[:1]:
            raise FocuseError(f"query {row + 1}: candidates require a missing head or tail; leave one of them out")
        known = self._related_triples(asked)
        index = build_triple_index(known, self.scorer.device) if self.new_only else None
        blocks: list[tuple[Any, ...]] = [(np.empty(0, np.int64),) * 5 + (np.empty(0, np.float32),)]
        with track_progress("Answering queries", asked.shape[1], progress) as tracked:
            for row, part in enumerate(PARTS):
                rank = partial(self._rank, index=index, missing=part, predictor=predictor)
                blocks += self._in_blocks(asked, asked[row] == MISSING, rank, part, tracked)
            blocks += self._in_blocks(asked, complete, self._rank_of_tail, "tail", tracked)
        joined = [np.concatenate(column) for column in zip(*blocks, strict=True)]
        order = np.lexsort((joined[1], joined[0]))  # by query, then by rank
        query, ranks, head, relation, tail, score = (column[order] for column in joined)
        is_known, weight = _known_weights(known, head, relation, tail)
        columns = {
            "query": query + 1,
            "rank": ranks,
            **triple_columns(self.graphs[0], head, relation, tail),
            "score": score.astype(np.float64),
            "known": is_known,
            "weight": weight,
            **dict.fromkeys(PREDICTED, np.full(len(head), np.nan)),
        }
        if predictor is not None and len(head):
            columns |= predictor.columns_for(score, head, relation, tail)
        notes = [f"stopped after {tracked.fraction:.0%} of the queries"] if tracked.stopped else []
        if predictor is not None and not complete.all():
            notes += predictor.ordering_notes()
        if complete.any() and self.candidates is None and not self.any_type:
            notes.append("rank of a complete triple: by score, among the plausible tails of the relation")
        ordered_by = order_name(False, self.exponent) if predictor is None else predictor.ordered_by
        info = {"queries": asked.shape[1], "stopped": tracked.stopped, "ordered_by": ordered_by}
        return ResultTable(columns, notes=notes, info=info, printed=("query", *PRINTED), empty=NOTHING)

    def _in_blocks(
        self, asked: Ids, wanted: Any, rank: Callable[[Ids, Ids], tuple[Any, ...]], missing: str, progress: Progress
    ) -> list[tuple[Any, ...]]:
        """Return the answers to the queries of `asked` [3, n] that are `wanted`, bool [n], block by block."""
        names, blocks = self.graphs[0], []
        width = len(names.relations if missing == "relation" else names.entities)
        size = max(1, BLOCK_SCORES * (1 if self.scorer.device.type == "cpu" else 4) // max(width, 1))
        rows = np.flatnonzero(wanted)
        for start in range(0, len(rows), size):
            if progress.stopped:
                break
            block = rows[start : start + size]
            blocks.append(rank(asked[:, block], block))
            progress.advance(len(block))
        return blocks

    @torch.no_grad()
    def _rank(
        self, asked: Ids, queries: Ids, index: TripleIndex | None, missing: str, predictor: WeightPredictor | None
    ) -> tuple[Any, ...]:
        """Return query, rank, ids and score of the best completions of a block of queries [3, B]."""
        given = [torch.from_numpy(ids).to(self.scorer.device) for ids in asked]
        scores, preferred = self._scores(missing, *given)
        check_finite(scores.amax(1))
        probability = None if predictor is None else predictor.probability
        if self.new_only and missing != "relation":
            known, _ = _query_side(given[0], given[2], missing)
            no_loop = torch.from_numpy(~has_self_loops(self.graphs[0])).to(scores.device)[given[1]]
            preferred[no_loop, known[no_loop]] = EXCLUDED
        num_known = 0 if index is None else _max_known(index, missing, *given)
        compared = self.top if probability is None else max(POOL, POOL_PER_SHOWN * self.top)
        value, place = top_scores(preferred, compared + num_known)
        if (
            probability is not None and self.exponent
        ):  # weights that are shown may differ from those of the weight model
            likely = top_scores(scores.masked_fill(preferred == EXCLUDED, EXCLUDED), compared + num_known)[1]
            place = torch.cat([place, likely], 1).sort(1).values
            repeated = torch.cat([torch.zeros_like(place[:, :1], dtype=torch.bool), place[:, 1:] == place[:, :-1]], 1)
            value = preferred.gather(1, place).masked_fill(repeated, EXCLUDED)
        shown = value > EXCLUDED
        row, column = (ids.cpu().numpy() for ids in torch.nonzero(shown, as_tuple=True))
        answer, score = place.cpu().numpy()[row, column], scores.gather(1, place).cpu().numpy()[row, column]
        head, relation, tail = (answer if part == missing else asked[at][row] for at, part in enumerate(PARTS))
        if predictor is not None and probability is not None:  # ranks count known triples, also if these are not shown
            key = predictor.ordering_key(score, head, relation, tail)
            order = np.lexsort((column, -key, row))
            order = order[predictor.in_shown_order(row, head[order], relation[order], tail[order], self.top)]
            head, relation, tail, score = (part[order] for part in (head, relation, tail, score))
        rank, is_shown = places(row) + 1, np.ones(len(row), bool)
        if index is not None:
            is_shown = ~index.contains(*map(torch.from_numpy, (head, relation, tail))).numpy()
        rows = np.flatnonzero(is_shown)
        rows = rows[places(row[rows]) < self.top]
        return queries[row[rows]], rank[rows], head[rows], relation[rows], tail[rows], score[rows]

    @torch.no_grad()
    def _rank_of_tail(self, asked: Ids, queries: Ids) -> tuple[Any, ...]:
        """Return the same of complete triples, whose ranks are those among all tails."""
        head, relation, tail = (torch.from_numpy(ids).to(self.scorer.device) for ids in asked)
        score = self.scorer.score_all(head, relation, "tail")
        check_finite(score.amax(1))
        scores = score.clone()
        own = scores.gather(1, tail[:, None])
        scores = self._without_excluded(scores, relation, "tail")
        is_before = torch.arange(scores.shape[1], device=scores.device)[None] < tail[:, None]  # the order of ties
        rank = (scores > own).sum(1) + ((scores == own) & is_before).sum(1) + 1
        return queries, rank.cpu().numpy(), *asked, score.gather(1, tail[:, None])[:, 0].cpu().numpy()

    def _preferred(self, score: Tensor, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return f + exponent · ln ŵ of all entities on a side, from their scores f, [B, E]; never `score` itself."""
        if self.weights is None or not self.exponent:
            return score.clone()
        joined = StrengthScorer(self.weights, self.weights, self.exponent)
        return joined.join(score, joined.log_weights(known, relation, side))

    def _scores(self, missing: str, head: Tensor, relation: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of all completions, [B, E] or [B, R], and what ranks them.

        The latter is −∞ for entities that are not candidates.
        """
        if missing == "relation":
            relations = torch.arange(len(self.graphs[0].relations), device=self.scorer.device)
            count = len(relations)
            ids = head.repeat_interleave(count), relations.repeat(len(head)), tail.repeat_interleave(count)
            score = self.scorer.score(*ids).view(-1, count)
            if self.weights is None or not self.exponent:
                return score, score
            return score, score + self.exponent * F.logsigmoid(self.weights.score(*ids)).view(-1, count)
        known, side = _query_side(head, tail, missing)
        score = self.scorer.score_all(known, relation, side)
        return score, self._without_excluded(self._preferred(score, known, relation, side), relation, side)

    def _without_excluded(self, scores: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return scores [B, E] that are −∞ for entities that are not candidates of a side of the relations [B]."""
        if self.candidates is None and self.any_type:
            return scores
        asked = relation.cpu().numpy()
        excluded = np.ones(scores.shape, bool)
        for kind in np.unique(asked).tolist():
            candidates = self.candidates
            if candidates is None:
                candidates = self._space.ends(kind)[0 if side == "head" else 1]
                candidates = candidates if len(candidates) else np.arange(scores.shape[1])  # train lacks the relation
            excluded[np.ix_(asked == kind, candidates)] = False
        return scores.masked_fill_(torch.from_numpy(excluded).to(scores.device), EXCLUDED)

    def _related_triples(self, asked: Ids) -> list[Graph]:
        """Return the known triples that have the given head (or else the given tail) of a query.

        They contain all known completions, so that a single query does not sort the whole graph.
        """
        by_head, by_tail = (np.zeros(len(self.graphs[0].entities), bool) for _ in range(2))
        by_head[asked[0, asked[0] != MISSING]] = True
        by_tail[asked[2, asked[0] == MISSING]] = True
        return [graph.select(by_head[graph.head] | by_tail[graph.tail]) for graph in self.graphs]


def _query_side(head: Tensor, tail: Tensor, missing: str) -> tuple[Tensor, Side]:
    """Return the given entities of queries, and the side that is ranked."""
    return (tail, "head") if missing == "head" else (head, "tail")


def _max_known(index: TripleIndex, missing: str, head: Tensor, relation: Tensor, tail: Tensor) -> int:
    """Return an upper bound of the number of known completions of a query [B]."""
    if missing == "relation":
        return index.relations
    given, side = _query_side(head, tail, missing)
    start, stop = index.answer_ranges(index.query_key(given, relation), side)
    return int((stop - start).max())


def _known_weights(graphs: list[Graph], head: Any, relation: Any, tail: Any) -> tuple[Any, Any]:
    """Return whether triples [n] are known, and their strongest weights, NaN if not."""
    known = replace(concatenate(graphs), columns=None).merge_repeated("max")
    order = np.argsort(known.keys)
    keys, asked = known.keys[order], known.keys_of(head, relation, tail)
    return find_sorted(keys, asked)[1], lookup_sorted(keys, known.weight[order], asked, np.nan)


# ---- names and scores ----------------------------------------------------------------------------------------------


def as_list(names: str | Sequence[str]) -> list[str]:
    """Return one name or several as a list."""
    return list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [names]


def find_names(given: Names, names: Vocabulary, kind: str) -> Ids | None:
    """Return the sorted distinct ids of names, None if none are given; an unknown name is an error."""
    if given is None:
        return None
    listed = as_list(given)
    try:
        ids = names.ids(listed).astype(np.int64)
    except (UnicodeEncodeError, pa.ArrowException):  # bytes from a shell that are not text, or other objects
        ids = np.full(len(listed), -1)
    if (ids < 0).any():
        ids = np.array([names.id(name, kind) for name in listed], np.int64)
    return np.unique(ids)


def listed_names(names: Sequence[str] | None, path: Path | None) -> list[str] | None:
    """Return the given names and those of a file with one name per line; None if neither is given."""
    if path is None:
        return list(names) if names else None
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise FocuseError(f"{path}: {reason}; give a readable text file") from None
    found = [line.rstrip("\r") for line in text.split("\n") if line.strip()]
    if not found:
        raise FocuseError(f"{path}: no names; give one on each line")
    return [*(names or ()), *found]


def top_scores(scores: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """Return the `top` largest scores of each row and their columns, [B, E] -> [B, n] each; ties by column."""
    top = min(top, scores.shape[1])
    value, place = torch.topk(scores, top, dim=1)
    place, by_place = torch.sort(place, dim=1)
    value, order = torch.sort(value.gather(1, by_place), dim=1, descending=True, stable=True)
    place = place.gather(1, order)
    # If the last score ties with scores that are not among the top, topk chooses any of them.
    lowest = value[:, -1:]
    tied = torch.nonzero((scores == lowest).sum(1) > (value == lowest).sum(1))[:, 0]
    if len(tied):
        whole, where = torch.sort(scores[tied], dim=1, descending=True, stable=True)
        value[tied], place[tied] = whole[:, :top], where[:, :top]
    return value, place


# ---- reading queries ------------------------------------------------------------------------------------------------


def read_queries(queries: Any, names: Graph) -> Ids:
    """Read the ids [3, n] of queries from a file (TSV, CSV, Parquet), a frame, or rows (head, relation, tail).

    The missing part is empty, '?' or None. The relation may be left out if the graph has only one. An unknown name is
    an error with its file and row.
    """
    where = "queries"
    if isinstance(queries, str | os.PathLike):
        path, where = Path(queries), str(queries)
        is_parquet = readers.inspect_file(path).is_parquet
        table = readers.read_parquet_table(path) if is_parquet else _read_query_text(path)
    elif hasattr(queries, "__arrow_c_stream__") or hasattr(queries, "__dataframe__"):
        table = readers.frame_to_arrow(queries)
    elif isinstance(queries, Iterable):
        is_single = isinstance(queries, tuple) and all(part is None or isinstance(part, str) for part in queries)
        rows: Any = [queries] if is_single else queries
        table = readers.rows_to_arrow(rows, where, PARTS)
    else:
        raise FocuseError(f"cannot read queries from {type(queries).__name__}: give a file, a frame or rows")
    table = readers.without_index_columns(table, where, PARTS)
    if len(table.column_names) == 2 and len(names.relations) == 1:
        relation = pa.array([names.relations[0]] * len(table), pa.string())
        head, tail = _end_columns(table.column_names)
        table = pa.table([table.column(head), relation, table.column(tail)], names=list(PARTS))
    chosen = _query_columns(table.column_names) or tuple(range(len(table.column_names)))[:3]
    if len(chosen) < 3:
        raise FocuseError(f"{where}: {len(chosen)} columns; expected {join_words(PARTS)}")
    ids = []
    for part, column in zip(PARTS, (table.column(index) for index in chosen), strict=True):
        kind, vocabulary = ("relation", names.relations) if part == "relation" else ("entity", names.entities)
        try:
            text = pc.fill_null(column.cast(pa.string()), "").combine_chunks()
        except pa.ArrowException:
            raise FocuseError(f"{where}: the {part} column has no names; convert it to text") from None
        found = vocabulary.ids(text).astype(np.int64)
        is_empty = pc.is_in(text, value_set=pa.array(["", "?"])).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero((found < 0) & ~is_empty)[:1]:  # an entity may be called '?'
            try:
                vocabulary.id(text[int(row)].as_py(), kind, "order the columns head, relation, tail")
            except FocuseError as error:
                raise FocuseError(f"{where}, row {row + 1}: {error}") from None
        ids.append(np.where(found < 0, MISSING, found))
    num_missing = (np.stack(ids) == MISSING).sum(0)
    for row in np.flatnonzero(num_missing > 1)[:1]:
        raise FocuseError(f"{where}, row {row + 1}: {int(num_missing[row])} parts are empty; give two of the three")
    return np.stack(ids)


def _read_query_text(path: Path) -> pa.Table:
    """Read the columns head, relation and tail of a text file, of which one may be empty in each row."""
    found = first_rows(readers.first_lines(path), str(path), None, PARTS)
    first = found.rows[0]
    if len(first) < 2:
        raise FocuseError(f"{path}, line {found.ends[0]}: one column; expected {join_words(PARTS)}")
    columns = _query_columns(first)
    parts = PARTS if len(first) > 2 else ("head", "tail")
    layout = TableLayout(
        found.delimiter,
        found.ends[0] if columns else found.skipped,
        len(first),
        columns or tuple(range(len(parts))),
        roles=(*parts, "weight"),
        allows_empty_names=True,
        quoted=found.quoted,
    )
    return readers.parse_text(path, layout).rename_columns(list(parts))


def _end_columns(first: Sequence[str]) -> tuple[int, int]:
    """Return the columns of head and tail of two, by their headings; in order if these are not known."""
    head, tail = endpoints([words_of(field) for field in first])
    return (1, 0) if head == 1 or tail == 0 else (0, 1)


def _query_columns(first: Sequence[str]) -> tuple[int, ...]:
    """Return the columns of head, relation and tail by their headings; empty if at most one of them is known.

    Of two columns these are head and tail.
    """
    words = [words_of(field) for field in first]
    head, tail = endpoints(words)
    if len(first) == 2:
        return () if head is None or tail is None else (head, tail)
    known = head, relation_column(words), tail
    if sum(column is not None for column in known) < 2:
        return ()
    rest = [index for index in range(len(first)) if index not in known]
    return tuple(rest.pop(0) if column is None and rest else column or 0 for column in known)
