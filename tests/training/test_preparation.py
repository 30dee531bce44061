"""Splits with directions, known negatives and merged weight columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import focuse
from focuse.data.graph import Graph
from focuse.errors import FocuseError

QUICK: dict[str, Any] = {"dim": 8, "epochs": 2, "seed": 2}


def train(graph: Any, **options: Any) -> focuse.Run:
    return focuse.train(graph, progress=False, **{**QUICK, **options})


@pytest.mark.parametrize("seed", range(3))
def test_noise_column_gets_little_importance(small: Graph, seed: int, with_columns: Any, listen: Any) -> None:
    recorder = listen()
    run = train(with_columns(small, missing=0.2, seed=seed), lower_is_better=["distance"], seed=seed)
    merger = run.splits.merger
    assert merger is not None
    assert merger.importance[1] < 0.05
    assert any("importance of weight columns: fit 0." in note for note in recorder.notes)
    graph = run.graph
    assert graph.columns is not None
    # What is left is the one number that two columns tell, each in its own way.
    known = ~np.isnan(graph.columns.values[:, [0, 2]]).any(axis=1)
    assert np.corrcoef(graph.weight[known], graph.columns.values[known, 0])[0, 1] > 0.95


def test_given_importance_is_used_as_it_is(small: Graph, with_columns: Any) -> None:
    run = train(with_columns(small), column_importance={"noise": 3, "fit": 1})
    assert run.splits.merger is not None
    assert run.splits.merger.importance.tolist() == [0.25, 0.75, 0.0]
    assert run.settings.column_importance == "noise=3,fit=1"


def test_two_equal_columns_train_like_one(small: Graph) -> None:
    """Merging changes nothing where there is nothing to merge."""
    rows = [(*row[:3], row[3], row[3]) for row in zip(*small.to_arrow().to_pydict().values(), strict=True)]
    many, one = train(rows), train(small)
    assert [row["loss"] for row in many.history] == pytest.approx([row["loss"] for row in one.history], rel=1e-6)


def test_training_with_a_noise_column_equals_training_without_it(small: Graph) -> None:
    random, split = np.random.default_rng(0), focuse.split(small)
    parts = {"graph": split.train, "valid": split.valid, "test": split.test}
    rows = {name: list(zip(*part.to_arrow().to_pydict().values(), strict=True)) for name, part in parts.items()}
    many = train(**{name: [(*row, random.random()) for row in part] for name, part in rows.items()})
    assert many.splits.merger is not None
    assert many.splits.merger.importance.tolist() == [1.0, 0.0]
    assert [row["loss"] for row in many.history] == [row["loss"] for row in train(**rows).history]


def test_splits_with_weight_columns_are_saved_and_loaded(small: Graph, tmp_path: Path, with_columns: Any) -> None:
    graph = with_columns(small, missing=0.2)
    run = train(graph, out=tmp_path / "run", lower_is_better=["distance"])
    again = focuse.load(tmp_path / "run")
    for one, other in zip(parts(run), parts(again), strict=True):
        np.testing.assert_array_equal(one.columns.values, other.columns.values)
        np.testing.assert_array_equal(one.weight, other.weight)
        assert other.columns.lower_is_better == {"distance"}
    assert again.splits.merger is not None
    assert again.splits.merger.to_dict() == run.splits.merger.to_dict()  # type: ignore[union-attr]
    assert "importance = [" in (tmp_path / "run" / "run.toml").read_text()
    assert again.evaluate().to_dict() == run.evaluate().to_dict()
    # A test graph of one's own is normalized and merged as train was.
    held = run.splits.test
    own = again.evaluate(held.select(np.arange(len(held))))
    assert own.to_dict() == run.evaluate().to_dict()
    assert str(again.predict(head="e1", relation="r0")) == str(run.predict(head="e1", relation="r0"))


def parts(run: focuse.Run) -> list[Any]:
    return [run.splits.train, run.splits.valid, run.splits.test]


def test_lower_is_better_trains_like_the_mirrored_weights(small: Graph, tmp_path: Path) -> None:
    columns = small.to_arrow().to_pydict()
    turned = [(h, r, t, 4 - 2 * w) for h, r, t, w in zip(*columns.values(), strict=True)]
    low = train(turned, lower_is_better=True, out=tmp_path / "run", weight_scaling="relation")
    high = train(
        [(h, r, t, 2 * w - 4) for h, r, t, w in zip(*columns.values(), strict=True)], weight_scaling="relation"
    )
    assert [row["loss"] for row in low.history] == pytest.approx([row["loss"] for row in high.history], rel=1e-5)
    assert low.graph.weight.max() <= 4  # in the user's units
    found, mirrored = low.evaluate(), high.evaluate()
    np.testing.assert_allclose(found.top_share, mirrored.top_share)
    np.testing.assert_allclose(found.bottom_share, mirrored.bottom_share)
    assert found.weighted.mrr == pytest.approx(mirrored.weighted.mrr, rel=1e-5)
    overall, weight = low.evaluate(deciles="global"), low.splits.test.weight
    assert weight[overall.top_share > 0].max() <= weight[overall.top_share == 0].min()
    again = focuse.load(tmp_path / "run")
    assert again.graph.lower_is_better
    assert again.evaluate().to_dict() == found.to_dict()
    file = tmp_path / "test.tsv"
    low.splits.test.write(file)
    assert again.evaluate(file).to_dict() == found.to_dict()


def test_known_negatives_are_in_no_split(tmp_path: Path, signed: Any, listen: Any) -> None:
    recorder = listen()
    # The second is a fact of the graph, and nobody knows zz.
    false = [("h3", "r", "t1"), ("h1", "r", "t39"), ("h2", "r", "zz"), ("h5", "r", "t3")]
    run = train(
        signed, known_negatives=false, weight_mode="none", negative_weights="known-negative", out=tmp_path / "run"
    )
    assert run.splits.known_negatives is not None
    assert len(run.splits.known_negatives) == 40 + 2
    assert any("1 known negative is also in rows and left out" in note for note in recorder.notes)
    assert any("'zz'" in note for note in recorder.notes)
    assert any("42 known negatives" in note for note in recorder.notes)
    assert sum(len(graph) for graph in parts(run)) == 160
    assert all(graph.weight.min() >= 0 for graph in parts(run))
    assert min(map(len, parts(run))) > 0
    only = set(run.splits.known_negatives.tail) - {tail for graph in parts(run) for tail in graph.tail}
    assert len(only) == 8  # named by known negatives alone, and still in the vocabulary
    again = focuse.load(tmp_path / "run").splits.known_negatives
    assert again is not None
    assert again.to_arrow().equals(run.splits.known_negatives.to_arrow())
    found = {row.tail: row.known for row in run.predict(head="h3", relation="r", top=300)}
    assert (found["t1"], found["t3"]) == (False, True)


def test_held_out_negative_weights_are_not_evaluated(signed: Any, listen: Any) -> None:
    recorder = listen()
    held = [("h4", "r", "t2", 2), ("h6", "r", "t4", -1), ("h8", "r", "t6", 1)]
    run = train(signed, valid=held, test=held, weight_mode="none", negative_weights="known-negative")
    assert len(run.splits.valid) == len(run.splits.test) == 2
    assert any("1 known negative is not evaluated" in note for note in recorder.notes)
    assert run.evaluate(held).all.n == 2


def test_held_out_triples_among_known_negatives_are_not_evaluated(signed: Any, listen: Any) -> None:
    recorder = listen()
    held = [("h4", "r", "t2", 2), ("h6", "r", "t4", 1), ("h8", "r", "t6", 1)]
    facts = [row for row in signed if row[:3] not in {one[:3] for one in held}]
    run = train(
        facts,
        valid=held,
        test=held,
        known_negatives=[held[1][:3]],
        weight_mode="none",
        negative_weights="known-negative",
    )
    for part in (run.splits.valid, run.splits.test):
        assert len(part) == 2
        assert not np.isin(part.keys, run.splits.known_negatives.keys).any()  # type: ignore[union-attr]
    assert sum("1 known negative is not evaluated" in note for note in recorder.notes) == 2
    assert run.evaluate(held).all.n == 2


def test_negative_weights_without_a_setting_give_a_note(signed: Any, listen: Any) -> None:
    recorder = listen()
    train(signed, weight_mode="none")
    told = [note for note in recorder.notes if "weights are below 0, counting as the weakest positives" in note]
    assert len(told) == 1
    assert told[0].endswith("train with --negative-weights known-negative")
    recorder.notes.clear()
    train(signed, weight_mode="none", negative_weights="known-negative")
    assert not any("are below 0" in note for note in recorder.notes)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"column_importance": "a=1"}, "one weight per edge, but column_importance needs several"),
        ({"lower_is_better": ["p"]}, "has no name"),
        ({"negative_weights": "known-negative", "lower_is_better": True}, "lower is better"),
        ({"negative_weights": "known-negatives"}, "did you mean known-negative"),
        ({"known_negatives": [("h1", "r", "t39")], "weight_mode": "none"}, "none of its known negatives"),
    ],
)
def test_inapplicable_settings_are_refused(options: dict[str, Any], says: str, signed: Any) -> None:
    with pytest.raises(FocuseError, match=says):
        train(signed, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"column_importance": {"nois": 1}}, r"no weight column 'nois' \(did you mean noise\?\)"),
        ({"lower_is_better": ["nois"]}, "no weight column 'nois'"),
    ],
)
def test_unknown_weight_columns_are_refused(
    small: Graph, options: dict[str, Any], says: str, with_columns: Any
) -> None:
    with pytest.raises(FocuseError, match=says):
        train(with_columns(small), **options)
