"""What passes between a trainer and an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from torch import Tensor

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


@dataclass(frozen=True)
class Corruptions:
    """What replaces one side of each positive.

    `entities` is int64 [B, N] (each positive's own), [P] (one pool for all) or None (every entity). `side` says
    which side they replace; for 'both', `tails` is bool [B, N], True where an entity replaces the tail. `mask` is
    True where a corruption counts: [B, N], [B, P], [B, E] or None for all.
    """

    side: Literal["head", "tail", "both"]
    entities: Tensor | None
    tails: Tensor | None = None
    mask: Tensor | None = None


@dataclass(frozen=True)
class Hints:
    """Further triples with a term of their own in the loss: scores [S], weights [S] -> [], counted once a positive."""

    batch: Batch
    loss: Callable[[Tensor, Tensor], Tensor]


# positive [B], negative [B, N], weight [B], mask [B, N] or None, β -> [B]
ObjectiveFunction = Callable[[Tensor, Tensor, Tensor, Tensor | None, float | Tensor], Tensor]
# rows of train int64 [B], β, key of the batch's random numbers -> its loss
Step = Callable[[Tensor, float | Tensor, int | Tensor], float | Tensor]


class Penalty(Protocol):
    """A regulariser: of whole tables, or of the rows of the batch's triples."""

    @property
    def scope(self) -> str: ...

    @property
    def power(self) -> int: ...

    @property
    def strength(self) -> float: ...

    def __call__(self, parts: Iterable[Tensor]) -> Tensor | float: ...


class TableOptimiser(Protocol):
    """Changes tables in place. `rows_only` ones need (and get) gradients of the batch's rows alone."""

    rows_only: bool

    def update(self, gradients: Gradients) -> None:
        """One step: for each table, (ids [U], gradient [U, d]), or (None, gradient [rows, d]) for all of it."""

    def state(self) -> dict[str, Tensor]: ...

    def load(self, state: Mapping[str, Tensor]) -> None: ...


@runtime_checkable
class AdamOptimiser(TableOptimiser, Protocol):
    """Adam over whole tables, open to an engine that does its arithmetic itself."""

    lr: float

    def moments(self, table: str) -> tuple[Tensor, Tensor, Tensor]:
        """Running mean and square of a table's gradient, and the count of steps as float []; changed in place."""
