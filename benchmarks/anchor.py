"""Do our models reach what PyKEEN's reach, on graphs without weights, with the same settings?

    python benchmarks/anchor.py [nations kinships umls] [--models complex …] [--seeds 3] [--sides coin] [--out FILE]

Trains both libraries on the graphs that PyKEEN ships, ranks test (filtered, both sides, ties at their mean) and prints
a Markdown table. Both have the same dimension, epochs, batches, loss (the softmax of a positive against its own
corruptions), number of corruptions without known facts, Adam at the same rate, no regularizer and first embeddings of
the same deviation; the last epoch counts. What PyKEEN does beside that to some models by default (entities of length 1
after every step in TransE and DistMult, a penalty in ComplEx and DistMult) is switched off. PyKEEN's sampler replaces
the head in all corruptions of the first half of a batch's positives and the tail in all of the second; focuse tosses a
coin for each corruption, and so does PyKEEN here (with `--sides pykeen` each has its own way).

A difference is noise if it is below two standard errors of itself. Three seeds estimate that error roughly: of fifteen
such rows one or two lie beyond by chance, and more seeds tell.

One thread: about ten minutes. `pip install '.[pykeen]'` first.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import math
import statistics
import time
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import smoke
import torch

import focuse

DATA = ("nations", "kinships", "umls")
# 'rotate' sums the sizes of complex numbers and trains angles, as its paper does. PyKEEN's RotatE takes an L2 norm and
# numbers that are brought back to size 1 after every step: 'pykeen:RotatE' is that one, 'rotate' is written for PyKEEN.
MODELS = ("complex", "distmult", "transe", "rotate", "pykeen:RotatE")
DIM, EPOCHS, BATCH, NEGATIVES, RATE, SPREAD = 50, 40, 512, 8, 0.02, 0.1


HEAD = """| graph | model | seeds | focuse | PyKEEN | difference | two standard errors | |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help="graphs that PyKEEN ships")
    parser.add_argument("--models", nargs="+", default=MODELS, choices=MODELS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--sides", choices=("corrupt_side", "pykeen"), default="corrupt_side", help="how PyKEEN chooses a side"
    )
    parser.add_argument("--out", type=Path, help="add a line of JSON for every training")
    parser.add_argument("--show", type=Path, help="print the table of such lines, train nothing")
    chosen = smoke.parse(parser)
    if chosen.smoke:
        print(f"MRR {ours(embedded(), 'complex', seed=0, epochs=1):.3f}")
        smoke.missing("PyKEEN, which is not trained in a smoke run")
    if chosen.show:
        print(table(chosen.show))
        return
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    dataset("nations")
    gc.freeze()  # PyKEEN collects garbage after every epoch; what was imported need not be looked at each time
    print(HEAD)
    for name in chosen.data or DATA:
        data = dataset(name)
        for model in chosen.models:
            found: dict[str, list[float]] = {"focuse": [], "pykeen": []}
            for seed in range(chosen.seeds):
                for library, work in (("focuse", ours), ("pykeen", partial(theirs, sides=chosen.sides))):
                    start = time.process_time()
                    mrr = work(data, model, seed)
                    found[library].append(mrr)
                    if chosen.out:
                        write(chosen.out, name, model, library, seed, mrr, time.process_time() - start)
            print(row(name, model, **found), flush=True)


def embedded() -> Any:
    """The embedded graph in the form of PyKEEN's graphs, as far as `ours` looks at them."""
    data, columns = smoke.load(smoke.GRAPH), ("head", "relation", "tail")
    parts = {"training": data.train, "validation": data.valid, "testing": data.test}
    names = {part: [graph.to_arrow()[name].to_pylist() for name in columns] for part, graph in parts.items()}
    return SimpleNamespace(**{part: SimpleNamespace(triples=np.array(each).T) for part, each in names.items()})


def row(data: str, model: str, focuse: list[float], pykeen: list[float]) -> str:
    """Means, their difference, and whether it is noise."""
    ours, theirs = statistics.mean(focuse), statistics.mean(pykeen)
    error = sum(statistics.variance(part) / len(part) for part in (focuse, pykeen)) ** 0.5 if len(focuse) > 1 else 0.0
    word = "within" if abs(ours - theirs) <= 2 * error else "beyond"
    means = f"{ours:.3f} | {theirs:.3f} | {ours - theirs:+.3f} | {2 * error:.3f}"
    return f"| {data} | {model} | {len(focuse)} | {means} | {word} |"


def table(path: Path) -> str:
    """The table of stored trainings."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        lists = found.setdefault((line["data"], line["model"]), {"focuse": [], "pykeen": []})
        lists[line["library"]].append(line["mrr"])
    places = sorted(found, key=lambda place: (DATA.index(place[0]), MODELS.index(place[1])))
    return "\n".join([HEAD, *(row(*place, **found[place]) for place in places)])


def write(path: Path, data: str, model: str, library: str, seed: int, mrr: float, seconds: float) -> None:
    settings = {
        "dim": DIM,
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "num_negatives": NEGATIVES,
        "lr": RATE,
        "init_std": SPREAD,
    }
    line = {"data": data, "model": model, "library": library, "seed": seed, "mrr": round(mrr, 5)}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**line, "cpu_seconds": round(seconds, 1), **settings}) + "\n")


def dataset(name: str) -> Any:
    from pykeen.datasets import get_dataset

    return get_dataset(dataset=name)


def ours(data: Any, model: str, seed: int, epochs: int = EPOCHS) -> float:
    """MRR of focuse."""
    train, valid, test = (part.triples.tolist() for part in (data.training, data.validation, data.testing))
    run = focuse.train(
        train,
        valid=valid,
        test=test,
        model=model,
        dim=DIM,
        epochs=epochs,
        batch_size=BATCH,
        negative_sampling="per-triple",
        num_negatives=NEGATIVES,
        filter_negatives=True,
        weight_mode="none",
        loss="multiclass-nll",
        reduction="mean",
        regularizer="none",
        optimizer="adam",
        lr=RATE,
        init_std=SPREAD,
        eval_every=epochs,
        seed=seed,
        device="cpu",
        progress=False,
    )
    return float(run.evaluate(ties="mean").all.mrr)


def theirs(data: Any, model: str, seed: int, sides: str) -> float:
    """MRR of PyKEEN."""
    from pykeen.evaluation import RankBasedEvaluator
    from pykeen.training import SLCWATrainingLoop

    torch.manual_seed(seed)
    np.random.seed(seed)
    made = pykeen_model(model, triples_factory=data.training, random_seed=seed, loss="crossentropy")
    loop = SLCWATrainingLoop(
        model=made,
        triples_factory=data.training,
        optimizer=torch.optim.Adam(made.get_grad_params(), lr=RATE),
        negative_sampler=sampler(data.training, sides),
        automatic_memory_optimization=False,
    )
    loop.train(data.training, num_epochs=EPOCHS, batch_size=BATCH, use_tqdm=False, pin_memory=False)
    known = [data.training.mapped_triples, data.validation.mapped_triples]
    found = RankBasedEvaluator(filtered=True).evaluate(
        made, data.testing.mapped_triples, additional_filter_triples=known, batch_size=256, use_tqdm=False
    )
    return float(found.get_metric("both.realistic.inverse_harmonic_mean_rank"))


def sampler(training: Any, sides: str) -> Any:
    """PyKEEN's own, or one that tosses a coin for each corruption; known facts are left out exactly, and fast."""
    from pykeen.sampling import BasicNegativeSampler
    from pykeen.sampling.filtering import Filterer

    size = training.num_entities

    def numbered(triples: torch.Tensor) -> torch.Tensor:
        head, relation, tail = triples.unbind(-1)
        return (relation * size + head) * size + tail

    class Facts(Filterer):
        def __init__(self, mapped_triples: torch.Tensor) -> None:
            super().__init__()
            self.register_buffer("facts", torch.zeros(training.num_relations * size * size, dtype=torch.bool))
            self.facts[numbered(mapped_triples)] = True

        def contains(self, batch: torch.Tensor) -> torch.Tensor:
            return self.facts[numbered(batch)]

    class Coins(BasicNegativeSampler):
        def corrupt_batch(self, positive_batch: torch.Tensor) -> torch.Tensor:
            found = positive_batch[:, None].repeat(1, self.num_negs_per_pos, 1)
            other = torch.randint(self.num_entities, found.shape[:2])
            tails = torch.rand(found.shape[:2]) < 0.5
            found[..., 0] = torch.where(tails, found[..., 0], other)
            found[..., 2] = torch.where(tails, other, found[..., 2])
            return found

    return (Coins if sides == "corrupt_side" else BasicNegativeSampler)(
        mapped_triples=training.mapped_triples,
        num_entities=training.num_entities,
        num_relations=training.num_relations,
        num_negs_per_pos=NEGATIVES,
        filtered=True,
        filterer=Facts(training.mapped_triples),
    )


def pykeen_model(name: str, **given: Any) -> Any:
    """PyKEEN's model of the same function, without what it does beside it."""
    from pykeen import models
    from pykeen.nn.modules import Interaction

    normal = partial(torch.nn.init.normal_, std=SPREAD)
    first = {"embedding_dim": DIM, "entity_initializer": normal, "relation_initializer": normal}
    if name == "complex":
        return models.ComplEx(**first, regularizer=None, **given)
    if name == "distmult":
        return models.DistMult(**first, regularizer=None, entity_constrainer=None, **given)
    if name == "transe":
        return models.TransE(**first, entity_constrainer=None, scoring_fct_norm=1, **given)
    if name == "pykeen:RotatE":
        return models.RotatE(embedding_dim=DIM, entity_initializer=normal, **given)

    class Turned(Interaction):
        """RotatE as in its paper, relations as angles."""

        def forward(self, h: torch.Tensor, r: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            return -(h * torch.polar(torch.ones_like(r), r) - t).abs().sum(dim=-1)

    every_angle = partial(torch.nn.init.uniform_, a=-math.pi, b=math.pi)
    return models.ERModel(
        interaction=Turned,
        entity_representations_kwargs={"shape": DIM, "initializer": normal, "dtype": torch.cfloat},
        relation_representations_kwargs={"shape": DIM, "initializer": every_angle},
        **given,
    )


if __name__ == "__main__":
    main()
