"""The GPU engine beside the reference and beside the machine's own limits: where the time of a step goes.

    FOCUSE_DATA=folder python benchmarks/engines.py [--sweep] [--quick] [ppi5k nl27k …]

First the ceilings, measured here: copies through memory, gathers of rows that lie in the second-level cache, fused
multiply-adds, matrix products of tf32. Then, for every data set and model (k = 400, η = 30, 64 batches): milliseconds
an epoch of both engines from the same batches with the same negatives, and the floor: the bytes that a step must move
at the gathers' pace. Those bytes are, in rows of d floats: N + 3 read and 5 written a positive (its corruptions and
itself; two queries and three gradients), N + 3 read by the sums, six a row of the tables (Adam reads and writes it
and its two moments); and 26 bytes a corruption for its id, side, coefficient and place. The operations are 6·d a
corruption or positive: a comparison and its two gradients.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import smoke
import torch

if smoke.asked() and not torch.cuda.is_available():
    smoke.missing("a GPU, and Triton for its kernels")

import triton
import triton.language as tl

from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Step
from focuse.engines.gpu import FusedGpuEngine
from focuse.engines.optimizers import make_optimizer
from focuse.engines.triton.step import StepBuffers, StepTask, Tuning, differentiate, sort_entries, update_rows
from focuse.models.registry import make_model
from focuse.objective.focuse import FocusELayer, default_nonlinearity
from focuse.objective.losses import FocusedLoss, Regularizer, SquaredError, make_loss
from focuse.objective.negatives import Batch, Negatives, NegativeSampler
from focuse.objective.randomness import stream_seed

DEVICE = torch.device("cuda")
DIM, NEGATIVES, BATCHES = 400, 30, 64
MODELS = ("complex", "distmult", "transe")


# ---- the machine's limits ---------------------------------------------------------------------------------------


@triton.jit
def gather_kernel(table, ids, out, width: tl.constexpr, rows: tl.constexpr, columns: tl.constexpr):
    """Reads `rows` rows and keeps nothing but their sum."""
    i = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    at = tl.load(ids + i)
    total = tl.zeros([rows, columns], dtype=tl.float32)
    for start in range(0, width, columns):
        d = start + tl.arange(0, columns)
        total += tl.load(table + at[:, None] * width + d[None, :], mask=(d < width)[None, :], other=0.0)
    tl.store(out + tl.program_id(0), tl.sum(tl.sum(total, axis=1), axis=0))


@triton.jit
def multiply_kernel(out, rounds, block: tl.constexpr):
    x = tl.arange(0, block).to(tl.float32)
    y = x + 0.5
    for _ in range(rounds):
        x = x * 1.0001 + y
        y = y * 0.9999 + x
    tl.store(out + tl.program_id(0) * block + tl.arange(0, block), x + y)


def milliseconds(work: Callable[[], object], repeats: int = 20, inside: int = 4) -> float:
    """The median of one call's time; `inside` calls are recorded as one graph, so that no launch is waited for."""
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    call = work
    if inside > 1:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(inside):
                work()
        call = graph.replay
    times = []
    for _ in range(repeats):
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begun.record()
        call()
        ended.record()
        torch.cuda.synchronize()
        times.append(begun.elapsed_time(ended) / inside)
    return statistics.median(times)


def ceilings() -> dict[str, float]:
    """Bytes and operations a second."""
    found = {}
    source = torch.rand(1 << 28, device=DEVICE)
    target = torch.empty_like(source)
    found["copy"] = 2 * source.numel() * 4 / milliseconds(lambda: target.copy_(source)) * 1e3
    for width, name in ((800, "gather"), (400, "gather of 400")):
        table, ids = torch.rand(5000, width, device=DEVICE), torch.randint(5000, (1 << 17,), device=DEVICE)
        out = torch.empty(1 << 14, device=DEVICE)
        best = 0.0
        for rows, columns, warps in ((32, 128, 8), (16, 128, 4), (32, 256, 8), (16, 256, 8)):
            args = (table, ids, out, width, rows, columns)
            grid = ((1 << 17) // rows,)
            took = milliseconds(lambda a=args, g=grid, w=warps: gather_kernel[g](*a, num_warps=w))
            best = max(best, (1 << 17) * width * 4 / took * 1e3)
        found[name] = best
    out = torch.empty(132 * 16 * 1024, device=DEVICE)
    took = milliseconds(lambda: multiply_kernel[(132 * 16,)](out, 4096, 1024, num_warps=8))
    found["fma"] = 132 * 16 * 1024 * 4096 * 4 / took * 1e3
    a, b = torch.rand(8192, 8192, device=DEVICE), torch.rand(8192, 8192, device=DEVICE)
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    found["tf32"] = 2 * 8192**3 / milliseconds(lambda: a @ b, 5, 2) * 1e3
    torch.backends.cuda.matmul.fp32_precision = before
    return found


# ---- one training -----------------------------------------------------------------------------------------------


class Training:
    """A graph on the device, an engine over it, and its steps."""

    def __init__(self, name: str, model: str, kind: str = "per-triple", dim: int = DIM, batches: int = BATCHES) -> None:
        graph = smoke.load(name).train
        self.entities, self.relations = len(graph.entities), len(graph.relations)
        columns = (graph.head, graph.relation, graph.tail)
        ids = [torch.from_numpy(np.asarray(column, dtype=np.int64)) for column in columns]
        weight = torch.from_numpy(np.asarray(graph.weight, dtype=np.float32))
        span = float(weight.max() - weight.min()) or 1.0
        self.data = Batch(*(part.to(DEVICE) for part in (*ids, (weight - weight.min()) / span)))
        self.model, self.dim, self.kind = make_model(model), dim, kind
        self.size = -(-len(self.data) // batches)
        self.hints: Batch | None = None
        head = self.model.confidence_head
        if head is not None:
            self.objective: FocusedLoss | SquaredError = SquaredError(head, 0.2)
        else:
            self.objective = FocusedLoss(make_loss("multiclass-nll"), FocusELayer(default_nonlinearity(self.model)))
        self.penalty = None if head is not None else Regularizer(3, 1e-3)
        count = {"per-triple": 20 if head is not None else NEGATIVES, "shared": 512, "all": 1}[kind]
        self.sampler = NegativeSampler(kind, count, self.entities)

    def engine(self, kind: type[AutogradEngine], tuning: Tuning | None = None) -> AutogradEngine:
        random = torch.Generator().manual_seed(0)
        widths = {"entity": self.model.widths(self.dim)[0], "relation": self.model.widths(self.dim)[1]}
        sizes = {"entity": self.entities, "relation": self.relations}
        tables = {
            name: (torch.randn(sizes[name], width, generator=random) * (2 / (sizes[name] + width)) ** 0.5).to(DEVICE)
            for name, width in widths.items()
        }
        dense = {name: value.to(DEVICE) for name, value in self.model.init_parameters(1, torch.Generator()).items()}
        optimizer = make_optimizer("adam", {**tables, **dense}, 1e-4)
        made = kind(self.model, tables | dense, optimizer)
        if tuning is not None:
            made.tuning = tuning
        return made

    def epochs(self, engine: AutogradEngine, number: int, steps: int | None = None) -> tuple[float, float]:
        """Milliseconds an epoch (the median after the first) and the last epoch's loss; `steps` cuts epochs short."""

        def compute(rows, beta, key):
            batch = self.data.take(rows)
            return engine.step(
                Step(batch, self.sampler(batch, key), self.objective, beta, self.penalty, 1.0, self.hints)
            )

        run, times, loss = engine.make_batch_runner(compute), [], 0.0
        whole = -(-len(self.data) // self.size)
        for epoch in range(number):
            order = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(epoch)).to(DEVICE)
            torch.cuda.synchronize()  # a training shuffles the next epoch while the GPU works
            begun, total = time.perf_counter(), 0.0
            parts = torch.split(order, self.size)[:steps]
            for start in range(0, len(parts), engine.steps_per_call):
                some = parts[start : start + engine.steps_per_call]
                keys = [stream_seed(0, epoch, start + place) for place in range(len(some))]
                total = total + run(some, 1.0 - 0.1 * epoch, keys)
            loss = float(total)
            times.append((time.perf_counter() - begun) * 1e3 * whole / min(steps or whole, whole))
        return statistics.median(times[1:] or times), loss / len(self.data)

    def bytes_a_step(self) -> float:
        width = self.model.widths(self.dim)[0]
        rows = self.size * (2 * (self.sampler.count + 3) + 5) + 6 * (self.entities + self.relations)
        return rows * width * 4 + 26 * self.size * self.sampler.count

    def operations_a_step(self) -> float:
        others = {"per-triple": self.sampler.count, "shared": 2 * self.sampler.count, "all": 2 * self.entities}
        return 6.0 * self.model.widths(self.dim)[0] * self.size * (others[self.kind] + 1)


def compare(name: str, model: str, kind: str, limits: dict[str, float], **more: int) -> None:
    training = Training(name, model, kind, **more)
    ours, loss = training.epochs(training.engine(FusedGpuEngine), 6)
    theirs, other = training.epochs(training.engine(AutogradEngine), 2, steps=6 if kind == "per-triple" else 3)
    _, again = training.epochs(training.engine(FusedGpuEngine), 2, steps=6 if kind == "per-triple" else 3)
    steps = -(-len(training.data) // training.size)
    flops = training.operations_a_step() * steps / ours * 1e3
    line = f"{name:6} {model:10} {kind:12} gpu {ours:8.2f} reference {theirs:9.1f} ms/epoch, ratio {theirs / ours:6.1f}"
    line += f", loss {loss:.6f}, apart {abs(again / other - 1):.0e}, {flops / 1e12:6.2f} TFLOP/s"
    if kind == "per-triple":
        moved = training.bytes_a_step() * steps
        pace = limits["gather" if training.model.widths(training.dim)[0] > 400 else "gather of 400"]
        floor = moved / pace * 1e3
        line += f" ({flops / limits['fma']:.1%} of fma), {moved / ours / 1e9:5.2f} TB/s, floor {floor:6.2f} ms"
        line += f", {ours / floor:4.2f} x floor"
    else:
        line += f" ({flops / limits['tf32' if training.model.similarity == 'dot' else 'fma']:.1%} of its ceiling)"
    print(line, flush=True)


def breakdown(name: str, model: str, kind: str = "per-triple", **more: int) -> None:
    """Microseconds a step of every kernel, as a replayed epoch has them."""
    from torch.profiler import ProfilerActivity, profile

    training = Training(name, model, kind, **more)
    engine = training.engine(FusedGpuEngine)

    def compute(rows, beta, key):
        batch = training.data.take(rows)
        return engine.step(Step(batch, training.sampler(batch, key), training.objective, beta, training.penalty))

    run, many = engine.make_batch_runner(compute), engine.steps_per_call

    def steps(first: int) -> None:
        run([rows] * many, 0.5, list(range(first, first + many)))

    rows = torch.arange(training.size, device=DEVICE) * 7 % len(training.data)
    for i in range(3):
        steps(i)
    torch.cuda.synchronize()
    repeats = 2 * many
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        for i in range(2):
            steps(i)
        torch.cuda.synchronize()
    took = milliseconds(lambda: steps(1), inside=1) / many
    print(f"-- {name} {model} {kind}: {took * 1e3:.0f} µs a step; each kernel's µs and launches a step")
    kernels = [event for event in seen.key_averages() if str(event.device_type).endswith("CUDA")]
    for event in sorted(kernels, key=lambda event: -event.self_device_time_total)[:18]:
        print(f"   {event.self_device_time_total / repeats:8.1f} {event.count / repeats:5.1f}  {event.key[:90]}")


def sweep(name: str, model: str) -> None:
    """Sizes of the programs: the positives' kernel, then the rows'."""
    training = Training(name, model)
    engine = training.engine(FusedGpuEngine)
    batch = training.data.take(torch.arange(training.size, device=DEVICE) * 7 % len(training.data))
    group: Negatives = training.sampler(batch, stream_seed(0, 0, 0))[0]
    beta = torch.tensor(0.5, dtype=torch.float64, device=DEVICE)
    base = Tuning()

    def task(tuning: Tuning) -> StepTask:
        return StepTask(engine.model, engine.tables, engine.optimizer, tuning, training.objective.fused, batch, beta,
                        training.penalty, 1.0)  # fmt: skip

    found = []
    for columns, warps in [*product((32, 64, 128, 256), (1, 2, 4)), (512, 4)]:
        tuning = replace(base, columns=columns, warps=warps)
        buffers = StepBuffers(task(tuning), count=training.sampler.count)
        found.append((milliseconds(lambda b=buffers: differentiate(b, group)), tuning))
    report(f"{name} {model}: positives", found, ("columns", "warps"))
    buffers = StepBuffers(task(base), count=training.sampler.count)
    ids, sides = group.entities, group.replaces_tail.view(torch.uint8)
    print(f"   sorting alone: {milliseconds(lambda: sort_entries(buffers, ids, sides, ids)) * 1e3:.1f} µs")
    differentiate(buffers, group)
    order, found = sort_entries(buffers, ids, sides, ids), []
    for entries, columns, warps in [*product((2, 4), (64, 128, 256, 512), (1, 2, 4))]:
        if columns // (32 * warps) not in (1, 2, 4, 8):
            continue
        buffers.task = task(replace(base, entries=entries, row_columns=columns, row_warps=warps))
        found.append((milliseconds(lambda: update_rows(buffers, order)), buffers.task.tuning))
    report(f"{name} {model}: rows", found, ("entries", "row_columns", "row_warps"))
    for overlap in (True, False):
        engine.tuning = replace(base, overlap_sort=overlap)
        took = milliseconds(lambda: engine.step(Step(batch, [group], training.objective, beta, training.penalty)))
        print(f"   a step, sorting {'during' if overlap else 'before'} the positives: {took * 1e3:.1f} µs", flush=True)


def report(title: str, found: list[tuple[float, Tuning]], names: tuple[str, ...]) -> None:
    print(f"-- sweep, {title}, µs")
    for took, tuning in sorted(found, key=lambda pair: pair[0]):
        print(f"   {took * 1e3:8.1f}  " + ", ".join(f"{name} {getattr(tuning, name)}" for name in names), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=["ppi5k", "nl27k"])
    parser.add_argument("--sweep", action="store_true", help="try sizes of the kernels' programs")
    parser.add_argument("--quick", action="store_true", help="own negatives of the first data set only")
    given = smoke.parse(parser, names=[smoke.GRAPH])
    limits = ceilings()
    print(
        f"{torch.cuda.get_device_name()}: copy {limits['copy'] / 1e12:.2f} TB/s, gather from L2 "
        f"{limits['gather'] / 1e12:.2f} TB/s (rows of 800), {limits['gather of 400'] / 1e12:.2f} (rows of 400), "
        f"fma {limits['fma'] / 1e12:.1f} TFLOP/s, tf32 {limits['tf32'] / 1e12:.0f} TFLOP/s"
    )
    for name in given.names[:1] if given.quick else given.names:
        for model in MODELS:
            compare(name, model, "per-triple", limits)
    for model in MODELS:
        breakdown(given.names[0], model)
    if given.sweep:
        sweep(given.names[0], "complex")
        sweep(given.names[0], "transe")
    if not given.quick:
        # As UKGE trains: small batches and rows, so that launches decide.
        compare(given.names[0], "ukge-logi", "per-triple", limits, dim=128, batches=450)
        breakdown(given.names[0], "ukge-logi", dim=128, batches=450)
        for kind, model in product(("shared", "all"), ("complex", "transe")):
            compare(given.names[0], model, kind, limits, batches=80)
            breakdown(given.names[0], model, kind, batches=80)


if __name__ == "__main__":
    main()
