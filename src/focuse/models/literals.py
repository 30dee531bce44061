"""Models that use numeric attributes of entities: LiteralE, TransEA and KBLRN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from focuse.models.base import AuxiliaryLoss, Context, Encoder, FusedForm, Model, Requirement, Side, Table, in_chunks
from focuse.models.bilinear import ComplEx, DistMult
from focuse.models.translational import TransE


def attribute_count(model: Model) -> int:
    """Return A, the number of attributes of entities; 0 for a model without a graph."""
    return 0 if model.context.attributes is None else model.context.attributes.shape[1]


def split_attributes(model: Model, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return embeddings, standardized attributes (0 if missing) and a mask of the known ones (1 if known).

    The shapes are [..., d + 2A] -> [..., d], [..., A], [..., A].
    """
    size = attribute_count(model)
    embedding, values, known = rows.split_with_sizes([rows.shape[-1] - 2 * size, size, size], dim=-1)
    return embedding, values, known


class Gate(Encoder):
    """LiteralE's encoder: a gate combines each embedding with a function of its entity's attributes, row by row.

    LiteralE (Kristiadi et al., 2019), where l are the standardized attributes of entity e, 0 if missing:

        g(e, l) = z ∘ h + (1 − z) ∘ e      z = σ(Wᶻᵉ e + Wᶻˡ l + b)      h = tanh(Wʰ [e, l])

    g(e, l) replaces e in DistMult, or in ComplEx, where real and imaginary parts have separate gates.
    """

    rowwise = True

    def encode(self, model: Model, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        embedding, values, _ = split_attributes(model, entity)
        count = len(model.parameters["gate"])
        parts = torch.stack(embedding.chunk(count, -1))  # [P, n, d]
        inputs = torch.cat([parts, values.expand(count, *values.shape)], dim=-1)
        gate = torch.sigmoid(inputs @ model.parameters["gate"].mT + model.parameters["gate_offset"])
        candidate = torch.tanh(inputs @ model.parameters["candidate"].mT)
        return torch.cat(list(gate * candidate + (1 - gate) * parts), dim=-1), relation


class LiteralE(Model):
    """A mixin for a model whose entities are encoded by `Gate`; each component of a number has gates of its own."""

    fused: ClassVar[FusedForm | None] = None
    encoder = Gate()
    requires: ClassVar[frozenset[Requirement]] = frozenset({"attributes"})

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        """Return the gate [P, d, d + A], its offset [P, 1, d] and the candidate [P, d, d + A] of P components."""
        shape = (self.widths(1)[0], dim, dim + attribute_count(self))
        deviation = (2.0 / sum(shape[1:])) ** 0.5
        gate, candidate = (torch.randn(shape, generator=random) * deviation for _ in range(2))
        return {"gate": gate, "gate_offset": torch.zeros(shape[0], 1, dim), "candidate": candidate}


class LiteralEDistMult(LiteralE, DistMult):
    """f = ⟨g(h), r, g(t)⟩."""

    name = "literale-distmult"


class LiteralEComplEx(LiteralE, ComplEx):
    """f = Re⟨g(h), r, conj(g(t))⟩."""

    name = "literale-complex"


def regress_attributes(model: Model, rows: Tensor) -> Tensor:
    """Return the standardized attributes that TransEA predicts from rows of entities: [..., d + 2A] -> [..., A]."""
    return split_attributes(model, rows)[0] @ model.parameters["slope"].mT + model.parameters["offset"]


class AttributeRegression(AuxiliaryLoss):
    """TransEA's loss: the absolute error of a linear regression of head and tail attributes."""

    def loss(self, model: Model, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        rows = torch.stack([head, tail])
        _, values, known = split_attributes(model, rows)
        errors: Tensor = ((regress_attributes(model, rows) - values).abs() * known).sum((0, -1))
        return errors


class TransEA(TransE):
    """TransE trained together with a linear regression of attributes: TransEA (Wu and Wang, 2018).

    The loss is (1 − α) of TransE and α Σ |aᵀx + b − value| over the attributes of head and tail, with x the row of an
    entity and α the setting attribute_loss_weight; scores use the distance alone.
    """

    name = "transea"
    fused = None
    auxiliary_loss = AttributeRegression(weight=0.3)
    requires: ClassVar[frozenset[Requirement]] = frozenset({"attributes"})
    defaults: ClassVar[Mapping[str, Any]] = {**TransE.defaults, "attribute_loss_weight": auxiliary_loss.weight}

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        count = attribute_count(self)
        return {"slope": torch.zeros(count, dim), "offset": torch.zeros(count)}

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return super().query(split_attributes(self, known)[0], relation, side)

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        return split_attributes(self, rows)[0]


BASES_PER_ATTRIBUTE = 8  # K, radial basis functions per attribute
MAX_EDGES = 1 << 20  # edges whose differences are used; quantiles of more edges are not better


def init_bases(context: Context) -> tuple[Tensor, Tensor]:
    """Return centers and widths [A, K] of radial basis functions over differences between the ends of edges.

    Centers are K quantiles of an attribute's differences, and a width is the mean distance to the neighboring centers.
    Both signs of a difference are covered, because inverse relations exchange head and tail.
    """
    if context.attributes is None or context.present is None or context.edges is None:
        return torch.zeros(0, BASES_PER_ATTRIBUTE), torch.ones(0, BASES_PER_ATTRIBUTE)
    head, _, tail = (ends[:: max(1, len(ends) // MAX_EDGES)] for ends in context.edges)
    bases = [
        _fit_bases((values[head] - values[tail])[known[head] & known[tail]])
        for values, known in zip(context.attributes.T, context.present.T, strict=True)
    ]
    return torch.stack([centers for centers, _ in bases]), torch.stack([widths for _, widths in bases])


def _fit_bases(differences: Tensor) -> tuple[Tensor, Tensor]:
    """Return centers and widths [K] for differences [m] and their negatives."""
    if not len(differences):  # no edge has the attribute at both ends; assume the difference of two normal numbers
        differences = torch.linspace(-2.0, 2.0, BASES_PER_ATTRIBUTE).to(differences)
    differences = torch.cat([differences, -differences])
    quantiles = (
        (torch.arange(BASES_PER_ATTRIBUTE, device=differences.device) + 0.5) / BASES_PER_ATTRIBUTE * len(differences)
    )
    centers = differences.sort().values[quantiles.long()]
    steps = centers.diff()
    gaps = torch.cat([steps[:1], (steps[:-1] + steps[1:]) / 2, steps[-1:]])
    # Widths have a minimum, because many equal differences (years, counts) make several centers equal.
    min_width = 0.1 * differences.std(correction=0)
    return centers, torch.where(min_width > 0, gaps.maximum(min_width), torch.ones_like(gaps))


def weighted_bases(
    known: Sequence[Tensor], candidates: Sequence[Tensor], centers: Tensor, widths: Tensor, side: Side
) -> Tensor:
    """Return Σ w exp(−((x − c) / σ)²) over attributes that both ends have, where x is head minus tail.

    `known` holds values and masks [..., A] and weights [..., A · K] of the query. `candidates` holds values and masks
    of the entities on `side`. Leading sizes broadcast. One basis function at a time fits in a core's cache, which makes
    ranking twice as fast.
    """
    (values, mask, weights), (other_values, other_mask) = known, candidates
    head, tail = (values, other_values) if side == "tail" else (other_values, values)
    total = zero = torch.zeros((), dtype=values.dtype, device=values.device)
    for attribute, (center, width) in enumerate(zip(centers.unbind(), widths.unbind(), strict=True)):
        expert = zero
        for basis in range(BASES_PER_ATTRIBUTE):
            from_head = (head[..., attribute] - center[basis]) / width[basis]
            distance = from_head - tail[..., attribute] / width[basis]
            weight = weights[..., attribute * BASES_PER_ATTRIBUTE + basis]
            expert = expert + weight * torch.exp(-(distance * distance))
        total = total + expert * (mask[..., attribute] * other_mask[..., attribute])
    return total


class KBLRN(Model):
    """f = ⟨h, r, t⟩ plus radial basis functions of attribute differences.

    The row of a relation holds r [d] and the weights of its radial basis functions [A · K].

    KBLRN (García-Durán and Niepert, 2018) multiplies experts on embeddings and on differences of attributes:

        f(h, r, t) = Σ hᵢ rᵢ tᵢ + Σ wʳₐₖ exp(−((xₐʰ − xₐᵗ − cₐₖ) / σₐₖ)²)      over the attributes a that both ends have

    The centers and widths of the K functions per attribute follow from the differences along the training edges, and
    each relation has a trained weight for every function. The third expert, on observed paths, is left out; the authors
    call the rest KBLN.
    """

    name = "kblrn"
    similarity = None
    requires: ClassVar[frozenset[Requirement]] = frozenset({"attributes", "edges"})
    buffers = frozenset({"centers", "widths"})
    defaults: ClassVar[Mapping[str, Any]] = {"max_batch_size": 512}

    def widths(self, dim: int) -> tuple[int, int]:
        return dim, dim + attribute_count(self) * BASES_PER_ATTRIBUTE

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return dict(zip(("centers", "widths"), init_bases(self.context), strict=True))  # [A, K] each

    def init_table(self, table: Table, values: Tensor) -> Tensor:
        if table == "relation":  # attributes have no effect until their weights are trained
            values[:, values.shape[1] - attribute_count(self) * BASES_PER_ATTRIBUTE :] = 0.0
        return values

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        embedding, values, mask = split_attributes(self, known)
        dim = embedding.shape[-1]
        return torch.cat([embedding * relation[..., :dim], values, mask, relation[..., dim:]], dim=-1)

    def similarity_of(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        dim = candidates.shape[-1] - 2 * attribute_count(self)
        product = (query[..., :dim] * candidates[..., :dim]).sum(-1)
        return product + self._basis_scores(query[..., dim:], candidates[..., dim:], side)

    # For negatives and pools, the product is a matrix product, and only the basis functions are computed in chunks.

    def score_negatives(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        dim = rows.shape[-1] - 2 * attribute_count(self)
        product = (rows[..., :dim] @ query[:, :dim, None])[..., 0]
        return product + self._basis_scores_in_chunks(query[:, dim:], relation, rows[..., dim:], side)

    def score_pool(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        dim = rows.shape[-1] - 2 * attribute_count(self)
        product = query[:, :dim] @ rows[:, :dim].mT
        return product + self._basis_scores_in_chunks(query[:, dim:], relation, rows[:, dim:], side)

    def _basis_scores(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        size = attribute_count(self)
        known = query.split_with_sizes([size, size, size * BASES_PER_ATTRIBUTE], dim=-1)
        centers, widths = self.parameters["centers"], self.parameters["widths"]
        return weighted_bases(known, candidates.chunk(2, -1), centers, widths, side)

    def _basis_scores_in_chunks(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        def compare(query: Tensor, relation: Tensor, rows: Tensor) -> Tensor:
            return self._basis_scores(query[:, None], rows, side)

        return in_chunks(compare, query, relation, rows, width=4 * attribute_count(self) * BASES_PER_ATTRIBUTE)
