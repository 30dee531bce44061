"""The golden cases: small trainings whose five losses are pinned, named in the field's words.

A batch holds the whole graph, so an epoch is exactly one step and five epochs give the losses of five steps.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.golden import vocabulary

import focuse

HERE = Path(__file__).parent
LOSSES, METRICS = HERE / "losses.json", HERE / "metrics.json"
ENTITIES, RELATIONS, EDGES, STEPS = 40, 3, 300, 5
Row = tuple[str, str, str, float]


# ---- data -----------------------------------------------------------------------------------------------------------


@cache
def rows() -> tuple[Row, ...]:
    """Return 300 weighted edges among 40 entities that follow hidden factors, so that a few steps can learn them.

    Only `random.Random.random` is used, whose numbers Python promises never to change.
    """
    draw = random.Random(7).random
    entities = [[2 * draw() - 1 for _ in range(3)] for _ in range(ENTITIES)]
    relations = [[2 * draw() - 1 for _ in range(3)] for _ in range(RELATIONS)]
    fits = []
    for r, relation in enumerate(relations):
        for h, head in enumerate(entities):
            for t, tail in enumerate(entities):
                fit = sum(a * b * c for a, b, c in zip(head, relation, tail, strict=True))
                fits.append((fit + 0.2 * draw(), draw(), h, r, t))
    best = sorted(fits, reverse=True)[: 2 * EDGES]
    chosen = sorted(best, key=lambda one: one[1])[:EDGES]
    middle = sorted(fit for fit, *_ in chosen)[EDGES // 2]
    return tuple(
        (f"e{h}", f"r{r}", f"e{t}", round(1 / (1 + math.exp(8 * (middle - f))), 4)) for f, _, h, r, t in chosen
    )


@cache
def graph() -> focuse.Graph:
    """Return the graph of all edges."""
    return focuse.read(list(rows()))


@cache
def graph_with_columns() -> focuse.Graph:
    """Return the same edges with two weight columns more, of which the last is better where it is low."""
    draw = random.Random(8).random
    return focuse.read([(*row, round(draw(), 3), round(50 - 20 * row[3] + 4 * draw(), 2)) for row in rows()])


@cache
def signed_graph() -> focuse.Graph:
    """Return the same edges, every fifth of them with a weight below 0 and every fifth with a weight of 0."""
    return focuse.read([(*row[:3], (-row[3], 0.0)[i % 5] if i % 5 < 2 else row[3]) for i, row in enumerate(rows())])


GRAPHS = {"weighted": graph, "several weight columns": graph_with_columns, "signed weights": signed_graph}


def entity_names() -> list[str]:
    """Return the names of the entities that have edges."""
    return sorted({name for row in rows() for name in (row[0], row[2])})


def unknown_triples(count: int) -> list[tuple[str, str, str]]:
    """Return triples that are no edges of the graph."""
    facts, names, found, step = {row[:3] for row in rows()}, entity_names(), [], 0
    while len(found) < count:
        head, tail = names[step * 7 % len(names)], names[step * 11 % len(names)]
        triple = (head, f"r{step % RELATIONS}", tail)
        if triple not in facts and head != tail:
            found.append(triple)
        step += 1
    return found


def node_numbers() -> list[tuple[str, str, float]]:
    """Return two numeric attributes of entities, the second one of every other entity."""
    names = entity_names()
    sizes = [(name, "size", round(math.sin(i), 3)) for i, name in enumerate(names)]
    return sizes + [(name, "age", float(i % 9)) for i, name in enumerate(names[::2])]


def new_edges() -> list[Row]:
    """Return edges of two entities and one relation that the graph does not have."""
    known = [("n1", "r0", "e5", 0.9), ("n1", "r1", "e7", 0.3), ("e9", "r0", "n2", 0.6), ("n2", "r2", "n1", 0.5)]
    return [*known, ("n1", "new", "e1", 0.7), ("e2", "new", "e1", 0.4)]


def inputs(names: tuple[str, ...], folder: Path) -> dict[str, Any]:
    """Return the further inputs of a training, by the words of the vocabulary."""
    found: dict[str, Any] = {}
    if "false_triples" in names:
        found["false_triples"] = unknown_triples(20)
    if "inferred_triples" in names:
        found["inferred_triples"] = [(*triple, 0.9 - 0.02 * i) for i, triple in enumerate(unknown_triples(25))]
    if "rules_file" in names:
        found["rules_file"] = folder / "rules.txt"
        found["rules_file"].write_text("r0(x, y) & r1(y, z) -> r2(x, z) : 0.9\n", encoding="utf-8")
    if "node_numbers" in names:
        found["node_numbers"] = node_numbers()
    return found


# ---- cases ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A training of five steps: its settings in the words of the vocabulary, and whether the library refuses it."""

    name: str
    words: dict[str, Any]
    inputs: tuple[str, ...] = ()
    graph: str = "weighted"
    refused: bool = False

    def run(self, folder: Path, **changes: Any) -> focuse.Run:
        """Train it; only the partitioned and the sharded engine write to the folder."""
        words = {**self.words, **inputs(self.inputs, folder), **changes}
        if words["engine"] == "partitioned":
            words["folder"] = folder / "run"
        return vocabulary.train(GRAPHS[self.graph](), words)

    @property
    def engine(self) -> str:
        return self.words["engine"]

    @property
    def twin(self) -> str:
        """The name of the same case by autograd on a CPU."""
        return "/".join(["autograd", *self.name.split("/")[1:]])


STEP: dict[str, Any] = {
    "dimension": 8,
    "epochs": STEPS,
    "batch_size": 4096,
    "seed": 3,
    "device": "cpu",
    "valid_fraction": 0.0,
    "test_fraction": 0.0,
    "learning_rate": 0.05,
    "optimizer": "row-adagrad",
    "regularizer": "l3",
}
ENGINES: dict[str, dict[str, Any]] = {
    "autograd": {"engine": "autograd"},
    "fused": {"engine": "fused"},
    "automatic": {"engine": "automatic"},
    "partitioned": {"engine": "partitioned", "partitions": "one"},
}
WEIGHT_MODES: dict[str, dict[str, Any]] = {
    "focuse": {"weight_mode": "focuse"},
    "soft-labels": {"weight_mode": "soft-labels", "label_sharpness": 2.0},
    "unweighted": {"weight_mode": "unweighted"},
}
NEGATIVES: dict[str, dict[str, Any]] = {
    "per-triple": {"negatives": "per-triple", "negatives_count": 4},
    "shared": {"negatives": "shared", "negatives_count": 16},
    "1-vs-all": {"negatives": "1-vs-all"},
}
MODELS = ("transe", "distmult", "complex", "kbgat", "literale-distmult")
CONFIDENCE_MODEL = "ukge-logi"
RANDOM_DROPOUT = ("kbgat", "conve")  # a GPU draws other units to drop
NUMERIC_MODELS = ("literale-distmult",)
ENCODERS = ("kbgat",)
# Adagrad's first step is ± the learning rate, whatever the size of a gradient. With the seed of the other models one
# gradient of these, or the input of one ReLU, is so near 0 that another processor or a GPU gives it the other sign.
SEEDS = {"complex": 4, "conve": 5}


def refused(engine: str, negatives: str, model: str) -> bool:
    """Return whether the library refuses a combination of the grid, and rightly so."""
    if engine == "fused":  # its loops compare rows of the table, not what an encoder makes of them
        return model in (*ENCODERS, *NUMERIC_MODELS)
    if engine == "partitioned":  # it has some of the entities in memory, and knows models of plain tables only
        return negatives == "1-vs-all" or model in (*ENCODERS, *NUMERIC_MODELS, CONFIDENCE_MODEL)
    return False


def grid() -> list[Case]:
    """Return engines × weight modes × kinds of negatives × models."""
    found = []
    for engine in ENGINES:
        for mode in WEIGHT_MODES:
            for kind in NEGATIVES:
                for model in (*MODELS, *([CONFIDENCE_MODEL] if mode == "unweighted" else [])):
                    words = {**STEP, "model": model, **ENGINES[engine], **WEIGHT_MODES[mode], **NEGATIVES[kind]}
                    words["seed"] = SEEDS.get(model, STEP["seed"])
                    if model == CONFIDENCE_MODEL:
                        words["loss"] = "squared-error"
                    more = ("node_numbers",) if model in NUMERIC_MODELS else ()
                    name = f"{engine}/{mode}/{kind}/{model}"
                    found.append(Case(name, words, more, refused=refused(engine, kind, model)))
    return found


def reciprocal() -> list[Case]:
    """Return models with reciprocal relations; convolutions need them, and have no loops of their own."""
    found = []
    for engine in ("autograd", "fused", "automatic"):
        for mode in WEIGHT_MODES:
            for kind in NEGATIVES:
                for model in ("complex", "conve"):
                    words = {**STEP, "model": model, "reciprocal_relations": True, **ENGINES[engine]}
                    words |= {**WEIGHT_MODES[mode], **NEGATIVES[kind], "seed": SEEDS[model]}
                    found.append(Case(f"{engine}/{mode}/{kind}/{model}-reciprocal", words))
    return found


# Each of these differs from ComplEx with soft labels and shared negatives by what its name says.
BASE: dict[str, Any] = {**STEP, "model": "complex", **WEIGHT_MODES["soft-labels"], **NEGATIVES["shared"]}
OWN, FOCUSE, PLAIN = NEGATIVES["per-triple"], WEIGHT_MODES["focuse"], WEIGHT_MODES["unweighted"]
# Batches that leave rows untouched: only there do lazy optimizers differ from those of whole tables.
SPARSE: dict[str, Any] = {**OWN, "negatives_count": 1, "batch_size": 10}
UKGE: dict[str, Any] = {"model": "ukge-logi", "weight_mode": "unweighted", "loss": "squared-error", **OWN}
SINGLE: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "negatives filtered, per-triple": ({**OWN, "filtered_negatives": True}, (), "weighted"),
    "negatives filtered, shared": ({"filtered_negatives": True}, (), "weighted"),
    "negatives filtered, 1-vs-all": ({**NEGATIVES["1-vs-all"], "filtered_negatives": True}, (), "weighted"),
    "negatives by type": ({**OWN, "negatives_entities": "by-type"}, (), "weighted"),
    "negatives by degree, per-triple": ({**OWN, "negatives_entities": "by-degree"}, (), "weighted"),
    "negatives by degree, shared": ({"negatives_entities": "by-degree"}, (), "weighted"),
    "negatives with Bernoulli sides": ({**OWN, **FOCUSE, "negatives_sides": "bernoulli"}, (), "weighted"),
    "negatives by type with Bernoulli sides": (
        {**OWN, "negatives_entities": "by-type", "negatives_sides": "bernoulli"}, (), "weighted",
    ),
    "several weight columns, soft labels": (
        {"column_importance": "w1=2,w2=1,w3=1", "columns_lower_is_better": "w3"},
        (), "several weight columns",
    ),
    "several weight columns, focuse": (
        {**FOCUSE, "label_sharpness": None, "columns_lower_is_better": "w3"}, (), "several weight columns",
    ),
    "known false triples, soft labels": ({}, ("false_triples",), "weighted"),
    "known false triples, unweighted": ({**PLAIN, "label_sharpness": None}, ("false_triples",), "weighted"),
    "weights below 0 are false": ({"negative_weights": "false"}, (), "signed weights"),
    "weights of 0 are negatives": ({"zero_weights": "negatives"}, (), "signed weights"),
    "weights below 0 are weak": ({}, (), "signed weights"),
    "semi-supervised pool": (
        {**UKGE, "model": "passleaf-complex", "semi_supervised_pool": "early"}, (), "weighted",
    ),
    "inferred triples": ({**UKGE, "rules_batch_size": 16}, ("inferred_triples",), "weighted"),
    "rules": ({**UKGE, "model": "ukge-rect", "rules_loss_weight": 0.5}, ("rules_file",), "weighted"),
    "node numbers, transea": (
        {"model": "transea", **FOCUSE, "attribute_loss_share": 0.3}, ("node_numbers",), "weighted",
    ),
    "node numbers, kblrn": ({"model": "kblrn", **FOCUSE}, ("node_numbers",), "weighted"),
    "two evaluators": ({**UKGE, "model": "suke"}, (), "weighted"),
    "boxes": ({**UKGE, "model": "beurre"}, (), "weighted"),
    "loss pairwise": ({**FOCUSE, "loss": "pairwise"}, (), "weighted"),
    "loss logistic": ({**FOCUSE, "loss": "logistic"}, (), "weighted"),
    "loss binary cross-entropy": ({**FOCUSE, **OWN, "loss": "binary-cross-entropy"}, (), "weighted"),
    "loss margin": ({**FOCUSE, **OWN, "model": "transe", "loss": "margin"}, (), "weighted"),
    "loss self-adversarial": ({**FOCUSE, "loss": "self-adversarial"}, (), "weighted"),
    "loss weighted margin": ({**PLAIN, **OWN, "model": "gtranse", "loss": "weighted-margin"}, (), "weighted"),
    "loss averaged": ({**FOCUSE, "loss_reduction": "mean"}, (), "weighted"),
    "nonlinearity sigmoid": ({**FOCUSE, "nonlinearity": "sigmoid"}, (), "weighted"),
    "nonlinearity tanh": ({**FOCUSE, "nonlinearity": "tanh"}, (), "weighted"),
    "regularizer none": ({"regularizer": "none"}, (), "weighted"),
    "regularizer L1": ({"regularizer": "l1"}, (), "weighted"),
    "regularizer L2 of rows of triples": (
        {"regularizer": "l2", "regularizer_scope": "rows-of-triples"}, (), "weighted",
    ),
    "regularizer N3": ({"regularizer": "n3"}, (), "weighted"),
    "optimizer Adam": ({**SPARSE, "optimizer": "adam"}, (), "weighted"),
    "optimizer row-Adam": ({**SPARSE, "optimizer": "row-adam"}, (), "weighted"),
    "optimizer row-Adagrad": ({**SPARSE, "optimizer": "row-adagrad"}, (), "weighted"),
    **{
        f"model {name}": ({"model": name}, (), "weighted")
        for name in ("rotate", "pairre", "quate", "hole", "simple", "cp", "rescal", "tucker", "convkb", "transe-l2")
    },
}  # fmt: skip
SINGLE_REFUSED_BY_FUSED = (
    *("node numbers, transea", "node numbers, kblrn", "boxes", "two evaluators", "loss weighted margin"),
    *("model rotate", "model pairre", "model cp", "model convkb"),
)
# Of these cases the final embeddings are pinned as well, as `run.export` writes them.
EMBEDDED = (
    *(f"{engine}/{mode}/shared/complex" for engine in ENGINES for mode in WEIGHT_MODES),
    *(f"{engine}/soft-labels/per-triple/transe" for engine in ENGINES),
    *(
        "autograd/focuse/1-vs-all/distmult",
        "fused/focuse/1-vs-all/distmult",
        "autograd/unweighted/per-triple/ukge-logi",
    ),
    *("autograd/focuse/shared/kbgat", "autograd/focuse/shared/literale-distmult"),
    *(
        "fused/soft-labels/shared/complex-reciprocal",
        "fused/optimizer row-Adagrad",
        "fused/known false triples, soft labels",
    ),
)
# Trained twice, these must give the same bits; dropout, the pool and partitions among them.
REPEATED = (
    *("autograd/focuse/per-triple/transe", "fused/soft-labels/shared/complex", "fused/focuse/1-vs-all/distmult"),
    *("autograd/soft-labels/shared/kbgat", "automatic/soft-labels/shared/conve-reciprocal"),
    *("partitioned/focuse/per-triple/complex", "autograd/semi-supervised pool", "fused/inferred triples"),
)


def single() -> list[Case]:
    """Return one case for each further setting, by autograd and by the fused engine where that serves."""
    found = []
    for engine in ("autograd", "fused"):
        for what, (changes, more, source) in SINGLE.items():
            words = {**BASE, **ENGINES[engine], **changes}
            if words["weight_mode"] != "soft-labels":
                words.pop("label_sharpness", None)
            no = engine == "fused" and what in SINGLE_REFUSED_BY_FUSED
            found.append(Case(f"{engine}/{what}", words, more, source, refused=no))
    return found


def sharded() -> list[Case]:
    """Return the cases of two processes; 1-vs-all is refused there, and so are models that look at the graph."""
    found, step = [], {**STEP, "engine": "sharded"}
    for mode in WEIGHT_MODES:
        for kind, model in (("per-triple", "transe"), ("shared", "complex")):
            words = {**step, "model": model, **WEIGHT_MODES[mode], **NEGATIVES[kind]}
            words["seed"] = SEEDS.get(model, STEP["seed"])
            found.append(Case(f"sharded/{mode}/{kind}/{model}", words))
    return [*found, Case("sharded/unweighted/per-triple/ukge-logi", {**step, **UKGE})]


TWO_PROCESSES: dict[str, Case] = {case.name: case for case in sharded()}
CASES: dict[str, Case] = {case.name: case for case in (*grid(), *reciprocal(), *single())}
TRAINED = [name for name, case in CASES.items() if not case.refused]
REFUSED = [name for name, case in CASES.items() if case.refused]
# On a GPU: the dense grid. The fused kernels there know models of plain tables only, and no reciprocal relations.
GPU = [
    case.name
    for case in (*grid(), *reciprocal())
    if case.engine != "partitioned"
    and not case.refused
    and case.words["model"] not in RANDOM_DROPOUT
    and (case.engine != "fused" or case.words["model"] in ("transe", "distmult", "complex", "ukge-logi"))
    and (case.engine != "fused" or not case.words.get("reciprocal_relations"))
]
