"""The triples of each protocol of weight evaluation, and its table."""

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import focuse
from focuse.data.datasets import load
from focuse.data.graph import Graph, from_columns
from focuse.data.statistics import leaked
from focuse.errors import FocuseError
from focuse.evaluation.baselines import KeyedWeights, fit_weight_baselines, fit_zero_baseline
from focuse.evaluation.metrics import spearman
from focuse.evaluation.weight_evaluation import (
    THRESHOLDS,
    WeightTest,
    baseline_errors,
    classify_fitted,
    errors,
    evaluate_weights,
    predict,
    reliability,
)
from focuse.objective.negatives import corrupt_graph

REAL = os.environ.get("FOCUSE_DATA", "")
BASELINES = ("global mean", "relation mean", "inverse copy")
ZERO_BASELINE = "inverse copy, else 0"  # only where there are negatives


@pytest.fixture(scope="module")
def parts(small: Graph) -> tuple[Graph, WeightTest, WeightTest]:
    """Train, test and validation of the planted graph, the last two with corruptions."""
    keep = np.arange(len(small)) % 5
    train, test, valid = small.select(keep > 1), small.select(keep == 0), small.select(keep == 1)
    tests = [WeightTest(part, corrupt_graph(part, small.keys, seed)) for seed, part in enumerate((test, valid))]
    return train, tests[0], tests[1]


def by_head(head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> np.ndarray:
    """A model: any function of the ids."""
    return ((head * 7 + relation * 3 + tail) % 10) / 10


# ---- the triples ------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 50), edges=st.integers(1, 60))
def test_negatives_change_one_side_and_are_not_known(seed: int, edges: int) -> None:
    random = np.random.default_rng(seed)
    head, tail = random.integers(0, 5, edges), random.integers(0, 5, edges)
    relation = random.integers(0, 2, edges)
    graph = from_columns([f"e{i}" for i in head], [f"r{i}" for i in relation], [f"e{i}" for i in tail], np.ones(edges))
    test = graph.select(np.arange(edges) % 3 == 0)
    drawn = corrupt_graph(test, graph.keys, seed)
    assert set(drawn.keys).isdisjoint(graph.keys)
    assert (drawn.weight == 0).all()
    # Rows with a free corruption are all there; each drawn row shares relation and one side with its own row.
    everyone, facts = range(len(graph.entities)), set(graph.keys.tolist())

    def free(h: int, r: int, t: int) -> bool:
        ends = [(h, e) for e in everyone] + [(e, t) for e in everyone]
        return any(int(graph.keys_of(*(np.array([x]) for x in (a, r, b)))[0]) not in facts for a, b in ends)

    rows = [row for row in zip(test.head, test.relation, test.tail, strict=True) if free(*map(int, row))]
    assert len(drawn) == len(rows)
    for (h, r, t), new in zip(rows, zip(drawn.head, drawn.relation, drawn.tail, strict=True), strict=True):
        assert new[1] == r
        assert (new[0] == h) != (new[2] == t)


def test_negatives_are_uniform_and_reproducible(small: Graph) -> None:
    first, again, other = (corrupt_graph(small, small.keys, seed) for seed in (3, 3, 4))
    assert first.keys.tolist() == again.keys.tolist() != other.keys.tolist()
    tails = (first.head == small.head).mean()
    assert 0.42 < tails < 0.58  # 600 coins: four standard deviations either side
    entities = np.where(first.head == small.head, first.tail, first.head)
    assert len(np.unique(entities)) == len(small.entities)


# ---- the table --------------------------------------------------------------------------------------------------


def test_every_protocol_has_its_own_triples_and_every_row(parts: tuple[Graph, WeightTest, WeightTest]) -> None:
    train, test, valid = parts
    table = evaluate_weights(test, train, {"model": by_head}, threshold=0.6, validation=valid)
    assert list(table.rows) == ["model", *BASELINES, ZERO_BASELINE]
    assert table.baselines == (*BASELINES, ZERO_BASELINE)
    assert list(table.rows[ZERO_BASELINE]) == ["with_negatives", "negatives"]
    assert ZERO_BASELINE not in evaluate_weights(WeightTest(test.positives), train, {}).rows
    assert test.negatives is not None
    clean = test.positives.select(~leaked(train, test.positives))
    assert 0 < len(clean) < len(test.positives)
    triples = {
        "positives": test.positives,
        "clean": clean,
        "with_negatives": test.with_negatives,
        "negatives": test.negatives,
    }
    assert table.protocols == list(triples)
    for name, predictor in {"model": by_head, **fit_weight_baselines(train), **fit_zero_baseline(train)}.items():
        for protocol, graph in triples.items():
            if name == ZERO_BASELINE and "negatives" not in protocol:
                continue
            metrics = table.rows[name][protocol]
            predicted = predictor(graph.head, graph.relation, graph.tail)
            assert metrics.errors == errors(predicted, graph.weight)
            assert metrics.reliability is not None
            assert metrics.reliability.ece == reliability(predicted, graph.weight).ece
            assert metrics.spearman == pytest.approx(spearman(predicted, graph.weight), nan_ok=True)
            assert (metrics.at_threshold is not None) == (metrics.fitted is not None) == (protocol == "with_negatives")


def test_strong_triples_are_classified_among_negatives(
    parts: tuple[Graph, WeightTest, WeightTest], small: Graph
) -> None:
    train, test, valid = parts
    weights = KeyedWeights(small.keys, small.weight)

    def faint(head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> np.ndarray:
        """Knows every weight, and says a third of it."""
        return weights.lookup("mean", small.keys_of(head, relation, tail), 0.0) / 3

    metrics = evaluate_weights(test, train, {"model": faint}, threshold=0.6, validation=valid).rows["model"][
        "with_negatives"
    ]
    assert metrics.at_threshold is not None
    assert metrics.fitted is not None
    assert (metrics.at_threshold.f1, metrics.fitted.f1 > 0.8) == (0, True)
    assert metrics.at_threshold.n == 2 * len(test.positives)
    assert metrics.at_threshold.strong == (test.positives.weight > 0.6).sum()
    both = test.with_negatives, valid.with_negatives
    arrays = [array for graph in both for array in (predict(faint, graph), graph.weight)]
    assert metrics.fitted == classify_fitted(arrays[0], arrays[1], 0.6, arrays[2], arrays[3])
    without = evaluate_weights(test, train, {}, threshold=0.6, validation=WeightTest(valid.positives))
    assert without.rows["inverse copy"]["with_negatives"].fitted is None
    assert (
        evaluate_weights(test, train, {}, validation=valid).rows["inverse copy"]["with_negatives"].at_threshold is None
    )


def test_other_predictors_serve_only_protocols_with_negatives(parts: tuple[Graph, WeightTest, WeightTest]) -> None:
    train, test, valid = parts
    never = lambda head, relation, tail: np.zeros(len(head))  # noqa: E731 - a predictor as a user would write one
    options = {"threshold": 0.6, "validation": valid}
    table = evaluate_weights(test, train, {"model": by_head, "plain": by_head}, {"model": never}, **options)
    plain, ours = table.rows["plain"], table.rows["model"]
    assert ours["positives"] == plain["positives"]
    assert ours["clean"] == plain["clean"]
    assert (ours["negatives"].errors.mse, ours["negatives"].errors.mae) == (0, 0)
    assert plain["negatives"].errors.mse > 0
    assert ours["with_negatives"].errors.mse == pytest.approx((test.positives.weight**2).mean() / 2)


def test_without_negatives_there_are_two_protocols(parts: tuple[Graph, WeightTest, WeightTest]) -> None:
    train, test, _ = parts
    table = evaluate_weights(WeightTest(test.positives), train, {})
    assert table.protocols == ["positives", "clean"]
    assert table.notes == ()
    assert "negatives" not in str(table)


def test_other_units_have_errors_and_no_calibration(parts: tuple[Graph, WeightTest, WeightTest]) -> None:
    train, test, valid = parts

    def times(graph: Graph, factor: float) -> Graph:
        return Graph(graph.head, graph.relation, graph.tail, graph.weight * factor, graph.entities, graph.relations)

    large = WeightTest(times(test.positives, 100), test.negatives)
    table = evaluate_weights(large, times(train, 100), {"model": by_head}, threshold=0.6, validation=valid)
    usual = evaluate_weights(test, train, {})
    for protocol in table.protocols:
        row, same = table.rows["inverse copy"][protocol], usual.rows["inverse copy"][protocol]
        assert row.reliability is row.at_threshold is row.fitted is None
        assert row.errors.mae == pytest.approx(100 * same.errors.mae)
        assert row.errors.mse == pytest.approx(1e4 * same.errors.mse)
    assert "weights outside [0, 1]: no calibration error and no classification" in str(table)
    assert "ECE" not in str(table)


def test_the_text_names_each_protocol_above_its_own_table(parts: tuple[Graph, WeightTest, WeightTest]) -> None:
    train, test, valid = parts
    table = evaluate_weights(test, train, {"model": by_head}, threshold=0.6, validation=valid)
    sections = str(table).split("\n\n")
    strong = int((test.positives.weight > 0.6).sum())
    assert [section.splitlines()[0] for section in sections[:4]] == [
        "positives only (120 triples)",
        f"positives only, clean: neither a duplicate nor an inverse in train "
        f"({table.rows['model']['clean'].errors.n} triples)",
        f"UKGE: test with as many zero-weight negatives (240 triples, {strong} of them strong: weight > 0.6)",
        "negatives alone (120 triples)",
    ]
    for section in sections[:4]:
        lines = section.splitlines()
        below = [*BASELINES, *([ZERO_BASELINE] if "negatives" in lines[0] else [])]
        assert [line.strip().split("  ")[0] for line in lines[2:]] == ["model", "baselines", *below]
        assert len({len(line) for line in lines[1:] if line != "baselines"}) == 1
    shown = sections[0].splitlines()[2].split()
    metrics = table.rows["model"]["positives"]
    assert shown[1:3] == [f"{metrics.errors.mse:.4f}", f"{metrics.errors.mae:.4f}"]
    assert "F1 (threshold)" in sections[2]
    assert "F1 (fitted threshold)" in sections[2]
    assert "F1" not in sections[0]
    assert "train alone, without negatives" in sections[4]
    assert "baselines\n" not in str(evaluate_weights(test, train, {}))


def test_json_has_no_nan(parts: tuple[Graph, WeightTest, WeightTest]) -> None:
    train, test, valid = parts
    data = evaluate_weights(test, train, {"model": by_head}, threshold=0.6, validation=valid).to_dict()
    again = json.loads(json.dumps(data, allow_nan=False))
    assert again == data
    assert data["rows"]["global mean"]["positives"]["spearman"] is None
    assert data["rows"]["model"]["with_negatives"]["fitted"]["n"] == 240
    assert data["baselines"] == [*BASELINES, ZERO_BASELINE]
    assert list(data["protocols"]) == ["positives", "clean", "with_negatives", "negatives"]


def test_fewer_negatives_than_positives_are_noted(parts: tuple[Graph, WeightTest, WeightTest]) -> None:
    train, test, _ = parts
    assert test.negatives is not None
    fewer = WeightTest(test.positives, test.negatives.select(np.arange(100)))
    assert "100 negatives and 120 positives; the protocol has equal numbers" in str(evaluate_weights(fewer, train, {}))


def test_wrong_predictors_are_errors(parts: tuple[Graph, WeightTest, WeightTest]) -> None:
    train, test, _ = parts
    with pytest.raises(FocuseError, match="'inverse copy' has the name of a baseline"):
        evaluate_weights(test, train, {"inverse copy": by_head})
    with pytest.raises(FocuseError, match=r"'modle' \(did you mean model\?\)"):
        evaluate_weights(test, train, {"model": by_head}, {"modle": by_head})
    with pytest.raises(FocuseError, match="not finite"):
        evaluate_weights(test, train, {"model": lambda head, relation, tail: np.full(len(head), np.nan)})
    with pytest.raises(FocuseError, match=r"returned \[120, 1\] weights; return one per triple, \[120\]"):
        evaluate_weights(test, train, {"model": lambda head, relation, tail: np.ones((len(head), 1))})


def test_baseline_errors_of_a_split_with_unseen_names() -> None:
    train = from_columns("abc", "rrs", "bca", [0.2, 0.6, 0.4])
    held_out = from_columns(["x", "b", "a"], ["r", "r", "s"], ["a", "a", "c"], [0.9, 0.3, 0.5])
    found = baseline_errors(train, held_out)
    assert list(found) == ["positives", "clean"]
    # x is unseen; (b, r, a) and (a, s, c) are edges back.
    assert {row.n for row in found["positives"].values()} == {2}
    assert {row.n for row in found["clean"].values()} == {0}
    copy, mean = found["positives"]["inverse copy"], found["positives"]["relation mean"]
    assert copy.mae == pytest.approx(0.1)
    assert mean.mae == pytest.approx((0.1 + 0.1) / 2)
    assert found["clean"]["global mean"].to_dict()["mse"] is None


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="FOCUSE_DATA names no folder with the data sets")
@pytest.mark.parametrize(
    ("name", "clean", "strong", "with_negatives", "negatives", "f1"),
    [
        ("cn15k", 14_326, 3_936, (0.2294, 0.4011), (0.4087, 0.6283), 0.2445),
        ("nl27k", 1_006, 9_188, (0.3299, 0.4255), (0.6442, 0.7965), 0.7243),
        ("ppi5k", 1_025, 2_638, (0.0931, 0.2179), (0.1820, 0.4138), 0.9443),
    ],
)
def test_inverse_copy_on_the_real_graphs_has_the_documented_errors(
    name, clean, strong, with_negatives, negatives, f1
) -> None:
    """Pinned, as computed here once: docs/confidence.md shows them."""
    data = load(name)
    file = focuse.read(f"{REAL}/{name}/test_with_neg.tsv.gz").align(data.train).graph
    test = WeightTest(data.test.align(data.train).graph, file.select(file.weight == 0))
    rows = evaluate_weights(test, data.train, {}, threshold=THRESHOLDS[name]).rows["inverse copy"]
    assert rows["clean"].errors.n == clean
    for protocol, (mse, mae) in (("with_negatives", with_negatives), ("negatives", negatives)):
        assert rows[protocol].errors.mse == pytest.approx(mse, abs=0.51e-4)
        assert rows[protocol].errors.mae == pytest.approx(mae, abs=0.51e-4)
    found = rows["with_negatives"].at_threshold
    assert found is not None
    assert found.strong == strong
    assert found.f1 == pytest.approx(f1, abs=0.51e-4)
