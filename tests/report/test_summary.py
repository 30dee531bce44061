"""The first answers of a run: figures by brute force, and graphs in which there is little to answer."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import focuse
from focuse.report import summary as module
from focuse.report.summary import Comparison, Quality


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, dim=8, epochs=30, label_exponent=2.0, lr=0.1, test_fraction=0.4, progress=False)


def fixed(rows: list[tuple], **settings) -> focuse.Run:
    return focuse.train(rows, **{"dim": 4, "epochs": 2, "progress": False, **settings})


def brute_force(run: focuse.Run, score) -> np.ndarray:
    """Mean reciprocal ranks [n] of both sides of the test triples, ties last, other known triples left out."""
    train, test = run.splits.train, run.splits.test
    known = {
        triple
        for part in (train, run.splits.valid, test)
        for triple in zip(part.head.tolist(), part.relation.tolist(), part.tail.tolist(), strict=True)
    }
    means = []
    for h, r, t in zip(test.head.tolist(), test.relation.tolist(), test.tail.tolist(), strict=True):
        found = []
        for side, true in (("tail", t), ("head", h)):
            rank = 1
            for other in range(len(train.entities)):
                triple = (h, r, other) if side == "tail" else (other, r, t)
                if other != true and triple not in known:
                    rank += score(*triple, side) >= score(h, r, t, side)
            found.append(1 / rank)
        means.append(np.mean(found))
    return np.array(means)


def frequency(train: focuse.Graph):
    degree = np.bincount(np.concatenate([train.head, train.tail]), minlength=len(train.entities))

    def score(h: int, r: int, t: int, side: str) -> tuple[int, int]:
        ids, entity = (train.tail, t) if side == "tail" else (train.head, h)
        return int(((train.relation == r) & (ids == entity)).sum()), int(degree[entity])

    return score


def linked(train: focuse.Graph):
    usual = frequency(train)
    edges = set(zip(train.head.tolist(), train.relation.tolist(), train.tail.tolist(), strict=True))
    pairs = {(h, t) for h, _, t in edges} | {(t, h) for h, _, t in edges}

    def score(h: int, r: int, t: int, side: str) -> tuple[int, ...]:
        return (t, r, h) in edges, (h, t) in pairs, *usual(h, r, t, side)

    return score


def test_comparison_agrees_with_brute_force(run: focuse.Run) -> None:
    quality = run.summary().quality
    assert quality is not None
    assert (quality.split, quality.available, quality.every.triples) == ("test", len(run.splits.test), 240)
    table = {name: part.double().numpy() for name, part in run.scorer.tables.items()}
    entity, relation = (rows[:, :8] + 1j * rows[:, 8:] for rows in (table["entity"], table["relation"]))

    def score(h: int, r: int, t: int, side: str) -> float:
        return float((entity[h] * relation[r] * entity[t].conj()).sum().real)

    own = brute_force(run, score)
    others = {name: brute_force(run, of(run.graph)) for name, of in (("f", frequency), ("l", linked))}
    other = max(others.values(), key=np.mean)
    difference = own - other
    assert math.isclose(quality.every.mrr, own.mean(), abs_tol=1e-3)  # of nearly equal scores, rounding decides
    assert math.isclose(quality.every.baseline_mrr, other.mean(), rel_tol=1e-9)
    assert math.isclose(quality.every.margin, 2 * difference.std(ddof=1) / math.sqrt(len(own)), abs_tol=1e-3)
    assert difference.mean() < -quality.every.margin  # and so it is called by its name
    assert quality.every.verdict == "worse"
    weight = run.splits.test.weight
    order = np.argsort(-weight)
    assert weight[order[23]] > weight[order[24]]  # no tie at the border of the tenth
    assert quality.strongest is not None
    assert math.isclose(quality.strongest.baseline_mrr, other[order[:24]].mean(), rel_tol=1e-9)
    strong = difference[order[:24]]
    assert math.isclose(quality.strongest.difference, strong.mean(), abs_tol=1e-2)
    assert math.isclose(quality.strongest.margin, 2 * strong.std(ddof=1) / math.sqrt(24), abs_tol=1e-2)


def verdict(model: np.ndarray, baseline: np.ndarray) -> str:
    return Comparison.measure(model, baseline, np.ones(len(model)), np.arange(len(model))).verdict


def test_verdict_needs_two_standard_errors() -> None:
    random = np.random.default_rng(0)
    one = random.random(400)
    assert verdict(one, one + random.normal(0, 0.2, 400)) == "no better"
    assert verdict(one, one - 0.05) == "better"
    assert verdict(one, one + 0.05) == "worse"
    assert verdict(one[:19], one[:19] - 0.05) == "too few triples"


def test_both_directions_of_a_pair_are_one_observation() -> None:
    model, baseline = np.random.default_rng(0).random((2, 50))
    once = Comparison.measure(model, baseline, np.ones(50), np.arange(50))
    twice = Comparison.measure(*(np.repeat(part, 2) for part in (model, baseline, np.ones(50), np.arange(50))))
    assert math.isclose(twice.margin, once.margin)
    assert math.isclose(twice.difference, once.difference)


def test_untrained_run_is_said_to_be_worse(small: focuse.Graph) -> None:
    run = fixed(small, epochs=1, lr=1e-6, test_fraction=0.4, weight_mode="none")
    text = str(run.summary())
    assert text.startswith("worse than ranking by ")
    assert " on 240 test triples: MRR 0." in text
    assert "(−0." in text
    assert "soft labels" not in text
    quality = run.summary().quality
    assert quality is not None
    assert not quality.useful


def test_weak_edges_that_soft_labels_give_up_are_explained() -> None:
    up, down = Comparison(90, 0.5, 0.2, 0.01), Comparison(900, 0.1, 0.2, 0.01)
    quality = Quality("test", 2000, "frequency in train", down, up, None, True)
    assert str(quality) == (
        "worse than ranking by frequency in train on 900 of 2,000 test triples: MRR 0.100 against 0.200 "
        "(−0.100 ± 0.010); better on the strongest 10 %: MRR 0.500 against 0.200 (+0.300 ± 0.010)"
        " (soft labels favor strong edges; --weight-mode none treats all alike)"
    )
    assert quality.useful
    assert "soft labels" not in str(replace(quality, soft_labels=False))


def test_new_links_are_unknown_and_by_probability(run: focuse.Run) -> None:
    links = run.summary().new_links
    assert len(links) == 5
    assert len(run.summary(top=3).new_links) == 3
    known = {
        (part.entities[h], part.relations[r], part.entities[t])
        for part in (run.splits.train, run.splits.valid, run.splits.test)
        for h, r, t in zip(part.head, part.relation, part.tail, strict=True)
    }
    assert not known & {(link.head, link.relation, link.tail) for link in links}
    probabilities = [link.probability for link in links]
    assert probabilities == sorted(probabilities, reverse=True)
    assert 0 < probabilities[-1] <= probabilities[0] < 1
    assert run.fitted.estimator is None  # fitting it would take longer than many a training
    line = str(run.summary()).splitlines()[2]
    assert line == f"  {links[0].head} | {links[0].relation} | {links[0].tail}  {links[0].probability:.3f}"


def test_everything_is_json(run: focuse.Run) -> None:
    data = json.loads(json.dumps(run.summary().to_dict(), allow_nan=False))
    assert set(data) == {"quality", "new_links", "notes"}
    assert data["quality"]["every"]["verdict"] == "worse"
    assert set(data["new_links"][0]) == {"head", "relation", "tail", "probability"}


def test_many_triples_are_sampled_and_many_links_searched_in_part(
    run: focuse.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TRIPLES", 100)
    monkeypatch.setattr(module, "MAX_LINKS", 300.0)
    asked = []
    whole = run.discover
    monkeypatch.setattr(run, "discover", lambda **options: asked.append(options) or whole(**options))
    found = run.summary()
    assert "on 100 of 240 test triples" in str(found)
    assert [options.get("sample_size") for options in asked] == [None, 10]
    assert len(found.new_links) == 5


def test_run_without_test_is_measured_on_validation(small: focuse.Graph) -> None:
    run = fixed(small, test_fraction=0.0, valid_fraction=0.2)
    assert "on 120 validation triples: MRR" in str(run.summary())


def test_run_without_held_out_triples_has_links_without_probability() -> None:
    run = fixed([(f"a{i}", "r", f"b{i * i % 7}", i) for i in range(20)], valid_fraction=0.0, test_fraction=0.0)
    text = str(run.summary())
    assert text.startswith("no test triples: ")
    assert "new links:\n  a" in text
    assert run.summary().to_dict()["new_links"][0]["probability"] is None


def test_few_triples_are_not_compared() -> None:
    run = fixed([(f"a{i % 10}", "r", f"b{i % 9}", i) for i in range(60)])
    text = str(run.summary())
    assert text.startswith("6 test triples: too few to compare with ranking by frequency in train; MRR 0.")


def test_complete_graph_has_no_new_links() -> None:
    run = fixed([(f"a{i}", "r", f"b{j}", i + j) for i in range(8) for j in range(8)])
    assert str(run.summary()).endswith("\nnew links: none found")
    assert run.summary().to_dict()["new_links"] == []


def test_one_edge_is_enough() -> None:
    found = fixed([("a", "r", "b", 1.0)]).summary()
    assert found.quality is None
    assert "new links" in str(found)


def test_expensive_model_and_baselines_rank_the_same_sample() -> None:
    rows = [(f"a{i % 300}", "r", f"b{i * 7 % 401}", 1.0) for i in range(900)]
    run = fixed(rows, model="convkb", dim=8, epochs=1, weight_mode="none")
    quality = run.summary().quality
    assert quality is not None
    assert quality.sampled == 500
    assert quality.strongest is None  # all weights are equal
    assert "test triples (among 500 sampled entities): MRR" in str(quality)
    # An evaluation with the same sample, of all test triples.
    assert math.isclose(quality.every.mrr, run.evaluate(sample_candidates=500).all.mrr)


def test_long_names_and_line_ends_stay_on_one_line() -> None:
    tails = ["a\nb", "e", "f", "x" * 100]
    rows = [(f"h{i % 3}", "r", tails[i % 4], i + 1.0) for i in range(12) if i not in (3, 4)]  # h0 x…, h1 a…b are new
    lines = str(fixed(rows, valid_fraction=0.0, test_fraction=0.0).summary()).splitlines()
    assert sorted(lines[2:]) == [f"  h0 | r | {'x' * 59}…", "  h1 | r | a\\nb"]


def test_scores_that_are_not_finite_are_reported_and_not_raised(small: focuse.Graph) -> None:
    run = fixed(small)
    run.scorer.tables["entity"].fill_(math.nan)
    assert "training diverged" in str(run.summary())


def test_several_weight_columns_and_lower_is_better(small: focuse.Graph, with_columns) -> None:
    assert "test triples: MRR" in str(fixed(with_columns(small), test_fraction=0.3).summary())
    turned = replace(small, weight=1 - small.weight)
    options = {"epochs": 30, "dim": 8, "lr": 0.1, "label_exponent": 2.0, "test_fraction": 0.4}
    pair = [fixed(turned, lower_is_better=True, **options), fixed(small, **options)]
    strongest = [one.summary().to_dict()["quality"]["strongest"] for one in pair]
    assert math.isclose(*(one["baseline_mrr"] for one in strongest))
