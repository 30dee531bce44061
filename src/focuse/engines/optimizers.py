"""Optimizers of embedding tables.

The optimizers of torch ("adam", "adagrad", "sgd") update whole tables in every step. Row-wise ones ("sparse-adam",
"sparse-adagrad") update only the rows of the batch, as `torch.optim.SparseAdam` does, and keep their moments in plain
tensors, so that a fused engine can compute the step itself (`focuse.engines.base.FusableOptimizer`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from focuse.engines.base import Gradients, OptimizerSpec, TableOptimizer

Tables = Mapping[str, Tensor]


class WholeTableOptimizer:
    """An optimizer of torch over whole tables; momentum and the regularizer update every row in every step."""

    rows_only = False
    allow_duplicate_ids = False

    def __init__(self, tables: Tables, make: Callable[[list[Tensor]], torch.optim.Optimizer]) -> None:
        self.tables = dict(tables)
        self.optimizer = make(list(self.tables.values()))

    def update(self, gradients: Gradients) -> None:
        for name, (ids, gradient) in gradients.items():
            if ids is not None:
                raise ValueError("an optimizer over whole tables needs gradients of whole tables")
            self.tables[name].grad = gradient
        self.optimizer.step()

    def state(self) -> dict[str, Tensor]:
        """Return moments and step counts as 'table.moment' -> tensor."""
        return {
            f"{name}.{moment}": value
            for name, table in self.tables.items()
            for moment, value in self.optimizer.state.get(table, {}).items()
            if isinstance(value, Tensor)
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        for key, value in state.items():
            name, _, moment = key.rpartition(".")  # the name of a parameter may contain dots
            self.optimizer.state[self.tables[name]][moment] = value.clone()  # torch writes into it


class Adam(WholeTableOptimizer):
    """Adam of torch, whose step a fused engine can compute itself."""

    def __init__(self, tables: Tables, lr: float) -> None:
        on_gpu = next(iter(tables.values())).is_cuda  # on a GPU, a step may be captured as a CUDA graph
        super().__init__(tables, lambda p: torch.optim.Adam(p, lr=lr, fused=True, capturable=on_gpu))
        self.spec = OptimizerSpec("adam", True, lr)

    def counters(self) -> list[Tensor]:
        return [self.moments(name)[2] for name in self.tables]

    def moments(self, table: str) -> tuple[Tensor, Tensor, Tensor]:
        state = self.optimizer.state[self.tables[table]]
        if not state:
            state["step"] = torch.zeros((), device=self.tables[table].device)
            state["exp_avg"] = torch.zeros_like(self.tables[table])
            state["exp_avg_sq"] = torch.zeros_like(self.tables[table])
        return state["exp_avg"], state["exp_avg_sq"], state["step"]


class RowAdagrad:
    """Adagrad on the rows of the batch: x ← x − lr · g / (√Σg² + ε)."""

    rows_only = True
    allow_duplicate_ids = False
    moment_names: tuple[str, ...] = ("sum",)

    def __init__(self, tables: Tables, lr: float, eps: float = 1e-10) -> None:
        self.tables, self.lr, self.eps = dict(tables), lr, eps
        self.moment_tables = {
            f"{name}.{moment}": torch.zeros_like(table)
            for name, table in tables.items()
            for moment in self.moment_names
        }
        self.steps = torch.zeros((), dtype=torch.float64, device=next(iter(tables.values())).device)
        self.spec = OptimizerSpec("adagrad", False, lr, eps=eps)

    def counters(self) -> list[Tensor]:
        return [self.steps]

    def moments(self, table: str) -> tuple[Tensor, Tensor, Tensor]:
        found = [self.moment_tables[f"{table}.{moment}"] for moment in self.moment_names]
        return found[0], found[-1], self.steps

    def update(self, gradients: Gradients) -> None:
        self.steps += 1
        for name, (ids, gradient) in gradients.items():
            change = self.row_update(name, slice(None) if ids is None else ids, gradient)
            table = self.tables[name]
            if ids is None:
                table.sub_(change)
            elif self.allow_duplicate_ids:
                table.index_copy_(0, ids, table[ids] - change)
            else:
                table.index_add_(0, ids, change, alpha=-1)

    def row_update(self, name: str, rows: Tensor | slice, gradient: Tensor) -> Tensor:
        """Update the moments of the rows, and return the values to subtract from the rows."""
        total = self.moment_tables[f"{name}.sum"]
        total[rows] += gradient * gradient
        return self.lr * gradient / (total[rows].sqrt() + self.eps)

    def state(self) -> dict[str, Tensor]:
        return {**self.moment_tables, "all.steps": self.steps.long()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        for key, moment in self.moment_tables.items():
            moment.copy_(state[key])
        self.steps.fill_(int(state["all.steps"]))


class RowAdam(RowAdagrad):
    """Adam on the rows of the batch; the moments of other rows do not change (as in `torch.optim.SparseAdam`)."""

    moment_names = ("mean", "square")

    def __init__(self, tables: Tables, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> None:
        super().__init__(tables, lr, eps)
        self.spec = OptimizerSpec("adam", False, lr, betas, eps)

    def row_update(self, name: str, rows: Tensor | slice, gradient: Tensor) -> Tensor:
        first, second = self.spec.betas
        steps = self.steps if self.steps.is_cuda else float(self.steps)  # no synchronization with a GPU
        mean = self.moment_tables[f"{name}.mean"][rows].lerp(gradient, 1 - first)
        square = self.moment_tables[f"{name}.square"][rows].lerp(gradient * gradient, 1 - second)
        self.moment_tables[f"{name}.mean"][rows] = mean
        self.moment_tables[f"{name}.square"][rows] = square
        unbiased_mean = mean / (1 - first**steps)
        unbiased_square = square / (1 - second**steps)
        change: Tensor = self.lr * unbiased_mean / (unbiased_square.sqrt() + self.eps)
        return change


OPTIMIZERS: dict[str, Callable[[Tables, float], TableOptimizer]] = {
    "adam": Adam,
    "adagrad": lambda tables, lr: WholeTableOptimizer(tables, lambda p: torch.optim.Adagrad(p, lr=lr)),
    "sgd": lambda tables, lr: WholeTableOptimizer(tables, lambda p: torch.optim.SGD(p, lr=lr)),
    "sparse-adam": RowAdam,
    "sparse-adagrad": RowAdagrad,
}

# Default learning rates. The steps of Adagrad shrink from the start, so its learning rate is large.
LEARNING_RATES = {"adam": 1e-3, "adagrad": 0.1, "sgd": 1e-2, "sparse-adam": 1e-3, "sparse-adagrad": 0.1}


def make_optimizer(name: str, tables: Tables, lr: float | None) -> TableOptimizer:
    """Return the optimizer `name` over `tables`, which it updates in place; None is its default learning rate."""
    return OPTIMIZERS[name](tables, LEARNING_RATES[name] if lr is None else lr)
