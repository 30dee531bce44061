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
for name, value in {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_PORT": "29511"}.items():
    os.environ.setdefault(name, value)

import torch  # noqa: E402

from focuse.engines import Batch, ReferenceEngine  # noqa: E402
from focuse.engines.company import Company, join  # noqa: E402
from focuse.engines.sharded import ShardedEngine  # noqa: E402
from focuse.engines.torchrec import lacks  # noqa: E402
from focuse.models import make_model  # noqa: E402
from focuse.training.losses import Objective, SoftLabel, make_loss  # noqa: E402
from focuse.training.negatives import Sampler, draw, key_of  # noqa: E402
from focuse.training.optimisers import make_optimiser  # noqa: E402
from focuse.training.regularisers import make_regulariser  # noqa: E402

RELATIONS = 50
CASES: list[tuple[str, str, str, int, Any]] = [
    ("complex", "row-adagrad", "shared", 256, SoftLabel(4.0)),
    ("distmult", "row-adam", "independent", 20, Objective(make_loss("pairwise-nll"), None)),
    ("transe", "row-adam", "independent", 20, Objective(make_loss("margin:2"), None)),
    ("rotate", "row-adagrad", "shared", 256, Objective(make_loss("self-adversarial"), None)),
]


def first(model: Any, entities: int, dim: int, device: torch.device) -> dict[str, torch.Tensor]:
    random = torch.Generator(device).manual_seed(0)
    shapes = {"entity": (entities, model.entity_width(dim)), "relation": (RELATIONS, model.relation_width(dim))}
    return {name: torch.randn(shape, generator=random, device=device) * 0.1 for name, shape in shapes.items()}


def batch_of(number: int, entities: int, size: int, device: torch.device) -> Batch:
    sizes = (entities, RELATIONS, entities)
    ids = [draw(key_of(1, number, place), (size,), below, device) for place, below in enumerate(sizes)]
    return Batch(*ids, torch.rand(size, generator=torch.Generator(device).manual_seed(number), device=device))


def steps(engine: Any, sampler: Sampler, objective: Any, count: int, size: int, skip: int = 0) -> None:
    penalty = make_regulariser("l3:1e-3", "touched")
    for number in range(skip, skip + count):
        batch = batch_of(number, sampler.entities, size, engine.device)
        engine.step(batch, sampler(batch, key_of(2, number)), objective, 1.0, penalty)


def equality(company: Company) -> list[dict[str, Any]]:
    """The largest difference to the reference, of the exchange by NCCL and of rows in main memory."""
    found, entities, dim = [], 5000, 64
    for name, optimiser, sampling, negatives, objective in CASES:
        model, sampler = make_model(name), Sampler(sampling, negatives, entities)
        tables = first(model, entities, dim, company.device)
        reference = ReferenceEngine(model, tables["entity"], tables["relation"])
        reference.optimiser = make_optimiser(optimiser, reference.tables, 0.01)
        steps(reference, sampler, objective, 10, 512)
        for home in (company.device, torch.device("cpu")):
            ours = first(model, entities, dim, company.device)
            ours["entity"] = ours["entity"][company.part(entities)].to(home).contiguous()
            made = make_optimiser(optimiser, ours, 0.01)
            engine = ShardedEngine(
                model, ours["entity"], ours["relation"], made, {}, company, entities, "sharded:plain"
            )
            steps(engine, sampler, objective, 10, 512)
            whole = company.gathered(engine.tables["entity"].to(company.device), entities)
            apart = [whole - reference.tables["entity"], engine.tables["relation"] - reference.tables["relation"]]
            figures = {"largest_difference": max(float(part.abs().max()) for part in apart)}
            figures["share_above_1e-4"] = float((apart[0].abs() > 1e-4).double().mean())
            found.append({"model": name, "optimiser": optimiser, "rows": home.type, **figures})
    return found


def timing(company: Company, entities: int, dim: int, size: int) -> list[dict[str, Any]]:
    """Steps from a table on the device and from one in main memory."""
    found, model = [], make_model("complex")
    sampler, objective = Sampler("shared", 256, entities), SoftLabel(4.0)
    mine = company.part(entities)
    for home in (company.device, torch.device("cpu")):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        width = model.entity_width(dim)
        rows = torch.empty(mine.stop - mine.start, width, device=home).uniform_(-0.1, 0.1)
        tables = {"entity": rows, "relation": torch.zeros(RELATIONS, width, device=company.device).uniform_(-0.1, 0.1)}
        optimiser = make_optimiser("row-adagrad", tables, 0.1)
        own = tables["entity"], tables["relation"], optimiser, {}
        engine = ShardedEngine(model, *own, company, entities, "sharded:plain")
        steps(engine, sampler, objective, 10, size)
        torch.cuda.synchronize()
        start = time.perf_counter()
        steps(engine, sampler, objective, 100, size, skip=10)
        torch.cuda.synchronize()
        each = (time.perf_counter() - start) / 100
        held = torch.cuda.max_memory_allocated() / 1e9
        figures = {"rows": home.type, "entities": entities, "width": width, "ms_a_step": each * 1e3}
        found.append(figures | {"triples_a_second": size / each, "gpu_gb": held})
        del rows, tables, optimiser, engine, own
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entities", type=int, default=10_000_000)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    company = join(given.device)
    result: dict[str, Any] = {"processes": company.count, "device": str(company.device), "equality": equality(company)}
    if company.device.type == "cuda":
        result |= {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        result["timing"] = timing(company, given.entities, given.dim, given.batch)
    result["torchrec"] = lacks(None) or "installed"
    if company.leads:
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
