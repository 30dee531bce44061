"""Every model on a GPU: the reference's steps as torch launches them, and the same ones recorded and replayed.

    python benchmarks/recorded.py [epochs [model ...]]

A graph of PPI5K's size with random edges, batches of 2,048, row-adam, softplus and the multiclass loss (models of a
confidence: the squared error), k = 100 or the next that a model can have: milliseconds a step with 30 corruptions a
positive of its own and with a pool of 256, both engines in one process, the best of some epochs of 32 steps each.
Models that draw in training (ConvE, KBGAT) cannot be recorded and run as the reference does.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

from focuse.engines import Batch, ReferenceEngine, make_engine
from focuse.errors import FocuseError
from focuse.models import MODELS, Context, Model
from focuse.training.loop import make_objective
from focuse.training.negatives import Sampler, key_of
from focuse.training.optimisers import make_optimiser
from focuse.training.settings import Settings

ENTITIES, RELATIONS, EDGES, ROWS, STEPS = 4_999, 7, 230_929, 2_048, 32
SAMPLINGS = (("independent", 30), ("shared", 256))
WARM = 2  # epochs that are not timed: kernels compile, graphs are recorded


def graph() -> Batch:
    random = torch.Generator().manual_seed(0)
    ids = [torch.randint(rows, (EDGES,), generator=random) for rows in (ENTITIES, RELATIONS, ENTITIES)]
    return Batch(*(part.cuda() for part in (*ids, torch.rand(EDGES, generator=random))))


def in_graph(model: Model, edges: Batch) -> Model:
    """With what it wants to know of the graph."""
    random = torch.Generator().manual_seed(1)
    numbers = torch.randn(ENTITIES, 4, generator=random).cuda() if "numbers" in model.wants else None
    present = None if numbers is None else torch.ones_like(numbers, dtype=torch.bool)
    triples = (edges.head, edges.relation, edges.tail) if "edges" in model.wants else None
    return model.with_context(Context(triples, numbers, present)) if model.wants else model


def settings_of(name: str, sampling: str, count: int) -> Settings:
    for dim in range(100, 200):
        try:
            MODELS[name]().check(dim)
            break
        except FocuseError:
            continue
    more: dict[str, Any] = {} if MODELS[name].confident else {"focus": "paper", "nonlinearity": "softplus"}
    if MODELS[name].defaults.get("focus") == "off":
        more = {}
    return Settings.of(model=name, dim=dim, sampling=sampling, negatives=count, optimizer="row-adam", **more)


def timed(name: str, engine_name: str, sampling: str, count: int, edges: Batch, epochs: int) -> tuple[float, float]:
    """Milliseconds a step, and the loss of the last epoch."""
    settings = settings_of(name, sampling, count)
    model, random = in_graph(settings.make_model(), edges), torch.Generator().manual_seed(2)
    tables = {
        "entity": torch.randn(ENTITIES, model.entity_width(settings.dim), generator=random) * 0.1,
        "relation": torch.randn(RELATIONS, model.relation_width(settings.dim), generator=random) * 0.1,
    }
    tables = {key: table.cuda() for key, table in {**tables, **model.dense_start(settings.dim, random)}.items()}
    engine: ReferenceEngine = make_engine(engine_name, model, tables, make_optimiser("row-adam", tables, 1e-3))
    objective, sampler = make_objective(settings, settings.make_focus()), Sampler(sampling, count, ENTITIES)

    def compute(rows: torch.Tensor, beta: Any, key: Any) -> Any:
        some = edges.take(rows)
        mine = key if isinstance(key, int) else None
        return engine.step(some, sampler(some, key), objective, beta, None, 1.0, None, mine)

    steps, best, loss = engine.prepare(compute), float("inf"), 0.0
    for epoch in range(WARM + epochs):
        order = torch.randperm(EDGES, generator=torch.Generator().manual_seed(epoch)).cuda()[: STEPS * ROWS]
        parts = torch.split(order, ROWS)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        total: Any = 0.0
        for start in range(0, STEPS, engine.together):
            some = range(start, min(start + engine.together, STEPS))
            total = total + steps([parts[i] for i in some], 0.5, [key_of(0, epoch, i) for i in some])
        loss = float(total)
        torch.cuda.synchronize()
        if epoch >= WARM:
            best = min(best, time.perf_counter() - begun)
    return best / STEPS * 1e3, loss


def main() -> None:
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    edges = graph()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| model | corruptions | reference, ms a step | by default | ratio | losses apart |\n" + "| --- " * 6 + "|")
    for name in sys.argv[2:] or MODELS:
        for sampling, count in SAMPLINGS:
            words = f"{count} of its own" if sampling == "independent" else f"a pool of {count}"
            both = [timed(name, engine, sampling, count, edges, epochs) for engine in ("reference", "auto")]
            (slow, loss), (fast, twin) = both
            apart = abs(twin - loss) / abs(loss)
            print(f"| `{name}` | {words} | {slow:.2f} | {fast:.2f} | {slow / fast:.1f} | {apart:.0e} |", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
