"""The section on relations: metrics are computed over the rows of each relation."""

import math
from typing import Any

import numpy as np
import pytest

import focuse
from focuse.report.gathered import Gathered, gather
from focuse.report.relations import ENOUGH, SHOWN, relation_rows, relations


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, dim=6, epochs=4, eval_every=2, label_exponent=1.0, progress=False)


@pytest.fixture(scope="module")
def figures(run: focuse.Run) -> Gathered:
    return gather(run)


def test_metrics_are_computed_over_the_rows_of_each_relation(run: focuse.Run, figures: Gathered) -> None:
    test = run.splits.test
    rows = relation_rows(run, figures)
    assert [row.train for row in rows] == sorted(np.bincount(run.graph.relation).tolist(), reverse=True)
    for row in rows:
        own = test.select(test.relation == run.graph.relations.id(row.name, "relation"))
        assert row.test == len(own)
        alone = run.evaluate(own)  # ranks are filtered by all that is known, so a part ranks as in the whole
        assert (row.mrr_tail + row.mrr_head) / 2 == pytest.approx(alone.all.mrr)
        assert row.hits10 == pytest.approx(alone.all.hits[10])
        table = run.evaluate_weights(own).table.rows
        assert row.mean_mae == pytest.approx(table["relation mean"]["positives"].errors.mae)
        told = run.predict_weights(own)
        expected = np.array([one.weight_mean for one in told])
        assert row.weight_mae == pytest.approx(float(np.mean(np.abs(expected - own.weight))), abs=1e-6)
        inside = [one.weight_low <= weight <= one.weight_high for one, weight in zip(told, own.weight, strict=True)]
        assert math.isnan(row.coverage) if len(own) < ENOUGH else row.coverage == pytest.approx(np.mean(inside))
        assert math.isnan(row.brier) == (len(own) < ENOUGH)
    assert figures.probabilities is not None
    # Of all rows together the Brier score is that of the whole.
    whole = list(figures.probabilities.rows.values())[-1].brier
    if all(row.test >= ENOUGH for row in rows):
        assert sum(row.brier * row.test for row in rows) / sum(row.test for row in rows) == pytest.approx(
            whole, abs=0.02
        )


def test_table_is_sortable_and_long_tables_are_folded(run: focuse.Run, figures: Gathered, read_page: Any) -> None:
    read = read_page(relations(run, figures))
    assert ("class", "sortable") in read.attributes
    assert "details" not in read.tags
    assert len(figures.data["relations"]) == len(run.graph.relations)
    edges = [(f"a{i % 9}", f"<r{i % 40}>", f"b{i % 7}", i % 5) for i in range(400)]
    many = focuse.train(edges, valid_fraction=0, test_fraction=0, dim=4, epochs=1, progress=False)
    read = read_page(relations(many, gather(many)))
    assert read.tags.count("details") == 1
    assert f"The other {40 - SHOWN} relations" in read.texts
    assert sum(text.startswith("<r") for text in read.texts) == 40
    assert "tail MRR" not in read.texts  # no test, no ranks
