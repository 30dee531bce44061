"""Every model on a GPU: the reference's steps as torch launches them, and the same ones recorded and replayed.

    python benchmarks/recorded.py [EPOCHS [MODEL ...]]

A graph of PPI5K's size with random edges, batches of 2,048, sparse-adam, softplus and the multiclass loss (models of a
confidence: the squared error), k = 100 or the next that a model can have: milliseconds a step with 30 corruptions a
positive of its own and with a pool of 256, both engines in one process, the best of some epochs of 32 steps each.
Models that draw in training (ConvE, KBGAT) cannot be recorded and run as the reference does.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import smoke
import torch

from focuse.config import Config
from focuse.engines.base import Step
from focuse.engines.factory import make_engine
from focuse.engines.optimizers import make_optimizer
from focuse.errors import FocuseError
from focuse.models import Context, Model
from focuse.models.registry import MODELS
from focuse.objective.negatives import Batch, NegativeSampler
from focuse.objective.randomness import stream_seed
from focuse.training.problem import make_objective

ENTITIES, RELATIONS, EDGES, ROWS, STEPS = 4_999, 7, 230_929, 2_048, 32
SAMPLINGS = (("per-triple", 30), ("shared", 256))
WARM = 2  # epochs that are not timed: kernels compile, graphs are recorded


def graph() -> Batch:
    random = torch.Generator().manual_seed(0)
    ids = [torch.randint(rows, (EDGES,), generator=random) for rows in (ENTITIES, RELATIONS, ENTITIES)]
    return Batch(*(part.cuda() for part in (*ids, torch.rand(EDGES, generator=random))))


def in_graph(model: Model, edges: Batch) -> Model:
    """With what it wants to know of the graph."""
    random = torch.Generator().manual_seed(1)
    numbers = torch.randn(ENTITIES, 4, generator=random).cuda() if "attributes" in model.requires else None
    present = None if numbers is None else torch.ones_like(numbers, dtype=torch.bool)
    triples = (edges.head, edges.relation, edges.tail) if "edges" in model.requires else None
    return model.bind(context=Context(triples, numbers, present))


def settings_of(name: str, sampling: str, count: int) -> Config:
    for dim in range(100, 200):
        try:
            MODELS[name]().widths(dim)
            break
        except FocuseError:
            continue
    more: dict[str, Any] = (
        {} if MODELS[name].confidence_head is not None else {"weight_mode": "focuse", "nonlinearity": "softplus"}
    )
    if MODELS[name].defaults.get("weight_mode") == "none":
        more = {}
    return Config.from_kwargs(
        model=name, dim=dim, negative_sampling=sampling, num_negatives=count, optimizer="sparse-adam", **more
    )


def timed(name: str, engine_name: str, sampling: str, count: int, edges: Batch, epochs: int) -> tuple[float, float]:
    """Milliseconds a step, and the loss of the last epoch."""
    settings = settings_of(name, sampling, count)
    model, random = in_graph(settings.make_model(), edges), torch.Generator().manual_seed(2)
    tables = {
        "entity": torch.randn(ENTITIES, model.widths(settings.dim)[0], generator=random) * 0.1,
        "relation": torch.randn(
            RELATIONS * (2 if settings.reciprocal else 1), model.widths(settings.dim)[1], generator=random
        )
        * 0.1,
    }
    tables = {key: table.cuda() for key, table in {**tables, **model.init_parameters(settings.dim, random)}.items()}
    optimizer = make_optimizer("sparse-adam", tables, 1e-3)
    engine = make_engine(engine_name, model, tables, optimizer, inverse_relations=settings.reciprocal)
    objective, sampler = (
        make_objective(settings, settings.make_focuse_layer()),
        NegativeSampler(sampling, count, ENTITIES),
    )

    def compute(rows: torch.Tensor, beta: Any, key: Any) -> Any:
        some = edges.take(rows)
        mine = key if isinstance(key, int) else None
        return engine.step(Step(some, sampler(some, key), objective, beta, None, 1.0, None, mine))

    steps, best, loss = engine.make_batch_runner(compute), float("inf"), 0.0
    for epoch in range(WARM + epochs):
        order = torch.randperm(EDGES, generator=torch.Generator().manual_seed(epoch)).cuda()[: STEPS * ROWS]
        parts = torch.split(order, ROWS)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        total: Any = 0.0
        for start in range(0, STEPS, engine.steps_per_call):
            some = range(start, min(start + engine.steps_per_call, STEPS))
            total = total + steps([parts[i] for i in some], 0.5, [stream_seed(0, epoch, i) for i in some])
        loss = float(total)
        torch.cuda.synchronize()
        if epoch >= WARM:
            best = min(best, time.perf_counter() - begun)
    return best / STEPS * 1e3, loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("epochs", metavar="EPOCHS", type=int, nargs="?", default=3)
    parser.add_argument("models", metavar="MODEL", nargs="*", default=list(MODELS))
    options = smoke.parse(parser, epochs=1, models=["complex", "ukge-logi"])
    if options.smoke and not torch.cuda.is_available():
        for name in options.models:
            settings_of(name, *SAMPLINGS[0])
        smoke.missing("a GPU")
    edges = graph()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n")
    print("| model | corruptions | reference, ms a step | by default | ratio | losses apart |\n" + "| --- " * 6 + "|")
    for name in options.models:
        for sampling, count in SAMPLINGS:
            words = f"{count} of its own" if sampling == "per-triple" else f"a pool of {count}"
            both = [timed(name, engine, sampling, count, edges, options.epochs) for engine in ("torch", "auto")]
            (slow, loss), (fast, twin) = both
            apart = abs(twin - loss) / abs(loss)
            print(f"| `{name}` | {words} | {slow:.2f} | {fast:.2f} | {slow / fast:.1f} | {apart:.0e} |", flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
