"""The contract of a scoring function: a query, candidates, and how similar they are."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from focuse.errors import FocuseError
from focuse.models.chunking import in_chunks

Side = Literal["head", "tail"]
Table = Literal["entity", "relation"]
Similarity = Literal["dot", "l1", "l2"]
QueryForm = Literal["hadamard", "complex", "translation"]
Requirement = Literal["edges", "attributes", "inverse relations", "whole batch", "whole table"]

# Entries of `Model.defaults` that are not settings of a training.
HINTS = frozenset({"init_std", "max_batch_size", "expensive_to_rank"})
UNAVAILABLE = -1  # in place of a seed, which is never negative
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda score: score,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
}


class RandomnessUnavailableError(RuntimeError):
    """A model draws random numbers in a step that has none to give: one that is recorded once and replayed often."""


@dataclass(frozen=True)
class Context:
    """What a model sees besides rows and parameters: the training graph and, in training, the seed of the step.

    Parameters
    ----------
    edges : three int64 tensors of length m
        Heads, relations and tails of the training triples.
    attributes, present : float [E, A] and bool [E, A]
        Numeric attributes of entities, and which of them are known. An engine appends both to the rows of entities,
        as 2A columns.
    evaluation : bool
        The model stays in evaluation mode while rows are trained: nothing is dropped out.
    """

    edges: tuple[Tensor, Tensor, Tensor] | None = None
    attributes: Tensor | None = None
    present: Tensor | None = None
    evaluation: bool = False
    step_seed: int | None = None

    @property
    def seed(self) -> int | None:
        """The seed of everything that the model draws in a training step; None while it ranks."""
        if self.step_seed == UNAVAILABLE:
            raise RandomnessUnavailableError("the model draws random numbers in training, and the step has no seed")
        return self.step_seed

    def in_training(self, seed: int | None) -> Context:
        """The same graph in one training step; without a seed the model must not draw random numbers."""
        return self if self.evaluation else replace(self, step_seed=UNAVAILABLE if seed is None else seed)

    def attribute_columns(self) -> Tensor | None:
        """The columns that are appended to the rows of entities, [E, 2A]; a missing attribute is 0."""
        if self.attributes is None or self.present is None:
            return None
        known = self.attributes.masked_fill(~self.present, 0.0)
        return torch.cat([known, self.present.to(self.attributes.dtype)], dim=1)


@dataclass(frozen=True)
class FusedForm:
    """Declares that kernels may compute a model: its similarity compares queries with rows of entities as they are.

    `query` names the kernel that makes a query of the known entity's and the relation's row: "hadamard" multiplies
    them, "complex" multiplies complex numbers (for heads by the conjugate relation), and "translation" adds the
    relation (for heads subtracts it). None: the model's own `query` is called, and kernels do everything else.
    """

    query: QueryForm | None = None


class Encoder(ABC):
    """Computes the tables that a model compares from the tables that are trained."""

    rowwise: ClassVar[bool] = False  # whether a row is encoded without looking at any other row

    @abstractmethod
    def encode(self, model: Model, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Encoded tables: [E, d], [R, r] -> [E, d'], [R, r']; a rowwise encoder may be given some rows only."""


@dataclass(frozen=True)
class ConfidenceHead:
    """Turns scores into confidences in [0, 1].

    `activation` is "linear", "sigmoid" or "exp"; a subclass that computes something else calls it otherwise.
    """

    activation: str = "sigmoid"
    has_plausibility: ClassVar[bool] = False  # whether it also says how likely a triple is true, whatever its weight

    def unclipped(self, score: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """The confidence as training uses it: it may leave [0, 1], so that it always has a gradient."""
        return ACTIVATIONS[self.activation](score)

    def confidence(self, score: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """The confidence in [0, 1] that a score means."""
        return self.unclipped(score, parameters).clamp(0.0, 1.0)

    def plausibility(self, score: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """The probability that a triple is true, whatever its weight."""
        raise NotImplementedError("this head has no plausibility")


@dataclass(frozen=True)
class AuxiliaryLoss(ABC):
    """A loss of the model itself: a step minimizes (1 − `weight`) · objective + `weight` · `loss`."""

    weight: float

    @abstractmethod
    def loss(self, model: Model, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """One number per positive: [B, d], [B, r], [B, d] -> [B]."""


class Model(ABC):
    """A scoring function over embedding rows; it never sees a weight or a loss.

    A subclass defines `query`: what to look for on one side of a triple, given the other side. The score of a
    candidate is its similarity to the query. Everything else is derived from that: scores of single triples
    (`score`), of per-triple negatives (`score_negatives`) and of a pool that a batch shares (`score_pool`).

    Fields
    ------
    name : the word for it in settings.
    similarity : "dot", "l1" or "l2" (minus the distance), or None if the model overrides `similarity_of`.
    components : real numbers per number: 2 for complex numbers, 4 for quaternions. A pair gives the components of
        entities and of relations; 0 stands for angles, which are numbers of modulus 1.
    fused : declared if kernels may compute the model.
    encoder, confidence_head, auxiliary_loss : rare abilities, None for most models.
    requires : what the model cannot do without. "edges" and "attributes" are parts of its `Context`; with
        "inverse relations" it is only ever asked for tails; "whole batch" and "whole table": queries depend on
        the rest of their batch, initial rows on the rest of their table, so that neither may be split.
    buffers : names of `parameters` that are stored and not trained.
    defaults : settings that suit it better than the general ones, and HINTS: the standard deviation of initial
        rows, the largest batch size that is chosen for it, whether ranking against all entities takes too long.
    parameters : tensors that all triples share, by name. A class gives initial values here if they do not depend on
        the dimension. A parameter called "scale" holds a slope and an offset, which turn similarities into scores.
    context : the graph and the seed of a training step.
    """

    name: ClassVar[str]
    similarity: ClassVar[Similarity | None]
    components: ClassVar[int | tuple[int, int]] = 1
    fused: ClassVar[FusedForm | None] = None
    encoder: ClassVar[Encoder | None] = None
    confidence_head: ClassVar[ConfidenceHead | None] = None
    auxiliary_loss: AuxiliaryLoss | None = None
    requires: ClassVar[frozenset[Requirement]] = frozenset()
    buffers: ClassVar[frozenset[str]] = frozenset()
    defaults: ClassVar[Mapping[str, Any]] = {}
    parameters: Mapping[str, Tensor] = {}
    context: Context = Context()

    @abstractmethod
    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """What to look for on `side`, given the other side's rows: [B, d], [B, r] -> [B, q]."""

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Rows made comparable with a query: [..., d], [..., r] -> [..., q], broadcast; most models change nothing."""
        return rows

    def similarity_of(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        """Similarity of queries and candidates, row by row: [..., q], [..., q] -> [...], broadcast."""
        if self.similarity == "dot":
            return (query * candidates).sum(-1)
        if self.similarity == "l1":
            return -(query - candidates).abs().sum(-1)
        if self.similarity == "l2":
            distance: Tensor = torch.linalg.vector_norm(query - candidates, dim=-1)
            return -distance
        raise NotImplementedError(f"{self.name}: a model whose similarity is None defines similarity_of")

    def widths(self, dim: int) -> tuple[int, int]:
        """Numbers in the row of an entity and of a relation; a FocuseError if the model cannot have this dimension."""
        entity, relation = components_of(self)
        return entity * dim, max(relation, 1) * dim

    def init_table(self, table: Table, values: Tensor) -> Tensor:
        """Initial values of a table from normally distributed ones: [rows, width] -> [rows, width]."""
        return values

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        """Initial values of the parameters that all triples share; most models have none."""
        return {name: value.clone() for name, value in type(self).parameters.items()}

    def bind(self, parameters: Mapping[str, Tensor] | None = None, context: Context | None = None) -> Self:
        """A copy of the model over these parameters, or in this context; None leaves what it has."""
        bound = copy.copy(self)
        bound.parameters = self.parameters if parameters is None else parameters
        bound.context = self.context if context is None else context
        return bound

    def score(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        """Each query against one row, or several: [B, q], [B, r], [B, d] -> [B]; [B, 1, …] and [B, N, d] -> [B, N].

        Scores are computed row by row, so that equal rows have equal scores to the last bit.
        """
        return scaled(self, self.similarity_of(query, self.candidates(rows, relation, side), side))

    def score_negatives(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        """Each query against its own N rows: [B, q], [B, r], [B, N, d] -> [B, N]."""
        check_lengths(query, relation, rows)

        def compare(query: Tensor, relation: Tensor, rows: Tensor) -> Tensor:
            return pairwise_similarity(self, query[:, None], self.candidates(rows, relation[:, None], side), side)[:, 0]

        if self.similarity is not None:  # nothing larger than the rows, which are in memory already
            return scaled(self, compare(query, relation, rows))
        return scaled(self, in_chunks(compare, query, relation, rows, rows.shape[-1]))

    def score_pool(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        """Every query against one pool of P rows: [B, q], [B, r], [P, d] -> [B, P]."""
        check_lengths(query, relation)
        few = self.candidates(rows[None, :1], relation[:2, None], side)
        one_pool = len(few) == 1  # else candidates depend on the relation

        def compare(query: Tensor, relation: Tensor, rows: Tensor) -> Tensor:
            if one_pool:
                return pairwise_similarity(self, query, self.candidates(rows[None], relation[:1, None], side)[0], side)
            candidates = self.candidates(rows[None], relation[:, None], side)
            return pairwise_similarity(self, query[:, None], candidates, side)[:, 0]

        if one_pool and self.similarity is not None:
            return scaled(self, compare(query, relation, rows))
        return scaled(self, in_chunks(compare, query, relation, rows, few.shape[-1]))


class TripleModel(Model):
    """A model without queries: a subclass defines `triple`, the score of whole triples, for rows that broadcast."""

    similarity: ClassVar[Similarity | None] = None

    @abstractmethod
    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Scores of triples: [..., d], [..., r], [..., d] -> [...], leading sizes broadcast."""

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return torch.cat([known, relation], dim=-1)

    def similarity_of(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        width = candidates.shape[-1]
        known, relation = query[..., :width], query[..., width:]
        head, tail = (known, candidates) if side == "tail" else (candidates, known)
        return self.triple(head, relation, tail)


def score_triples(model: Model, head: Tensor, relation: Tensor, tail: Tensor, side: Side = "tail") -> Tensor:
    """One score per triple, as an answer on `side`: rows [B, d], [B, r], [B, d] -> [B].

    >>> from focuse.models.bilinear import DistMult
    >>> score_triples(DistMult(), torch.ones(1, 3), 2 * torch.ones(1, 3), torch.ones(1, 3))
    tensor([6.])
    """
    check_lengths(head, relation, tail)
    known, other = (head, tail) if side == "tail" else (tail, head)
    return model.score(model.query(known, relation, side), relation, other, side)


def pairwise_similarity(model: Model, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
    """All queries against all candidates, if possible as a matrix product: [..., S, q], [..., N, q] -> [..., S, N]."""
    if model.similarity == "dot" and query.dim() == 2:
        return query @ candidates.mT
    if model.similarity == "dot":
        return (candidates @ query.mT).mT  # few queries, many candidates: a third faster on a CPU this way round
    if model.similarity == "l1":
        return -torch.cdist(query, candidates, p=1.0)
    if model.similarity == "l2":
        # The matrix-product shortcut loses digits where two rows are close: just where ranks are decided.
        return -torch.cdist(query, candidates, p=2.0, compute_mode="donot_use_mm_for_euclid_dist")
    return model.similarity_of(query.unsqueeze(-2), candidates.unsqueeze(-3), side)


def scaled(model: Model, similarity: Tensor) -> Tensor:
    """Scores of similarities: slope and offset of the parameter "scale" are applied if the model has one."""
    if "scale" not in model.parameters:
        return similarity
    slope, offset = model.parameters["scale"].unbind()
    return slope * similarity + offset


def confidence(model: Model, score: Tensor) -> Tensor:
    """The confidence in [0, 1] that scores of a model with a confidence head mean."""
    if model.confidence_head is None:
        raise FocuseError(f"model {model.name!r} has no confidence head: its scores are not confidences")
    return model.confidence_head.confidence(score, model.parameters)


def components_of(model: Model | type[Model]) -> tuple[int, int]:
    """Components of the numbers of entities and of relations."""
    found = model.components
    return found if isinstance(found, tuple) else (found, found)


def moduli(model: Model, table: Table, rows: Tensor) -> Tensor:
    """Absolute values of the numbers in rows of a table: [..., d] -> [..., d / components]."""
    components = components_of(model)[0 if table == "entity" else 1]
    if components == 1:
        return rows
    if components == 0:
        return torch.ones_like(rows)
    sizes: Tensor = torch.stack(rows.chunk(components, -1)).norm(dim=0)
    return sizes


def default_settings(model: Model | type[Model]) -> dict[str, Any]:
    """The settings among a model's defaults."""
    return {name: value for name, value in model.defaults.items() if name not in HINTS}


def split_inverse_relations(table: Tensor) -> Tensor:
    """Rows that hold a relation and its inverse as rows r and r + R: [R, 2w] -> [2R, w]."""
    return torch.cat(table.chunk(2, dim=1))


def join_inverse_relations(table: Tensor) -> Tensor:
    """The opposite of `split_inverse_relations`: [2R, w] -> [R, 2w]."""
    return torch.cat(table.chunk(2), dim=1)


def check_lengths(*parts: Tensor) -> None:
    """Raise unless all tensors have the same length."""
    lengths = {len(part) for part in parts}
    if len(lengths) != 1:
        raise ValueError(f"rows of different lengths: {[tuple(part.shape) for part in parts]}")
