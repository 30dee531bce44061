"""What passes between a trainer and an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from focuse.models import Model, Reciprocal

Gradients = Mapping[str, tuple[Tensor | None, Tensor]]


@dataclass(frozen=True)
class Batch:
    """Positives: ids int64 [B] and normalised weights float [B]."""

    head: Tensor
    relation: Tensor
    tail: Tensor
    weight: Tensor

    def __len__(self) -> int:
        return len(self.head)

    def take(self, rows: Tensor) -> Batch:
        """The rows int64 [B] of it."""
        columns = (self.head, self.relation, self.tail, self.weight)
        if has_kernels(rows.device):
            from focuse.engines.triton.draw import take

            return Batch(*take(columns, rows))
        return Batch(*(column.index_select(0, rows) for column in columns))

    def weigh(self, weight: Tensor) -> None:
        """Other weights [B], in place: what was captured once reads from there."""
        self.weight.copy_(weight)

    def first(self, count: int) -> Batch:
        """The first rows of it."""
        return Batch(self.head[:count], self.relation[:count], self.tail[:count], self.weight[:count])


@cache
def has_kernels(device: torch.device) -> bool:
    """Whether Triton kernels serve this device."""
    return device.type == "cuda" and find_spec("triton") is not None


@dataclass(frozen=True)
class Corruptions:
    """What replaces one side of each positive.

    `entities` is int64 [B, N] (each positive's own), [P] (one pool for all) or None (every entity). `side` says
    which side they replace; for 'both', `tails` is bool [B, N], True where an entity replaces the tail.

    What does not count: where `mask` [B, N] or [B, P] is False; `target` [B], the entity that stands there in truth;
    `facts`, pairs (row, entity) int64 [m] each, that are known to be true. None: nothing is left out.
    """

    side: Literal["head", "tail", "both"]
    entities: Tensor | None
    tails: Tensor | None = None
    mask: Tensor | None = None
    target: Tensor | None = None
    facts: tuple[Tensor, Tensor] | None = None

    def counted(self, entities: int) -> Tensor | None:
        """All of it as one mask, True where a corruption counts: [B, N], [B, P] or [B, E]; None for all."""
        mask = self.mask
        if self.target is None:
            return mask
        pool = torch.arange(entities, device=self.target.device) if self.entities is None else self.entities
        counted = pool != self.target[:, None]
        if self.facts is not None:
            counted[self.facts] = False
        return counted if mask is None else counted & mask


@dataclass(frozen=True)
class Hints:
    """Further triples with a term of their own in the loss: scores [S], weights [S] -> [], counted once a positive."""

    batch: Batch
    loss: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Recipe:
    """An objective in words, for engines that compute it in their own loops instead of by autograd.

    h = α·g(f) with g(f) = `nonlinearity`(f + `shift`), then `loss` over h; without focus α is 1 (β = 1 does that).
    For the loss 'squared-error' g is the map from scores to confidences, and `share` weighs what rules infer. For
    'soft-label' the weight is the label, and `margin` stands for the rivals that were not drawn; a weight below 0 says
    that the triple is false, to be held against the mean of its rivals.
    """

    loss: str
    nonlinearity: str = "linear"
    shift: float = 0.0
    focused: bool = False
    margin: float = 0.0
    temperature: float = 0.0
    share: float = 0.0


# Numbers that kernels know losses and non-linearities by.
LOSS_CODES = {
    "multiclass-nll": 0,
    "pairwise-nll": 1,
    "nll": 2,
    "bce": 3,
    "margin": 4,
    "self-adversarial": 5,
    "squared-error": 6,
    "soft-label": 7,
}
NONLINEARITY_CODES = {"linear": 0, "softplus": 1, "sigmoid": 2, "tanh": 3}
FORM_CODES = {"dot": 0, "l1": 1, "l2": 2}
TURN_CODES = {"product": 0, "complex": 1, "sum": 2}


def recipe_of(objective: object) -> Recipe | None:
    """The objective in words if kernels know it, else None."""
    recipe = getattr(objective, "recipe", None)
    if not isinstance(recipe, Recipe) or recipe.loss not in LOSS_CODES:
        return None
    return recipe if recipe.nonlinearity in NONLINEARITY_CODES else None


def unlike(model: Model) -> str:
    """What a fused engine says of a model that it does not know."""
    reciprocal = " with reciprocal relations" if isinstance(model, Reciprocal) else ""
    return f"it cannot compare as {model.name}{reciprocal} does"


# positive [B], negative [B, N], weight [B], mask [B, N] or None, β -> [B]
ObjectiveFunction = Callable[[Tensor, Tensor, Tensor, Tensor | None, float | Tensor], Tensor]
# rows of train int64 [B], β, key of the batch's random numbers -> its loss
Step = Callable[[Tensor, float | Tensor, int | Tensor], float | Tensor]
# the same for several batches, one after the other -> the sum of their losses
Steps = Callable[[Sequence[Tensor], float, Sequence[int]], float | Tensor]


@runtime_checkable
class ModelObjective(Protocol):
    """An objective that looks at what the model makes of a score: a step gives it the model as it sees it."""

    def over(self, model: Model) -> ModelObjective: ...

    def shortfall(self, score: Tensor, bound: Tensor) -> Tensor:
        """The loss of hints, in place of their own."""

    def __call__(
        self, positive: Tensor, negative: Tensor, weight: Tensor, mask: Tensor | None, beta: float | Tensor
    ) -> Tensor: ...


class Penalty(Protocol):
    """A regulariser: of whole tables, or of the rows of the batch's triples."""

    @property
    def scope(self) -> str: ...

    @property
    def power(self) -> int: ...

    @property
    def strength(self) -> float: ...

    @property
    def moduli(self) -> bool: ...

    def __call__(self, parts: Iterable[Tensor]) -> Tensor | float: ...


class TableOptimiser(Protocol):
    """Changes tables in place. `rows_only` ones need (and get) gradients of the batch's rows alone.

    `repeated`, which an engine sets: ids may come more than once, with equal gradients, and count once.
    """

    rows_only: bool
    repeated: bool

    def update(self, gradients: Gradients) -> None:
        """One step: for each table, (ids [U], gradient [U, d]), or (None, gradient [rows, d]) for all of it."""

    def state(self) -> dict[str, Tensor]: ...

    def load(self, state: Mapping[str, Tensor]) -> None: ...


@dataclass(frozen=True)
class Rule:
    """The arithmetic of an optimiser, for engines that do it themselves; `whole`: rows without a gradient move too."""

    method: Literal["adam", "adagrad"]
    whole: bool
    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8


@runtime_checkable
class OpenOptimiser(TableOptimiser, Protocol):
    """An optimiser that lets an engine do its step: by `rule`, on `moments`, after adding 1 to all `counters`."""

    @property
    def rule(self) -> Rule: ...

    def counters(self) -> list[Tensor]:
        """Counts of steps, floats []."""

    def moments(self, table: str) -> tuple[Tensor, Tensor, Tensor]:
        """Of a table: mean and square of its gradient (Adagrad: their sum, twice), and its count of steps."""
