"""The sharded engine on a GPU: NCCL in one process, and tables in main memory beside tables on the device.

    python benchmarks/sharded_gpu.py                       # a minute or two; needs one GPU, and nothing but torch
    torchrun --nproc-per-node 4 benchmarks/sharded_gpu.py  # as many GPUs as there are

First, steps of the sharded engine (rows exchanged by NCCL; rows in main memory as well) are held against those of the
reference on the same GPU: the largest difference of any number of any table. Then a table of `--entities` is trained
from device memory and from main memory: milliseconds a step, and how much of the GPU's memory was taken. Last a line
on TorchRec, whose tables with a cache (UVM) need a build of fbgemm for CUDA.
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
from focuse.engines.sharded.engine import ShardedEngine  # noqa: E402
from focuse.engines.sharded.exchange import torchrec_unavailable  # noqa: E402
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
    """The largest difference to the reference, of the exchange by NCCL and of rows in main memory."""
    found = []
    for name, optimizer, sampling, negatives, objective in CASES:
        model, sampler = make_model(name), NegativeSampler(sampling, negatives, entities)
        tables = first(model, entities, dim, group.device)
        made = make_optimizer(optimizer, tables, 0.01)
        reference = AutogradEngine(model, tables["entity"], tables["relation"], made)
        steps(reference, sampler, objective, 10, size)
        for home in (group.device, torch.device("cpu")):
            ours = first(model, entities, dim, group.device)
            ours["entity"] = ours["entity"][group.shard(entities)].to(home).contiguous()
            made = make_optimizer(optimizer, ours, 0.01)
            engine = ShardedEngine(model, ours["entity"], ours["relation"], made, {}, group, entities, "sharded:plain")
            steps(engine, sampler, objective, 10, size)
            whole = group.all_gather(engine.tables["entity"].to(group.device), entities)
            apart = [whole - reference.tables["entity"], engine.tables["relation"] - reference.tables["relation"]]
            figures = {"largest_difference": max(float(part.abs().max()) for part in apart)}
            figures["share_above_1e-4"] = float((apart[0].abs() > 1e-4).double().mean())
            found.append({"model": name, "optimizer": optimizer, "rows": home.type, **figures})
    return found


def timing(group: ProcessGroup, entities: int, dim: int, size: int) -> list[dict[str, Any]]:
    """Steps from a table on the device and from one in main memory."""
    found, model = [], make_model("complex")
    sampler, objective = NegativeSampler("shared", 256, entities), SoftLabelLoss(4.0)
    mine = group.shard(entities)
    for home in (group.device, torch.device("cpu")):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        width = model.widths(dim)[0]
        rows = torch.empty(mine.stop - mine.start, width, device=home).uniform_(-0.1, 0.1)
        tables = {"entity": rows, "relation": torch.zeros(RELATIONS, width, device=group.device).uniform_(-0.1, 0.1)}
        optimizer = make_optimizer("sparse-adagrad", tables, 0.1)
        own = tables["entity"], tables["relation"], optimizer, {}
        engine = ShardedEngine(model, *own, group, entities, "sharded:plain")
        steps(engine, sampler, objective, 10, size)
        torch.cuda.synchronize()
        start = time.perf_counter()
        steps(engine, sampler, objective, 100, size, skip=10)
        torch.cuda.synchronize()
        each = (time.perf_counter() - start) / 100
        held = torch.cuda.max_memory_allocated() / 1e9
        figures = {"rows": home.type, "entities": entities, "width": width, "ms_a_step": each * 1e3}
        found.append(figures | {"triples_a_second": size / each, "gpu_gb": held})
        del rows, tables, optimizer, engine, own
    return found


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
    result["torchrec"] = torchrec_unavailable(None) or "installed"
    if group.is_main:
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
