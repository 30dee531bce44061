"""Models that use numeric attributes of entities: LiteralE, TransEA and KBLRN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from focuse.models.base import AuxiliaryLoss, Context, Encoder, Model, Requirement, Side, Table, check_lengths
from focuse.models.bilinear import ComplEx, DistMult
from focuse.models.chunking import in_chunks
from focuse.models.translational import TransE


def attribute_count(model: Model) -> int:
    """A, the number of attributes that an entity can have; 0 for a model that is not in a graph."""
    return 0 if model.context.attributes is None else model.context.attributes.shape[1]


def split_attributes(model: Model, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Embeddings, standardized attributes (0 if missing) and their marks (1 if known).

    [..., d + 2A] -> [..., d], [..., A], [..., A]
    """
    size = attribute_count(model)
    embedding, values, known = rows.split_with_sizes([rows.shape[-1] - 2 * size, size, size], dim=-1)
    return embedding, values, known


class Gate(Encoder):
    """LiteralE's encoder: a gate mixes each embedding with what the attributes of its entity suggest, row by row.

    LiteralE (Kristiadi et al., 2019), with l the standardized attributes of entity e, 0 where one is missing:

        g(e, l) = z ∘ h + (1 − z) ∘ e      z = σ(Wᶻᵉ e + Wᶻˡ l + b)      h = tanh(Wʰ [e, l])

    g(e, l) replaces e in DistMult, or in ComplEx, where real and imaginary parts have a gate each.
    """

    rowwise = True

    def encode(self, model: Model, entity: Tensor, relation: Tensor) -> tuple[Tensor, Tensor]:
        embedding, values, _ = split_attributes(model, entity)
        count = len(model.parameters["gate"])
        parts = torch.stack(embedding.chunk(count, -1))  # [P, n, d]
        both = torch.cat([parts, values.expand(count, *values.shape)], dim=-1)
        gate = torch.sigmoid(both @ model.parameters["gate"].mT + model.parameters["gate_offset"])
        candidate = torch.tanh(both @ model.parameters["candidate"].mT)
        return torch.cat(list(gate * candidate + (1 - gate) * parts), dim=-1), relation


class LiteralEDistMult(DistMult):
    """f = ⟨g(h), r, g(t)⟩."""

    name = "literale-distmult"
    fused = None
    encoder = Gate()
    requires: ClassVar[frozenset[Requirement]] = frozenset({"attributes"})

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return init_gates(1, dim, attribute_count(self), random)


class LiteralEComplEx(ComplEx):
    """f = Re⟨g(h), r, conj(g(t))⟩."""

    name = "literale-complex"
    fused = None
    encoder = Gate()
    requires: ClassVar[frozenset[Requirement]] = frozenset({"attributes"})

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return init_gates(2, dim, attribute_count(self), random)  # real and imaginary parts


def init_gates(count: int, dim: int, attributes: int, random: torch.Generator) -> dict[str, Tensor]:
    """For each of P parts the gate [P, d, d + A], its offset [P, 1, d] and the candidate [P, d, d + A]."""
    shape = (count, dim, dim + attributes)
    deviation = (2.0 / sum(shape[1:])) ** 0.5
    gate, candidate = (torch.randn(shape, generator=random) * deviation for _ in range(2))
    return {"gate": gate, "gate_offset": torch.zeros(count, 1, dim), "candidate": candidate}


def regress_attributes(model: Model, rows: Tensor) -> Tensor:
    """The standardized attributes that TransEA predicts from rows of entities: [..., d + 2A] -> [..., A]."""
    return split_attributes(model, rows)[0] @ model.parameters["slope"].mT + model.parameters["offset"]


class AttributeRegression(AuxiliaryLoss):
    """TransEA's loss: the absolute error of a linear regression of the attributes of head and tail."""

    def loss(self, model: Model, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        rows = torch.stack([head, tail])
        _, values, known = split_attributes(model, rows)
        errors: Tensor = ((regress_attributes(model, rows) - values).abs() * known).sum((0, -1))
        return errors


class TransEA(TransE):
    """TransE and a linear regression of attributes; it ranks by the distance alone."""

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


BUMPS = 8  # K, radial basis functions per attribute
MAX_EDGES = 1 << 20  # edges whose differences are used: quantiles of more are no better


def init_bumps(context: Context) -> tuple[Tensor, Tensor]:
    """Centers and widths [A, K] of radial basis functions over the differences between the ends of a graph's edges.

    Centers are K quantiles of an attribute's differences, a width is the distance to the neighboring centers. Both
    signs of a difference are covered, since inverse relations look from tail to head.
    """
    if context.attributes is None or context.present is None or context.edges is None:
        return torch.zeros(0, BUMPS), torch.ones(0, BUMPS)
    head, _, tail = (ends[:: max(1, len(ends) // MAX_EDGES)] for ends in context.edges)
    found = [
        _bumps((values[head] - values[tail])[known[head] & known[tail]])
        for values, known in zip(context.attributes.T, context.present.T, strict=True)
    ]
    return torch.stack([centers for centers, _ in found]), torch.stack([widths for _, widths in found])


def _bumps(differences: Tensor) -> tuple[Tensor, Tensor]:
    """Centers and widths [K] for some differences [m] and their negatives."""
    if not len(differences):  # no edge has the attribute at both ends: as for the difference of two normal numbers
        differences = torch.linspace(-2.0, 2.0, BUMPS).to(differences)
    differences = torch.cat([differences, -differences])
    quantiles = (torch.arange(BUMPS, device=differences.device) + 0.5) / BUMPS * len(differences)
    centers = differences.sort().values[quantiles.long()]
    steps = centers.diff()
    gaps = torch.cat([steps[:1], (steps[:-1] + steps[1:]) / 2, steps[-1:]])
    # Many equal differences (years, counts) make several centers equal.
    least = 0.1 * differences.std(correction=0)
    return centers, torch.where(least > 0, gaps.maximum(least), torch.ones_like(gaps))


def weighted_bumps(
    known: Sequence[Tensor], candidates: Sequence[Tensor], centers: Tensor, widths: Tensor, side: Side
) -> Tensor:
    """Σ w exp(−((x − c) / σ)²) over attributes that both ends have, x being the head's minus the tail's.

    `known` are values, marks [..., A] and weights [..., A · K] of the query, `candidates` values and marks of the
    entities on `side`; leading sizes broadcast. One bump at a time stays in a core's cache, and ranks twice as fast.
    """
    (values, marks, weights), (others, other_marks) = known, candidates
    head, tail = (values, others) if side == "tail" else (others, values)
    total = zero = torch.zeros((), dtype=values.dtype, device=values.device)
    for place, (center, width) in enumerate(zip(centers.unbind(), widths.unbind(), strict=True)):
        expert = zero
        for bump in range(BUMPS):
            from_head = (head[..., place] - center[bump]) / width[bump]
            distance = from_head - tail[..., place] / width[bump]
            expert = expert + weights[..., place * BUMPS + bump] * torch.exp(-(distance * distance))
        total = total + expert * (marks[..., place] * other_marks[..., place])
    return total


class KBLRN(Model):
    """f = ⟨h, r, t⟩ plus bumps over differences of attributes.

    The row of a relation holds r [d] and the weights of its bumps [A · K].

    KBLRN (García-Durán and Niepert, 2018) multiplies experts on embeddings and on differences of attributes:

        f(h, r, t) = Σ hᵢ rᵢ tᵢ + Σ wʳₐₖ exp(−((xₐʰ − xₐᵗ − cₐₖ) / σₐₖ)²)      over the attributes a that both ends have

    The centers and widths of the K bumps per attribute follow from the differences along the edges of train; each
    relation learns the weight of every bump. The third expert, on observed paths, is left out: the authors call the
    rest KBLN.
    """

    name = "kblrn"
    similarity = None
    requires: ClassVar[frozenset[Requirement]] = frozenset({"attributes", "edges"})
    buffers = frozenset({"centres", "widths"})
    defaults: ClassVar[Mapping[str, Any]] = {"max_batch_size": 512}

    def widths(self, dim: int) -> tuple[int, int]:
        return dim, dim + attribute_count(self) * BUMPS

    def init_parameters(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        return dict(zip(("centres", "widths"), init_bumps(self.context), strict=True))  # [A, K] each

    def init_table(self, table: Table, values: Tensor) -> Tensor:
        if table == "relation":  # attributes do not matter until it is learned how
            values[:, values.shape[1] - attribute_count(self) * BUMPS :] = 0.0
        return values

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        embedding, values, marks = split_attributes(self, known)
        dim = embedding.shape[-1]
        return torch.cat([embedding * relation[..., :dim], values, marks, relation[..., dim:]], dim=-1)

    def similarity_of(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        dim = candidates.shape[-1] - 2 * attribute_count(self)
        product = (query[..., :dim] * candidates[..., :dim]).sum(-1)
        return product + self._bumps(query[..., dim:], candidates[..., dim:], side)

    # Negatives and pools: the product is one of matrices, and only the bumps are computed in chunks.

    def score_negatives(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        check_lengths(query, relation, rows)
        dim = rows.shape[-1] - 2 * attribute_count(self)
        product = (rows[..., :dim] @ query[:, :dim, None])[..., 0]
        return product + self._bumps_in_chunks(query[:, dim:], relation, rows[..., dim:], side)

    def score_pool(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        check_lengths(query, relation)
        dim = rows.shape[-1] - 2 * attribute_count(self)
        return query[:, :dim] @ rows[:, :dim].mT + self._bumps_in_chunks(query[:, dim:], relation, rows[:, dim:], side)

    def _bumps(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        size = attribute_count(self)
        known, others = query.split_with_sizes([size, size, size * BUMPS], dim=-1), candidates.chunk(2, -1)
        return weighted_bumps(known, others, self.parameters["centres"], self.parameters["widths"], side)

    def _bumps_in_chunks(self, query: Tensor, relation: Tensor, rows: Tensor, side: Side) -> Tensor:
        def bumps(query: Tensor, relation: Tensor, rows: Tensor) -> Tensor:
            return self._bumps(query[:, None], rows, side)

        return in_chunks(bumps, query, relation, rows, width=4 * attribute_count(self) * BUMPS)
