"""The interfaces between a trainer, an engine and a scorer, and the kernels that prepare batches."""

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
from focuse.objective.negatives import Batch, Negatives
from focuse.objective.randomness import register_kernel

if TYPE_CHECKING:
    from focuse.engines.scorer import TableScorer

Gradients = Mapping[str, tuple[Tensor | None, Tensor]]


# Codes by which kernels select losses, nonlinearities, similarities, query operations and optimizers.
LOSS_CODES = {
    "multiclass-nll": 0,
    "pairwise-nll": 1,
    "nll": 2,
    "bce": 3,
    "margin": 4,
    "self-adversarial": 5,
    "squared-error": 6,
    "soft-label": 7,
    "cross-entropy": 8,
}
NONLINEARITY_CODES = {"linear": 0, "softplus": 1, "sigmoid": 2, "tanh": 3}
SIMILARITY_CODES: dict[str | None, int] = {"dot": 0, "l1": 1, "l2": 2}
QUERY_CODES = {"hadamard": 0, "complex": 1, "translation": 2}
METHOD_CODES = {"adam": 0, "adagrad": 1}


def fused_objective(objective: object) -> FusedObjective | None:
    """Return the description of the objective that kernels take, or None if they do not support the objective."""
    fused = getattr(objective, "fused", None)
    if not isinstance(fused, FusedObjective) or fused.loss not in LOSS_CODES:
        return None
    return fused if fused.nonlinearity in NONLINEARITY_CODES else None


def unsupported_model(model: Model, inverse_relations: bool = False) -> str:
    """Return the reason why a fused engine does not support a model."""
    return f"its kernels cannot compute {model.name}{' with inverse relations' if inverse_relations else ''}"


# Maps the rows of the training triples, int64 [B], β and the seed of the batch to the loss of the batch.
TrainBatch = Callable[[Tensor, float | Tensor, int | Tensor], float | Tensor]
# Does the same for several consecutive batches and returns the sum of their losses.
TrainBatches = Callable[[Sequence[Tensor], float, Sequence[int]], float | Tensor]


class TableOptimizer(Protocol):
    """An optimizer that updates embedding tables in place.

    If `rows_only` is True, the optimizer takes gradients of the rows of the batch only. An engine sets
    `allow_duplicate_ids` if the ids of an update may contain duplicates: their gradients are equal and applied once.
    """

    rows_only: bool
    allow_duplicate_ids: bool

    def update(self, gradients: Gradients) -> None:
        """Take one step. A table has (ids [U], gradient [U, d]), or (None, gradient [rows, d]) for all of its rows."""

    def state(self) -> dict[str, Tensor]: ...

    def load(self, state: Mapping[str, Tensor]) -> None: ...


@dataclass(frozen=True)
class OptimizerSpec:
    """The method and the constants of an optimizer, for engines that compute its step themselves.

    If `whole` is True, rows without a gradient are updated too.
    """

    method: Literal["adam", "adagrad"]
    whole: bool
    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8


@runtime_checkable
class FusableOptimizer(TableOptimizer, Protocol):
    """An optimizer whose step an engine can compute itself.

    The engine adds 1 to all `counters` and then applies `spec` to the tables and their `moments`.
    """

    @property
    def spec(self) -> OptimizerSpec: ...

    def counters(self) -> list[Tensor]:
        """Return the step counters, one float tensor [] each."""

    def moments(self, table: str) -> tuple[Tensor, Tensor, Tensor]:
        """Return the first and second moment of a table (for Adagrad the sum of squares, twice), and its step count."""


OPTIMIZER_NEEDED = "it needs the optimizer 'adam', 'sparse-adam' or 'sparse-adagrad'"


@dataclass(frozen=True)
class Step:
    """One training step: the positives, their negatives, and the function to minimize.

    The step minimizes `scale` · loss + `regularizer` at the given β. `auxiliary` triples add the `rule_loss` of a
    `SquaredError` for each positive. All random numbers that the model draws are a function of `seed`; with None, the
    model must not draw any.
    """

    positives: Batch
    negatives: list[Negatives]
    objective: ObjectiveFunction
    beta: float | Tensor
    regularizer: Regularizer | None = None
    scale: float = 1.0
    auxiliary: Batch | None = None
    seed: int | None = 0


class Scorer(Protocol):
    """Scores triples. Evaluation needs nothing else of a model or of a baseline.

    Scores from one call of `score_all` or `score_some` are exactly comparable: equal rows give bitwise equal scores.
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


class Engine(Protocol):
    """An engine holds the embedding tables and trains them step by step."""

    tables: dict[str, Tensor]
    optimizer: TableOptimizer
    steps_per_call: int  # number of steps per call that is fastest for this engine
    fallback_message: str
    fallback_reason: str  # why a faster engine cannot be used; empty if this engine was requested

    @property
    def device(self) -> torch.device: ...

    @property
    def entities(self) -> int:
        """Number of entities; a sharded engine holds only the rows of its shard."""

    @property
    def scorer(self) -> TableScorer:
        """Scorer over the tables that are being trained."""

    def make_scorer(self, model: Model, tables: Mapping[str, Tensor]) -> TableScorer:
        """Return a scorer over other tables that are stored like the tables of this engine."""

    def step(self, step: Step) -> float | Tensor:
        """Compute the loss and its gradient and update the tables; return the loss without the regularizer."""

    def make_batch_runner(self, train_batch: TrainBatch, capture: bool = True) -> TrainBatches:
        """Return a function that runs `train_batch` for several batches in the fastest way for this engine.

        `capture` must be False if steps differ by more than their data, because such steps cannot be replayed.
        """


def address(tensor: torch.Tensor | None) -> int | None:
    """Return the address of the data of a contiguous CPU tensor; None stands for a null pointer."""
    if tensor is None:
        return None
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError(f"expected a contiguous CPU tensor, found {tuple(tensor.shape)} on {tensor.device}")
    return tensor.data_ptr()


# ---- kernels that prepare batches: they draw random numbers and negatives, and gather triples ------------------------
# Importing this module registers the C++ kernels (CPU) and the Triton kernels (GPU) with `focuse.objective.randomness`.


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
def has_triton() -> bool:
    """Return whether the package triton is installed."""
    return find_spec("triton") is not None


def _triton_kernel(name: str) -> Callable[..., Any]:
    """Return a function of `triton.random_kernels` that is imported when it is first called."""

    def kernel(*arguments: Any) -> Any:
        if not has_triton():
            return None
        return getattr(import_module("focuse.engines.triton.random_kernels"), name)(*arguments)

    return kernel


register_kernel("draw_negatives", "cpu", _draw_negatives_on_cpu)
register_kernel("draw_negatives", "cuda", _triton_kernel("draw_negatives"))
register_kernel("draw_integers", "cuda", _triton_kernel("draw"))
register_kernel("take", "cuda", _triton_kernel("take"))
