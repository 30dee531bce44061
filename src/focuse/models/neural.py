"""Neural models and their layers: ConvE, ConvKB and KBGAT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import isqrt
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.errors import FocuseError
from focuse.models.base import (
    Context,
    Encoder,
    FusedForm,
    Model,
    Requirement,
    Side,
    Similarity,
    Table,
    TripleModel,
    broadcast_in_chunks,
)
from focuse.models.translational import TransE

CHUNK_ROWS = 2048  # rows convolved at once
Edges = tuple[Tensor, Tensor, Tensor]


def dropout(values: Tensor, rate: float, seed: int | None, layer: int, rank: int | None = None) -> Tensor:
    """Set a fraction `rate` of the values to 0 and scale the others up; without a seed, return them unchanged.

    The choice is a pure function of `seed` and of `layer`, the number of this dropout in its model. It is made for each
    index of the first `rank` axes (by default of all axes), so that a whole feature map can be dropped at once.
    """
    if seed is None:
        return values
    random = torch.Generator(values.device).manual_seed((seed + layer * 0x9E3779B1) % (1 << 63))  # 32 bits are used
    shape = values.shape if rank is None else (*values.shape[:rank], *[1] * (values.dim() - rank))
    kept = torch.rand(shape, generator=random, device=values.device, dtype=torch.float32) >= rate
    return values * kept / (1.0 - rate)


def init_batch_norms(**sizes: int) -> dict[str, Tensor]:
    """Return the initial parameters of batch normalizations, by name.

    'norm_…' holds factors and offsets [2, n], which are trained. 'seen_…' holds running means and variances [2, n],
    which are buffers.
    """
    parameters = {}
    for name, size in sizes.items():
        parameters[f"norm_{name}"] = torch.tensor([[1.0], [0.0]]).repeat(1, size)
        parameters[f"seen_{name}"] = torch.tensor([[0.0], [1.0]]).repeat(1, size)
    return parameters


def batch_norm(model: Model, name: str, values: Tensor) -> Tensor:
    """Normalize values [B, n, ...] by the statistics of the batch in training, and by running ones in evaluation."""
    factor, offset = model.parameters[f"norm_{name}"]
    mean, variance = model.parameters[f"seen_{name}"]
    several = values.numel() > values.shape[1]  # one number has no variance
    return F.batch_norm(values, mean, variance, factor, offset, training=model.context.seed is not None and several)


def rectangle_height(dim: int) -> int:
    """Return the height of the rectangle that `dim` numbers form: the largest factor up to √dim.

    >>> rectangle_height(100), rectangle_height(200), rectangle_height(7)
    (10, 10, 1)
    """
    return next(size for size in range(isqrt(dim), 0, -1) if dim % size == 0)


def check_rectangle(model: Model, dim: int) -> None:
    """Raise FocuseError unless a filter of 3 × 3 fits into two rectangles, one above the other."""
    if dim < 6 or rectangle_height(dim) == 1:
        suggested = next(size for size in range(max(dim, 6), 2 * dim + 7) if rectangle_height(size) > 1)
        raise FocuseError(f"model {model.name!r} needs a dim that makes a rectangle, not {dim}; try {suggested}")


def attend(
    entity: Tensor, relation: Tensor, edges: Edges, mix: Tensor, look: Tensor, drop: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the attention of each entity to its incoming triples: [E, d], [R, d] -> [E, o].

    For edges (entity i, relation k, neighbor j), sorted by entity, int64 [m] each, it computes

    c = W₁ [h_i ‖ h_j ‖ g_k]        `mix` [3, d, o], one matrix for each of the three
    α = softmax(LeakyReLU(w₂ · c))  `look` [o], over the edges of entity i
    h'_i = Σ α c                    0 for an entity without edges

    As W₁ is linear, each product is computed once per row, not once per edge. `drop` applies dropout to α [m].
    """
    target, relations, source = edges
    of_target, of_source, of_relation = entity @ mix[0], entity @ mix[1], relation @ mix[2]
    logit = (of_target @ look).index_select(0, target)
    logit = logit + (of_source @ look).index_select(0, source) + (of_relation @ look).index_select(0, relations)
    attention = drop(softmax_within(F.leaky_relu(logit, 0.2), target, len(entity)))
    first = torch.searchsorted(target, torch.arange(len(entity), device=target.device))
    sums = F.embedding_bag(source, of_source, first, per_sample_weights=attention, mode="sum")
    sums = sums + F.embedding_bag(relations, of_relation, first, per_sample_weights=attention, mode="sum")
    return sums + of_target * attention.new_zeros(len(entity)).index_add(0, target, attention)[:, None]


def softmax_within(logit: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return the softmax of numbers [m] within groups, whose numbers are `group`, int64 [m], below `groups`.

    >>> softmax_within(torch.zeros(3), torch.tensor([0, 0, 2]), 3).tolist()
    [0.5, 0.5, 1.0]
    """
    maximum = torch.full_like(logit[:1], -torch.inf).expand(groups).scatter_reduce(0, group, logit.detach(), "amax")
    numerator = (logit - maximum.index_select(0, group)).exp()
    total = numerator.new_zeros(groups).index_add(0, group, numerator)
    return numerator / total.index_select(0, group)


class ConvE(Model):
    """f = relu(W vec(relu([h̄ ; r̄] ∗ ω))) · t + b_t. It scores tails only and needs reciprocal relations.

    ConvE (Dettmers et al., 2018) computes a query by a convolution over an image of head and relation.

        f(h, r, t) = relu(W vec(relu([h̄ ; r̄] ∗ ω))) · t + b_t    h̄ above r̄, as matrices; 32 filters ω of 3 × 3

    with batch normalization before the filters, after them and after W, and dropout of inputs, feature maps and the
    hidden layer. The row of an entity holds t and b_t. The paper's biases of filters and of W are left out, because
    normalization removes them.
    """

    name = "conve"
    similarity: ClassVar[Similarity] = "dot"
    fused = FusedForm()
    filters = 32
    requires: ClassVar[frozenset[Requirement]] = frozenset({"inverse relations", "whole batch"})
    buffers = frozenset({"seen_input", "seen_maps", "seen_hidden"})
    defaults: ClassVar[Mapping[str, Any]] = {
        "reciprocal": True, "num_negatives": 512, "optimizer": "adam", "lr": 3e-3, "regularizer": "none",
        "max_batch_size": 512,
    }  # fmt: skip

    def widths(self, dim: int) -> tuple[int, int]:
        check_rectangle(self, dim)
        return dim + 1, dim

    def init_table(self, table: Table, values: Tensor) -> Tensor:
        return F.pad(values[:, :-1], (0, 1)) if table == "entity" else values  # the bias is 0

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        features = self.filters * (2 * rectangle_height(dim) - 2) * (dim // rectangle_height(dim) - 2)
        filters = torch.randn(self.filters, 1, 3, 3, generator=random) / 3
        weights = torch.randn(features, dim, generator=random) * (2 / (features + dim)) ** 0.5
        return {"filters": filters, "weights": weights} | init_batch_norms(input=1, maps=self.filters, hidden=dim)

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        if side == "head":
            raise NotImplementedError(f"{self.name} can only score tails; use inverse relations")
        if self.context.seed is not None:  # batch normalization needs the whole batch
            return self._convolve(known, relation)
        # The convolution needs far more memory than its rows.
        chunks = zip(torch.split(known, CHUNK_ROWS), torch.split(relation, CHUNK_ROWS), strict=True)
        return torch.cat([self._convolve(*chunk) for chunk in chunks])

    def _convolve(self, known: Tensor, relation: Tensor) -> Tensor:
        seed, parameters = self.context.seed, self.parameters
        height = 2 * rectangle_height(relation.shape[1])
        image = torch.stack([known[:, :-1], relation], 1).reshape(len(known), 1, height, -1)
        maps = F.conv2d(dropout(batch_norm(self, "input", image), 0.2, seed, 0), parameters["filters"])
        maps = dropout(F.relu(batch_norm(self, "maps", maps)), 0.2, seed, 1, rank=2)  # whole feature maps
        hidden = dropout(maps.flatten(1) @ parameters["weights"], 0.3, seed, 2)
        return F.pad(F.relu(batch_norm(self, "hidden", hidden)), (0, 1), value=1.0)  # the 1 is multiplied by b_t


CONVKB_FILTERS = 50


class ConvKB(TripleModel):
    """f = Σᵢ Σ_f w_fi relu(ω_f · (hᵢ, rᵢ, tᵢ) + b_f). Ranking against every entity is slow.

    ConvKB (Nguyen et al., 2018) applies filters of 1 × 3 to the matrix whose columns are head, relation and tail.

        f(h, r, t) = Σᵢ Σ_f w_fi relu(ω_f · (hᵢ, rᵢ, tᵢ) + b_f)    50 filters ω, initially near (1, 1, −1) as in TransE

    Its dropout, whose best rate in the paper is 0, is left out. The paper initializes embeddings with those of TransE.
    """

    name = "convkb"
    defaults: ClassVar[Mapping[str, Any]] = {
        "negative_sampling": "per-triple", "num_negatives": 10, "optimizer": "adam", "regularizer": "none",
        "max_batch_size": 512, "expensive_to_rank": True,
    }  # fmt: skip

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        translation = torch.tensor([[1.0], [1.0], [-1.0]])
        filters = translation + 0.1 * torch.randn(3, CONVKB_FILTERS, generator=random)
        weights = torch.randn(dim, CONVKB_FILTERS, generator=random) * (2 / (dim * CONVKB_FILTERS + 1)) ** 0.5
        return {"filters": filters, "offsets": torch.zeros(CONVKB_FILTERS), "weights": weights}

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return broadcast_in_chunks(self._all_filters, (head, relation, tail), self.parameters["weights"].numel())

    # `triple` limits its memory itself, and chunks around it would compute everything once more.

    def score_negatives(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        return self.similarity_of(query[:, None], rows, side)

    def score_pool(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        return self.similarity_of(query[:, None], rows[None], side)

    def _all_filters(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return the scores of one chunk: [..., d] each -> [...]."""
        of_head, of_relation, of_tail = self.parameters["filters"]
        maps = head[..., None] * of_head + self.parameters["offsets"]
        maps = (maps + relation[..., None] * of_relation) + tail[..., None] * of_tail
        score: Tensor = maps.relu().flatten(-2) @ self.parameters["weights"].flatten()
        return score


class GraphAttention(Encoder):
    """KBGAT's encoder: two heads of attention to the training triples, and then one more layer."""

    def encode(self, model: Model, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        if model.context.edges is None:
            raise ValueError(f"{model.name} needs the edges of its graph")
        parameters, edges, seed = model.parameters, model.context.edges[::-1], model.context.seed

        def drop(layer: int) -> Callable[[Tensor], Tensor]:
            return partial(dropout, rate=0.3, seed=seed, layer=layer)

        heads = zip(parameters["mix"], parameters["look"], strict=True)
        outputs = [attend(entity, relation, edges, *head, drop(layer)) for layer, head in enumerate(heads)]
        hidden, relations = F.elu(torch.cat(outputs, 1)), relation @ parameters["relations"]
        last = attend(hidden, relations, edges, parameters["last_mix"], parameters["last_look"], drop(2))
        return F.normalize(entity @ parameters["entities"] + F.elu(last)), relations


class KBGAT(TransE):
    """f = −‖h″ + r′ − t″‖₁, with graph attention over training triples. A step encodes the whole graph.

    KBGAT (Nathani et al., 2019) is a translation between entities that attend to the triples around them. Batches are
    large, because each step encodes the whole graph.

        f(h, r, t) = −‖h″ + r′ − t″‖₁                  h″ = W^E h + h′, scaled to length 1, and r′ = W^R r

    h′ is graph attention over the incoming training triples of an entity: two concatenated heads, and then one layer
    over their output (`attend` has the equations). Paths of several steps, which the paper adds as further neighbors,
    are left out.
    """

    name = "kbgat"
    fused = None
    encoder = GraphAttention()
    requires: ClassVar[frozenset[Requirement]] = frozenset({"edges"})
    defaults: ClassVar[Mapping[str, Any]] = {
        "batch_size": 8192, "negative_sampling": "shared", "optimizer": "adam", "lr": 5e-3, "regularizer": "none",
    }  # fmt: skip

    def widths(self, dim: int) -> tuple[int, int]:
        if dim % 2:
            raise FocuseError(f"model {self.name!r} needs a dim that 2 divides, not {dim}; try {dim + 1}")
        return dim, dim

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        shapes = {"mix": (2, 3, dim, dim // 2), "look": (2, dim // 2), "last_mix": (3, dim, dim), "last_look": (dim,)}
        shapes |= {"entities": (dim, dim), "relations": (dim, dim)}
        return {name: torch.randn(shape, generator=random) * dim**-0.5 for name, shape in shapes.items()}

    def bind(self, parameters: Mapping[str, Tensor] | None = None, context: Context | None = None) -> Self:
        """Return a copy with these parameters or this context; edges are sorted by tail, without repeats."""
        if context is not None and context.edges is not None and context.edges is not self.context.edges:
            tail, relation, head = torch.unique(torch.stack(context.edges[::-1]), dim=1).contiguous()
            context = replace(context, edges=(head, relation, tail))
        return super().bind(parameters, context)
