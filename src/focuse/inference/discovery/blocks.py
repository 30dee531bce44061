"""Scores of blocks of links, heads by tails, of one relation: a matrix product or a table of distances each."""

from __future__ import annotations

import torch
from torch import Tensor

from focuse.engines.scorer import TableScorer, distance_scores
from focuse.errors import FocuseError
from focuse.evaluation.ranking import DIVERGED
from focuse.models.base import Side

QUERIES_AT_ONCE = 4096  # of a model whose queries are expensive (ConvE) more would not fit in caches


class Relation:
    """One relation's links among `tails` [N]: `scores` of a block of heads [B] are [B, N].

    As an engine scores a triple: with inverse relations it is the mean of both sides' scores, so that every pair is
    asked for its head and for its tail.
    """

    def __init__(self, scorer: TableScorer, relation: int, tails: Tensor) -> None:
        self.scorer, self.relation, self.tails = scorer, relation, tails
        self.rows = scorer.rows("entity", tails)
        self.asking = _queries(scorer, tails, relation, "head") if scorer.side_dependent else None

    @torch.no_grad()
    def scores(self, heads: Tensor) -> Tensor:
        """Ids [B] -> [B, N]."""
        found = self._compared(_queries(self.scorer, heads, self.relation, "tail"), self.rows, "tail")
        if self.asking is None:
            return found
        back = self._compared(self.asking, self.scorer.rows("entity", heads), "head")
        return (found + back.T) / 2

    def _compared(self, query: Tensor, rows: Tensor, side: Side) -> Tensor:
        """Queries [B, q] against a pool of rows [N, d] -> [B, N]."""
        model = self.scorer.model
        exact = distance_scores(model, query, rows)
        if exact is not None:
            return exact
        relations, side = _relation_rows(self.scorer, self.relation, len(query), side)
        return model.score_pool(query, relations, rows, side)


def check_finite(best: Tensor) -> None:
    """Raise where the largest scores [n] of some rows are no numbers; a row without candidates has −∞."""
    if torch.isnan(best).any() or torch.isposinf(best).any():
        raise FocuseError(DIVERGED)


@torch.no_grad()
def _queries(scorer: TableScorer, known: Tensor, relation: int, side: Side) -> Tensor:
    parts = []
    for some in cut(known, QUERIES_AT_ONCE):
        parts.append(scorer.query(some, torch.full_like(some, relation), side)[0])
    return torch.cat(parts)


def cut(ids: Tensor, size: int) -> list[Tensor]:
    """Ids [n] in pieces of at most `size`; at least one piece."""
    return [ids[start : start + size] for start in range(0, max(len(ids), 1), size)]


def _relation_rows(scorer: TableScorer, relation: int, count: int, side: Side) -> tuple[Tensor, Side]:
    """Rows of the relation that queries for `side` are asked with, and the side they then are asked for."""
    ids, side = scorer.directed(torch.full((count,), relation, dtype=torch.int64, device=scorer.device), side)
    return scorer.rows("relation", ids), side
