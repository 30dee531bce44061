"""The sections of the report on ranking, weights and links."""

from dataclasses import replace
from typing import Any

import pytest

import focuse
from focuse.evaluation.metrics import format_number
from focuse.inference.predict import Prediction
from focuse.report.gathered import Gathered, gather
from focuse.report.ranking import order, ranking, scores, suggestions
from focuse.report.relations import links
from focuse.report.weights import columns, intervals, probabilities, promises, weights


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, dim=6, epochs=4, eval_every=2, progress=False)


@pytest.fixture(scope="module")
def figures(run: focuse.Run) -> Gathered:
    return gather(run)


def rows(read: Any, width: int) -> list[list[str]]:
    cells = [text for text in read.texts if text.strip()]
    return [cells[i : i + width] for i in range(len(cells))]


def test_order_and_suggestions_show_their_metrics(run: focuse.Run, figures: Gathered, read_page: Any) -> None:
    evaluation = figures.evaluation
    assert evaluation is not None
    assert evaluation.order is not None
    assert evaluation.suggestions is not None
    told = rows(read_page(order(run, figures)), 3)
    for name, one in (("one relation", evaluation.order.relation), ("one query", evaluation.order.query)):
        assert [name, format_number(one.share), f"{one.pairs:,}"] in told
    told = rows(read_page(suggestions(run, figures)), 6)
    for name, one in {"complex": evaluation, **figures.baselines}.items():
        assert one.suggestions is not None
        for found in one.suggestions.first:
            values = (found.weight, found.possible, found.precision, found.mean_weight)
            assert [name, str(found.n), *map(format_number, values)] in told


def test_weight_errors_are_shown_above_baselines(run: focuse.Run, figures: Gathered, read_page: Any) -> None:
    assert figures.weights is not None
    told = [text for text in read_page(weights(run, figures)).texts if text.strip()]
    table = figures.weights.table
    for protocol in table.protocols:
        cells = table.cells(protocol)
        below = [name in table.baselines for name in cells]
        assert below == sorted(below)
        for name, row in cells.items():
            width = 1 + len(row)
            assert [name, *row.values()] in [told[i : i + width] for i in range(len(told))]
    assert told.index("complex, isotonic") < told.index("global mean")


def test_classification_is_shown_only_with_strong_triples(run: focuse.Run, figures: Gathered, read_page: Any) -> None:
    judged = {threshold: run.evaluate_weights(strong_above=threshold, estimator=False) for threshold in (0.5, 1.0)}
    for threshold, found in judged.items():
        told = " ".join(read_page(weights(run, replace(figures, weights=found))).texts)
        strong = int((run.splits.test.weight > threshold).sum())
        assert f"strong above a weight of {threshold:g}, as {strong} of {len(run.splits.test)} are" in told
        assert ("too few" in told) == (threshold == 1.0) == ("F1" not in told)


def test_intervals_and_probabilities_show_their_metrics(run: focuse.Run, figures: Gathered, read_page: Any) -> None:
    assert figures.weights is not None
    assert figures.weights.intervals is not None
    told = rows(read_page(intervals(run, figures)), 2)
    for name, row in figures.weights.intervals.rows.items():
        assert [name, format_number(row.coverage)] in told
    assert figures.probabilities is not None
    read = read_page(probabilities(run, figures))
    for name, found in figures.probabilities.rows.items():
        assert [name, format_number(found.brier), format_number(found.ece)] in rows(read, 3)
    assert [text for text in read.texts if text in CHARTS] == list(CHARTS)
    (promised, held), *more = promises(run, figures)
    told = run.evaluate_weights(coverage=promised).intervals
    assert told is not None
    assert held == pytest.approx(next(iter(told.rows.values())).coverage)
    shares = [held, *(held for _, held in more)]
    assert shares == sorted(shares)


CHARTS = ("Reliability", "Triples by probability, after")


def test_ranking_states_which_baselines_are_beaten(run: focuse.Run, figures: Gathered, read_page: Any) -> None:
    assert figures.evaluation is not None
    text = " ".join(read_page(ranking(run, figures)).texts)
    for name, one in figures.baselines.items():
        verb = "beats" if figures.evaluation.all.mrr > one.all.mrr else "does not beat"
        assert f"complex {verb} {name}: an MRR of {figures.evaluation.all.mrr:.3f} to {one.all.mrr:.3f}." in text
    worse = replace(figures, evaluation=next(iter(figures.baselines.values())), baselines={"me": figures.evaluation})
    beaten = figures.evaluation.all.mrr < worse.evaluation.all.mrr  # type: ignore[union-attr]
    assert ("complex beats me" in ranking(run, worse)) == beaten
    assert figures.weights is not None
    text = " ".join(read_page(weights(run, figures)).texts)
    rows = figures.weights.table.rows
    best = min(row["positives"].errors.mae for name, row in rows.items() if name not in figures.weights.table.baselines)
    mean = rows["relation mean"]["positives"].errors.mae
    assert f"{'beats' if best < mean else 'does not beat'} the relation mean: off by {best:.4g}" in text


def test_every_weight_column_has_its_errors(read_page: Any) -> None:
    edges = [(f"e{i % 12}", f"r{i % 2}", f"e{(i * 5 + i // 12) % 12}", (i % 12) / 12, 50 - i % 9) for i in range(140)]
    run = focuse.train(edges, model="distmult", dim=4, epochs=2, label_exponent=1.0, progress=False)
    figures = gather(run)
    texts = read_page(columns(run, figures)).texts
    assert "Column w1" in texts
    assert "Column w2" in texts
    assert set(figures.data["weights_by_column"]) == {"w1", "w2"}


def test_links_show_probabilities_and_weights(run: focuse.Run, figures: Gathered, read_page: Any) -> None:
    told = rows(read_page(links(run, figures)), 7)
    assert figures.links
    for row in figures.links:
        assert row.low is not None
        assert row.high is not None
        weight = [f"{row.probability:.3g}", f"{row.expected_weight:.3g}", f"{row.low:.3g} to {row.high:.3g}"]
        assert [row.head, row.relation, row.tail, f"{row.score:.3f}", *weight] in told
    unsure = [Prediction(1, "a", "r", "b", 2.0, False, None)]
    texts = read_page(links(run, replace(figures, links=unsure))).texts
    assert "probability" not in texts
    assert "–" not in texts


def test_sections_without_data_are_empty(run: focuse.Run, figures: Gathered) -> None:
    nothing = Gathered(None, None, None, {}, [])
    for section in (ranking, order, suggestions, scores, weights, intervals, probabilities, links):
        assert section(run, figures)
        assert section(run, nothing) == ""
    assert columns(run, figures) == ""  # one weight an edge
    assert figures.evaluation is not None
    older = replace(figures, evaluation=replace(figures.evaluation, order=None, suggestions=None))
    assert (order(run, older), suggestions(run, older)) == ("", "")
