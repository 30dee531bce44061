"""The CPU engine beside the reference, for models whose queries its loops make and for those that torch makes.

    python benchmarks/queries.py [ROUNDS]

A graph of PPI5K's size with random edges, batches of 3,609, sparse-adam, softplus and the multiclass loss: milliseconds
per step with 30 negatives per positive and with 256 shared ones, both engines by turns in one process, the best of
some rounds. One thread and its processor's time, which others on the machine disturb less than a clock on the wall.
RESCAL's relations are matrices, so that most of its step is spent on queries, in both engines.
"""

from __future__ import annotations

import argparse
import time

import smoke
import torch
from torch import Tensor

from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Step
from focuse.engines.fused_cpu import FusedCpuEngine
from focuse.engines.optimizers import make_optimizer
from focuse.models import Model, Side
from focuse.models.base import FusedForm
from focuse.models.bilinear import ComplEx, DistMult, Rescal
from focuse.objective.focuse import FocusELayer
from focuse.objective.losses import FocusedLoss, make_loss, make_regularizer
from focuse.objective.negatives import Batch, NegativeSampler

ENTITIES, RELATIONS = 4_999, 7
SAMPLINGS = (("per-triple", 30), ("shared", 256))


class Given(DistMult):
    """DistMult whose queries torch computes."""

    fused = FusedForm()

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        return known * relation


INVERSE = "ComplEx with reciprocal relations, k = 100"
MODELS: dict[str, tuple[Model, int]] = {
    "DistMult, k = 100": (DistMult(), 100),
    "ComplEx, k = 100": (ComplEx(), 100),
    "DistMult by torch's queries, k = 100": (Given(), 100),
    INVERSE: (ComplEx(), 100),
    "RESCAL, k = 50": (Rescal(), 50),
}


class Training:
    """One engine over tables of its own, and its steps."""

    def __init__(
        self,
        kind: type[AutogradEngine],
        model: Model,
        dim: int,
        sampler: NegativeSampler,
        size: int,
        inverse: bool = False,
    ) -> None:
        random = torch.Generator().manual_seed(0)
        tables = {
            "entity": torch.randn(ENTITIES, model.widths(dim)[0], generator=random) * 0.1,
            "relation": torch.randn(RELATIONS * (2 if inverse else 1), model.widths(dim)[1], generator=random) * 0.1,
        }
        ids = [torch.randint(rows, (size,), generator=random) for rows in (ENTITIES, RELATIONS, ENTITIES)]
        self.batch, self.sampler = Batch(*ids, torch.rand(size, generator=random)), sampler
        optimizer = make_optimizer("sparse-adam", tables, 1e-3)
        self.engine = kind(model, tables, optimizer, inverse_relations=inverse)
        self.objective = FocusedLoss(make_loss("multiclass-nll"), FocusELayer("softplus"))
        self.penalty = make_regularizer("l3:1e-3", "touched")
        self.losses: list[float] = []

    def step(self) -> float:
        """Seconds that one took."""
        corruptions = self.sampler(self.batch, (0, 0, len(self.losses)))
        begun = time.process_time()
        self.losses.append(float(self.engine.step(Step(self.batch, corruptions, self.objective, 0.5, self.penalty))))
        return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", metavar="ROUNDS", type=int, nargs="?", default=10)
    parser.add_argument("--batch-size", type=int, default=3_609)
    given = smoke.parse(parser, rounds=1, batch_size=50)
    torch.set_num_threads(1)
    print("| model | corruptions | reference, ms a step | fused | ratio | losses apart |\n" + "| --- " * 6 + "|")
    for name, (model, dim) in MODELS.items():
        for sampling, count in SAMPLINGS:
            sampler = NegativeSampler(sampling, count, ENTITIES)
            both = [
                Training(kind, model, dim, sampler, given.batch_size, name == INVERSE)
                for kind in (AutogradEngine, FusedCpuEngine)
            ]
            times = torch.tensor([[training.step() for training in both] for _ in range(given.rounds)])
            reference, fused = (times.min(0).values * 1e3).tolist()
            losses = [torch.tensor(training.losses) for training in both]
            apart = float(((losses[1] - losses[0]) / losses[0]).abs().max())
            words = f"{count} of its own" if sampling == "per-triple" else f"a pool of {count}"
            print(
                f"| {name} | {words} | {reference:.1f} | {fused:.1f} | {reference / fused:.1f} | {apart:.0e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
