"""The CPU engine beside the reference, for models whose queries its loops make and for those that torch makes.

    python benchmarks/queries.py [rounds]

A graph of PPI5K's size with random edges, batches of 3,609, row-adam, softplus and the multiclass loss: milliseconds a
step with 30 corruptions a positive of its own and with a pool of 256, both engines by turns in one process, the best of
some rounds. One thread and its processor's time, which others on the machine disturb less than a clock on the wall.
RESCAL's relations are matrices, so that most of its step is spent on queries, in both engines.
"""

from __future__ import annotations

import sys
import time

import torch
from torch import Tensor

from focuse.engines import Batch, CpuEngine, ReferenceEngine
from focuse.focus import Focus
from focuse.models import ComplEx, DistMult, Model, Reciprocal, Rescal, Side
from focuse.training.losses import Objective, make_loss
from focuse.training.negatives import Sampler
from focuse.training.optimisers import make_optimiser
from focuse.training.regularisers import make_regulariser

ENTITIES, RELATIONS, ROWS = 4_999, 7, 3_609
SAMPLINGS = (("independent", 30), ("shared", 256))


class Given(DistMult):
    """DistMult, in words that the loops do not know."""

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known * relation


MODELS: dict[str, tuple[Model, int]] = {
    "DistMult, k = 100": (DistMult(), 100),
    "ComplEx, k = 100": (ComplEx(), 100),
    "DistMult by torch's queries, k = 100": (Given(), 100),
    "ComplEx with reciprocal relations, k = 100": (Reciprocal(ComplEx()), 100),
    "RESCAL, k = 50": (Rescal(), 50),
}


class Training:
    """One engine over tables of its own, and its steps."""

    def __init__(self, kind: type[ReferenceEngine], model: Model, dim: int, sampler: Sampler) -> None:
        random = torch.Generator().manual_seed(0)
        tables = {
            "entity": torch.randn(ENTITIES, model.entity_width(dim), generator=random) * 0.1,
            "relation": torch.randn(RELATIONS, model.relation_width(dim), generator=random) * 0.1,
        }
        ids = [torch.randint(rows, (ROWS,), generator=random) for rows in (ENTITIES, RELATIONS, ENTITIES)]
        self.batch, self.sampler = Batch(*ids, torch.rand(ROWS, generator=random)), sampler
        self.engine = kind(model, *tables.values(), make_optimiser("row-adam", tables, 1e-3))  # type: ignore[arg-type]
        self.objective = Objective(make_loss("multiclass-nll"), Focus("softplus"))
        self.penalty = make_regulariser("l3:1e-3", "touched")
        self.losses: list[float] = []

    def step(self) -> float:
        """Seconds that one took."""
        corruptions = self.sampler(self.batch, (0, 0, len(self.losses)))
        begun = time.process_time()
        self.losses.append(float(self.engine.step(self.batch, corruptions, self.objective, 0.5, self.penalty)))
        return time.process_time() - begun


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    torch.set_num_threads(1)
    print("| model | corruptions | reference, ms a step | fused | ratio | losses apart |\n" + "| --- " * 6 + "|")
    for name, (model, dim) in MODELS.items():
        for sampling, count in SAMPLINGS:
            sampler = Sampler(sampling, count, ENTITIES)
            both = [Training(kind, model, dim, sampler) for kind in (ReferenceEngine, CpuEngine)]
            times = torch.tensor([[training.step() for training in both] for _ in range(rounds)])
            reference, fused = (times.min(0).values * 1e3).tolist()
            losses = [torch.tensor(training.losses) for training in both]
            apart = float(((losses[1] - losses[0]) / losses[0]).abs().max())
            words = f"{count} of its own" if sampling == "independent" else f"a pool of {count}"
            print(
                f"| {name} | {words} | {reference:.1f} | {fused:.1f} | {reference / fused:.1f} | {apart:.0e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
