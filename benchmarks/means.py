"""By what means a CPU should take a step: the first half of one in torch, in Numba and in this project's C++.

    python benchmarks/means.py        # Numba's row needs: pip install numba

All three compute the same thing for a batch of PPI5K's size: the scores of each positive's own corruptions, softplus,
α, softmax, the slopes, and the gradients of both queries; the C++ loops also form the queries and pass their gradients
on to heads, relations and tails. Milliseconds a batch, the best of some, after a first one that compiles.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import smoke
import torch
from torch import Tensor
from torch.nn.functional import softplus

from focuse.engines.base import Step, fused_objective
from focuse.engines.fused_cpu import FusedCpuEngine, _NativeStep
from focuse.engines.optimizers import make_optimizer
from focuse.models.registry import make_model
from focuse.objective.focuse import FocusELayer
from focuse.objective.losses import FocusedLoss, make_loss
from focuse.objective.negatives import Batch, Negatives

ENTITIES, RELATIONS, ROWS, COUNT, DIM, BETA = 4_999, 7, 3_609, 30, 100, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    repeats = smoke.parse(parser, repeats=1).repeats
    random = torch.Generator().manual_seed(0)
    model = make_model("complex")
    tables = {
        name: torch.randn(rows, 2 * DIM, generator=random) * 0.1
        for name, rows in (("entity", ENTITIES), ("relation", RELATIONS))
    }
    ids = [torch.randint(rows, (ROWS,), generator=random) for rows in (ENTITIES, RELATIONS, ENTITIES)]
    batch = Batch(*ids, torch.rand(ROWS, generator=random))
    entities = torch.randint(ENTITIES, (ROWS, COUNT), generator=random)
    group = Negatives("both", entities, torch.rand(ROWS, COUNT, generator=random) < 0.5)
    head, relation, tail = (
        tables[name][place] for name, place in zip(("entity", "relation", "entity"), ids, strict=True)
    )
    queries = torch.stack([model.query(tail, relation, "head"), model.query(head, relation, "tail")])
    positive = (queries[1] * tail).sum(1)
    engine = FusedCpuEngine(model, tables, make_optimizer("sparse-adam", tables, 1e-3))
    objective = FocusedLoss(make_loss("multiclass-nll"), FocusELayer("softplus"))
    fused = fused_objective(objective)
    assert fused is not None

    def native() -> Tensor:
        step = _NativeStep(engine, Step(batch, [group], objective, BETA), fused)
        step.per_triple_negatives(group)
        return engine.buffer("negative_gradient", ROWS, COUNT)

    ways: dict[str, Callable[[], Tensor]] = {
        "torch": lambda: by_torch(tables["entity"], queries, positive, batch.weight, group),
        "C++": native,
    }
    numba = by_numba(tables["entity"], queries, positive, batch.weight, group)
    if numba is not None:
        ways["Numba"] = numba
    truth = ways["torch"]()
    print(f"{torch.get_num_threads()} threads\n\n| by | ms a batch | ÷ C++ | slopes apart |\n| --- | --- | --- | --- |")
    found = {}
    for name, way in ways.items():
        apart = float((way() - truth).abs().max())
        found[name] = min(timed(way) for _ in range(repeats)), apart
    for name, (seconds, apart) in found.items():
        print(f"| {name} | {seconds * 1e3:.1f} | {seconds / found['C++'][0]:.1f} | {apart:.0e} |")


def timed(way: Callable[[], object]) -> float:
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def by_torch(entity: Tensor, queries: Tensor, positive: Tensor, weight: Tensor, group: Negatives) -> Tensor:
    """Array after array, each [B, N, d] or [B, N]; the slopes [B, N]."""
    assert group.entities is not None
    assert group.replaces_tail is not None
    rows = entity[group.entities]
    asked = queries[group.replaces_tail.long(), torch.arange(len(rows))[:, None]]
    scores = (rows * asked).sum(2)
    alpha = (BETA + weight * (1 - BETA))[:, None]
    h = alpha * softplus(scores)
    best = (BETA + (1 - weight) * (1 - BETA)) * softplus(positive)
    share = torch.softmax(torch.cat([best[:, None], h], 1), 1)[:, 1:]
    slopes = share * alpha * torch.sigmoid(scores)
    pulled = rows * slopes[:, :, None]
    for side in (group.replaces_tail, ~group.replaces_tail):
        (pulled * side[:, :, None]).sum(1)
    return slopes


def by_numba(
    entity: Tensor, queries: Tensor, positive: Tensor, weight: Tensor, group: Negatives
) -> Callable[[], Tensor] | None:
    """The same in loops that Numba compiles, all threads; None where there is no Numba."""
    try:
        import numba
        import numpy as np
    except ImportError:
        return None
    numba.set_num_threads(torch.get_num_threads())

    @numba.njit(parallel=True, fastmath=True)  # type: ignore[untyped-decorator]
    def walk(
        entity: Any, queries: Any, positive: Any, weight: Any, ids: Any, tails: Any, slopes: Any, out: Any
    ) -> None:
        rows, count = ids.shape
        width = entity.shape[1]
        for b in numba.prange(rows):
            alpha = np.float32(BETA) + weight[b] * np.float32(1 - BETA)
            best = np.float32(BETA) + (np.float32(1) - weight[b]) * np.float32(1 - BETA)
            best *= np.log1p(np.exp(-abs(positive[b]))) + max(positive[b], np.float32(0))
            highest = best
            for n in range(count):
                row, query, score = ids[b, n], queries[tails[b, n], b], np.float32(0)
                for j in range(width):
                    score += query[j] * entity[row, j]
                slopes[b, n] = score
                highest = max(highest, alpha * (max(score, np.float32(0)) + np.log1p(np.exp(-abs(score)))))
            total = np.exp(best - highest)
            for n in range(count):
                score = slopes[b, n]
                h = alpha * (max(score, np.float32(0)) + np.log1p(np.exp(-abs(score))))
                e = np.exp(h - highest)
                total += e
                slopes[b, n] = e * alpha / (np.float32(1) + np.exp(-score))
            out[:, b] = 0
            for n in range(count):
                slopes[b, n] /= total
                row, side = ids[b, n], tails[b, n]
                for j in range(width):
                    out[side, b, j] += slopes[b, n] * entity[row, j]

    assert group.entities is not None
    assert group.replaces_tail is not None
    ids, tails = group.entities.numpy(), group.replaces_tail.long().numpy()
    slopes, out = torch.empty(ids.shape), torch.empty_like(queries)
    given = (entity.numpy(), queries.numpy(), positive.numpy(), weight.numpy(), ids, tails, slopes.numpy(), out.numpy())

    def again() -> Tensor:
        walk(*given)
        return slopes

    return again


if __name__ == "__main__":
    main()
