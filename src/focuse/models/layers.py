"""Layers of neural models: dropout by a key, batch normalisation, attention along edges."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.errors import FocuseError
from focuse.models.base import Model

ROWS_AT_ONCE = 2048
Edges = tuple[Tensor, Tensor, Tensor]


def dropped(values: Tensor, share: float, key: int | None, place: int, rank: int | None = None) -> Tensor:
    """`values` with a `share` of them set to 0 and the others scaled up; as they are without a key.

    Which ones is a pure function of `key` and `place`, the number of this dropout in its model. Only the first `rank`
    axes are drawn (all of them by default): what lies behind them, a whole map, is dropped at once.
    """
    if key is None:
        return values
    random = torch.Generator(values.device).manual_seed((key + place * 0x9E3779B1) % (1 << 63))  # 32 bits of it count
    shape = values.shape if rank is None else (*values.shape[:rank], *[1] * (values.dim() - rank))
    kept = torch.rand(shape, generator=random, device=values.device, dtype=torch.float32) >= share
    return values * kept / (1.0 - share)


def norm_start(**sizes: int) -> dict[str, Tensor]:
    """First values of batch normalisations by name: 'norm_…' holds factors and offsets [2, n], which are learnt, and
    'seen_…' running means and variances [2, n], which are kept.
    """
    found = {}
    for name, size in sizes.items():
        found[f"norm_{name}"] = torch.tensor([[1.0], [0.0]]).repeat(1, size)
        found[f"seen_{name}"] = torch.tensor([[0.0], [1.0]]).repeat(1, size)
    return found


def normalised(model: Model, name: str, values: Tensor) -> Tensor:
    """`values` [B, n, ...] by the batch's own mean and variance in training, by those kept from there while ranking."""
    factor, offset = model.dense[f"norm_{name}"]
    mean, variance = model.dense[f"seen_{name}"]
    several = values.numel() > values.shape[1]  # one number has no variance
    return F.batch_norm(values, mean, variance, factor, offset, training=model.key is not None and several)


def height_of(dim: int) -> int:
    """Lines of the rectangle that `dim` numbers make: the largest factor up to √dim.

    >>> height_of(100), height_of(200), height_of(7)
    (10, 10, 1)
    """
    return next(size for size in range(isqrt(dim), 0, -1) if dim % size == 0)


def check_rectangle(model: Model, dim: int) -> None:
    """Raise unless two rectangles, one above the other, have room for a filter of 3 × 3."""
    if dim < 6 or height_of(dim) == 1:
        near = next(size for size in range(max(dim, 6), 2 * dim + 7) if height_of(size) > 1)
        raise FocuseError(f"model {model.name!r} needs a dim that makes a rectangle, not {dim}; try {near}")


def by_rows(function: Callable[[Tensor, Tensor], Tensor], first: Tensor, second: Tensor) -> Tensor:
    """function(first, second), [B, …] each -> [B, q], a few rows at once: what lies in between is far larger."""
    parts = zip(torch.split(first, ROWS_AT_ONCE), torch.split(second, ROWS_AT_ONCE), strict=True)
    return torch.cat([function(*part) for part in parts])


def attend(
    entity: Tensor, relation: Tensor, edges: Edges, mix: Tensor, look: Tensor, dropout: Callable[[Tensor], Tensor]
) -> Tensor:
    """What each entity hears from the facts that lead to it: [E, d], [R, d] -> [E, o].

    Of edges (entity, relation, neighbour), sorted by entity, int64 [m] each:

    c = W₁ [h_i ‖ h_j ‖ g_k]        `mix` [3, d, o], one matrix for each of the three
    α = softmax(LeakyReLU(w₂ · c))  `look` [o], over the facts of entity i
    h'_i = Σ α c                    0 for an entity without any

    As W₁ is linear, each product is taken once a row, not once an edge; `dropout` drops facts, α [m] -> [m].
    """
    target, kind, source = edges
    own, near, told = entity @ mix[0], entity @ mix[1], relation @ mix[2]
    logit = (own @ look).index_select(0, target)
    logit = logit + (near @ look).index_select(0, source) + (told @ look).index_select(0, kind)
    share = dropout(softmax_within(F.leaky_relu(logit, 0.2), target, len(entity)))
    first = torch.searchsorted(target, torch.arange(len(entity), device=target.device))
    heard = F.embedding_bag(source, near, first, per_sample_weights=share, mode="sum")
    heard = heard + F.embedding_bag(kind, told, first, per_sample_weights=share, mode="sum")
    return heard + own * share.new_zeros(len(entity)).index_add(0, target, share)[:, None]


def softmax_within(logit: Tensor, group: Tensor, groups: int) -> Tensor:
    """The softmax of numbers [m] among those of the same group, int64 [m] below `groups`.

    >>> softmax_within(torch.zeros(3), torch.tensor([0, 0, 2]), 3).tolist()
    [0.5, 0.5, 1.0]
    """
    most = torch.full_like(logit[:1], -torch.inf).expand(groups).scatter_reduce(0, group, logit.detach(), "amax")
    share = (logit - most.index_select(0, group)).exp()
    total = share.new_zeros(groups).index_add(0, group, share)
    return share / total.index_select(0, group)
