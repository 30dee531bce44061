"""The contract of a scoring function: a query, candidates, and a way to compare them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

Side = Literal["head", "tail"]
Form = Literal["dot", "l1", "l2", "other"]
Turn = Literal["product", "complex", "sum", "other"]


class Model(ABC):
    """A scoring function over rows of embeddings; it never sees a table, a weight or a loss.

    A subclass says what a query is; this class derives from it the four uses: one triple (`score`), each
    positive's own others (`own`), one pool for all (`shared`) and, the pool being the entity table, every
    entity at once. `form` says what kind of comparison it is and `turn` what a query does with known ∘ relation,
    so that engines can be fast; a class that overrides `query` says its own `turn` or has none.

    What is neither an entity's nor a relation's is `dense`: a class gives such tensors' first values, an engine
    owns and trains them, and `with_dense` hands them in. A model whose scores mean a probability is `confident`;
    `curve` names what `trained` does where it is one of focus.py's non-linearities.
    `defaults` are settings that suit it better than the general ones, `largest_batch` bounds the batches that are
    chosen for it, `spread` is its first embeddings' deviation (None: Xavier's).
    """

    name: ClassVar[str]
    form: ClassVar[Form]
    turn: ClassVar[Turn] = "other"
    confident: ClassVar[bool] = False
    curve: ClassVar[str] = "other"
    spread: ClassVar[float | None] = None
    largest_batch: ClassVar[int] = 8192
    defaults: ClassVar[Mapping[str, Any]] = {}
    dense: Mapping[str, Tensor] = {}

    def entity_width(self, dim: int) -> int:
        """Numbers an entity's row holds."""
        return dim

    def relation_width(self, dim: int) -> int:
        """Numbers a relation's row holds."""
        return dim

    def dense_start(self) -> dict[str, Tensor]:
        """First values of the tensors that all triples share; most models have none."""
        return {name: value.clone() for name, value in type(self).dense.items()}

    def with_dense(self, dense: Mapping[str, Tensor]) -> Self:
        """The same model over these dense tensors."""
        bound = copy.copy(self)
        bound.dense = dense
        return bound

    def finish(self, product: Tensor) -> Tensor:
        """From a comparison to a score, number by number; the identity for most."""
        return product

    def trained(self, score: Tensor) -> Tensor:
        """The confidence as training sees it: where `confidence` is cut off at 0 or 1, this one goes on."""
        raise NotImplementedError(f"{self.name}: its scores mean no probability")

    def confidence(self, score: Tensor) -> Tensor:
        """The probability that a score means, in [0, 1]; only for a `confident` model."""
        raise NotImplementedError(f"{self.name}: its scores mean no probability")

    @classmethod
    def plain(cls) -> bool:
        """Whether `form`, `turn` and at most a dense `scale` say all about the score: no method goes its own way."""
        asks = next(kind for kind in cls.__mro__ if "query" in vars(kind))
        ends = next(kind for kind in cls.__mro__ if "finish" in vars(kind))
        untouched = all(
            getattr(cls, name) is getattr(Model, name)
            for name in ("candidates", "compare", "score", "own", "shared", "pooled", "product")
        )
        scaled = ends is Model or "scale" in vars(ends).get("dense", {})
        return untouched and scaled and cls.form != "other" and vars(asks).get("turn", "other") != "other"

    @abstractmethod
    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """What to look for on `side`, given the other side's rows: [B, d], [B, r] -> [B, d]."""

    def candidates(self, rows: Tensor, relation: Tensor) -> Tensor:
        """Rows made comparable with a query; the identity for most. [..., d], [..., r] -> [..., d], broadcast."""
        return rows

    def compare(self, query: Tensor, candidates: Tensor) -> Tensor:
        """The score of queries against candidates, row by row: [..., d], [..., d] -> [...]."""
        if self.form == "dot":
            return (query * candidates).sum(-1)
        if self.form == "l1":
            return -(query - candidates).abs().sum(-1)
        if self.form == "l2":
            distance: Tensor = torch.linalg.vector_norm(query - candidates, dim=-1)
            return -distance
        raise NotImplementedError(f"{self.name}: a model of another form says how it compares")

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """One score a triple: [B, d], [B, r], [B, d] -> [B]."""
        _same_length(head, relation, tail)
        return self.finish(self.compare(self.query(head, relation, "tail"), self.candidates(tail, relation)))

    def own(self, queries: Tensor, relation: Tensor, rows: Tensor) -> Tensor:
        """Each positive's S queries against its own N others: [B, S, d], [B, r], [B, N, d] -> [B, S, N]."""
        _same_length(queries, relation, rows)
        return self.finish(self.product(queries, self.candidates(rows, relation[:, None])))

    def shared(self, query: Tensor, relation: Tensor, rows: Tensor) -> Tensor:
        """Every query against one pool of P rows: [B, d], [B, r], [P, d] -> [B, P]."""
        return self.finish(self.pooled(query, relation, rows))

    def pooled(self, query: Tensor, relation: Tensor, rows: Tensor) -> Tensor:
        """The comparisons behind `shared`, not finished."""
        _same_length(query, relation)
        others = self.candidates(rows[None], relation[:, None])
        if len(others) == 1:
            return self.product(query, others.squeeze(0))
        return self.product(query[:, None], others)[:, 0]  # they depend on the relation: no longer one pool

    def product(self, query: Tensor, candidates: Tensor) -> Tensor:
        """All queries against all candidates as one matrix product: [..., S, d], [..., N, d] -> [..., S, N]."""
        if self.form == "dot" and query.dim() == 2:
            return query @ candidates.mT
        if self.form == "dot":
            return (candidates @ query.mT).mT  # few queries, many candidates: a third faster on CPU this way round
        if self.form == "l1":
            return -torch.cdist(query, candidates, p=1.0)
        if self.form == "l2":
            # The matrix-product shortcut loses digits where two rows are close: just where ranks are decided.
            return -torch.cdist(query, candidates, p=2.0, compute_mode="donot_use_mm_for_euclid_dist")
        return self.compare(query.unsqueeze(-2), candidates.unsqueeze(-3))


def _same_length(*parts: Tensor) -> None:
    lengths = {len(part) for part in parts}
    if len(lengths) != 1:
        raise ValueError(f"rows of different lengths: {[tuple(part.shape) for part in parts]}")
