"""The probability of links: the same number everywhere, compared with held-out triples."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

import focuse
from focuse.errors import FocuseError
from focuse.inference.calibration import check_base_rate
from focuse.inference.link_probability import LinkEvidence, LinkProbability, at_rate_of_rows
from focuse.inference.weight_predictor import link_probability, probability_predictor

TRAINING = {"weight_mode": "none", "progress": False}


def tastes(seed: int = 0) -> list[tuple[str, str, str, float]]:
    """People like things by hidden factors, and know their neighbors."""
    random = np.random.default_rng(seed)
    people, things = random.normal(size=(150, 3)), random.normal(size=(120, 3))
    fit = people @ things.T + 0.5 * random.normal(size=(150, 120))
    rows = [(f"p{h}", "likes", f"t{t}", 1.0 + h % 3) for h, t in zip(*np.nonzero(fit > 2.2), strict=True)]
    return rows + [(f"p{h}", "knows", f"p{(h + k) % 150}", 0.5) for h in range(150) for k in (1, 2, 3)]


@pytest.fixture(scope="module")
def graphs() -> tuple[focuse.Graph, focuse.Graph, focuse.Graph]:
    """Train, validation, and links that the runs do not know."""
    rows = tastes()
    order = np.random.default_rng(1).permutation(len(rows))
    parts = np.split(order, [int(0.6 * len(rows)), int(0.8 * len(rows))])
    train, valid, test = (focuse.read([rows[i] for i in part]) for part in parts)
    return train, valid, test


@pytest.fixture(scope="module")
def run(graphs: tuple[focuse.Graph, focuse.Graph, focuse.Graph]) -> focuse.Run:
    return focuse.train(graphs[0], valid=graphs[1], dim=16, epochs=30, **TRAINING)


def made(run: focuse.Run) -> LinkProbability:
    found = link_probability(run)
    assert found is not None
    return found


def candidates(run: focuse.Run, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All links of a relation between entities of plausible types that neither train nor validation has."""
    graph, relation = run.graph, run.graph.relations.id(kind)
    rows = graph.relation == relation
    head, tail = (part.ravel() for part in np.meshgrid(np.unique(graph.head[rows]), np.unique(graph.tail[rows])))
    kinds = np.full(len(head), relation)
    known = np.concatenate([graph.keys, run.splits.valid.keys])
    new = ~np.isin(graph.keys_of(head, kinds, tail), known) & (head != tail)
    return head[new], kinds[new], tail[new]


def test_every_way_to_a_link_gives_the_same_probability(run: focuse.Run) -> None:
    for link in run.discover(top=10):
        names = link.head, link.relation, link.tail
        by_head = run.predict(link.head, link.relation, None, 100, new_only=True)
        by_tail = run.predict(None, link.relation, link.tail, 100, new_only=True)
        several = run.predict_batch([(link.head, link.relation, None)], 100, new_only=True)
        found = [
            next(row.probability for row in by_head if row.tail == link.tail),
            next(row.probability for row in by_tail if row.head == link.head),
            next(row.probability for row in several if row.tail == link.tail),
            run.predict(*names)[0].probability,
            run.predict_weight(*names).probability,
            run.explain(*names).prediction.probability,
        ]
        assert found == pytest.approx([link.probability] * len(found), rel=1e-3)


def test_probability_needs_no_estimator_of_weights(run: focuse.Run) -> None:
    alone, usual = probability_predictor(run), run.weight_predictor(full=True)
    assert alone.estimator is None
    assert alone.probability is usual.probability
    quick, links = run.discover(top=20, weights=False), run.discover(top=20)
    assert [row.probability for row in quick] == [row.probability for row in links]
    assert all(row.weight_mean is None for row in quick)
    assert run.summary(5).new_links[0].probability == links[0].probability


def test_probabilities_are_the_shares_of_true_links(
    run: focuse.Run, graphs: tuple[focuse.Graph, focuse.Graph, focuse.Graph]
) -> None:
    test = graphs[2].align(run.graph).graph
    for kind in run.graph.relations:
        ids = candidates(run, kind)
        chance, true = made(run)(*ids), np.isin(run.graph.keys_of(*ids), test.keys)
        assert chance.sum() == pytest.approx(true.sum(), rel=0.35)
        order = np.argsort(-chance, kind="stable")
        best = order[: len(order) // 20]
        assert true[best].mean() > 3 * true.mean()
        assert chance[best].mean() == pytest.approx(true[best].mean(), abs=0.08)


def test_probabilities_do_not_collapse_into_steps(run: focuse.Run) -> None:
    for found in (run.discover(top=20), run.predict(run.graph.entities[0], "likes", None, 20, new_only=True)):
        assert len({row.probability for row in found}) > 15


def test_order_agrees_with_the_probability(run: focuse.Run) -> None:
    graph = run.graph
    found = run.predict("p3", "likes", None, 1000)
    probability = [row.probability for row in found]
    assert probability == sorted(probability, reverse=True)
    assert [row.rank for row in found] == list(range(1, len(found) + 1))
    assert found.ordered_by == "probability"
    assert "ordered by probability" in found.notes[0]
    new = run.predict("p3", "likes", None, 1000, new_only=True)
    assert [(row.rank, row.tail) for row in new] == [(row.rank, row.tail) for row in found if not row.known]
    links = run.discover(top=len(graph.entities))
    assert [row.probability for row in links] == sorted((row.probability for row in links), reverse=True)


def test_completions_have_a_plausible_type_unless_all_are_asked_for(run: focuse.Run) -> None:
    liked = {row.tail for row in run.predict("p3", "likes", None, 1000)}
    assert liked == {name for name in liked if name.startswith("t")}
    every = run.predict("p3", "likes", None, 1000, any_type=True)
    assert {row.tail for row in every} == set(run.graph.entities) - {"p3"} or len(every) == len(run.graph.entities)
    by_name = {row.tail: row.probability for row in every}
    usual = {row.tail: row.probability for row in run.predict("p3", "likes", None, 1000)}
    assert all(by_name[name] == pytest.approx(usual[name], rel=1e-3) for name in usual)
    assert max(chance for name, chance in by_name.items() if name.startswith("p")) < 0.1
    given = run.predict("p3", "likes", None, 1000, candidates=["p1", "t1"])
    assert {row.tail for row in given} == {"p1", "t1"}
    # A head that train never has there is no reason for other tails.
    assert {row.tail for row in run.predict("t3", "likes", None, 1000)} == liked


def test_model_that_learned_nothing_gives_no_high_probability(
    graphs: tuple[focuse.Graph, focuse.Graph, focuse.Graph],
) -> None:
    run = focuse.train(graphs[0], valid=graphs[1], dim=16, epochs=1, **TRAINING)
    for table in run.scorer.tables.values():
        table.copy_(torch.randn(table.shape, generator=torch.Generator().manual_seed(0)))
    run.scorer.invalidate()
    assert run.discover(top=1)[0].probability < 0.2
    # Only the number of known links of an entity says anything.
    assert made(run)(*candidates(run, "likes")).std() < 0.05


def test_few_validation_links_give_a_line_near_the_base_rate(
    graphs: tuple[focuse.Graph, focuse.Graph, focuse.Graph],
) -> None:
    few = graphs[1].select(np.arange(20))
    run = focuse.train(graphs[0], valid=few, dim=16, epochs=30, **TRAINING)
    assert made(run).method == "platt"
    assert run.discover(top=1)[0].probability < 0.5


def test_run_without_validation_has_no_probabilities() -> None:
    run = focuse.train(tastes(), valid_fraction=0.0, test_fraction=0.0, dim=4, epochs=1, **TRAINING)
    assert link_probability(run) is None
    found = run.predict("p3", "likes", None)
    assert all(row.probability is None for row in found)
    assert any("no probabilities" in note for note in found.notes)
    assert found.ordered_by == "score"


def test_another_base_rate_scales_all_odds(run: focuse.Run) -> None:
    usual, rare = run.discover(top=20), run.discover(top=20, base_rate=1e-4)
    assert [(row.head, row.tail) for row in usual] == [(row.head, row.tail) for row in rare]
    before, after = (np.array([row.probability for row in found]) for found in (usual, rare))
    ratio = before / (1 - before) / (after / (1 - after))
    assert np.ptp(np.log(ratio)) < 1e-6
    rate = made(run).estimated_rate
    assert ratio[0] == pytest.approx(rate / (1 - rate) / (1e-4 / (1 - 1e-4)))


def test_calibration_stores_another_base_rate(run: focuse.Run, tmp_path: Path) -> None:
    copy = focuse.train(tastes(), dim=8, epochs=5, out=tmp_path / "run", **TRAINING)
    before = copy.discover(top=1)[0]
    copy.calibrate("platt", base_rate=made(copy).estimated_rate / 10)
    loaded = focuse.load(tmp_path / "run")
    assert made(loaded).method == "platt"
    assert loaded.discover(top=1)[0].probability < before.probability
    assert made(loaded).base_rate == pytest.approx(made(copy).estimated_rate / 10)


def test_both_directions_of_a_pair_have_the_same_probability() -> None:
    rows = [(f"p{h}", "knows", f"p{(h + k) % 60}", 1.0) for h in range(60) for k in (1, 2, 3, 7)]
    run = focuse.train(rows, undirected=True, dim=8, epochs=3, **TRAINING)
    one, other = run.predict("p1", "knows", "p9")[0], run.predict("p9", "knows", "p1")[0]
    assert one.probability == pytest.approx(other.probability, rel=1e-6)


def test_evidence_of_a_sample_of_candidates_is_near_that_of_all(
    run: focuse.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = candidates(run, "likes")
    whole = made(run).evidence(*ids)
    monkeypatch.setattr("focuse.inference.link_probability.MAX_COMPARED", 64)
    some = LinkEvidence(run.scorer, run.graph, made(run).evidence.score)(*ids)
    assert np.corrcoef(whole[:, 1], some[:, 1])[0, 1] > 0.8
    np.testing.assert_array_equal(whole[:, 0], some[:, 0])


def test_curve_rises_everywhere(run: focuse.Run) -> None:
    found = made(run)
    found = dataclasses.replace(found, points=np.array([-2.0, 1.0]), logits=np.array([-1.5, 1.2]))
    values = np.linspace(-9, 9, 1000)
    assert (np.diff(found.corrected(values)) > 0).all()
    assert found.corrected(np.array([60.0]))[0] < np.log(0.8 / 0.2)


def test_sum_of_sampled_weights_is_the_number_of_candidates(run: focuse.Run) -> None:
    found = [made(run)(*candidates(run, kind)) for kind in run.graph.relations]
    assert made(run).estimated_rate == pytest.approx(np.concatenate(found).mean(), rel=0.3)


@pytest.mark.parametrize("rate", [0, 1, -0.5, 2, True, "0.5"])
def test_base_rate_outside_the_unit_interval_is_refused(rate: object) -> None:
    with pytest.raises(FocuseError, match="give the share of true links"):
        check_base_rate(rate)  # type: ignore[arg-type]


def test_odds_are_scaled_to_the_share_of_true_rows() -> None:
    chance = np.array([0.001, 0.01, 0.3])
    scaled = at_rate_of_rows(chance, 0.4)
    assert scaled.mean() == pytest.approx(0.4)
    assert np.ptp(np.log(scaled / (1 - scaled)) - np.log(chance / (1 - chance))) < 1e-9
