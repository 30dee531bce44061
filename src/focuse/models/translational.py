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

    TransE (Bordes et al., 2013): a relation is a step from head to tail.

        f(h, r, t) = −‖h + r − t‖   with the L1 or the L2 norm
    """

    name = "transe"
    similarity: ClassVar[Similarity] = "l1"
    fused: ClassVar[FusedForm | None] = FusedForm(query="translation")
    defaults: ClassVar[Mapping[str, Any]] = {"negative_sampling": "per-triple", "optimizer": "row-adam"}

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known + relation if side == "tail" else known - relation


class TransEL2(TransE):
    """f = −‖h + r − t‖₂."""

    name = "transe-l2"
    similarity = "l2"


class GTransE(TransE):
    """TransE with a margin that weights scale.

    GTransE (Kertkeidkachorn, Liu and Ichise, 2019): TransE, whose facts must win by the more the surer they are.

        f(h, r, t) = −‖h + r − t‖₁, trained by Σ max(0, s^α M + f⁻ − f⁺) with the weight s: the loss 'confidence-margin'
    """

    name = "gtranse"
    defaults: ClassVar[Mapping[str, Any]] = {
        "negative_sampling": "per-triple", "num_negatives": 10, "weight_mode": "none", "loss": "confidence-margin",
        "optimizer": "row-adam", "lr": 3e-3, "regularizer": "none", "weight_scaling": "none",
    }  # fmt: skip


TINY = 1e-30  # far below any square that matters: where two numbers coincide, the gradient is 0 and not NaN


class RotatE(Model):
    """f = −Σ|h·e^(iθ) − t|, sizes of complex numbers summed. Scores are never above 0.

    RotatE (Sun et al., 2019): a relation turns the complex numbers of its head into those of its tail.

        f(h, r, t) = −Σ |hᵢ e^(iθᵢ) − tᵢ|

    An entity's row holds k real parts and then k imaginary parts, a relation's the k angles θ.
    """

    name = "rotate"
    similarity = None
    components = (2, 0)  # entities are complex numbers, relations angles
    # No regularizer: it would pull angles to 0 as if that were small.
    defaults: ClassVar[Mapping[str, Any]] = {
        "negative_sampling": "per-triple", "optimizer": "row-adam", "lr": 1e-2, "regularizer": "none",
        "nonlinearity": "shifted-softplus",
    }  # fmt: skip

    def init_table(self, table: Table, values: Tensor) -> Tensor:
        """Initial angles are uniform in [−π, π]: the normal distribution function of each value, stretched."""
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
        (real, imaginary), (its_real, its_imaginary) = query.chunk(2, -1), candidates.chunk(2, -1)
        squares = (real - its_real).square() + (imaginary - its_imaginary).square()
        return -squares.clamp_min(TINY).sqrt().sum(-1)


class PairRE(Model):
    """f = −‖h∘r − t∘r′‖₁ over entities of length 1. Scores are never above 0.

    PairRE (Chao et al., 2021): a relation weighs its head by one vector and its tail by another.

        f(h, r, t) = −‖h ∘ r − t ∘ r′‖₁      with h and t of length 1

    A relation's row holds r, for heads, and then r′, for tails.
    """

    name = "pairre"
    similarity = "l1"
    # No regularizer: the lengths of entities do not matter, and scores grow by those of relations.
    defaults: ClassVar[Mapping[str, Any]] = {
        "negative_sampling": "per-triple", "optimizer": "row-adam", "lr": 1e-2, "regularizer": "none",
    }  # fmt: skip

    def widths(self, dim: int) -> tuple[int, int]:
        return dim, 2 * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        of_head, of_tail = relation.chunk(2, -1)
        return normalize(known, dim=-1) * (of_head if side == "tail" else of_tail)

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        of_head, of_tail = relation.chunk(2, -1)
        return normalize(rows, dim=-1) * (of_tail if side == "tail" else of_head)
