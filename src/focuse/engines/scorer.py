"""Scores of triples from embedding tables, and the counts of competitors from which ranks are computed.

Distances and counts are computed in C++ on a CPU, with Triton on a GPU, and with torch otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_float, c_int, c_int64, c_void_p
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.data.triple_index import expand_ranges
from focuse.engines.base import SIMILARITY_CODES, address, has_triton
from focuse.engines.native import library
from focuse.models.base import Model, Side, Table, join_inverse_relations, scaled, score_triples

MAX_FULLY_RANKED_ENTITIES = 1 << 22  # with more entities, ranking a few thousand triples takes many minutes


class TableScorer:
    """A scorer over an entity table [E, d], a relation table [R, r] and the shared parameters of the model.

    With `inverse_relations` the relation table has 2R rows: row r + R is the inverse of relation r, and the query
    (?, r, t) is computed as (t, r + R, ?). If the tables are still being trained, call `invalidate` after every change.
    """

    def __init__(self, model: Model, tables: Mapping[str, Tensor], inverse_relations: bool = False) -> None:
        parameters = {name: table for name, table in tables.items() if name not in ("entity", "relation")}
        self.model = model.bind(parameters)  # trained in place, so the model always sees the current values
        self.tables = tables
        self.inverse_offset = len(tables["relation"]) // 2 if inverse_relations else None
        self._attributes = model.context.attribute_columns()
        self._encoded: dict[str, Tensor] | None = None
        self._known_duplicates: tuple[Tensor | None] | None = None

    @property
    def device(self) -> torch.device:
        return self.tables["entity"].device

    @property
    def entities(self) -> int:
        """Number of entities; a sharded scorer holds only the rows of its shard."""
        return len(self.tables["entity"])

    @property
    def expensive_to_rank(self) -> bool:
        """Whether ranking against every entity takes too long, so that a sample is used by default."""
        many = len(self.tables["entity"]) > MAX_FULLY_RANKED_ENTITIES
        return many or self.model.defaults.get("expensive_to_rank", False)

    @property
    def side_dependent(self) -> bool:
        """Whether a triple has two scores, one per predicted side."""
        return self.inverse_offset is not None

    def directed(self, relation: Tensor, side: Side) -> tuple[Tensor, Side]:
        """Return the relation ids and the side of queries that predict `side`; inverse relations predict tails."""
        if self.inverse_offset is None:
            return relation, side
        return relation if side == "tail" else relation + self.inverse_offset, "tail"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> tuple[Tensor, Tensor, Side]:
        """Return the queries [B, q], the rows of their relations [B, r] and the predicted side, for ids [B], [B]."""
        relation, side = self.directed(relation, side)
        rows = self.rows("relation", relation)
        return self.model.query(self.rows("entity", known), rows, side), rows, side

    def rows(self, table: Table, ids: Tensor) -> Tensor:
        """Return the encoded embeddings of `ids`: [...] -> [..., d]."""
        return F.embedding(ids, self.encoded_tables()[table])

    @torch.no_grad()
    def encoded_tables(self) -> Mapping[str, Tensor]:
        """Return both tables encoded and with node attributes; they are recomputed after `invalidate`."""
        if self._attributes is None and self.model.encoder is None:
            return self.tables
        if self._encoded is None:
            held = self.tables["entity"], self.tables["relation"]
            entity, relation = self.encode(self.model, *held, self._held_ids())
            self._encoded = {"entity": entity, "relation": relation}
        return self._encoded

    def relation_table(self) -> Tensor:
        """Return the encoded relation table [R, r]; with inverse relations, a row also holds its inverse [R, 2r]."""
        table = self.encoded_tables()["relation"]
        return table if self.inverse_offset is None else join_inverse_relations(table)

    @property
    def has_attributes(self) -> bool:
        """Whether node attributes are appended to the rows of the entity table."""
        return self._attributes is not None

    def encode(
        self, model: Model, entity: Tensor, relation: Tensor, ids: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the encoded rows of both tables; `entity` holds the rows of `ids`, or all rows if it is None."""
        if self._attributes is not None:
            attributes = self._attributes if ids is None else F.embedding(ids, self._attributes)
            entity = torch.cat([entity, attributes], dim=1)
        return (entity, relation) if model.encoder is None else model.encoder.encode(model, entity, relation)

    def _held_ids(self) -> Tensor | None:
        """Return the ids of the entities whose rows this scorer holds, or None for all entities."""
        return None

    def invalidate(self) -> None:
        """Discard cached results that were computed from earlier values of the tables."""
        self._encoded = self._known_duplicates = None

    @torch.no_grad()
    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return one score per triple, ids [B] -> [B]; with inverse relations it is the mean of both directions."""
        rows = self.rows("entity", head), self.rows("relation", relation), self.rows("entity", tail)
        offset = self.inverse_offset
        return score_both_sides(self.model, *rows, None if offset is None else self.rows("relation", relation + offset))

    @torch.no_grad()
    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return the scores of every entity on `side`: ids [B] -> [B, E]."""
        query, relation_rows, side = self.query(known, relation, side)
        rows = self.encoded_tables()["entity"]
        exact = distance_scores(self.model, query, rows)
        if exact is not None:
            return exact
        scores = self.model.score_pool(query, relation_rows, rows, side)
        # A matrix product may round its last columns differently, so entities with equal rows would not tie.
        duplicates = self._duplicates()
        return scores if duplicates is None else scores[:, duplicates]

    @torch.no_grad()
    def score_some(self, known: Tensor, relation: Tensor, entities: Tensor, side: Side) -> Tensor:
        """Return the scores of the given entities of each query on `side`: ids [B], [B], [B, N] -> [B, N]."""
        query, relation_rows, side = self.query(known, relation, side)
        return self.model.score(query[:, None], relation_rows[:, None], self.rows("entity", entities), side)

    def _duplicates(self) -> Tensor | None:
        """Return, per entity, the first entity with an equal row; the result is cached until `invalidate`."""
        if self._known_duplicates is None:
            self._known_duplicates = (_first_equal_row(self.encoded_tables()["entity"]),)
        return self._known_duplicates[0]


class StrengthScorer:
    """Scores f + c · ln ŵ: `likely` scores links by f, and `weights` has the score whose logistic function is ŵ."""

    def __init__(self, likely: TableScorer, weights: TableScorer, exponent: float) -> None:
        self.likely, self.weights, self.exponent = likely, weights, exponent

    @property
    def device(self) -> torch.device:
        return self.likely.device

    @property
    def expensive_to_rank(self) -> bool:
        return self.likely.expensive_to_rank

    @property
    def side_dependent(self) -> bool:
        return self.likely.side_dependent

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return one score per triple: ids [B] -> [B]."""
        log_weight = F.logsigmoid(self.weights.score(head, relation, tail))
        return self.join(self.likely.score(head, relation, tail), log_weight)

    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return the scores of every entity on `side`: ids [B] -> [B, E]."""
        return self.join(self.likely.score_all(known, relation, side), self.log_weights(known, relation, side))

    def log_weights(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return ln ŵ of every entity on `side`: ids [B] -> [B, E]."""
        return F.logsigmoid(self.weights.score_all(known, relation, side))

    def score_some(self, known: Tensor, relation: Tensor, entities: Tensor, side: Side) -> Tensor:
        """Return the scores of the given entities of each query on `side`: ids [B], [B], [B, N] -> [B, N]."""
        asked = known, relation, entities, side
        return self.join(self.likely.score_some(*asked), F.logsigmoid(self.weights.score_some(*asked)))

    def join(self, score: Tensor, log_weight: Tensor) -> Tensor:
        """Return f + c · ln ŵ from f and ln ŵ."""
        return torch.add(score, log_weight, alpha=self.exponent)


def score_both_sides(model: Model, head: Tensor, relation: Tensor, tail: Tensor, inverse: Tensor | None) -> Tensor:
    """Return one score per triple: rows [B, d] -> [B]; with inverse relations it is the mean of both directions."""
    score = score_triples(model, head, relation, tail)
    return score if inverse is None else (score + score_triples(model, tail, inverse, head)) / 2


def distance_scores(model: Model, query: Tensor, rows: Tensor) -> Tensor | None:
    """Return scores from distance kernels, which tie exactly, [B, d], [N, d] -> [B, N]; None if they do not apply."""
    if model.fused is None or model.similarity in (None, "dot"):
        return None
    found = distances(query, rows, model.similarity, sign=-1.0)
    return None if found is None else scaled(model, found)


def _first_equal_row(rows: Tensor) -> Tensor | None:
    """Return, per row, the first row that is bitwise equal to it, [E, d] -> [E]; None if all rows differ."""
    # Integer sums of the bits are exact in any order, unlike float sums. Rows with equal sums are then compared.
    keys = rows.view(torch.int32).sum(1, dtype=torch.int32)
    distinct, group = torch.unique(keys, return_inverse=True)
    if len(distinct) == len(rows):
        return None
    every = torch.arange(len(rows), device=rows.device)
    first = torch.full_like(every, len(rows)).scatter_reduce_(0, group, every, "amin")[group]
    later = torch.nonzero(first != every)[:, 0]
    equal = later[(rows[later] == rows[first[later]]).all(1)]
    return every.index_copy(0, equal, first[equal])


def distances(queries: Tensor, rows: Tensor, form: str, sign: float = 1.0) -> Tensor | None:
    """Return `sign` · distance of every query to every row, [B, d], [E, d] -> [B, E]; None if there is no kernel.

    `form` is "l1" or "l2". Distances to equal rows are bitwise equal, and nothing larger than the result is allocated.
    """
    if queries.shape[1:] != rows.shape[1:]:
        raise ValueError(f"queries {tuple(queries.shape)} and rows {tuple(rows.shape)} do not fit each other")
    if _on_gpu(queries):
        from focuse.engines.triton.ranking_kernels import distances as triton_kernel

        return triton_kernel(queries, rows, form, sign)
    native = library()
    if native is None or not _is_float32_on_cpu(queries, rows):
        return None
    found = queries.new_empty(len(queries), len(rows))
    queries, rows = queries.contiguous(), rows.contiguous()
    native.distances(
        c_void_p(address(queries)), c_void_p(address(rows)), *map(c_int64, (*found.shape, rows.shape[1])),
        c_int(SIMILARITY_CODES[form]), c_float(sign), c_void_p(address(found)),
        c_int(_num_threads(found.numel() * rows.shape[1])),
    )  # fmt: skip
    return found


@dataclass(frozen=True)
class Targets:
    """The true entities of Q queries, and the known answers to these queries.

    Parameters
    ----------
    first
        Offsets int64 [Q + 1] from 0 to n: query q has the targets first[q] to first[q + 1] − 1.
    target
        True entities, int64 [n].
    start, stop
        Offsets int64 [Q]: query q has the known answers start[q] to stop[q] − 1 of `answers`.
    answers
        Ascending keys int64 [m]; the remainder of a key divided by the number of entities is the entity.
    """

    first: Tensor
    target: Tensor
    start: Tensor
    stop: Tensor
    answers: Tensor

    @property
    def query(self) -> Tensor:
        """The query of each target, int64 [n]."""
        return torch.repeat_interleave(self.first.diff(), output_size=len(self.target))

    def arrays(self) -> list[Tensor]:
        """Return all five tensors, contiguous."""
        return [part.contiguous() for part in (self.first, self.target, self.start, self.stop, self.answers)]


def count_competitors(scores: Tensor, targets: Targets) -> Tensor:
    """Count the competitors of each target: the entities that score at least as high for the same query.

    `scores` [Q, E] holds the scores of all entities for each query.

    Returns
    -------
    Tensor
        int64 [n, 4]: how many entities score higher and how many score equal, first among all entities, then without
        the known answers. All four are -1 if a score of the query is not finite.

    Examples
    --------
    >>> score, zero = torch.tensor([[0.5, 0.1, 0.5, 0.9]]), torch.tensor([0])
    >>> targets = Targets(torch.tensor([0, 1]), torch.tensor([2]), zero, zero + 1, torch.tensor([3]))
    >>> count_competitors(score, targets).tolist()
    [[1, 1, 0, 1]]
    """
    if _on_gpu(scores):
        from focuse.engines.triton.ranking_kernels import count_competitors as triton_kernel

        return triton_kernel(scores, targets)
    native = library()
    if native is None or not _is_float32_on_cpu(scores):
        return torch_count_competitors(scores, targets)
    queries, entities = scores.shape
    counts = targets.target.new_empty(len(targets.target), 4)
    # The arrays are referenced until the call returns, because `contiguous` may have made copies.
    arrays = [scores.contiguous(), *targets.arrays(), counts]
    pointers = [c_void_p(address(array)) for array in arrays]
    threads = c_int(_num_threads(len(counts) * entities))
    native.count_competitors(pointers[0], c_int64(queries), c_int64(entities), *pointers[1:], threads)
    return counts


def torch_count_competitors(scores: Tensor, targets: Targets) -> Tensor:
    """Compute `count_competitors` with torch."""
    query = targets.query
    counts = count_local_competitors(scores, scores[query, targets.target], targets, 0, scores.shape[1])
    counts[~torch.isfinite(scores).all(1)[query]] = -1
    return counts


def count_local_competitors(scores: Tensor, own: Tensor, targets: Targets, first_entity: int, entities: int) -> Tensor:
    """Count competitors like `count_competitors`, but only among the entities of a shard.

    `scores` [Q, s] holds the scores of the s entities from `first_entity` on, of `entities` in total. The scores of the
    targets, `own` [n], are given, because the targets may be in another shard.

    >>> score, zero = torch.tensor([[0.5, 0.9]]), torch.tensor([0])
    >>> targets = Targets(torch.tensor([0, 1]), zero, zero, zero + 1, torch.tensor([3]))
    >>> count_local_competitors(score, torch.tensor([0.5]), targets, first_entity=2, entities=4).tolist()
    [[1, 1, 0, 1]]
    """
    query, target = targets.query, targets.target
    higher, equal = _compare_with_all(scores, query, own)
    column = target - first_entity
    equal -= ((column >= 0) & (column < scores.shape[1])).long()  # the target itself
    which, position = expand_ranges(targets.start[query], targets.stop[query])
    column = targets.answers[position] % entities - first_entity
    inside = (column >= 0) & (column < scores.shape[1])
    which, column = which[inside], column[inside]
    found, target_score = scores[query[which], column], own[which]
    known_higher = torch.zeros_like(higher).index_add_(0, which, (found > target_score).long())
    known_equal = (found == target_score) & (column + first_entity != target[which])
    known_equal = torch.zeros_like(equal).index_add_(0, which, known_equal.long())
    return torch.stack([higher, equal, higher - known_higher, equal - known_equal], dim=1)


def _compare_with_all(scores: Tensor, query: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Count the entities that score higher than each target, or equal (incl. itself): [Q, s], [n], [n] -> [n], [n]."""
    if scores.device.type == "cpu":  # this copies no rows, and NumPy counts several times as fast as torch
        rows, counts = scores.numpy(), np.empty((2, len(query)), np.int64)
        for target, (row, score) in enumerate(zip(query.tolist(), own.numpy(), strict=True)):
            counts[0, target] = np.count_nonzero(rows[row] > score)
            counts[1, target] = np.count_nonzero(rows[row] == score)
        higher, equal = torch.from_numpy(counts)
        return higher, equal
    higher, equal = torch.empty_like(query), torch.empty_like(query)
    size = max(len(scores), 1)  # scores are copied per target; this many targets at most double the memory
    for begin in range(0, len(query), size):
        some = slice(begin, begin + size)
        higher[some], equal[some] = compare_with_target(scores[query[some]], own[some])
    return higher, equal


def compare_with_target(scores: Tensor, own: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Count the candidates that score higher than the target, and those that score equal: [n, C], [n] -> [n], [n].

    With a `mask` [n, C], only the candidates where it is True are counted.
    """
    higher, equal = scores > own[:, None], scores == own[:, None]
    if mask is not None:
        higher, equal = higher & mask, equal & mask
    return higher.sum(1), equal.sum(1)


def _on_gpu(tensor: Tensor) -> bool:
    return tensor.is_cuda and tensor.dtype == torch.float32 and has_triton()


MIN_PARALLEL_WORK = 1 << 16  # for fewer operations, starting a thread takes longer than the work


def _is_float32_on_cpu(*tensors: Tensor) -> bool:
    return all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)


def _num_threads(work: int) -> int:
    return torch.get_num_threads() if work > MIN_PARALLEL_WORK else 1
