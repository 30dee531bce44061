"""The contract of a scoring function: a query, candidates, and a way to compare them."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from focuse.errors import FocuseError
from focuse.models.pieces import in_pieces

Side = Literal["head", "tail"]
Form = Literal["dot", "l1", "l2", "other"]
Turn = Literal["product", "complex", "sum", "other"]
COMPARING = ("candidates", "compare", "score", "answer", "own", "shared", "pooled", "product", "encode")


WITHHELD = -1  # in place of a key, which is never below 0


class KeyWithheldError(RuntimeError):
    """A model asked for the key of a step that has none to give: one that is recorded once and replayed often."""


@dataclass(frozen=True)
class Context:
    """What is fixed about a graph that some models look at.

    `edges`: heads, relations and tails of train, int64 [m] each. `numbers`: float [E, A], numbers of entities, and
    `present`: bool [E, A], which of them are known; an engine appends both to every entity's row (as 2A columns).
    """

    edges: tuple[Tensor, Tensor, Tensor] | None = None
    numbers: Tensor | None = None
    present: Tensor | None = None

    def columns(self) -> Tensor | None:
        """What is appended to the rows of entities: [E, 2A], missing numbers as 0."""
        if self.numbers is None or self.present is None:
            return None
        return torch.cat([self.numbers.masked_fill(~self.present, 0.0), self.present.to(self.numbers.dtype)], dim=1)


class Model(ABC):
    """A scoring function over rows of embeddings; it never sees a weight or a loss.

    A subclass says what a query is; this class derives from it the four uses: one triple (`score`), each
    positive's own others (`own`), one pool for all (`shared`) and, the pool being the entity table, every
    entity at once. `form` says what kind of comparison it is and `turn` what a query does with known ∘ relation,
    so that engines can be fast; a class that overrides `query` says its own `turn` or has none. A model is `sided`
    where asking for the head and asking for the tail are two functions: a triple then has two scores.

    What is neither an entity's nor a relation's is `dense`: `dense_start` gives such tensors' first values, an engine
    owns and trains them (all but those that are `kept`), and `with_dense` hands them in. `wants` names what of a
    `Context` it needs; a model that `encodes` makes whole tables of whole tables before any row is taken, or, where it
    looks at one row at a time (`rowwise`), rows of those that a step touches. In training an engine hands out
    `in_training` copies, with a key for whatever they draw, and minimises (1 − `share`) · loss + `share` · `extra`
    where a model has such a term of its own.

    A model of an own form whose scores are distances with a minus, never above 0, says so (`distance`).
    A model whose scores mean a probability is `confident`; `curve` names what `trained` does where it is one of
    focus.py's non-linearities; one that is also `structured` tells apart from it whether a triple is a fact. `defaults`
    are settings that suit it better than the general ones, `largest_batch` bounds the batches that are chosen for it,
    `spread` is its first embeddings' deviation (None: Xavier's), `parts` how many real numbers make one of its numbers
    (2: complex ones), `multiple` what must divide its dimension. To rank against every entity takes a `dear` model too
    long. One that is `one_way` asks for tails only: it needs reciprocal relations. One that is `parted` bounds its
    memory itself.
    """

    name: ClassVar[str]
    form: ClassVar[Form]
    turn: ClassVar[Turn] = "other"
    sided: ClassVar[bool] = False
    distance: ClassVar[bool] = False
    confident: ClassVar[bool] = False
    structured: ClassVar[bool] = False
    curve: ClassVar[str] = "other"
    spread: ClassVar[float | None] = None
    parts: ClassVar[int] = 1
    multiple: ClassVar[int] = 1
    dear: ClassVar[bool] = False
    parted: ClassVar[bool] = False
    one_way: ClassVar[bool] = False
    encodes: ClassVar[bool] = False
    rowwise: ClassVar[bool] = False
    wants: ClassVar[frozenset[str]] = frozenset()
    kept: ClassVar[frozenset[str]] = frozenset()
    largest_batch: ClassVar[int] = 8192
    defaults: ClassVar[Mapping[str, Any]] = {}
    dense: Mapping[str, Tensor] = {}
    context: Context = Context()
    share: float = 0.0
    _key: int | None = None

    def check(self, dim: int) -> None:
        """Raise a FocuseError where it cannot have this dimension."""
        if dim % self.multiple:
            near = max(self.multiple, round(dim / self.multiple) * self.multiple)
            raise FocuseError(f"model {self.name!r} needs a dim that {self.multiple} divides, not {dim}; try {near}")

    def entity_width(self, dim: int) -> int:
        """Numbers an entity's row holds."""
        return dim

    def relation_width(self, dim: int) -> int:
        """Numbers a relation's row holds."""
        return dim

    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        """First values of the tensors that all triples share; most models have none."""
        return {name: value.clone() for name, value in type(self).dense.items()}

    def table_start(self, table: str, values: Tensor) -> Tensor:
        """First values of the table 'entity' or 'relation', from normal ones [rows, width]."""
        return values

    def with_dense(self, dense: Mapping[str, Tensor]) -> Self:
        """The same model over these dense tensors."""
        bound = copy.copy(self)
        bound.dense = dense
        return bound

    def with_context(self, context: Context) -> Self:
        """The same model in this graph."""
        bound = copy.copy(self)
        bound.context = context
        return bound

    def in_training(self, key: int | None) -> Self:
        """The same model for one step; what it draws is a pure function of `key`. None: it is not to draw anything."""
        bound = copy.copy(self)
        bound._key = WITHHELD if key is None else key
        return bound

    @property
    def key(self) -> int | None:
        """That of a training step, None while ranking."""
        if self._key == WITHHELD:
            raise KeyWithheldError(f"{self.name} draws in training, and has no key for it")
        return self._key

    def encode(self, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Tables made of tables, [E, d], [R, r] -> [E, d'], [R, r']; only asked of a model that `encodes`."""
        return entity, relation

    def extra(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor | None:
        """A loss of its own a positive, beside the objective: [B, d], [B, r], [B, d] -> [B]; None for most models."""
        return None

    def moduli(self, table: str, rows: Tensor) -> Tensor:
        """Sizes of the numbers in rows of the table 'entity' or 'relation': [..., d] -> [..., d / parts]."""
        if self.parts == 1:
            return rows
        sizes: Tensor = torch.stack(rows.chunk(self.parts, -1)).norm(dim=0)
        return sizes

    def finish(self, product: Tensor) -> Tensor:
        """From a comparison to a score, number by number; the identity for most."""
        return product

    def trained(self, score: Tensor) -> Tensor:
        """The confidence as training sees it: where `confidence` is cut off at 0 or 1, this one goes on."""
        raise NotImplementedError(f"{self.name}: its scores mean no probability")

    def confidence(self, score: Tensor) -> Tensor:
        """The probability that a score means, in [0, 1]; only for a `confident` model."""
        raise NotImplementedError(f"{self.name}: its scores mean no probability")

    def structure(self, score: Tensor) -> Tensor:
        """How likely a triple is a fact, whatever its weight; only for a `structured` model."""
        raise NotImplementedError(f"{self.name}: it does not tell structure from confidence")

    def compares_plainly(self) -> bool:
        """Whether `form` and at most a dense `scale` say all about a comparison: rows are compared as they are."""
        kind = type(self)
        untouched = all(getattr(kind, name) is getattr(Model, name) for name in COMPARING)
        ends = next(base for base in kind.__mro__ if "finish" in vars(base))
        scaled = ends is Model or vars(ends).get("scales", False)
        return bool(untouched and scaled and self.form != "other" and "numbers" not in self.wants)

    def known_curve(self) -> str:
        """What `trained` is called, if the class that says `trained` says so too; else 'other'."""
        says = next(base for base in type(self).__mro__ if "trained" in vars(base))
        return str(vars(says).get("curve", "other"))

    def plain(self) -> bool:
        """Whether `form`, `turn` and at most a dense `scale` say all about the score: no method goes its own way."""
        asks = next(base for base in type(self).__mro__ if "query" in vars(base))
        alone = not self.sided and type(self).extra is Model.extra
        return self.compares_plainly() and alone and vars(asks).get("turn", "other") != "other"

    @abstractmethod
    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """What to look for on `side`, given the other side's rows: [B, d], [B, r] -> [B, q]."""

    def queries(self, head: Tensor, relation: Tensor, tail: Tensor) -> dict[Side, Tensor]:
        """What a batch of triples asks on each side: [B, d], [B, r], [B, d] -> [B, q] each."""
        return {"tail": self.query(head, relation, "tail"), "head": self.query(tail, relation, "head")}

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Rows made comparable with a query; the identity for most. [..., d], [..., r] -> [..., q], broadcast."""
        return rows

    def compare(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        """The score of queries against candidates, row by row: [..., q], [..., q] -> [...]."""
        if self.form == "dot":
            return (query * candidates).sum(-1)
        if self.form == "l1":
            return -(query - candidates).abs().sum(-1)
        if self.form == "l2":
            distance: Tensor = torch.linalg.vector_norm(query - candidates, dim=-1)
            return -distance
        raise NotImplementedError(f"{self.name}: a model of another form says how it compares")

    def score(self, head: Tensor, relation: Tensor, tail: Tensor, side: Side = "tail") -> Tensor:
        """One score a triple, asked for `side`: [B, d], [B, r], [B, d] -> [B]."""
        _same_length(head, relation, tail)
        known, other = (head, tail) if side == "tail" else (tail, head)
        return self.answer(self.query(known, relation, side), relation, other, side)

    def answer(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        """Each query against one row, or several: [B, q], [B, r], [B, d] -> [B]; with [B, 1, …] and [B, N, d] [B, N].

        Row by row: equal rows have equal scores to the last bit.
        """
        return self.finish(self.compare(query, self.candidates(rows, relation, side), side))

    def own(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        """Each query against its own N others: [B, q], [B, r], [B, N, d] -> [B, N]."""
        _same_length(query, relation, rows)

        def compared(query: Tensor, relation: Tensor, rows: Tensor) -> Tensor:
            return self.product(query[:, None], self.candidates(rows, relation[:, None], side), side)[:, 0]

        if self.parted or self.form != "other":  # nothing larger than the rows, which are there already
            return self.finish(compared(query, relation, rows))
        return self.finish(in_pieces(compared, query, relation, rows, rows.shape[-1]))

    def shared(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        """Every query against one pool of P rows: [B, q], [B, r], [P, d] -> [B, P]."""
        return self.finish(self.pooled(query, relation, rows, side))

    def pooled(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        """The comparisons behind `shared`, not finished."""
        _same_length(query, relation)
        few = self.candidates(rows[None, :1], relation[:2, None], side)
        alike = len(few) == 1  # else they depend on the relation: no longer one pool

        def compared(query: Tensor, relation: Tensor, rows: Tensor) -> Tensor:
            if alike:
                return self.product(query, self.candidates(rows[None], relation[:1, None], side)[0], side)
            return self.product(query[:, None], self.candidates(rows[None], relation[:, None], side), side)[:, 0]

        if self.parted or (alike and self.form != "other"):
            return compared(query, relation, rows)
        return in_pieces(compared, query, relation, rows, few.shape[-1])

    def product(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        """All queries against all candidates as one matrix product: [..., S, q], [..., N, q] -> [..., S, N]."""
        if self.form == "dot" and query.dim() == 2:
            return query @ candidates.mT
        if self.form == "dot":
            return (candidates @ query.mT).mT  # few queries, many candidates: a third faster on CPU this way round
        if self.form == "l1":
            return -torch.cdist(query, candidates, p=1.0)
        if self.form == "l2":
            # The matrix-product shortcut loses digits where two rows are close: just where ranks are decided.
            return -torch.cdist(query, candidates, p=2.0, compute_mode="donot_use_mm_for_euclid_dist")
        return self.compare(query.unsqueeze(-2), candidates.unsqueeze(-3), side)


class TripleModel(Model):
    """A model without queries: a subclass says what `triple` scores, for rows that broadcast."""

    form: ClassVar[Form] = "other"

    @abstractmethod
    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Scores of triples: [..., d], [..., r], [..., d] -> [...], leading sizes broadcast."""

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return torch.cat([known, relation], dim=-1)

    def compare(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        width = candidates.shape[-1]
        known, relation = query[..., :width], query[..., width:]
        head, tail = (known, candidates) if side == "tail" else (candidates, known)
        return self.triple(head, relation, tail)


def _same_length(*parts: Tensor) -> None:
    lengths = {len(part) for part in parts}
    if len(lengths) != 1:
        raise ValueError(f"rows of different lengths: {[tuple(part.shape) for part in parts]}")
