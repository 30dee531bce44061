"""Scores of blocks of links, heads by tails, of one relation: a matrix product or a table of distances each."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.engines import ReferenceEngine
from focuse.engines.ranking import distances
from focuse.errors import FocuseError
from focuse.evaluation.ranking import DIVERGED
from focuse.models import Side

QUERIES_AT_ONCE = 4096  # of a model whose queries are dear (ConvE) more would not fit in caches


class Relation:
    """One relation's links among `tails` [N]: `scores` of a block of heads [B] are [B, N].

    As an engine scores a triple: of a sided model it is the mean of both sides', so that every pair is asked for its
    head and for its tail.
    """

    def __init__(self, engine: ReferenceEngine, relation: int, tails: Tensor) -> None:
        self.engine, self.relation, self.tails = engine, relation, tails
        self.rows = engine.rows("entity", tails)
        self.asking = _queries(engine, tails, relation, "head") if engine.sided else None

    @torch.no_grad()
    def scores(self, heads: Tensor) -> Tensor:
        """Ids [B] -> [B, N]."""
        found = self._compared(_queries(self.engine, heads, self.relation, "tail"), self.rows, "tail")
        if self.asking is None:
            return found
        back = self._compared(self.asking, self.engine.rows("entity", heads), "head")
        return (found + back.T) / 2

    def _compared(self, query: Tensor, rows: Tensor, side: Side) -> Tensor:
        """Queries [B, q] against a pool of rows [N, d] -> [B, N]."""
        model = self.engine.model
        if model.compares_plainly() and model.form != "dot":
            table = distances(query, rows, model.form, sign=-1.0)
            if table is not None:
                return model.finish(table)
        return model.shared(query, _kinds(self.engine, self.relation, len(query)), rows, side)


def check_finite(best: Tensor) -> None:
    """Raise where the largest scores [n] of some rows are no numbers; a row without candidates has −∞."""
    if torch.isnan(best).any() or torch.isposinf(best).any():
        raise FocuseError(DIVERGED)


@torch.no_grad()
def _queries(engine: ReferenceEngine, known: Tensor, relation: int, side: Side) -> Tensor:
    parts = [
        engine.model.query(engine.rows("entity", some), _kinds(engine, relation, len(some)), side)
        for some in cut(known, QUERIES_AT_ONCE)
    ]
    return torch.cat(parts)


def cut(ids: Tensor, size: int) -> list[Tensor]:
    """Ids [n] in pieces of at most `size`; at least one piece."""
    return [ids[start : start + size] for start in range(0, max(len(ids), 1), size)]


def _kinds(engine: ReferenceEngine, relation: int, count: int) -> Tensor:
    ids = torch.full((count,), relation, dtype=torch.int64, device=engine.device)
    return F.embedding(ids, engine.finished()["relation"])
