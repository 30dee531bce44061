"""What a report is made of: metrics per relation, new links, and notes on what is missing."""

import math
from collections import Counter

import numpy as np
import pytest

import focuse
from focuse.data.statistics import describe
from focuse.report.collect import (
    LINKS,
    LINKS_PER_HEAD,
    MIN_TEST_TRIPLES,
    Findings,
    collect,
    new_links,
    relation_metrics,
)


def collected(run: focuse.Run, test: object = None) -> Findings:
    return collect(run, test, lambda text: None)


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, dim=6, epochs=4, eval_every=2, label_exponent=1.0, progress=False)


@pytest.fixture(scope="module")
def found(run: focuse.Run) -> Findings:
    return collected(run)


def test_new_links_are_most_probable_and_limited_per_head(run: focuse.Run, found: Findings) -> None:
    assert 1 <= len(found.links) <= LINKS
    probabilities = [row.probability for row in found.links]
    assert probabilities == sorted(probabilities, reverse=True)
    assert max(Counter(row.head for row in found.links).values()) <= LINKS_PER_HEAD
    best = run.discover(top=1)[0]
    assert (found.links[0].head, found.links[0].relation, found.links[0].tail) == (best.head, best.relation, best.tail)


def test_large_graph_is_searched_among_popular_entities(run: focuse.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    requested = []
    whole = run.discover

    def discover(**options):
        requested.append(options.get("strategy", "exhaustive"))
        return whole(**options, max_scores=1 if requested[-1] == "exhaustive" else 1e9)

    monkeypatch.setattr(run, "discover", discover)
    assert len(new_links(run))
    assert requested == ["exhaustive", "popular"]


def test_diverged_run_is_noted_once(small: focuse.Graph) -> None:
    run = focuse.train(small, dim=6, epochs=2, progress=False)
    run.scorer.tables["entity"].fill_(math.nan)
    run.history.append({"epoch": 3, "loss": math.nan})
    found = collected(run)
    assert (found.evaluation, found.weights, found.links) == (None, None, [])
    assert len(found.notes) == 1
    assert "training diverged" in found.notes[0]
    assert found.to_dict()["history"][-1] == {"epoch": 3, "loss": None}


def test_test_graph_with_other_names_is_refused(run: focuse.Run) -> None:
    with pytest.raises(focuse.FocuseError, match="no test triple has all its names in train"):
        collected(run, [("nobody", "knows", "anyone", 0.5)])


def test_metrics_are_computed_over_the_rows_of_each_relation(run: focuse.Run, found: Findings) -> None:
    test, rows = run.splits.test, found.relations
    assert [row["train"] for row in rows] == sorted(np.bincount(run.graph.relation).tolist(), reverse=True)
    for row in rows:
        own = test.select(test.relation == run.graph.relations.id(row["name"], "relation"))
        assert row["test"] == len(own)
        alone = run.evaluate(own)  # ranks are filtered by all known triples, so a part ranks as in the whole
        assert (row["tail_mrr"] + row["head_mrr"]) / 2 == pytest.approx(alone.all.mrr)
        assert row["hits_at_10"] == pytest.approx(alone.all.hits[10])
        table = run.evaluate_weights(own).rows
        assert row["baseline_mae"] == pytest.approx(table["relation mean"]["positives"].errors.mae)
        predicted = run.predict_weights(own)
        expected = np.array([one.weight_mean for one in predicted])
        assert row["weight_mae"] == pytest.approx(float(np.mean(np.abs(expected - own.weight))), abs=1e-6)
        inside = [
            one.weight_low <= weight <= one.weight_high for one, weight in zip(predicted, own.weight, strict=True)
        ]
        enough = len(own) >= MIN_TEST_TRIPLES
        assert row["coverage"] == pytest.approx(np.mean(inside)) if enough else math.isnan(row["coverage"])
        assert math.isnan(row["brier"]) != enough
    assert found.probabilities is not None
    whole = list(found.probabilities.rows.values())[-1].brier
    if all(row["test"] >= MIN_TEST_TRIPLES for row in rows):
        total = sum(row["brier"] * row["test"] for row in rows) / sum(row["test"] for row in rows)
        assert total == pytest.approx(whole, abs=0.02)
    bare = relation_metrics(Findings(run, describe(run.graph)))
    assert [(row["name"], row["train"]) for row in bare] == [(row["name"], row["train"]) for row in rows]
    assert all("tail_mrr" not in row for row in bare)


def test_coverage_grows_with_its_target(run: focuse.Run, found: Findings) -> None:
    (target, measured), *more = found.coverage
    intervals = run.evaluate_weights(coverage=target).intervals
    assert intervals is not None
    assert measured == pytest.approx(next(iter(intervals.rows.values())).coverage)
    shares = [measured, *(one for _, one in more)]
    assert shares == sorted(shares)
