"""Training triples: their weights, and known negatives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import focuse
from focuse.config import Config
from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.data.splits import Splits
from focuse.data.weights import fit_normalizer
from focuse.errors import FocuseError
from focuse.objective.randomness import generator
from focuse.random_streams import RandomStream
from focuse.training.callbacks import Reporter
from focuse.training.preparation import fit_training_normalizer, make_splits
from focuse.training.problem import KNOWN_NEGATIVE_WEIGHT, TrainingTriples
from focuse.training.trainer import make_trainer


def prepared(graph: Any, false: Any = None, **given: Any) -> tuple[Config, Splits, TrainingTriples]:
    chosen = Config.from_kwargs(**given)
    splits = make_splits(read(graph), None, None, 0.1, 0.1, chosen, Reporter(), false)
    settings = chosen.resolve(splits.train, "cpu")
    return settings, splits, TrainingTriples.from_splits(settings, splits, fit_training_normalizer(settings, splits))


def test_one_weight_column_without_known_negatives_gives_normalized_weights(small: Graph) -> None:
    for weight_scaling in ("relation", "quantile"):
        settings, splits, rows = prepared(small, weight_scaling=weight_scaling)
        train = splits.train
        assert rows.graph is train
        expected = fit_normalizer(weight_scaling, train).transform(train.weight, train.relation).astype(np.float32)
        assert rows.weight.tobytes() == expected.tobytes()
        assert rows.rows_in_epoch(3) is None
        assert (splits.known_negatives, splits.merger) == (None, None)
        trainer = make_trainer(settings, splits, fit_training_normalizer(settings, splits), Reporter())
        shuffled = torch.randperm(len(train), generator=generator(0, 3, RandomStream.SHUFFLE))
        assert torch.equal(torch.cat(list(trainer.placement._order(3).batches)), shuffled)


# ---- false rows -----------------------------------------------------------------------------------------------------


def test_known_negatives_follow_the_positives_with_negative_weights(signed: Any) -> None:
    false = [("h3", "r", "t1", 0.5), ("h5", "r", "t3", 1.0)]
    settings, splits, rows = prepared(
        signed, false, weight_mode="none", negative_weights="known-negative", zero_weights="known-negative", seed=3
    )
    assert splits.known_negatives is not None
    assert len(splits.known_negatives) == 40 + 40 + 2
    facts = len(splits.train)
    assert len(rows.graph) == len(rows.weight) == facts + 82
    assert (rows.weight[:facts] >= 0).all()
    assert (rows.weight[facts:] == KNOWN_NEGATIVE_WEIGHT).all()
    trainer = make_trainer(settings, splits, fit_training_normalizer(settings, splits), Reporter())
    assert (
        trainer.problem.triple_store.weight.tolist() == [1.0] * facts + [KNOWN_NEGATIVE_WEIGHT] * 82
    )  # a plain model's labels
    assert trainer.problem.triple_store.tail[-82:].tolist() == splits.known_negatives.tail.tolist()
    assert not np.isin(splits.known_negatives.keys, splits.train.keys).any()


def test_known_negatives_are_sampled_in_proportion_to_their_evidence() -> None:
    false = [(f"h{i % 9}", "r", f"t{(i * 7 + 1) % 200}", 0.25 if i < 30 else 1.0) for i in range(60)]
    _, splits, rows = prepared([(f"h{i % 9}", "r", f"t{i}", i) for i in range(200)], false, weight_mode="none", seed=1)
    assert splits.known_negatives is not None
    facts, weak = len(splits.train), splits.known_negatives.weight < 1
    taken = np.zeros(len(rows.graph))
    for epoch in range(400):
        found = rows.rows_in_epoch(epoch)
        assert found is not None
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found, rows.rows_in_epoch(epoch))  # a pure function
        assert len(np.unique(found)) == len(found)
        taken[found] += 1
    assert (taken[:facts] == 400).all()
    assert (taken[facts:][~weak] == 400).all()
    assert taken[facts:][weak].mean() / 400 == pytest.approx(0.25, abs=0.02)
    assert not np.array_equal(rows.rows_in_epoch(0), rows.rows_in_epoch(1))  # type: ignore[arg-type]


def test_epoch_order_contains_exactly_the_sampled_rows(signed: Any) -> None:
    settings, splits, rows = prepared(
        signed, weight_mode="none", negative_weights="known-negative", zero_weights="known-negative"
    )
    strong = replace(rows, false=replace(splits.known_negatives, weight=np.ones(len(rows.evidence))))  # type: ignore[type-var]
    assert strong.rows_in_epoch(0) is None
    weak = replace(splits, known_negatives=replace(splits.known_negatives, weight=np.full(len(rows.evidence), 0.4)))  # type: ignore[type-var]
    trainer = make_trainer(settings, weak, fit_training_normalizer(settings, splits), Reporter())
    for epoch in range(3):
        expected = trainer.problem.triples.rows_in_epoch(epoch)
        assert expected is not None
        assert sorted(torch.cat(list(trainer.placement._order(epoch).batches)).tolist()) == expected.tolist()


def test_known_negatives_have_target_confidence_zero(signed: Any) -> None:
    rows = [(head, kind, tail, weight / 4 + 0.25) for head, kind, tail, weight in signed]
    _, splits, found = prepared(rows, [("h3", "r", "t1")], model="ukge-rect")
    assert found.weight[len(splits.train) :].tolist() == [0.0]


def test_known_negatives_with_the_focuse_layer_are_refused(signed: Any) -> None:
    with pytest.raises(FocuseError, match=r"known negatives need .* a weight_mode other than 'focuse'"):
        prepared(signed, weight_mode="focuse", negative_weights="known-negative")


@pytest.mark.parametrize("weight_mode", ["separate", "soft-labels", "none"])
def test_known_negatives_get_lower_scores_than_without_them(weight_mode: str) -> None:
    """Entities of a group are linked, but for some pairs; half of those are given as false."""
    random = np.random.default_rng(5)
    pairs = [(a, b) for a in range(60) for b in range(60) if a % 5 == b % 5 and a != b]
    random.shuffle(pairs)
    missing, linked = pairs[:120], pairs[120:]
    facts = [(f"e{a}", "r", f"e{b}", 0.5 + random.random() / 2) for a, b in linked]
    told, untold = ([(f"e{a}", "r", f"e{b}") for a, b in half] for half in (missing[:60], missing[60:]))
    scores = {}
    for name, false in (("with", told), ("without", None)):
        run = focuse.train(
            facts, known_negatives=false, weight_mode=weight_mode, model="complex", dim=16, epochs=40,
            label_exponent=1.0 if weight_mode == "soft-labels" else None, valid_fraction=0, test_fraction=0,
            progress=False,
        )  # fmt: skip
        scorer = run.weight_predictor()
        ids = [
            [np.array([run.graph.entities.id(row[place], "entity") for row in rows]) for place in (0, 2)]
            for rows in (told, untold)
        ]
        scores[name] = [scorer.score(head, np.zeros(60, np.int64), tail).mean() for head, tail in ids]
    apart = {name: one - other for name, (one, other) in scores.items()}
    assert apart["with"] < apart["without"] - 1.0, scores
