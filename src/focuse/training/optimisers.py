"""Optimisers of embedding tables: torch's own over whole tables, and lazy ones that touch the batch's rows only."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from focuse.engines.base import Gradients, Rule, TableOptimiser
from focuse.errors import FocuseError, choose

Tables = Mapping[str, Tensor]


class WholeTables:
    """One of torch's optimisers over whole tables: every row moves in every step (momentum, penalty)."""

    rows_only = False
    repeated = False

    def __init__(self, tables: Tables, make: Callable[[list[Tensor]], torch.optim.Optimizer]) -> None:
        self.tables = dict(tables)
        self.optimiser = make(list(self.tables.values()))

    def update(self, gradients: Gradients) -> None:
        for name, (ids, gradient) in gradients.items():
            if ids is not None:
                raise ValueError("an optimiser over whole tables needs whole gradients")
            self.tables[name].grad = gradient
        self.optimiser.step()

    def state(self) -> dict[str, Tensor]:
        """Moments and step counts as 'table.part' -> tensor."""
        return {
            f"{name}.{part}": value
            for name, table in self.tables.items()
            for part, value in self.optimiser.state.get(table, {}).items()
            if isinstance(value, Tensor)
        }

    def load(self, state: Mapping[str, Tensor]) -> None:
        for key, value in state.items():
            name, part = key.split(".")
            self.optimiser.state[self.tables[name]][part] = value.clone()  # torch writes into it


class Adam(WholeTables):
    """Torch's Adam; open to an engine that does the step itself."""

    def __init__(self, tables: Tables, lr: float) -> None:
        on_gpu = next(iter(tables.values())).is_cuda  # where a step may be recorded
        super().__init__(tables, lambda p: torch.optim.Adam(p, lr=lr, fused=True, capturable=on_gpu))
        self.rule = Rule("adam", True, lr)

    def counters(self) -> list[Tensor]:
        return [self.moments(name)[2] for name in self.tables]

    def moments(self, table: str) -> tuple[Tensor, Tensor, Tensor]:
        state = self.optimiser.state[self.tables[table]]
        if not state:
            state["step"] = torch.zeros((), device=self.tables[table].device)
            state["exp_avg"] = torch.zeros_like(self.tables[table])
            state["exp_avg_sq"] = torch.zeros_like(self.tables[table])
        return state["exp_avg"], state["exp_avg_sq"], state["step"]


class RowAdagrad:
    """Adagrad on the rows of the batch: x ← x − lr · g / (√Σg² + ε)."""

    rows_only = True
    repeated = False
    parts: tuple[str, ...] = ("sum",)

    def __init__(self, tables: Tables, lr: float, eps: float = 1e-10) -> None:
        self.tables, self.lr, self.eps = dict(tables), lr, eps
        self.parts_of = {
            f"{name}.{part}": torch.zeros_like(table) for name, table in tables.items() for part in self.parts
        }
        self.steps = torch.zeros((), dtype=torch.float64, device=next(iter(tables.values())).device)
        self.rule = Rule("adagrad", False, lr, eps=eps)

    def counters(self) -> list[Tensor]:
        return [self.steps]

    def moments(self, table: str) -> tuple[Tensor, Tensor, Tensor]:
        found = [self.parts_of[f"{table}.{part}"] for part in self.parts]
        return found[0], found[-1], self.steps

    def update(self, gradients: Gradients) -> None:
        self.steps += 1
        for name, (ids, gradient) in gradients.items():
            change = self.change(name, slice(None) if ids is None else ids, gradient)
            table = self.tables[name]
            if ids is None:
                table.sub_(change)
            elif self.repeated:
                table.index_copy_(0, ids, table[ids] - change)
            else:
                table.index_add_(0, ids, change, alpha=-1)

    def change(self, name: str, rows: Tensor | slice, gradient: Tensor) -> Tensor:
        """What to take off the rows."""
        total = self.parts_of[f"{name}.sum"]
        total[rows] += gradient * gradient
        return self.lr * gradient / (total[rows].sqrt() + self.eps)

    def state(self) -> dict[str, Tensor]:
        return {**self.parts_of, "all.steps": self.steps.long()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        for key, moment in self.parts_of.items():
            moment.copy_(state[key])
        self.steps.fill_(int(state["all.steps"]))


class RowAdam(RowAdagrad):
    """Adam on the rows of the batch; the moments of the other rows rest until they are met again."""

    parts = ("mean", "square")

    def __init__(self, tables: Tables, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> None:
        super().__init__(tables, lr, eps)
        self.rule = Rule("adam", False, lr, betas, eps)

    def change(self, name: str, rows: Tensor | slice, gradient: Tensor) -> Tensor:
        first, second = self.rule.betas
        steps = self.steps if self.steps.is_cuda else float(self.steps)  # a GPU is not waited for
        mean = self.parts_of[f"{name}.mean"][rows].lerp(gradient, 1 - first)
        square = self.parts_of[f"{name}.square"][rows].lerp(gradient * gradient, 1 - second)
        self.parts_of[f"{name}.mean"][rows] = mean
        self.parts_of[f"{name}.square"][rows] = square
        unbiased_mean = mean / (1 - first**steps)
        unbiased_square = square / (1 - second**steps)
        change: Tensor = self.lr * unbiased_mean / (unbiased_square.sqrt() + self.eps)
        return change


OPTIMISERS: dict[str, Callable[[Tables, float], TableOptimiser]] = {
    "adam": Adam,
    "adagrad": lambda tables, lr: WholeTables(tables, lambda p: torch.optim.Adagrad(p, lr=lr)),
    "sgd": lambda tables, lr: WholeTables(tables, lambda p: torch.optim.SGD(p, lr=lr)),
    "row-adam": RowAdam,
    "row-adagrad": RowAdagrad,
}

# Adagrad's steps shrink from the first one on, so it begins with large ones.
LEARNING_RATES = {"adam": 1e-3, "adagrad": 0.1, "sgd": 1e-2, "row-adam": 1e-3, "row-adagrad": 0.1}


def make_optimiser(name: str, tables: Tables, lr: float) -> TableOptimiser:
    """The optimiser called `name` over `tables`, which it changes in place."""
    if not lr > 0:
        raise FocuseError(f"learning rate {lr:g}: give a number above 0")
    return OPTIMISERS[choose("optimizer", name, OPTIMISERS)](tables, lr)
