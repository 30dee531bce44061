"""Boxes whose corners are Gumbel variables (Dasgupta et al., 2020): moved, stretched, intersected, measured.

A box is a row of low corners and then of high ones: [..., 2d]. Everything is in float32 without overflow, and boxes far
apart still have a volume, by its logarithm.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

GAMMA = 0.5772156649015329  # Euler's constant
FAR = -15.0  # below this, ln softplus(x) is x in float32


def box(rows: Tensor, mapping: Tensor) -> Tensor:
    """Boxes of low corners and logarithms of extents, [..., 2d], shifted and stretched by [..., 2d]; none is turned."""
    low, extent = rows.chunk(2, -1)
    shift, stretch = mapping.chunk(2, -1)
    low = low + shift
    return torch.cat([low, low + extent.exp() * stretch.relu()], dim=-1)


def intersection(one: Tensor, other: Tensor, beta: float) -> Tensor:
    """The box that both share, its corners softened over β; its extents may be below 0."""
    (low, high), (other_low, other_high) = one.chunk(2, -1), other.chunk(2, -1)
    # β ln(e^(a/β) + e^(b/β)) is b + β ln(1 + e^((a − b)/β)): one softplus, and nothing overflows.
    low = other_low + F.softplus(low - other_low, beta=1 / beta)
    return torch.cat([low, other_high - F.softplus(other_high - high, beta=1 / beta)], dim=-1)


def log_volume(boxes: Tensor, beta: float) -> Tensor:
    """ln Π ln(1 + e^(high − low − 2γβ)): [..., 2d] -> [...]."""
    low, high = boxes.chunk(2, -1)
    extent = high - low - 2 * GAMMA * beta
    return torch.where(extent < FAR, extent, F.softplus(extent.clamp(min=FAR)).log()).sum(-1)


def first_boxes(values: Tensor) -> Tensor:
    """Boxes all but alike, as BEUrRE's authors begin, from standard normal numbers [..., 2d]."""
    low, extent = (torch.special.ndtr(part) for part in values.chunk(2, -1))  # even in [0, 1]
    return torch.cat([1e-4 + 0.0099 * low, -0.1 + 0.099 * extent], dim=-1)


def first_maps(values: Tensor) -> Tensor:
    """Two maps close to the identity, from standard normal numbers [..., 4d]."""
    shift, stretch, other_shift, other_stretch = values.chunk(4, -1)
    return torch.cat([1e-4 * shift, 1 + 0.2 * stretch, 1e-4 * other_shift, 1 + 0.2 * other_stretch], dim=-1)
