"""Probabilities of missing links, compared with held-out triples."""

import dataclasses

import numpy as np
import pytest

import focuse
from focuse.inference.discover import discovery_predictor, fit_link_probability, sample_links
from focuse.inference.link_search import CandidateSpace


@pytest.fixture(scope="module")
def run() -> focuse.Run:
    """Two kinds of entities, likes and dislikes by hidden factors: many links, few of them facts."""
    random = np.random.default_rng(0)
    people, things = random.normal(size=(60, 3)), random.normal(size=(80, 3))
    fit = people @ things.T + random.normal(size=(60, 80))
    rows = [(f"p{h}", "likes", f"t{t}", 1.0) for h, t in zip(*np.nonzero(fit > 2.2), strict=True)]
    rows += [(f"p{h}", "knows", f"p{(h + k) % 60}", 0.5) for h in range(60) for k in (1, 2, 3)]
    return focuse.train(
        rows, dim=12, epochs=25, valid_fraction=0.2, test_fraction=0.2, weight_mode="none", progress=False
    )


def unknown(run: focuse.Run, kind: int) -> tuple[np.ndarray, np.ndarray]:
    """All links of a relation between entities that train has there, and that train lacks."""
    graph = run.graph
    rows = graph.relation == kind
    head, tail = (part.ravel() for part in np.meshgrid(np.unique(graph.head[rows]), np.unique(graph.tail[rows])))
    facts = set(zip(graph.head[rows].tolist(), graph.tail[rows].tolist(), strict=True))
    new = np.array([h != t and (h, t) not in facts for h, t in zip(head.tolist(), tail.tolist(), strict=True)])
    return head[new], tail[new]


def test_probabilities_sum_to_the_number_of_held_out_triples(run: focuse.Run) -> None:
    kind = run.graph.relations.id("likes")
    head, tail = unknown(run, kind)
    relation = np.full(len(head), kind)
    held = run.splits.test
    facts = int((held.relation == kind).sum() + (run.splits.valid.relation == kind).sum())
    chance = discovery_predictor(run).probable(head, relation, tail)
    assert facts / 2 < chance.sum() < 2 * facts
    # What the usual probabilities say, one fact for each corruption, is far more than there is.
    assert run.weight_predictor(full=True).probable(head, relation, tail).sum() > 3 * facts


def test_probable_links_are_true_more_often(run: focuse.Run) -> None:
    kind = run.graph.relations.id("likes")
    head, tail = unknown(run, kind)
    relation = np.full(len(head), kind)
    parts = (run.splits.valid, run.splits.test)
    true = np.isin(run.graph.keys_of(head, relation, tail), np.concatenate([part.keys for part in parts]))
    chance = discovery_predictor(run).probable(head, relation, tail)
    order = np.argsort(-chance, kind="stable")
    first, rest = order[: len(order) // 10], order[len(order) // 10 :]
    assert true[first].mean() > 2 * true[rest].mean()
    assert chance[first].mean() == pytest.approx(true[first].mean(), rel=0.6)


def test_base_rates_are_counted_per_relation(run: focuse.Run) -> None:
    graph, made = run.graph, fit_link_probability(run.weight_predictor(full=True))
    held = len(run.splits.valid) + len(run.splits.test)
    for kind in range(len(graph.relations)):
        rows = graph.relation == kind
        pairs = len(set(graph.head[rows].tolist())) * len(set(graph.tail[rows].tolist())) - rows.sum()
        assert made.rates[kind] == pytest.approx(rows.sum() * held / len(graph) / pairs)


def test_sampled_links_are_unknown_and_within_the_candidate_space(run: focuse.Run) -> None:
    graph, valid = run.graph, run.splits.valid
    space = CandidateSpace(graph, np.arange(len(graph.relations)))
    known = np.concatenate([graph.keys, valid.keys])
    found = sample_links(valid, space, known)
    assert len(found) > 5 * len(valid)
    assert not np.isin(found.keys, known).any()
    assert not (found.head == found.tail).any()
    for kind in np.unique(found.relation).tolist():
        rows, mine = graph.relation == kind, found.relation == kind
        assert np.isin(found.head[mine], graph.head[rows]).all()
        assert np.isin(found.tail[mine], graph.tail[rows]).all()


def test_another_base_rate_keeps_the_order_within_a_relation(run: focuse.Run) -> None:
    usual, rare = run.discover(relations="likes", top=20), run.discover(relations="likes", top=20, base_rate=1e-4)
    assert [(row.head, row.tail) for row in usual] == [(row.head, row.tail) for row in rare]
    assert max(row.probability for row in rare) < max(row.probability for row in usual)
    assert any("held out" in note for note in usual.notes)
    assert not any("held out" in note for note in rare.notes)


def test_run_without_probabilities_has_no_link_probabilities(run: focuse.Run) -> None:
    assert fit_link_probability(dataclasses.replace(run.weight_predictor(full=True), probability=None)) is None


def test_recalibration_changes_link_probabilities(run: focuse.Run) -> None:
    before = discovery_predictor(run).probability
    run.calibrate("platt" if before.method == "isotonic" else "isotonic")  # type: ignore[union-attr]
    assert discovery_predictor(run).probability.method != before.method  # type: ignore[union-attr]


def test_probability_by_score_alone_needs_no_estimator(small: focuse.Graph) -> None:
    run = focuse.train(small, dim=6, epochs=4, label_exponent=1.0, progress=False)
    links = run.discover(top=50, weights=False)
    assert run.fitted.estimator is None
    assert run.fitted.calibration is None
    assert all(row.weight_mean is None and 0 < row.probability < 1 for row in links)
    for name in run.graph.relations:
        rows = sorted((row.score, row.probability) for row in links if row.relation == name)
        assert np.all(np.diff([probability for _, probability in rows]) >= -1e-12)
    # Both kinds of probabilities of a run are kept apart.
    with_features = run.discover(top=50)
    assert all(row.weight_mean is not None for row in with_features)
    assert run.discover(top=50, weights=False) == links
