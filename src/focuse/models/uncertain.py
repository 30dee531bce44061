"""Models whose score is a confidence: UKGE, PASSLEAF, SUKE and BEUrRE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.models.base import ConfidenceHead, Model, Requirement, Side, Similarity, Table
from focuse.models.bilinear import ComplEx, DistMult
from focuse.models.translational import RotatE


class LogisticConfidence(Model):
    """A mixin for a model with scores f, whose confidence is the logistic function of w f + b."""

    confidence_head = ConfidenceHead("sigmoid")
    parameters: Mapping[str, Tensor] = {"scale": torch.tensor([1.0, 0.0])}  # w, b
    defaults: ClassVar[Mapping[str, Any]] = {
        "dim": 128, "epochs": 100, "negative_sampling": "per-triple", "num_negatives": 20, "weight_mode": "none",
        "loss": "squared-error", "optimizer": "adam", "regularizer": "none", "weight_scaling": "none", "init_std": 0.3,
        "max_batch_size": 512,
    }  # fmt: skip


# Shared negatives and an optimizer of the batch's rows only are faster without a fused engine.
SHARED_NEGATIVES_DEFAULTS: Mapping[str, Any] = {
    **LogisticConfidence.defaults, "negative_sampling": "shared", "num_negatives": 64, "optimizer": "sparse-adam",
    "lr": 1e-2,
}  # fmt: skip


class UkgeLogi(LogisticConfidence, DistMult):
    """Confidence by the logistic function.

    UKGE (Chen et al., 2019) maps the scores of DistMult to the confidence of a triple.

        f(h, r, t) = w Σ hᵢ rᵢ tᵢ + b         w and b are learned, one of each for the whole graph
        φ(f)       = 1 / (1 + e^−f)           logistic, `ukge-logi`
        φ(f)       = min(max(f, 0), 1)        bounded rectifier, `ukge-rect`; training sees it without bounds

    Ranks use f, which has the same order as φ but no ties at 0 and 1.
    """

    name = "ukge-logi"


class UkgeRect(UkgeLogi):
    """Confidence by the bounded rectifier, with L2 regularization of the batch's embeddings."""

    name = "ukge-rect"
    confidence_head = ConfidenceHead("linear")
    # The original's λ = 5e-4 multiplies ½Σx². Its mean over the batch and the sum here give Adam the same steps.
    defaults: ClassVar[Mapping[str, Any]] = {
        **UkgeLogi.defaults,
        "regularizer": "l2:2.5e-4",
        "regularizer_scope": "rows",
    }


class ComplExWeights(ComplEx):
    """ComplEx for the weights of triples that are true: the mean weight is the logistic function of the score.

        ŵ(h, r, t) = 1 / (1 + e^−f),  f = Re Σ hᵢ rᵢ conj(tᵢ)

    It is trained by the cross-entropy between ŵ and the weights of the training triples, without negatives, so it says
    how strong a link is, but not whether it exists. The first coordinate of every entity starts at 1, such that the
    first one of a relation is an intercept. The regularizer gets weaker during the training; the epoch with the
    smallest validation error decides how strong it should be. By default every run trains this model after its own
    (docs/likely_strong.md).
    """

    name = "complex-weights"
    confidence_head = ConfidenceHead("sigmoid")
    defaults: ClassVar[Mapping[str, Any]] = {
        "weight_mode": "none", "loss": "cross-entropy", "negative_sampling": "none", "epochs": 20, "eval_every": 1,
        "patience": 6, "regularizer": "n3:1e-2", "regularizer_scope": "rows", "regularizer_decay": 0.03,
        "weight_scaling": "none", "init_std": 0.1,
    }  # fmt: skip

    def init_table(self, table: Table, values: Tensor) -> Tensor:
        values = values.clone()
        values[:, 0], values[:, values.shape[1] // 2] = float(table == "entity"), 0.0
        return values


PASSLEAF_DEFAULTS: Mapping[str, Any] = {**SHARED_NEGATIVES_DEFAULTS, "semi_supervised": "pool"}


class PassleafComplEx(LogisticConfidence, ComplEx):
    """Confidence by ComplEx.

    PASSLEAF (Chen, Yeh and Kuo, 2021) is UKGE's logistic confidence with other scores and a sample pool.

        φ = 1 / (1 + e^−(w f + b)), where w and b are trained
        f = Re Σ hᵢ rᵢ conj(tᵢ)                `passleaf-complex`
        f = 2 − (1/k) Σ |hᵢ e^(i rᵢ) − tᵢ|²    `passleaf-rotate`: a relation rotates each of k complex numbers

    The pool is a part of training (objective/semi_supervised.py) and can be used with every confidence model.
    """

    name = "passleaf-complex"
    defaults = PASSLEAF_DEFAULTS


class PassleafRotatE(LogisticConfidence, Model):
    """Confidence by 2 minus RotatE's mean squared distance (PASSLEAF, Chen, Yeh and Kuo, 2021).

    `PassleafComplEx` has the equations.

    Because |q − c|² = |q|² + |c|² − 2 q·c, the scores of a pool are one matrix product.
    """

    name = "passleaf-rotate"
    similarity = "dot"
    components = RotatE.components
    defaults = PASSLEAF_DEFAULTS

    def init_table(self, table: Table, values: Tensor) -> Tensor:
        return RotatE().init_table(table, values)

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        dim, size = relation.shape[-1], known.square().sum(-1, keepdim=True)
        rotated = RotatE().query(known, relation, side)
        return torch.cat([2 * rotated, 2 * dim - size, -torch.ones_like(size)], dim=-1) / dim

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        return torch.cat([rows, torch.ones_like(rows[..., :1]), rows.square().sum(-1, keepdim=True)], dim=-1)


class TwoEvaluators(ConfidenceHead):
    """SUKE's head: the structure evaluator is the plausibility, and its product with the uncertainty evaluator is φ."""

    has_plausibility = True

    def unclipped(self, score: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        return self._evaluate(score, parameters, 0) * self._evaluate(score, parameters, 1)

    def plausibility(self, score: Tensor, parameters: Mapping[str, Tensor]) -> Tensor:
        return self._evaluate(score, parameters, 0)

    def _evaluate(self, score: Tensor, parameters: Mapping[str, Tensor], evaluator: int) -> Tensor:
        slope, offset = parameters["evaluators"][evaluator].unbind()
        return torch.sigmoid(slope * score + offset)


class Suke(DistMult):
    """Confidence as the product of two evaluators of DistMult's score.

    SUKE (Wang et al., 2021) evaluates one score twice: for the plausibility of a triple and for its uncertainty.

        f = Σ hᵢ rᵢ tᵢ
        s = 1 / (1 + e^−(w₁ f + b₁))     structure; its target is 1 for triples and 0 for negatives
        u = 1 / (1 + e^−(w₂ f + b₂))     uncertainty
        φ = s u                          confidence; its target is the weight of triples and 0 for negatives

    The parameters w and b are trained. The loss is the squared error of φ plus the squared error of s. Ranks use f.
    The product is an assumption from the paper's abstract, because the full text was not available.
    """

    name = "suke"
    confidence_head = TwoEvaluators("two evaluators")
    parameters: Mapping[str, Tensor] = {"evaluators": torch.tensor([[1.0, 0.0], [1.0, 0.0]])}  # w and b of each
    defaults: ClassVar[Mapping[str, Any]] = SHARED_NEGATIVES_DEFAULTS


EULER_GAMMA = 0.5772156649015329
LINEAR_BELOW = -15.0  # below this, ln softplus(x) equals x in float32


def box(rows: Tensor, mapping: Tensor) -> Tensor:
    """Return boxes of low corners and log extents [..., 2d], shifted and scaled by [..., 2d]; no extent is negative."""
    low, extent = rows.chunk(2, -1)
    shift, stretch = mapping.chunk(2, -1)
    low = low + shift
    return torch.cat([low, low + extent.exp() * stretch.relu()], dim=-1)


def intersection(one: Tensor, other: Tensor, beta: float) -> Tensor:
    """Return the intersection of two boxes whose corners are softened by β; its extents may be negative."""
    (low, high), (other_low, other_high) = one.chunk(2, -1), other.chunk(2, -1)
    # β ln(e^(a/β) + e^(b/β)) equals b + β ln(1 + e^((a − b)/β)), which is one softplus and does not overflow.
    low = other_low + F.softplus(low - other_low, beta=1 / beta)
    return torch.cat([low, other_high - F.softplus(other_high - high, beta=1 / beta)], dim=-1)


def log_volume(boxes: Tensor, beta: float) -> Tensor:
    """Return ln Π ln(1 + e^(high − low − 2γβ)): [..., 2d] -> [...]."""
    low, high = boxes.chunk(2, -1)
    extent = high - low - 2 * EULER_GAMMA * beta
    log_softplus = F.softplus(extent.clamp(min=LINEAR_BELOW)).log()
    return torch.where(extent < LINEAR_BELOW, extent, log_softplus).sum(-1)


def initial_boxes(values: Tensor) -> Tensor:
    """Return nearly equal boxes, as in the code of BEUrRE's authors, from standard normal numbers [..., 2d]."""
    low, extent = (torch.special.ndtr(part) for part in values.chunk(2, -1))  # uniform in [0, 1]
    return torch.cat([1e-4 + 0.0099 * low, -0.1 + 0.099 * extent], dim=-1)


def initial_maps(values: Tensor) -> Tensor:
    """Return two affine maps close to the identity, from standard normal numbers [..., 4d]."""
    shift, stretch, other_shift, other_stretch = values.chunk(4, -1)
    return torch.cat([1e-4 * shift, 1 + 0.2 * stretch, 1e-4 * other_shift, 1 + 0.2 * other_stretch], dim=-1)


GUMBEL_BETA = 0.01


class Beurre(Model):
    """Confidence as the fraction of the tail's box that lies in the head's box.

    The row of an entity holds low corners and log extents. The row of a relation holds one affine map per side.

    BEUrRE (Chen, Boratko et al., 2021) models an entity as a box, and a relation as affine maps of both boxes.

        φ(h, r, t) = vol(H ∩ T) / vol(T)        H and T: the boxes of h and t after the two affine maps of r
        vol(box)   = Π ln(1 + e^(high − low − 2γβ))
        H ∩ T      = from β ln(e^(H.low/β) + e^(T.low/β)) to −β ln(e^(−H.high/β) + e^(−T.high/β))

    Corners are Gumbel variables of scale β, so that disjoint boxes still have a gradient. The score is ln φ, which is
    never above 0. Volumes are computed as in the authors' code (in their paper, β is also the temperature of softplus).
    Constraints on relations (transitivity, composition) are left out.
    """

    name = "beurre"
    similarity: ClassVar[Similarity | None] = None
    confidence_head = ConfidenceHead("exp")
    requires: ClassVar[frozenset[Requirement]] = frozenset({"whole table"})
    defaults: ClassVar[Mapping[str, Any]] = {
        **SHARED_NEGATIVES_DEFAULTS, "dim": 64, "num_negatives": 10, "lr": 3e-3, "init_std": 1.0,
    }  # fmt: skip

    def widths(self, dim: int) -> tuple[int, int]:
        return 2 * dim, 4 * dim

    def init_table(self, table: Table, values: Tensor) -> Tensor:
        return (initial_maps if table == "relation" else initial_boxes)(values / values.square().mean().sqrt())

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return box(known, relation.chunk(2, -1)[0 if side == "tail" else 1])

    def candidates(self, rows: Tensor, relation: Tensor, side: Side) -> Tensor:
        return box(rows, relation.chunk(2, -1)[1 if side == "tail" else 0])

    def similarity_of(self, query: Tensor, candidates: Tensor, side: Side) -> Tensor:
        common = log_volume(intersection(query, candidates, GUMBEL_BETA), GUMBEL_BETA)
        return common - log_volume(candidates if side == "tail" else query, GUMBEL_BETA)
