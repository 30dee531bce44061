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
    check_lengths,
)
from focuse.models.chunking import broadcast_in_chunks
from focuse.models.translational import TransE

ROWS_AT_ONCE = 2048
Edges = tuple[Tensor, Tensor, Tensor]


def dropout(values: Tensor, share: float, seed: int | None, layer: int, rank: int | None = None) -> Tensor:
    """`values` with a `share` of them set to 0 and the others scaled up; without a seed they stay as they are.

    The choice is a pure function of `seed` and `layer`, the number of this dropout in its model. Only the first `rank`
    axes are drawn (all of them by default): everything behind them, such as a whole feature map, is dropped at once.
    """
    if seed is None:
        return values
    random = torch.Generator(values.device).manual_seed((seed + layer * 0x9E3779B1) % (1 << 63))  # 32 bits are used
    shape = values.shape if rank is None else (*values.shape[:rank], *[1] * (values.dim() - rank))
    kept = torch.rand(shape, generator=random, device=values.device, dtype=torch.float32) >= share
    return values * kept / (1.0 - share)


def init_batch_norms(**sizes: int) -> dict[str, Tensor]:
    """Initial values of batch normalizations by name.

    'norm_…' holds factors and offsets [2, n], which are learned, and 'seen_…' running means and variances [2, n], which
    are buffers.
    """
    found = {}
    for name, size in sizes.items():
        found[f"norm_{name}"] = torch.tensor([[1.0], [0.0]]).repeat(1, size)
        found[f"seen_{name}"] = torch.tensor([[0.0], [1.0]]).repeat(1, size)
    return found


def batch_norm(model: Model, name: str, values: Tensor) -> Tensor:
    """`values` [B, n, ...] normalized by the mean and variance of the batch in training, by running ones in ranking."""
    factor, offset = model.parameters[f"norm_{name}"]
    mean, variance = model.parameters[f"seen_{name}"]
    several = values.numel() > values.shape[1]  # one number has no variance
    return F.batch_norm(values, mean, variance, factor, offset, training=model.context.seed is not None and several)


def height_of(dim: int) -> int:
    """Height of the rectangle into which `dim` numbers are arranged: the largest factor up to √dim.

    >>> height_of(100), height_of(200), height_of(7)
    (10, 10, 1)
    """
    return next(size for size in range(isqrt(dim), 0, -1) if dim % size == 0)


def check_rectangle(model: Model, dim: int) -> None:
    """Raise unless a filter of 3 × 3 fits into two rectangles, one above the other."""
    if dim < 6 or height_of(dim) == 1:
        near = next(size for size in range(max(dim, 6), 2 * dim + 7) if height_of(size) > 1)
        raise FocuseError(f"model {model.name!r} needs a dim that makes a rectangle, not {dim}; try {near}")


def by_rows(function: Callable[[Tensor, Tensor], Tensor], first: Tensor, second: Tensor) -> Tensor:
    """function(first, second), [B, …] each -> [B, q], some rows at a time: intermediate results are far larger."""
    parts = zip(torch.split(first, ROWS_AT_ONCE), torch.split(second, ROWS_AT_ONCE), strict=True)
    return torch.cat([function(*part) for part in parts])


def attend(
    entity: Tensor, relation: Tensor, edges: Edges, mix: Tensor, look: Tensor, drop: Callable[[Tensor], Tensor]
) -> Tensor:
    """Attention of each entity to the triples that lead to it: [E, d], [R, d] -> [E, o].

    For edges (entity i, relation k, neighbor j), sorted by entity, int64 [m] each:

    c = W₁ [h_i ‖ h_j ‖ g_k]        `mix` [3, d, o], one matrix for each of the three
    α = softmax(LeakyReLU(w₂ · c))  `look` [o], over the edges of entity i
    h'_i = Σ α c                    0 for an entity without edges

    As W₁ is linear, each product is computed once per row, not once per edge; `drop` drops edges, α [m] -> [m].
    """
    target, kinds, source = edges
    of_target, of_source, of_relation = entity @ mix[0], entity @ mix[1], relation @ mix[2]
    logit = (of_target @ look).index_select(0, target)
    logit = logit + (of_source @ look).index_select(0, source) + (of_relation @ look).index_select(0, kinds)
    share = drop(softmax_within(F.leaky_relu(logit, 0.2), target, len(entity)))
    first = torch.searchsorted(target, torch.arange(len(entity), device=target.device))
    sums = F.embedding_bag(source, of_source, first, per_sample_weights=share, mode="sum")
    sums = sums + F.embedding_bag(kinds, of_relation, first, per_sample_weights=share, mode="sum")
    return sums + of_target * share.new_zeros(len(entity)).index_add(0, target, share)[:, None]


def softmax_within(logit: Tensor, group: Tensor, groups: int) -> Tensor:
    """The softmax of numbers [m] within groups; `group` int64 [m] is below `groups`.

    >>> softmax_within(torch.zeros(3), torch.tensor([0, 0, 2]), 3).tolist()
    [0.5, 0.5, 1.0]
    """
    most = torch.full_like(logit[:1], -torch.inf).expand(groups).scatter_reduce(0, group, logit.detach(), "amax")
    share = (logit - most.index_select(0, group)).exp()
    total = share.new_zeros(groups).index_add(0, group, share)
    return share / total.index_select(0, group)


class ConvE(Model):
    """f = relu(W vec(relu([h̄ ; r̄] ∗ ω))) · t + b_t. It knows tails only: reciprocal relations ask for heads.

    ConvE (Dettmers et al., 2018): what to look for is read off a picture of head and relation.

        f(h, r, t) = relu(W vec(relu([h̄ ; r̄] ∗ ω))) · t + b_t    h̄ above r̄, as matrices; 32 filters ω of 3 × 3

    with batch normalization before the filters, after them and after W, and dropout of inputs, maps and the hidden
    layer. An entity's row holds t and b_t. The paper's biases of filters and of W are left out: normalization takes
    them away.
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
        cells = self.filters * (2 * height_of(dim) - 2) * (dim // height_of(dim) - 2)
        filters = torch.randn(self.filters, 1, 3, 3, generator=random) / 3
        weights = torch.randn(cells, dim, generator=random) * (2 / (cells + dim)) ** 0.5
        return {"filters": filters, "weights": weights} | init_batch_norms(input=1, maps=self.filters, hidden=dim)

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        if side == "head":
            raise NotImplementedError(f"{self.name} can only be asked for tails; use inverse relations")
        return (
            self._convolve(known, relation)
            if self.context.seed is not None
            else by_rows(self._convolve, known, relation)
        )

    def _convolve(self, known: Tensor, relation: Tensor) -> Tensor:
        seed, parameters = self.context.seed, self.parameters
        image = torch.stack([known[:, :-1], relation], 1).reshape(len(known), 1, 2 * height_of(relation.shape[1]), -1)
        maps = F.conv2d(dropout(batch_norm(self, "input", image), 0.2, seed, 0), parameters["filters"])
        maps = dropout(F.relu(batch_norm(self, "maps", maps)), 0.2, seed, 1, rank=2)  # whole feature maps
        hidden = dropout(maps.flatten(1) @ parameters["weights"], 0.3, seed, 2)
        return F.pad(F.relu(batch_norm(self, "hidden", hidden)), (0, 1), value=1.0)  # · (t, b_t)


FILTERS = 50


class ConvKB(TripleModel):
    """f = Σᵢ Σ_f w_fi relu(ω_f · (hᵢ, rᵢ, tᵢ) + b_f). To rank against every entity is dear.

    ConvKB (Nguyen et al., 2018): filters of 1 × 3 over the matrix whose columns are head, relation and tail.

        f(h, r, t) = Σᵢ Σ_f w_fi relu(ω_f · (hᵢ, rᵢ, tᵢ) + b_f)    50 filters ω, which begin near (1, 1, −1): as TransE

    Its dropout, whose best share in the paper is none, is left out. The paper begins with the embeddings of TransE.
    """

    name = "convkb"
    defaults: ClassVar[Mapping[str, Any]] = {
        "negative_sampling": "per-triple", "num_negatives": 10, "optimizer": "adam", "regularizer": "none",
        "max_batch_size": 512, "expensive_to_rank": True,
    }  # fmt: skip

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        step = torch.tensor([[1.0], [1.0], [-1.0]])
        filters = step + 0.1 * torch.randn(3, FILTERS, generator=random)
        weights = torch.randn(dim, FILTERS, generator=random) * (2 / (dim * FILTERS + 1)) ** 0.5
        return {"filters": filters, "offsets": torch.zeros(FILTERS), "weights": weights}

    def triple(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        return broadcast_in_chunks(self._all_filters, (head, relation, tail), self.parameters["weights"].numel())

    # `triple` bounds its memory itself: larger chunks around it would compute everything once more.

    def score_negatives(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        check_lengths(query, relation, rows)
        return self.similarity_of(query[:, None], rows, side)

    def score_pool(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        check_lengths(query, relation)
        return self.similarity_of(query[:, None], rows[None], side)

    def _all_filters(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Scores of one chunk: [..., d] each -> [...]."""
        of_head, of_relation, of_tail = self.parameters["filters"]
        maps = head[..., None] * of_head + self.parameters["offsets"]
        maps = (maps + relation[..., None] * of_relation) + tail[..., None] * of_tail
        score: Tensor = maps.relu().flatten(-2) @ self.parameters["weights"].flatten()
        return score


class GraphAttention(Encoder):
    """KBGAT's encoder: two heads of attention to the training triples, then one more layer."""

    def encode(self, model: Model, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        if model.context.edges is None:
            raise ValueError(f"{model.name} needs the edges of its graph")
        parameters, edges, seed = model.parameters, model.context.edges[::-1], model.context.seed

        def drop(layer: int) -> Callable[[Tensor], Tensor]:
            return partial(dropout, share=0.3, seed=seed, layer=layer)

        heads = zip(parameters["mix"], parameters["look"], strict=True)
        found = [attend(entity, relation, edges, *head, drop(layer)) for layer, head in enumerate(heads)]
        both, steps = F.elu(torch.cat(found, 1)), relation @ parameters["relations"]
        last = attend(both, steps, edges, parameters["last_mix"], parameters["last_look"], drop(2))
        return F.normalize(entity @ parameters["entities"] + F.elu(last)), steps


class KBGAT(TransE):
    """f = −‖h″ + r′ − t″‖₁, made by attention to train's facts. A step encodes the whole graph: batches are large.

    KBGAT (Nathani et al., 2019): a step from head to tail, between entities that attend to the facts around them.

        f(h, r, t) = −‖h″ + r′ − t″‖₁                  h″ = W^E h + h′ at length 1, r′ = W^R r

    h′ is graph attention over the facts that lead to an entity: two heads side by side, then one layer over what they
    heard (`attend` has the equations). The facts are those of train alone. Paths of several steps, which the paper
    adds as further neighbors, are left out.
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
        """As every model; edges of a new graph are sorted by their tail, each once."""
        if context is not None and context.edges is not None and context.edges is not self.context.edges:
            tail, relation, head = torch.unique(torch.stack(context.edges[::-1]), dim=1).contiguous()
            context = replace(context, edges=(head, relation, tail))
        return super().bind(parameters, context)
