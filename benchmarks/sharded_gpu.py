"""The sharded engine on a GPU, whose rows are exchanged by NCCL.

    python benchmarks/sharded_gpu.py                       # a minute or two; needs one GPU, and nothing but torch
    torchrun --nproc-per-node 4 benchmarks/sharded_gpu.py  # as many GPUs as there are

First, steps of the sharded engine are compared with those of the reference on the same GPU: the largest difference of
any number of any table. Then a table of `--entities` is trained: milliseconds per step, and the memory of the GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_PORT": "0"}.items():
    os.environ.setdefault(name, value)

import smoke  # noqa: E402
import torch  # noqa: E402

from focuse.engines.autograd import AutogradEngine  # noqa: E402
from focuse.engines.base import Step  # noqa: E402
from focuse.engines.optimizers import make_optimizer  # noqa: E402
from focuse.engines.process_group import ProcessGroup, init_group  # noqa: E402
from focuse.engines.sharded import ShardedEngine  # noqa: E402
from focuse.models.registry import make_model  # noqa: E402
from focuse.objective.losses import (  # noqa: E402
    FocusedLoss,
    SoftLabelLoss,
    make_loss,
    make_regularizer,
)
from focuse.objective.negatives import (  # noqa: E402
    Batch,
    NegativeSampler,
)
from focuse.objective.randomness import draw_integers, stream_seed  # noqa: E402

RELATIONS = 50
CASES: list[tuple[str, str, str, int, Any]] = [
    ("complex", "sparse-adagrad", "shared", 256, SoftLabelLoss(4.0)),
    ("distmult", "sparse-adam", "per-triple", 20, FocusedLoss(make_loss("pairwise-nll"), None)),
    ("transe", "sparse-adam", "per-triple", 20, FocusedLoss(make_loss("margin:2"), None)),
    ("rotate", "sparse-adagrad", "shared", 256, FocusedLoss(make_loss("self-adversarial"), None)),
]


def first(model: Any, entities: int, dim: int, device: torch.device) -> dict[str, torch.Tensor]:
    random = torch.Generator(device).manual_seed(0)
    shapes = {"entity": (entities, model.widths(dim)[0]), "relation": (RELATIONS, model.widths(dim)[1])}
    return {name: torch.randn(shape, generator=random, device=device) * 0.1 for name, shape in shapes.items()}


def batch_of(number: int, entities: int, size: int, device: torch.device) -> Batch:
    sizes = (entities, RELATIONS, entities)
    ids = [draw_integers(stream_seed(1, number, place), (size,), below, device) for place, below in enumerate(sizes)]
    return Batch(*ids, torch.rand(size, generator=torch.Generator(device).manual_seed(number), device=device))


def steps(engine: Any, sampler: NegativeSampler, objective: Any, count: int, size: int, skip: int = 0) -> None:
    penalty = make_regularizer("l3:1e-3", "touched")
    for number in range(skip, skip + count):
        batch = batch_of(number, sampler.entities, size, engine.device)
        engine.step(Step(batch, sampler(batch, stream_seed(2, number)), objective, 1.0, penalty))


def equality(group: ProcessGroup, entities: int, dim: int, size: int) -> list[dict[str, Any]]:
    """Return the largest difference to the reference per model."""
    found = []
    for name, optimizer, sampling, negatives, objective in CASES:
        model, sampler = make_model(name), NegativeSampler(sampling, negatives, entities)
        tables = first(model, entities, dim, group.device)
        made = make_optimizer(optimizer, tables, 0.01)
        reference = AutogradEngine(model, tables, made)
        steps(reference, sampler, objective, 10, size)
        ours = first(model, entities, dim, group.device)
        ours["entity"] = ours["entity"][group.shard(entities)].contiguous()
        made = make_optimizer(optimizer, ours, 0.01)
        engine = ShardedEngine(model, ours, made, False, group, entities)
        steps(engine, sampler, objective, 10, size)
        whole = group.all_gather(engine.tables["entity"], entities)
        apart = [whole - reference.tables["entity"], engine.tables["relation"] - reference.tables["relation"]]
        figures = {"largest_difference": max(float(part.abs().max()) for part in apart)}
        figures["share_above_1e-4"] = float((apart[0].abs() > 1e-4).double().mean())
        found.append({"model": name, "optimizer": optimizer, **figures})
    return found


def timing(group: ProcessGroup, entities: int, dim: int, size: int) -> dict[str, Any]:
    """Return the time of a step and the memory that it takes."""
    model = make_model("complex")
    width, mine = model.widths(dim)[0], group.shard(entities)
    rows = torch.empty(mine.stop - mine.start, width, device=group.device).uniform_(-0.1, 0.1)
    relations = torch.zeros(RELATIONS, width, device=group.device).uniform_(-0.1, 0.1)
    optimizer = make_optimizer("sparse-adagrad", {"entity": rows, "relation": relations}, 0.1)
    engine = ShardedEngine(model, {"entity": rows, "relation": relations}, optimizer, False, group, entities)
    sampler, objective = NegativeSampler("shared", 256, entities), SoftLabelLoss(4.0)
    steps(engine, sampler, objective, 10, size)
    torch.cuda.synchronize()
    start = time.perf_counter()
    steps(engine, sampler, objective, 100, size, skip=10)
    torch.cuda.synchronize()
    each = (time.perf_counter() - start) / 100
    figures = {"entities": entities, "width": width, "ms_per_step": each * 1e3, "triples_per_second": size / each}
    return figures | {"gpu_gb": torch.cuda.max_memory_allocated() / 1e9}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--device", default="cuda")
    given = smoke.parse(parser, device="cpu")
    group = init_group(given.device)
    sizes = (60, 4, 16) if given.smoke else (5000, 64, 512)  # entities, dimension, batch
    result: dict[str, Any] = {"processes": group.size, "device": str(group.device)}
    result["equality"] = equality(group, *sizes)
    if group.device.type == "cuda":
        result |= {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        result["timing"] = timing(group, given.entities, given.dim, given.batch)
    if group.is_main:
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
