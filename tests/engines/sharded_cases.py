"""What every process of test_sharded.py does: train as the reference does, and end with its tables."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from focuse.config import Config
from focuse.data.readers import read
from focuse.data.splits import Splits, split
from focuse.data.triple_index import build_triple_index, id_tensors
from focuse.engines.autograd import AutogradEngine
from focuse.engines.process_group import ProcessGroup
from focuse.engines.scorer import TableScorer
from focuse.engines.sharded import EmbeddingExchange
from focuse.evaluation import ranking
from focuse.evaluation.preference import strength_scorer
from focuse.evaluation.ranking import rank_graph
from focuse.training.callbacks import Reporter
from focuse.training.preparation import fit_training_normalizer, with_node_attributes
from focuse.training.problem import build_model
from focuse.training.trainer import Trainer, make_trainer

TORCHREC = find_spec("torchrec") is not None
OWN = {"negative_sampling": "per-triple", "num_negatives": 5}
CASES: list[dict[str, Any]] = [
    {"model": "complex", "weight_mode": "soft-labels"},
    {"model": "complex-weights", "num_negatives": None},
    {
        "model": "complex",
        "weight_mode": "soft-labels",
        "optimizer": "sparse-adam",
        "regularizer": "n3:1e-2",
        "filter_negatives": True,
    },
    {"model": "distmult", "weight_mode": "focuse", "loss": "bce", **OWN, "filter_negatives": True},
    {
        "model": "distmult",
        "weight_mode": "focuse",
        "loss": "pairwise-nll",
        **OWN,
        "regularizer_scope": "rows",
    },
    {"model": "distmult", "weight_mode": "none", "loss": "nll", "reduction": "mean", "dim": 5},  # of no use to TorchRec
    {"model": "transe", "weight_mode": "focuse", "loss": "margin:2", **OWN},  # sparse-adam is not computed by TorchRec
    {
        "model": "rotate",
        "weight_mode": "focuse",
        "loss": "self-adversarial",
        "optimizer": "sparse-adagrad",
    },
    {"model": "tucker", "weight_mode": "soft-labels", "dim": 4, "optimizer": "sparse-adagrad"},
    {"model": "cp", "weight_mode": "none", "batch_size": 3},
    {"model": "gtranse", **OWN},
    {"model": "ukge-logi", **OWN, "optimizer": "sparse-adagrad"},
    {
        "model": "passleaf-rotate",
        **OWN,
        "semi_supervised": "pool:start=1,wait=0,growth=0.3,size=50",
    },
    {"model": "literale-distmult", "weight_mode": "focuse", "loss": "multiclass-nll"},
]


def graph() -> Splits:
    random = np.random.default_rng(0)
    rows = {(int(h), int(r), int(t)) for h, r, t in random.integers(0, (31, 4, 31), (180, 3))}
    edges = [
        (f"e{h}", f"r{r}", f"e{t}", float(w))
        for (h, r, t), w in zip(sorted(rows), random.random(len(rows)), strict=False)
    ]
    splits = split(read(edges), 0.1, 0.1, 0)
    numbers = [(name, "size", float(random.normal())) for name in list(splits.train.entities.column.to_pylist())[::2]]
    return with_node_attributes(splits, numbers, Reporter())


def trained(splits: Splits, case: dict[str, Any], engine: str) -> Trainer:
    given = {
        "dim": 8,
        "epochs": 2,
        "batch_size": 37,
        "num_negatives": 9,
        "label_exponent": 1.5 if case.get("weight_mode", "soft-labels") == "soft-labels" else None,
    }
    given |= case | {"engine": engine, "device": "cpu"}
    if not _labelled(given):
        given.pop("label_exponent")
    settings = Config.from_kwargs(**{key: value for key, value in given.items() if value is not None}).resolve(
        splits.train, "cpu"
    )
    inferred = splits.valid if settings.loss == "squared-error" else None
    trainer = make_trainer(
        settings, replace(splits, inferred=inferred), fit_training_normalizer(settings, splits), Reporter()
    )
    trainer.run()
    return trainer


def _labelled(given: dict[str, Any]) -> bool:
    return (
        Config.from_kwargs(
            **{key: value for key, value in given.items() if key in ("model", "weight_mode", "loss") and value}
        ).weight_mode
        == "soft-labels"
    )


def close(found: torch.Tensor, wanted: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(found, wanted, rtol=2e-4, atol=2e-5, msg=lambda text: f"{what}: {text}")


def compare(group: ProcessGroup, splits: Splits, case: dict[str, Any]) -> None:
    ours, theirs = trained(splits, case, "sharded"), trained(splits, case, "torch")
    name = f"{case} by {ours.engine.exchange.title}"
    entities = theirs.engine.entities
    whole = group.all_gather(ours.engine.tables["entity"], entities)
    close(whole, theirs.engine.tables["entity"], name)
    for table in theirs.engine.tables:
        if table != "entity":
            close(ours.engine.tables[table], theirs.engine.tables[table], f"{name}, {table}")
    wanted, found = theirs.engine.optimizer.state(), ours.engine.optimizer.state()
    assert wanted.keys() == found.keys()
    for key, value in wanted.items():
        close(
            group.all_gather(found[key], entities) if key.startswith("entity") else found[key], value, f"{name}, {key}"
        )
    losses = [[row["loss"] for row in trainer.history] for trainer in (ours, theirs)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4, err_msg=name)
    scored(group, ours.engine, theirs.engine, whole, splits, ours)
    if group.is_main:
        print(name)


def scored(
    group: ProcessGroup,
    sharded: Any,
    reference: AutogradEngine,
    whole: torch.Tensor,
    splits: Splits,
    trainer: Trainer,
) -> None:
    """Scores and ranks of the very same tables."""
    sharded, model = sharded.scorer, build_model(trainer.config, splits)
    plain = TableScorer(model, {**sharded.tables, "entity": whole}, trainer.config.reciprocal)
    ids = id_tensors(splits.train)
    close(sharded.score(*ids), plain.score(*ids), "scores")
    for side, given in (("tail", ids[0]), ("head", ids[2])):
        close(
            sharded.score_all(given[:5], ids[1][:5], side), plain.score_all(given[:5], ids[1][:5], side), "all scores"
        )
    known = build_triple_index([splits.train])
    found, wanted = rank_graph(sharded, splits.train, known), rank_graph(plain, splits.train, known)
    for part in ("raw", "filtered"):
        for count in ("higher", "equal"):
            ours, theirs = (getattr(getattr(ranking, part), count) for ranking in (found, wanted))
            # Products of other sizes round otherwise: a pair of equals may part.
            assert (ours != theirs).mean() < 0.01, f"{part}.{count}: {(ours != theirs).sum()}"
    np.testing.assert_allclose(found.score, wanted.score, rtol=1e-4, atol=1e-5)
    some, those = (ranking.rank(engine, *ids, known, candidates=7) for engine in (sharded, plain))
    assert (some.filtered.ranks() != those.filtered.ranks()).mean() < 0.01


def ranked_by_strength(group: ProcessGroup, splits: Splits) -> None:
    """Scores and ranks by likely and strong links are those of one process with the same tables."""
    runs = [trained(splits, case, "sharded") for case in (CASES[0], CASES[1])]
    ours: list[Any] = [run.engine.scorer for run in runs]
    plain = [
        TableScorer(
            build_model(run.config, splits),
            {**scorer.tables, "entity": group.all_gather(scorer.tables["entity"], scorer.entities)},
        )
        for run, scorer in zip(runs, ours, strict=True)
    ]
    sharded, wanted = (strength_scorer(*pair, 3.0) for pair in (ours, plain))
    ids, known = id_tensors(splits.train), build_triple_index([splits.train])
    close(sharded.score(*ids), wanted.score(*ids), "strengths")
    found, ranks = (rank_graph(scorer, splits.train, known).filtered.ranks() for scorer in (sharded, wanted))
    assert (found != ranks).mean() < 0.01
    likely = rank_graph(ours[0], splits.train, known).filtered.ranks()
    assert (found != likely).mean() > 0.1


def exchanged(group: ProcessGroup) -> None:
    """Rows come from their owners in the requested order, gradients are summed there, and each id counts once."""
    size, width = 10, 3
    table = torch.arange(size * width, dtype=torch.float32).view(size, width)
    mine = group.shard(size)
    exchange = EmbeddingExchange(table[mine].clone(), size, group)
    ids = torch.tensor([1, 4, 9]) if group.is_main else torch.tensor([0, 4, 5, 9][: group.rank + 2])
    assert torch.equal(exchange.gather_rows(ids), table[ids])
    everyone = [torch.tensor([1, 4, 9]), *(torch.tensor([0, 4, 5, 9][: rank + 2]) for rank in range(1, group.size))]
    wanted = torch.zeros(size)
    for rank, asked in enumerate(everyone):
        wanted[asked] += rank + 1
    place, total = exchange.scatter_gradients(torch.full((len(ids), width), group.rank + 1.0))["entity"]
    assert torch.equal(total, wanted[mine][place][:, None].expand(-1, width))
    assert set(place.tolist()) == set(torch.nonzero(wanted[mine])[:, 0].tolist())
    before = torch.cat(everyone[: group.rank]) if group.rank else ids[:0]
    assert torch.equal(exchange.is_lowest_rank(ids), ~torch.isin(ids, before))
    assert torch.equal(exchange.fetch(ids[:0]), table[:0])


def work(group: ProcessGroup) -> None:
    exchanged(group)
    splits = graph()
    few = len(CASES) if group.size == 2 or "EVERY_CASE" in os.environ else 4
    for case in CASES[:few]:
        compare(group, splits, case)
    ranked_by_strength(group, splits)
