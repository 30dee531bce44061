"""Translational models: TransE, GTransE, RotatE and PairRE."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from focuse.models.base import FusedForm, Model, Side, Similarity, Table


class TransE(Model):
    """f = −‖h + r − t‖₁. Scores are never above 0.

    TransE (Bordes et al., 2013) models a relation as a translation from head to tail.

        f(h, r, t) = −‖h + r − t‖   with the L1 or the L2 norm
    """

    name = "transe"
    similarity: ClassVar[Similarity] = "l1"
    fused: ClassVar[FusedForm | None] = FusedForm(query="translation")
    defaults: ClassVar[Mapping[str, Any]] = {"negative_sampling": "per-triple", "optimizer": "sparse-adam"}

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known + relation if side == "tail" else known - relation


class TransEL2(TransE):
    """f = −‖h + r − t‖₂."""

    name = "transe-l2"
    similarity = "l2"


class GTransE(TransE):
    """TransE with a margin that weights scale.

    GTransE (Kertkeidkachorn, Liu and Ichise, 2019) is TransE with a margin that grows with the weight of a triple.

        f(h, r, t) = −‖h + r − t‖₁, trained by Σ max(0, s^α M + f⁻ − f⁺) with the weight s: the loss 'confidence-margin'
    """

    name = "gtranse"
    defaults: ClassVar[Mapping[str, Any]] = {
        "negative_sampling": "per-triple", "num_negatives": 10, "weight_mode": "none", "loss": "confidence-margin",
        "optimizer": "sparse-adam", "lr": 3e-3, "regularizer": "none", "weight_scaling": "none",
    }  # fmt: skip


MIN_SQUARE = 1e-30  # where two numbers are equal, clamping makes the gradient 0 instead of NaN


class RotatE(Model):
    """f = −Σ|h·e^(iθ) − t|, a sum of complex moduli. Scores are never above 0.

    RotatE (Sun et al., 2019) models a relation as a rotation of the head's complex numbers to those of the tail.

        f(h, r, t) = −Σ |hᵢ e^(iθᵢ) − tᵢ|

    The row of an entity holds k real parts and then k imaginary parts. The row of a relation holds the k angles θ.
    """

    name = "rotate"
    similarity = None
    components = (2, 0)  # entities are complex numbers, relations angles
    # There is no regularizer by default, because it would move angles toward 0.
    defaults: ClassVar[Mapping[str, Any]] = {
        "negative_sampling": "per-triple", "optimizer": "sparse-adam", "lr": 1e-2, "regularizer": "none",
        "nonlinearity": "shifted-softplus",
    }  # fmt: skip

    def init_table(self, table: Table, values: Tensor) -> Tensor:
        """Return initial angles that are uniform in [−π, π], by the distribution function of the normal values."""
        if table == "entity":
            return values
        deviation = values.square().mean().sqrt()
        return math.pi * torch.erf(values / deviation / math.sqrt(2.0))

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        real, imaginary = known.chunk(2, -1)
        angle = relation if side == "tail" else -relation  # |h·e^(iθ) − t| = |h − t·e^(−iθ)|
        cosine, sine = angle.cos(), angle.sin()
        return torch.cat([real * cosine - imaginary * sine, real * sine + imaginary * cosine], dim=-1)

    def similarity_of(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        (real, imaginary), (other_real, other_imaginary) = query.chunk(2, -1), candidates.chunk(2, -1)
        squares = (real - other_real).square() + (imaginary - other_imaginary).square()
        return -squares.clamp_min(MIN_SQUARE).sqrt().sum(-1)


class PairRE(Model):
    """f = −‖h∘r − t∘r′‖₁ over entities of length 1. Scores are never above 0.

    PairRE (Chao et al., 2021) models a relation as two vectors, which scale the head and the tail.

        f(h, r, t) = −‖h ∘ r − t ∘ r′‖₁      with h and t of length 1

    A relation's row holds r, for heads, and then r′, for tails.
    """

    name = "pairre"
    similarity = "l1"
    # There is no regularizer by default, because the lengths of entities have no effect and relations scale the scores.
    defaults: ClassVar[Mapping[str, Any]] = {
        "negative_sampling": "per-triple", "optimizer": "sparse-adam", "lr": 1e-2, "regularizer": "none",
    }  # fmt: skip

    def widths(self, dim: int) -> tuple[int, int]:
        return dim, 2 * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        head_scale, tail_scale = relation.chunk(2, -1)
        return normalize(known, dim=-1) * (head_scale if side == "tail" else tail_scale)

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        head_scale, tail_scale = relation.chunk(2, -1)
        return normalize(rows, dim=-1) * (tail_scale if side == "tail" else head_scale)
