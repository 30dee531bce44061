"""The step of positives that share their corruptions: one pool for all, or every entity.

The matrix of comparisons is made in blocks of columns. Where it takes more than one, it is made twice: a positive's
softmax needs all of its comparisons before any coefficient is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch import Tensor

from focuse.engines.base import LOSS_CODES, NONLINEARITY_CODES, Corruptions
from focuse.engines.triton.pool import (
    answer_kernel,
    ask_kernel,
    bend_kernel,
    distance_kernel,
    forget_kernel,
    pull_kernel,
    settle_kernel,
    weigh_kernel,
)
from focuse.engines.triton.step import Sources, Task, beside, infer, joined, move, sort

CELLS = 1 << 24  # comparisons held at once: 64 MB
FAST = "tf32"  # how matrix products of a training step take their inputs; ranking never does
TILE = 64  # rows and columns of a tile of distances


def pool_step(task: Task, groups: list[Corruptions]) -> Tensor:
    """The step; the loss, float64 []."""
    batch, entity = task.batch, task.tables["entity"]
    pools = [group.entities for group in groups if group.entities is not None]
    ids = torch.cat(pools) if pools else batch.head
    sources = Sources(task, pooled=len(ids) if pools else 0)
    with beside(ids.device, task.tuning.aside):
        order = sort(sources, ids, ids, ids)
    work = _Work(task, sources)
    where = {**task.shape(), "columns": task.columns(512), "num_warps": 4}
    rows = (entity, task.tables["relation"], batch.head, batch.relation, batch.tail)
    ask_kernel[(len(batch),)](*rows, sources.rows, work.products, **where)
    addend, begun = None, 3 * task.triples
    for number, group in enumerate(groups):
        if group.entities is None:
            into, added = (torch.empty_like(entity), False) if addend is None else (addend, True)
            addend = into
        else:
            into, added = sources.pieces[begun : begun + len(group.entities)], False
            begun += len(group.entities)
        with fast_products():
            work.compute(group, into, added, fresh=number == 0)
    power, strength = task.penalised(of_rows=True)
    answer_kernel[(len(batch),)](
        *rows, work.to_queries, work.own, sources.pieces, task.triples, strength, power=power, **where
    )
    infer(sources)
    joined(ids.device, task.tuning.aside)
    return move(sources, order, addend)


@dataclass
class _Work:
    """What the groups of a step have in common."""

    task: Task
    sources: Sources

    def __post_init__(self) -> None:
        positives, width, device = len(self.task.batch), self.task.width, self.sources.rows.device
        self.queries = self.sources.rows[: self.sources.queries].view(positives, 2, width)
        self.to_queries = torch.zeros(positives, 2, width, device=device)
        self.products, self.own = torch.empty(positives, device=device), torch.empty(positives, device=device)
        self.masses, self.sums = torch.empty(positives, 3, device=device), torch.empty(positives, 4, device=device)

    def compute(self, group: Corruptions, into: Tensor, added: bool, fresh: bool) -> None:
        """One group: gradients of its queries, of its rows `into` [P, d] (or `added` to them), and of the positives."""
        task, recipe = self.task, self.task.recipe
        side = 0 if group.side == "tail" else 1
        queries, to_queries = self.queries[:, side], self.to_queries[:, side]
        entity = task.tables["entity"]
        rows = entity if group.entities is None else entity.index_select(0, group.entities)
        positives = len(queries)
        wide = min(max(CELLS // positives // 128 * 128, 128), len(rows))
        cells = torch.empty(positives, _padded(wide), device=rows.device)
        starts = range(0, len(rows), wide)
        for start in starts:
            self._compare(group, queries, rows[start : start + wide], cells, start)
            self._level(weigh_kernel, group, cells, start, min(wide, len(rows) - start), len(rows), start == 0, {})
        for start in starts:
            block = rows[start : start + wide]
            if len(starts) > 1:
                self._compare(group, queries, block, cells, start)
            more = {"products": self.products, "sums": self.sums, "factor": task.scale, "margin": recipe.margin,
                    "form": task.shape()["form"]}  # fmt: skip
            self._level(bend_kernel, group, cells, start, len(block), len(rows), start == 0, more)
            self._pull(queries, to_queries, block, cells, into[start : start + wide], added)
        settle_kernel[(triton.cdiv(positives, 128),)](
            task.scale_table, task.batch.weight, task.beta, self.products, self.masses, self.sums,
            self.sources.losses, self.own, self.sources.of_scale, positives, task.scale, recipe.shift, recipe.margin,
            form=task.shape()["form"], loss=LOSS_CODES[recipe.loss], curve=NONLINEARITY_CODES[recipe.nonlinearity],
            focused=recipe.focused, scaled=task.scaled, fresh=fresh, block=128,
        )  # fmt: skip

    def _level(
        self, kernel: Any, group: Corruptions, cells: Tensor, first: int, wide: int, size: int, fresh: bool,
        more: dict[str, Any],
    ) -> None:  # fmt: skip
        """One of the two kernels that go over a block of cells, a program a positive."""
        task, recipe, weight = self.task, self.task.recipe, self.task.batch.weight
        mask = weight if group.mask is None else group.mask.contiguous().view(torch.uint8)
        kernel[(len(cells),)](
            cells=cells, scale=task.scale_table, weights=weight, beta=task.beta,
            pool=weight if group.entities is None else group.entities,
            target=weight if group.target is None else group.target, mask=mask, masses=self.masses,
            first=first, wide=wide, apart=cells.stride(0), size=size, shift=recipe.shift,
            temperature=recipe.temperature, loss=LOSS_CODES[recipe.loss],
            curve=NONLINEARITY_CODES[recipe.nonlinearity], focused=recipe.focused, scaled=task.scaled,
            listed=group.entities is not None, targeted=group.target is not None, masked=group.mask is not None,
            marked=group.facts is not None, fresh=fresh, block=min(1024, triton.next_power_of_2(wide)), num_warps=4,
            **more,
        )  # fmt: skip

    def _compare(self, group: Corruptions, queries: Tensor, rows: Tensor, cells: Tensor, first: int) -> None:
        """Comparisons of all queries with some rows; those of known facts are made NaN."""
        task, wide = self.task, len(rows)
        if task.model.form == "dot":
            torch.mm(queries, rows.t(), out=cells[:, :wide])
        else:
            grid = (triton.cdiv(len(queries), TILE), triton.cdiv(wide, TILE))
            distance_kernel[grid](
                _turned(queries), _turned(rows, cells.shape[1]), cells, len(queries), _padded(len(queries)),
                cells.shape[1], width=task.width, form=task.shape()["form"], high=TILE, broad=TILE, num_warps=4,
            )  # fmt: skip
        if group.facts is not None and len(group.facts[0]):
            facts = len(group.facts[0])
            forget_kernel[(triton.cdiv(facts, 1024),)](cells, *group.facts, facts, first, wide, cells.stride(0), 1024)

    def _pull(
        self, queries: Tensor, to_queries: Tensor, rows: Tensor, cells: Tensor, into: Tensor, added: bool
    ) -> None:
        """Gradients of the queries, which add up, and of some rows, by a block of coefficients."""
        coefficients = cells[:, : len(rows)]
        if self.task.model.form == "dot":
            to_queries.addmm_(coefficients, rows)
            into.addmm_(coefficients.t(), queries, beta=float(added))
            return
        form, width = self.task.shape()["form"], self.task.width
        sums = (
            (queries, rows, _turned(coefficients), to_queries, True),
            (rows, queries, coefficients, into, added),
        )
        for mine, others, weights, out, more in sums:
            grid = (triton.cdiv(len(mine), TILE), triton.cdiv(width, TILE))
            pull_kernel[grid](
                mine, others, weights, out, len(mine), len(others), mine.stride(0), others.stride(0),
                weights.stride(0), out.stride(0), width=width, form=form, added=more, high=TILE, broad=TILE,
                num_warps=4,
            )  # fmt: skip


def _padded(size: int) -> int:
    return -(-size // TILE) * TILE


def _turned(x: Tensor, wide: int = 0) -> Tensor:
    """[n, m] -> [m, n and zeros up to a whole number of tiles, or up to `wide`]."""
    out = torch.zeros(x.shape[1], wide or _padded(len(x)), device=x.device)
    out[:, : len(x)] = x.t()
    return out


@contextmanager
def fast_products() -> Iterator[None]:
    """Matrix products round their inputs to tf32 in here, as tensor cores take them, and sum in float32."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = FAST
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
