"""The contract of a scoring function: a query, candidates and their similarity, and scoring in bounded memory."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, repeat
from math import prod
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from focuse.errors import FocuseError

Side = Literal["head", "tail"]
Table = Literal["entity", "relation"]
Similarity = Literal["dot", "l1", "l2"]
QueryForm = Literal["hadamard", "complex", "translation"]
Requirement = Literal["edges", "attributes", "inverse relations", "whole batch", "whole table"]

# These entries of `Model.defaults` are not training settings.
HINTS = frozenset({"init_std", "max_batch_size", "expensive_to_rank"})
UNAVAILABLE_SEED = -1  # a seed is never negative
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda score: score,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
}


class RandomnessUnavailableError(RuntimeError):
    """The error of a model that draws random numbers in a step without a seed, such as a recorded CUDA graph."""


@dataclass(frozen=True)
class Context:
    """The information that a model has besides rows and parameters: the training graph and the seed of the step.

    Parameters
    ----------
    edges : three int64 tensors of length m
        Heads, relations and tails of the training triples.
    attributes, present : float [E, A] and bool [E, A]
        Numeric attributes of entities, and a mask of the known ones. An engine appends both to the rows of entities,
        as 2A columns.
    evaluation : bool
        True if the model stays in evaluation mode, without dropout, while rows are trained.
    step_seed : int or None
        The seed of a training step; see `seed`.
    """

    edges: tuple[Tensor, Tensor, Tensor] | None = None
    attributes: Tensor | None = None
    present: Tensor | None = None
    evaluation: bool = False
    step_seed: int | None = None

    @property
    def seed(self) -> int | None:
        """The seed of all random numbers of the model in a training step; None outside of training."""
        if self.step_seed == UNAVAILABLE_SEED:
            raise RandomnessUnavailableError("the model draws random numbers in training, and the step has no seed")
        return self.step_seed

    def in_training(self, seed: int | None) -> Context:
        """Return the context of one training step; without a seed the model must not draw random numbers."""
        return self if self.evaluation else replace(self, step_seed=UNAVAILABLE_SEED if seed is None else seed)

    def attribute_columns(self) -> Tensor | None:
        """Return the columns that are appended to the rows of entities, [E, 2A]; a missing attribute is 0."""
        if self.attributes is None or self.present is None:
            return None
        known = self.attributes.masked_fill(~self.present, 0.0)
        return torch.cat([known, self.present.to(self.attributes.dtype)], dim=1)


@dataclass(frozen=True)
class FusedForm:
    """A declaration that kernels may compute a model, because its similarity uses unchanged rows of entities.

    `query` is the name of the kernel that computes a query from the rows of the known entity and the relation:
    "hadamard" multiplies them, "complex" multiplies complex numbers (by the conjugate relation for heads), and
    "translation" adds the relation (subtracts it for heads). If it is None, the model's own `query` is called, and
    kernels compute the rest.
    """

    query: QueryForm | None = None


class Encoder(ABC):
    """A function from the trained tables to the tables that a model compares."""

    rowwise: ClassVar[bool] = False  # whether an encoded row depends on no other row

    @abstractmethod
    def encode(self, model: Model, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        """Return the encoded tables: [E, d], [R, r] -> [E, d'], [R, r']; a rowwise encoder may get a subset of rows."""


@dataclass(frozen=True)
class ConfidenceHead:
    """A function from scores to confidences in [0, 1].

    `activation` is "linear", "sigmoid" or "exp". A subclass that computes something else uses another name.
    """

    activation: str = "sigmoid"
    has_plausibility: ClassVar[bool] = False  # whether `plausibility` is defined

    @property
    def losses(self) -> tuple[str, ...]:
        """The losses by which it can be learned; only the logistic function fits a cross-entropy of scores."""
        return ("squared-error", "cross-entropy") if self.activation == "sigmoid" else ("squared-error",)

    def unclipped(self, score: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the confidence for training, which may be outside [0, 1], so that it always has a gradient."""
        return ACTIVATIONS[self.activation](score)

    def confidence(self, score: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the confidence in [0, 1] of a score."""
        return self.unclipped(score, parameters).clamp(0.0, 1.0)

    def plausibility(self, score: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        """Return the probability that a triple is true, independently of its weight."""
        raise NotImplementedError("this head has no plausibility")


@dataclass(frozen=True)
class AuxiliaryLoss(ABC):
    """An additional loss of the model: a step minimizes (1 − `weight`) · objective + `weight` · `loss`."""

    weight: float

    @abstractmethod
    def loss(self, model: Model, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return the loss of each positive: [B, d], [B, r], [B, d] -> [B]."""


class Model(ABC):
    """A scoring function over embedding rows, which is independent of weights and of the loss.

    A subclass defines `query`, a vector that represents the missing side of a triple, computed from the other side and
    the relation. The score of a candidate is its similarity to the query. The other methods are derived from that:
    scores of single triples (`score`), of per-triple negatives (`score_negatives`) and of a pool that a batch shares
    (`score_pool`).

    Fields
    ------
    name : the name of the model in settings.
    similarity : "dot", "l1" or "l2" (minus the distance), or None if the model overrides `similarity_of`.
    components : the real components of each number: 2 for complex numbers, 4 for quaternions. A pair holds the
        components of entities and of relations; 0 means angles, which represent numbers of modulus 1.
    fused : the declaration that kernels may compute the model, or None.
    encoder, confidence_head, auxiliary_loss : optional parts, None for most models.
    requires : the requirements of the model. "edges" and "attributes" are parts of its `Context`. A model with
        "inverse relations" can only score tails. Queries of a model with "whole batch" depend on the rest of their
        batch, and initial rows of a model with "whole table" on the rest of their table, so that these are not split.
    buffers : names of `parameters` that are stored but not trained.
    defaults : settings that suit the model better than the general defaults, and HINTS: the standard deviation of
        initial rows, the largest automatic batch size, and whether ranking against all entities takes too long.
    parameters : tensors that all triples share, by name. A class holds initial values here if they do not depend on
        the dimension. A parameter called "scale" holds a slope and an offset, which map similarities to scores.
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
        """Return queries for the entity on `side`, from rows of the other side's entity: [B, d], [B, r] -> [B, q]."""

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return rows in the form that is compared with queries: [..., d], [..., r] -> [..., q], broadcast.

        Most models return the rows unchanged.
        """
        return rows

    def similarity_of(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        """Return the similarity of queries and candidates, row by row: [..., q], [..., q] -> [...], broadcast."""
        if self.similarity == "dot":
            return (query * candidates).sum(-1)
        if self.similarity == "l1":
            return -(query - candidates).abs().sum(-1)
        if self.similarity == "l2":
            distance: Tensor = torch.linalg.vector_norm(query - candidates, dim=-1)
            return -distance
        raise NotImplementedError(f"{self.name}: a model whose similarity is None defines similarity_of")

    def widths(self, dim: int) -> tuple[int, int]:
        """Return the widths of entity and relation rows; raise FocuseError if the model does not support `dim`."""
        entity, relation = components_of(self)
        return entity * dim, max(relation, 1) * dim

    def init_table(self, table: Table, values: Tensor) -> Tensor:
        """Return initial values of a table, computed from normally distributed ones: [rows, width] -> [rows, width]."""
        return values

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        """Return initial values of the parameters that all triples share; most models have none."""
        return {name: value.clone() for name, value in type(self).parameters.items()}

    def bind(self, parameters: Mapping[str, Tensor] | None = None, context: Context | None = None) -> Self:
        """Return a copy of the model with these parameters or this context; None leaves them unchanged."""
        bound = copy.copy(self)
        bound.parameters = self.parameters if parameters is None else parameters
        bound.context = self.context if context is None else context
        return bound

    def score(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        """Return the score of each query with its row, or rows that broadcast: [B, q], [B, r], [B, d] -> [B].

        With queries and relations [B, 1, …] and rows [B, N, d], the result is [B, N]. Scores are computed row by row,
        so that equal rows have equal scores to the last bit.
        """
        return scaled(self, self.similarity_of(query, self.candidates(rows, relation, side), side))

    def score_negatives(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        """Return the scores of each query with its own N rows: [B, q], [B, r], [B, N, d] -> [B, N]."""
        _check_lengths(query, relation, rows)

        def compare(query: Tensor, relation: Tensor, rows: Tensor) -> Tensor:
            return pairwise_similarity(self, query[:, None], self.candidates(rows, relation[:, None], side), side)[:, 0]

        if self.similarity is not None:  # it needs no tensor larger than the rows, which are in memory already
            return scaled(self, compare(query, relation, rows))
        return scaled(self, in_chunks(compare, query, relation, rows, rows.shape[-1]))

    def score_pool(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        """Return the scores of all queries with one pool of P rows: [B, q], [B, r], [P, d] -> [B, P]."""
        _check_lengths(query, relation)
        probe = self.candidates(rows[None, :1], relation[:2, None], side)
        one_pool = len(probe) == 1  # otherwise candidates depend on the relation

        def compare(query: Tensor, relation: Tensor, rows: Tensor) -> Tensor:
            if one_pool:
                return pairwise_similarity(self, query, self.candidates(rows[None], relation[:1, None], side)[0], side)
            candidates = self.candidates(rows[None], relation[:, None], side)
            return pairwise_similarity(self, query[:, None], candidates, side)[:, 0]

        if one_pool and self.similarity is not None:
            return scaled(self, compare(query, relation, rows))
        return scaled(self, in_chunks(compare, query, relation, rows, probe.shape[-1]))


class TripleModel(Model):
    """A model without queries; a subclass defines `triple`, the score of triples with rows that broadcast."""

    similarity: ClassVar[Similarity | None] = None

    @abstractmethod
    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return the scores of triples: [..., d], [..., r], [..., d] -> [...], where leading sizes broadcast."""

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return torch.cat([known, relation], dim=-1)

    def similarity_of(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        width = candidates.shape[-1]
        known, relation = query[..., :width], query[..., width:]
        head, tail = (known, candidates) if side == "tail" else (candidates, known)
        return self.triple(head, relation, tail)


def score_triples(model: Model, head: Tensor, relation: Tensor, tail: Tensor, side: Side = "tail") -> Tensor:
    """Return one score per triple, whose entity on `side` is the candidate: rows [B, d], [B, r], [B, d] -> [B].

    >>> from focuse.models.bilinear import DistMult
    >>> score_triples(DistMult(), torch.ones(1, 3), 2 * torch.ones(1, 3), torch.ones(1, 3))
    tensor([6.])
    """
    _check_lengths(head, relation, tail)
    known, candidate = (head, tail) if side == "tail" else (tail, head)
    return model.score(model.query(known, relation, side), relation, candidate, side)


def pairwise_similarity(model: Model, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
    """Return the similarity of all queries with all candidates: [..., S, q], [..., N, q] -> [..., S, N]."""
    if model.similarity == "dot" and query.dim() == 2:
        return query @ candidates.mT
    if model.similarity == "dot":
        return (candidates @ query.mT).mT  # a third faster on a CPU for few queries and many candidates
    if model.similarity == "l1":
        return -torch.cdist(query, candidates, p=1.0)
    if model.similarity == "l2":
        # The shortcut by a matrix product loses digits where two rows are close, which decides ranks.
        return -torch.cdist(query, candidates, p=2.0, compute_mode="donot_use_mm_for_euclid_dist")
    return model.similarity_of(query.unsqueeze(-2), candidates.unsqueeze(-3), side)


def scaled(model: Model, similarity: Tensor) -> Tensor:
    """Return the scores of similarities, which apply slope and offset of the parameter "scale" if the model has it."""
    if "scale" not in model.parameters:
        return similarity
    slope, offset = model.parameters["scale"].unbind()
    return slope * similarity + offset


def confidence(model: Model, score: Tensor) -> Tensor:
    """Return the confidence in [0, 1] of scores; raise FocuseError if the model has no confidence head."""
    if model.confidence_head is None:
        raise FocuseError(f"model {model.name!r} has no confidence head: its scores are not confidences")
    return model.confidence_head.confidence(score, model.parameters)


def components_of(model: Model | type[Model]) -> tuple[int, int]:
    """Return the components of the numbers of entities and of relations."""
    components = model.components
    return components if isinstance(components, tuple) else (components, components)


def moduli(model: Model, table: Table, rows: Tensor) -> Tensor:
    """Return the moduli of the numbers in rows of a table: [..., d] -> [..., d / components]."""
    components = components_of(model)[0 if table == "entity" else 1]
    if components == 1:
        return rows
    if components == 0:
        return torch.ones_like(rows)
    absolute: Tensor = torch.stack(rows.chunk(components, -1)).norm(dim=0)
    return absolute


def default_settings(model: Model | type[Model]) -> dict[str, Any]:
    """Return the settings among a model's defaults, without the HINTS."""
    return {name: value for name, value in model.defaults.items() if name not in HINTS}


def split_inverse_relations(table: Tensor) -> Tensor:
    """Split rows that hold a relation and its inverse into rows r and r + R: [R, 2w] -> [2R, w]."""
    return torch.cat(table.chunk(2, dim=1))


def join_inverse_relations(table: Tensor) -> Tensor:
    """Join rows r and r + R into one row (the inverse of `split_inverse_relations`): [2R, w] -> [R, 2w]."""
    return torch.cat(table.chunk(2), dim=1)


def _check_lengths(*parts: Tensor) -> None:
    """Raise ValueError unless all tensors have the same length; otherwise, rows could be broadcast silently."""
    if len({len(part) for part in parts}) > 1:
        raise ValueError(f"rows of different lengths: {[tuple(part.shape) for part in parts]}")


# ---- chunks: intermediate tensors that are larger than the scores are never in memory as a whole ---------------------

# These limit the numbers of an intermediate tensor: 4 MB of float32 fit in a core's caches, 64 MB keep a GPU busy.
CHUNK_NUMBERS_CPU, CHUNK_NUMBERS_GPU = 1 << 20, 1 << 24


class Chunk(NamedTuple):
    """The chunk that is computed; `recomputed` is True in the backward pass, where the result must be the same."""

    number: int = 0
    recomputed: bool = False


CURRENT_CHUNK: ContextVar[Chunk] = ContextVar("CHUNK", default=Chunk())  # noqa: B039 - a Chunk is immutable


def in_chunks(
    compare: Callable[[Tensor, Tensor, Tensor], Tensor], query: Tensor, relation: Tensor, rows: Tensor, width: int
) -> Tensor:
    """Return compare(query, relation, rows), computed in chunks of queries and rows.

    The shapes are [B, q], [B, r] and a pool [P, d] or one set of rows per query [B, P, d] -> [B, P]. One comparison
    needs `width` intermediate numbers. If gradients are enabled, these are recomputed in the backward pass instead of
    stored.

    >>> query, rows = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [5.0]])
    >>> in_chunks(lambda q, r, x: (q[:, None] - x).abs().sum(-1), query, query, rows, width=1 << 24).tolist()
    [[0.0, 4.0], [1.0, 3.0]]
    """
    limit = CHUNK_NUMBERS_GPU if query.is_cuda else CHUNK_NUMBERS_CPU
    columns = min(max(1, limit // max(width, 1)), max(1, rows.shape[-2]))
    size = max(1, limit // (max(width, 1) * columns))
    if len(query) <= size and rows.shape[-2] <= columns:
        return compare(query, relation, rows)
    rows_by_query = torch.split(rows, size) if rows.dim() == 3 else repeat(rows)
    chunks = list(zip(torch.split(query, size), torch.split(relation, size), rows_by_query, strict=False))
    if torch.is_grad_enabled():
        recompute, number = partial(checkpoint, use_reentrant=False, preserve_rng_state=False), count(1)
        grid = [
            [recompute(_with_current_chunk(compare, next(number)), q, r, x) for x in torch.split(some, columns, -2)]
            for q, r, some in chunks
        ]
        return torch.cat([torch.cat(line, 1) for line in grid])
    # Results are written to one tensor. Separate ones would lie between the chunks' memory and prevent its reuse.
    scores = query.new_empty(len(query), rows.shape[-2])
    for (q, r, some), target in zip(chunks, torch.split(scores, size), strict=True):
        for x, block in zip(torch.split(some, columns, -2), torch.split(target, columns, 1), strict=True):
            block.copy_(compare(q, r, x))
    return scores


def _with_current_chunk(compare: Callable[..., Tensor], number: int) -> Callable[..., Tensor]:
    """Return `compare` with CURRENT_CHUNK set; its second call is the one of the backward pass."""
    calls = count()

    def compare_chunk(*parts: Tensor) -> Tensor:
        token = CURRENT_CHUNK.set(Chunk(number, next(calls) > 0))
        try:
            return compare(*parts)
        finally:
            CURRENT_CHUNK.reset(token)

    return compare_chunk


def broadcast_in_chunks(function: Callable[..., Tensor], rows: Sequence[Tensor], width: int) -> Tensor:
    """Return function(*rows), [..., d] each -> [...], computed in chunks, where leading sizes broadcast.

    One result needs `width` intermediate numbers. This is for models whose intermediate tensors are larger than rows
    in every use; it replaces `in_chunks`.
    """
    shape = torch.broadcast_shapes(*(part.shape[:-1] for part in rows))  # type: ignore[no-untyped-call]
    rows = [part.reshape(*[1] * (len(shape) + 1 - part.dim()), *part.shape) for part in rows]
    if prod(shape) * width <= (CHUNK_NUMBERS_GPU if rows[0].is_cuda else CHUNK_NUMBERS_CPU) or prod(shape) <= 1:
        if not torch.is_grad_enabled():
            return function(*rows)
        result: Tensor = checkpoint(function, *rows, use_reentrant=False, preserve_rng_state=False)
        return result
    axis = max(range(len(shape)), key=lambda index: shape[index])
    half = shape[axis] // 2
    halves = ([_narrow(part, axis, start, stop) for part in rows] for start, stop in ((0, half), (half, shape[axis])))
    return torch.cat([broadcast_in_chunks(function, part, width) for part in halves], dim=axis)


def _narrow(rows: Tensor, axis: int, begin: int, end: int) -> Tensor:
    """Return a range of rows along an axis, or all rows if they broadcast along it."""
    return rows if rows.shape[axis] == 1 else rows.narrow(axis, begin, end - begin)
