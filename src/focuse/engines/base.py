"""What passes between a trainer and an engine, and the kernels that prepare batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_int64, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from focuse.engines.native import library
from focuse.models.base import Model, Side
from focuse.objective.losses import FusedObjective, ObjectiveFunction, Regularizer
from focuse.objective.negatives import AuxiliaryTriples, Batch, Negatives
from focuse.objective.randomness import register_kernel

if TYPE_CHECKING:
    from focuse.engines.scorer import TableScorer

Gradients = Mapping[str, tuple[Tensor | None, Tensor]]


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
SIMILARITY_CODES: dict[str | None, int] = {"dot": 0, "l1": 1, "l2": 2}
QUERY_CODES = {"hadamard": 0, "complex": 1, "translation": 2}


def fused_objective(objective: object) -> FusedObjective | None:
    """The objective in words if kernels know it, else None."""
    fused = getattr(objective, "fused", None)
    if not isinstance(fused, FusedObjective) or fused.loss not in LOSS_CODES:
        return None
    return fused if fused.nonlinearity in NONLINEARITY_CODES else None


def unsupported_model(model: Model, inverse_relations: bool = False) -> str:
    """Why a fused engine refuses a model that its kernels cannot compute."""
    return f"its kernels cannot compute {model.name}{' with inverse relations' if inverse_relations else ''}"


# rows of the training triples int64 [B], β, seed of the batch's random numbers -> the loss of the batch
TrainBatch = Callable[[Tensor, float | Tensor, int | Tensor], float | Tensor]
# the same for several batches, one after the other -> the sum of their losses
TrainBatches = Callable[[Sequence[Tensor], float, Sequence[int]], float | Tensor]


class TableOptimizer(Protocol):
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
class OptimizerSpec:
    """The arithmetic of an optimizer, for engines that do it themselves; `whole`: rows without a gradient move too."""

    method: Literal["adam", "adagrad"]
    whole: bool
    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8


@runtime_checkable
class FusableOptimizer(TableOptimizer, Protocol):
    """An optimizer that lets an engine do its step: by `rule`, on `moments`, after adding 1 to all `counters`."""

    @property
    def rule(self) -> OptimizerSpec: ...

    def counters(self) -> list[Tensor]:
        """Counts of steps, floats []."""

    def moments(self, table: str) -> tuple[Tensor, Tensor, Tensor]:
        """Of a table: mean and square of its gradient (Adagrad: their sum, twice), and its count of steps."""


@dataclass(frozen=True)
class Step:
    """One training step: positives, their negatives, and what is minimized.

    The step minimizes `scale` · loss + `regularizer` at the given β. `auxiliary` triples have a loss term of their own.
    Everything that the model draws at random is a function of `seed`; None means that it must not draw.
    """

    positives: Batch
    negatives: list[Negatives]
    objective: ObjectiveFunction
    beta: float | Tensor
    regularizer: Regularizer | None = None
    scale: float = 1.0
    auxiliary: AuxiliaryTriples | None = None
    seed: int | None = 0


class Scorer(Protocol):
    """Scores of triples; all that evaluation needs of a model or of a baseline.

    Scores of one `score_all` or `score_some` call are comparable to the last bit: equal rows give equal scores.
    """

    @property
    def device(self) -> torch.device: ...

    @property
    def expensive_to_rank(self) -> bool:
        """Whether ranking against every entity takes too long, so that a sample is used by default."""
        return False

    @property
    def side_dependent(self) -> bool:
        """Whether a triple has two scores, one as an answer to (head, relation, ?) and one to (?, relation, tail)."""
        return False

    def score(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return one score per triple: ids [B] -> [B]."""

    def score_all(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        """Return the scores of every entity on `side`: ids [B] -> [B, E]."""

    def score_some(self, known: Tensor, relation: Tensor, entities: Tensor, side: Side) -> Tensor:
        """Return the scores of some entities on `side`, given per query: ids [B], [B], [B, N] -> [B, N]."""


class ModelScorer(Scorer, Protocol):
    """A scorer over the embeddings of a model."""

    @property
    def model(self) -> Model: ...

    @property
    def entities(self) -> int:
        """Number of entities."""


@runtime_checkable
class DistributedScorer(Protocol):
    """What a scorer can do whose entities are spread over processes, where no process has all scores of a query."""

    @property
    def processes(self) -> int:
        """Number of processes that the entities are spread over."""

    def count_competitors(
        self,
        known: Tensor,
        relation: Tensor,
        side: Side,
        first: Tensor,
        target: Tensor,
        start: Tensor,
        stop: Tensor,
        answers: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the counts int64 [n, 4] of `engines.scorer.count_competitors`, and the targets' scores [n]."""


class Engine(Protocol):
    """Owns the embedding tables and trains them, step by step."""

    tables: dict[str, Tensor]
    optimizer: TableOptimizer
    steps_per_call: int  # number of steps that the engine prefers to be given at once
    fallback_message: str
    fallback_reason: str  # why this engine is used instead of a faster one; empty if there is no reason to say so

    @property
    def device(self) -> torch.device: ...

    @property
    def entities(self) -> int:
        """Number of entities; a sharded engine holds the rows of some of them only."""

    @property
    def scorer(self) -> TableScorer:
        """A scorer over the tables as they are trained."""

    def make_scorer(self, model: Model, tables: Mapping[str, Tensor]) -> TableScorer:
        """Return a scorer over other tables that are distributed as those of this engine."""

    def step(self, step: Step) -> float | Tensor:
        """Compute the loss and its gradient and update the tables; return the loss without the regularizer."""

    def batch_runner(self, train_batch: TrainBatch, capture: bool = True) -> TrainBatches:
        """Return a function that calls `train_batch` for several batches, in the way that is fastest for this engine.

        Steps that differ from one another by more than their data must not be captured and replayed.
        """


def address(tensor: torch.Tensor | None) -> int | None:
    """The address of a contiguous tensor's numbers; None is a null pointer."""
    if tensor is None:
        return None
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError(f"a contiguous tensor in main memory is needed, not {tuple(tensor.shape)} on {tensor.device}")
    return tensor.data_ptr()


# ---- kernels for what training does to prepare every batch: draw random numbers and negatives, gather triples --------
# Importing this module registers them with `focuse.objective.randomness`: C++ on a CPU, Triton on a GPU.


def _draw_negatives_on_cpu(
    seed: int | Tensor, shape: tuple[int, ...], entities: int, device: torch.device
) -> tuple[Tensor, Tensor] | None:
    native = library()
    if native is None or isinstance(seed, Tensor):
        return None
    drawn, replaces_tail = torch.empty(shape, dtype=torch.int64), torch.empty(shape, dtype=torch.bool)
    numbers = (c_uint64(seed), c_int64(drawn.numel()), c_uint64(2 * entities))
    native.draw_negatives(*numbers, c_void_p(address(drawn)), c_void_p(address(replaces_tail)))
    return drawn, replaces_tail


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def _by_triton(name: str) -> Callable[..., Any]:
    """Return a function of `triton.random_kernels` that is imported when it is first called."""

    def kernel(*arguments: Any) -> Any:
        if not _has_triton():
            return None
        return getattr(import_module("focuse.engines.triton.random_kernels"), name)(*arguments)

    return kernel


register_kernel("draw_negatives", "cpu", _draw_negatives_on_cpu)
register_kernel("draw_negatives", "cuda", _by_triton("draw_negatives"))
register_kernel("draw_integers", "cuda", _by_triton("draw"))
register_kernel("take", "cuda", _by_triton("take"))
