"""Bilinear models: DistMult, ComplEx, CP, SimplE, HolE, QuatE, RESCAL and TuckER."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from focuse.models.base import FusedForm, Model, Side


class DistMult(Model):
    """f = ⟨h, r, t⟩, the same in both directions.

    DistMult (Yang et al., 2014) uses a relation to scale each coordinate of a symmetric product.

        f(h, r, t) = Σ hᵢ rᵢ tᵢ
    """

    name = "distmult"
    similarity = "dot"
    fused: ClassVar[FusedForm | None] = FusedForm(query="hadamard")

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known * relation


class ComplEx(Model):
    """f = Re⟨h, r, t̄⟩ with k complex numbers per row.

    ComplEx (Trouillon et al., 2016) is DistMult over complex numbers, so that scores are not symmetric.

        f(h, r, t) = Re Σ hᵢ rᵢ conj(tᵢ)

    A row holds k real parts and then k imaginary parts.
    """

    name = "complex"
    similarity = "dot"
    components = 2
    fused: ClassVar[FusedForm | None] = FusedForm(query="complex")

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        real, imaginary = known.chunk(2, -1)
        r_real, r_imaginary = relation.chunk(2, -1)
        if side == "head":  # the tail is conjugated in the score, so the head's query rotates the other way
            r_imaginary = -r_imaginary
        return torch.cat([real * r_real - imaginary * r_imaginary, real * r_imaginary + imaginary * r_real], dim=-1)


class CP(Model):
    """f = ⟨h, r, t′⟩.

    CP (Hitchcock, 1927; for knowledge graphs Lacroix et al., 2018) has separate embeddings for heads and for tails.

        f(h, r, t) = Σ hᵢ rᵢ t′ᵢ

    The row of an entity holds its embedding as a head (h) and then its embedding as a tail (h′). The two are trained
    by different triples unless relations are reciprocal, as in Lacroix et al.; they are reciprocal by default.
    """

    name = "cp"
    similarity = "dot"
    defaults: ClassVar[Mapping[str, Any]] = {"reciprocal": True}

    def widths(self, dim: int) -> tuple[int, int]:
        return 2 * dim, dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        as_head, as_tail = known.chunk(2, -1)
        return relation * (as_head if side == "tail" else as_tail)

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        as_head, as_tail = rows.chunk(2, -1)
        return as_tail if side == "tail" else as_head


class SimplE(Model):
    """f = ½(⟨h, r, t′⟩ + ⟨t, r′, h′⟩).

    SimplE (Kazemi and Poole, 2018) is CP with inverse relations, which couple the two embeddings of an entity.

        f(h, r, t) = ½ (Σ hᵢ rᵢ t′ᵢ + Σ tᵢ r′ᵢ h′ᵢ)

    The row of an entity holds its embedding as a head (h) and then as a tail (h′). The row of a relation holds r and
    then its inverse r′.
    """

    name = "simple"
    similarity = "dot"
    fused = FusedForm()

    def widths(self, dim: int) -> tuple[int, int]:
        return 2 * dim, 2 * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        (as_head, as_tail), (forward, inverse) = known.chunk(2, -1), relation.chunk(2, -1)
        if side == "head":
            forward, inverse = inverse, forward
        return torch.cat([as_tail * inverse, as_head * forward], dim=-1) / 2


class HolE(Model):
    """f = r · (h ⋆ t), without the paper's logistic function, which does not change ranks.

    HolE (Nickel et al., 2016) compares a relation with the circular correlation of head and tail.

        f(h, r, t) = Σₖ rₖ [h ⋆ t]ₖ      [h ⋆ t]ₖ = Σᵢ hᵢ t₍ₖ₊ᵢ₎      indices are modulo k

    A query for the tail is the circular convolution of h and r; a query for the head is the circular correlation of r
    and t. Both are computed as products of Fourier transforms.
    """

    name = "hole"
    similarity = "dot"
    fused = FusedForm()

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        spectrum, filters = torch.fft.rfft(known), torch.fft.rfft(relation)
        query: Tensor = torch.fft.irfft(spectrum * (filters if side == "tail" else filters.conj()), n=known.shape[-1])
        return query


class QuatE(Model):
    """f = (h ⊗ r/|r|) · t with k quaternions per row.

    QuatE (Zhang et al., 2019) models a relation as a rotation of the head's quaternions.

        f(h, r, t) = (h ⊗ r/|r|) · t      ⊗ is Hamilton's product of quaternions; · sums over all components

    A row holds k quaternions a + bi + cj + dk: first all k numbers a, then all b, all c, all d.
    """

    name = "quate"
    similarity = "dot"
    components = 4
    fused = FusedForm()

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        a, b, c, d = known.chunk(4, -1)
        p, q, u, v = normalize(torch.stack(relation.chunk(4, -1)), dim=0)
        if side == "head":  # (h ⊗ r) · t = h · (t ⊗ r̄): the head's query rotates back
            q, u, v = -q, -u, -v
        rotated = (
            a * p - b * q - c * u - d * v,
            a * q + b * p + c * v - d * u,
            a * u - b * v + c * p + d * q,
            a * v + b * u - c * q + d * p,
        )
        return torch.cat(rotated, dim=-1)


class Rescal(Model):
    """f = hᵀ W t.

    RESCAL (Nickel et al., 2011) models a relation as a matrix, which couples all coordinates of head and tail.

        f(h, r, t) = hᵀ Wᵣ t = Σ hᵢ Wᵣᵢⱼ tⱼ

    The row of a relation holds its matrix of k × k numbers, row by row.
    """

    name = "rescal"
    similarity = "dot"
    fused = FusedForm()

    def widths(self, dim: int) -> tuple[int, int]:
        return dim, dim * dim

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        matrix = relation.reshape(*known.shape, known.shape[-1])
        if side == "head":
            matrix = matrix.mT
        query: Tensor = known.unsqueeze(-2) @ matrix
        return query.squeeze(-2)


class TuckER(Model):
    """f = Σ Wᵢⱼₗ hᵢ rⱼ tₗ.

    TuckER (Balažević et al., 2019) couples heads, relations and tails by one core tensor.

        f(h, r, t) = W ×₁ h ×₂ r ×₃ t = Σ Wᵢⱼₗ hᵢ rⱼ tₗ

    The core W is a parameter that all triples share. Relations have as many numbers as entities, k, so W has k³
    numbers. The batch normalization and the three dropout layers of the original are left out.
    """

    name = "tucker"
    similarity = "dot"
    fused = FusedForm()

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        """Return the initial core, which is uniform in [−1, 1] as in the authors' code."""
        return {"core": 2 * torch.rand(dim, dim, dim, generator=random) - 1}

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        core = self.parameters["core"]
        # The relation is multiplied first, because [B, k] × [k, k²] is one large matrix product.
        matrix = (relation @ core.transpose(0, 1).flatten(1)).reshape(*known.shape, known.shape[-1])
        if side == "head":
            matrix = matrix.mT
        query: Tensor = known.unsqueeze(-2) @ matrix
        return query.squeeze(-2)
