"""Missing links, compared with scoring and sorting every triple."""

from itertools import product
from threading import Event
from typing import Any

import numpy as np
import pytest

import focuse
from focuse.errors import FocuseError
from focuse.evaluation.preference import Preference
from focuse.inference import link_search
from focuse.inference.discover import _known_triples
from focuse.results import ResultTable
from focuse.training.callbacks import Progress

TRAINING = {"dim": 4, "epochs": 2, "progress": False, "batch_size": 100, "weight_mode": "none"}


def trained(graph: Any, **settings: Any) -> focuse.Run:
    return focuse.train(graph, **TRAINING | settings)


@pytest.fixture(scope="module", params=["complex", "transe", "reciprocal", "rotate", "conve"])
def run(request: pytest.FixtureRequest, small: focuse.Graph) -> focuse.Run:
    """Dot product, distance, two scores a triple, a form of its own, and a network with reciprocal relations."""
    if request.param == "reciprocal":
        return trained(small, model="distmult", reciprocal=True)
    return trained(small, model=request.param, **({"dim": 32} if request.param == "conve" else {}))


def known(run: focuse.Run) -> set[tuple[int, int, int]]:
    graphs = (run.splits.train, run.splits.valid, run.splits.test)
    return {
        triple for g in graphs for triple in zip(g.head.tolist(), g.relation.tolist(), g.tail.tolist(), strict=True)
    }


def plausible(train: focuse.Graph) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Return (entity, relation) where train has the entity, or half (and two) of another side with it, on that side."""
    sides: dict[tuple[int, str], set[int]] = {}
    for side, ends in (("head", train.head), ("tail", train.tail)):
        for relation, entity in zip(train.relation.tolist(), ends.tolist(), strict=True):
            sides.setdefault((relation, side), set()).add(entity)
    found: dict[str, set[tuple[int, int]]] = {"head": set(), "tail": set()}
    for (relation, side), here in sides.items():
        alike = [there for there in sides.values() if len(there & here) >= max(2, len(there) / 2)]
        found[side] |= {(entity, relation) for entity in here.union(*alike)}
    return found["head"], found["tail"]


def brute(run: focuse.Run, any_type: bool = False) -> list[tuple[float, float, int, int, int]]:
    """(probability, score, head, relation, tail) of every missing link, best first."""
    train, facts = run.splits.train, known(run)
    loops = {r for h, r, t in zip(train.head, train.relation, train.tail, strict=True) if h == t}
    heads, tails = plausible(train)
    rows = [
        (h, r, t)
        for h, r, t in product(range(len(train.entities)), range(len(train.relations)), range(len(train.entities)))
        if (h, r, t) not in facts and (h != t or r in loops) and (any_type or ((h, r) in heads and (t, r) in tails))
    ]
    ids = np.array(rows).T
    predictor = run.weight_predictor(full=True)
    score, probability = predictor.score(*ids), predictor.probability(*ids)  # type: ignore[misc]
    found = zip(probability.tolist(), score.tolist(), *ids.tolist(), strict=True)
    return sorted(found, key=lambda row: (-row[0], -row[1], row[2], row[3], row[4]))


def rows_of(run: focuse.Run, found: ResultTable) -> list[tuple[float, float, int, int, int]]:
    ids = [run.graph.entities.ids(found.to_arrow()[end].combine_chunks()).tolist() for end in ("head", "tail")]
    relation = run.graph.relations.ids(found.to_arrow()["relation"].combine_chunks()).tolist()
    return list(zip(found["probability"].tolist(), found["score"].tolist(), ids[0], relation, ids[1], strict=True))


@pytest.mark.parametrize("any_type", [False, True])
def test_best_links_agree_with_scoring_every_triple(run: focuse.Run, any_type: bool) -> None:
    expected = brute(run, any_type)
    found = run.discover(top=60, any_type=any_type)
    assert found.scored > len(expected)  # the known ones were scored as well
    assert [row[2:] for row in rows_of(run, found)] == [row[2:] for row in expected[:60]]
    assert np.allclose([row[:2] for row in rows_of(run, found)], [row[:2] for row in expected[:60]])
    assert [row.rank for row in found] == list(range(1, 61))
    assert found.ordered_by == "probability"


def test_strong_links_are_the_best_by_probability_and_weight(small: focuse.Graph) -> None:
    run = trained(small, weight_mode="separate", epochs=10)
    run.preference = Preference(strong=3.0)
    predictor = run.weight_predictor(full=True).preferring(run, "strong")
    every = np.array([row[2:] for row in brute(run)]).T
    key = predictor.ordering_key(predictor.score(*every), *every)
    assert predictor.probability is not None
    assert run.weight_model is not None
    weight = 1 / (1 + np.exp(-predictor.weight_score(*every)))
    np.testing.assert_allclose(key, np.log(predictor.probability(*every)) + 3 * np.log(weight), rtol=1e-6)
    found = run.discover(top=40, prefer="strong")
    best = {tuple(row) for row in every[:, np.argsort(-key)[:80]].T.tolist()}
    assert {row[2:] for row in rows_of(run, found)} <= best
    assert rows_of(run, run.discover(top=7, prefer="strong")) == rows_of(run, found)[:7]
    shown = found["probability"] * np.clip(found["weight_mean"], 1e-3, 1) ** 3
    assert (np.diff(shown) <= 1e-12).all()  # the order never contradicts the numbers beside it
    assert found.ordered_by == "probability · weight^3"
    likely = run.discover(top=40, prefer="likely")
    assert (np.diff(likely["probability"]) <= 0).all()
    assert found["weight_mean"].mean() > likely["weight_mean"].mean()
    numbers = {row[2:]: row[0] for row in rows_of(run, likely)}
    both = [(row[0], numbers[row[2:]]) for row in rows_of(run, found) if row[2:] in numbers]
    assert all(first == second for first, second in both)


def test_rows_are_the_same_in_every_form(run: focuse.Run) -> None:
    found = run.discover(top=5)
    assert [row._asdict() for row in found] == found.to_dicts() == found.to_json()["rows"]
    assert [row.tail for row in found] == found["tail"].tolist()
    assert found[-1] == found[4] == found[3:][1]


def test_asking_for_too_many_links_returns_all(run: focuse.Run) -> None:
    expected = brute(run)
    found = run.discover(top=10**6)
    assert [row[2:] for row in rows_of(run, found)] == [row[2:] for row in expected]
    assert len(set(rows_of(run, found))) == len(expected)


def test_heads_tails_and_relations_can_be_chosen(run: focuse.Run) -> None:
    names = run.graph
    heads, tails = names.entities.take(np.arange(7)).to_pylist(), names.entities.take(np.arange(20, 33)).to_pylist()
    kind = names.relations[1]
    some = [row for row in brute(run) if row[2] < 7 and row[3] == 1 and 20 <= row[4] < 33]
    found = run.discover(heads, kind, tails, top=1000)
    assert [row[2:] for row in rows_of(run, found)] == [row[2:] for row in some]
    assert found.scored <= 7 * 13
    one = run.discover(heads=heads[0], top=3)
    assert {row.head for row in one} == {heads[0]}


def test_block_and_pool_sizes_do_not_change_the_result(run: focuse.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows_of(run, run.discover(top=10))
    monkeypatch.setattr("focuse.inference.link_search.CPU_BLOCK_SCORES", 50)
    monkeypatch.setattr("focuse.inference.link_search.BLOCK_TAILS", 7)
    monkeypatch.setattr("focuse.inference.link_search.QUERIES_AT_ONCE", 3)
    found = rows_of(run, run.discover(top=10, rerank=1600))
    assert [row[2:] for row in found] == [row[2:] for row in whole]


def test_limit_max_per_head_is_respected(run: focuse.Run) -> None:
    expected, chosen, heads = brute(run), [], {}
    for row in expected:
        if heads.get(row[2], 0) < 2:
            chosen.append(row[2:])
            heads[row[2]] = heads.get(row[2], 0) + 1
    found = run.discover(top=15, max_per_head=2)
    assert [row[2:] for row in rows_of(run, found)] == chosen[:15]


def test_minimum_probability_is_respected(run: focuse.Run) -> None:
    expected = brute(run)
    middle = expected[len(expected) // 2][0]
    found = run.discover(top=10**6, min_probability=middle)
    assert len(found) == sum(row[0] >= middle for row in expected)
    assert run.discover(min_probability=1.0, base_rate=0.001).to_dicts() == []


def test_discovered_links_have_the_weights_of_predict_weight(run: focuse.Run) -> None:
    for row in run.discover(top=5):
        told = run.predict_weight(row.head, row.relation, row.tail)
        assert row.weight_mean == pytest.approx(told.weight_mean)
        assert (row.weight_low, row.weight_high) == (pytest.approx(told.weight_low), pytest.approx(told.weight_high))


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"heads": "e41"}, ["no entity 'e41'", "did you mean"]),
        ({"relations": ["r0", "R1"]}, ["no relation 'R1'", "did you mean r1"]),
        ({"heads": [3]}, ["entity 3: give its name as text"]),
        ({"top": 0}, ["top 0"]),
        ({"max_per_head": 0}, ["max_per_head 0"]),
        ({"min_probability": 2.0}, ["min_probability 2.0"]),
        ({"strategy": "exhaustiv"}, ["unknown strategy", "did you mean exhaustive"]),
        ({"strategy": "sampled", "sample_size": 0}, ["sample_size 0"]),
        ({"strategy": "sampled", "seed": -1}, ["seed -1: give a whole number, at least 0"]),
        ({"max_scores": 100}, ["links to score", "strategy 'popular'", "max_scores"]),
        ({"base_rate": 0.0}, ["base rate"]),
    ],
)
def test_invalid_options_are_refused(plain: focuse.Run, asked: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(FocuseError) as error:
        plain.discover(**asked)
    for word in words:
        assert word in str(error.value)


def test_the_suggested_limit_is_enough(plain: focuse.Run) -> None:
    with pytest.raises(FocuseError) as error:
        plain.discover(max_scores=100)
    enough = str(error.value).rpartition(" ")[2].replace(",", "")
    assert len(plain.discover(top=np.int64(3), max_scores=int(enough))) == 3


def test_stopping_ends_the_search_of_all_relations(plain: focuse.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    searched, stop = [], Event()
    stop.set()
    monkeypatch.setattr(link_search, "RelationScorer", lambda *scored: searched.append(scored))
    space = link_search.CandidateSpace(plain.graph, np.arange(3))
    found = link_search.search_all(
        plain.scorer, space, _known_triples(plain), 10, Progress(1, lambda share: None, stop), None
    )
    assert (found.scored, len(searched)) == (0, 1)


@pytest.fixture(scope="module")
def plain(small: focuse.Graph) -> focuse.Run:
    return trained(small, model="distmult")


def test_strategies_search_a_subset_of_all_links(plain: focuse.Run) -> None:
    every = {row[2:]: row for row in brute(plain)}
    train = plain.graph
    degree = np.bincount(np.concatenate([train.head, train.tail]))
    for strategy in ("popular", "sampled"):
        found = rows_of(plain, plain.discover(top=10**6, strategy=strategy, sample_size=5))
        assert {row[2:] for row in found} <= set(every)
        for kind in range(len(train.relations)):
            of_kind = [row for row in found if row[3] == kind]
            assert len({row[2] for row in of_kind}) <= 5
            assert len({row[4] for row in of_kind}) <= 5
            allowed = np.unique(train.head[train.relation == kind])
            ordered = np.sort(degree[allowed])
            if strategy == "popular":
                assert all(degree[row[2]] >= ordered[-5] for row in of_kind)
    again = plain.discover(strategy="sampled", sample_size=5, seed=1)
    assert again == plain.discover(strategy="sampled", sample_size=5, seed=1)
    assert again != plain.discover(strategy="sampled", sample_size=5, seed=2)


def test_without_validation_the_best_of_each_relation_come_first(small: focuse.Graph) -> None:
    run = trained(small, model="distmult", valid_fraction=0.0)
    found = run.discover(top=9)
    assert found.ordered_by == "rank within the relation"
    assert "no probabilities" in str(found)
    assert {row.relation for row in found[:3]} == {row.relation for row in found[3:6]} == set(small.relations)
    assert {row.probability for row in found} == {None}
    for kind in small.relations:
        scores = [row.score for row in found if row.relation == kind]
        assert scores == sorted(scores, reverse=True)
        alone = run.discover(relations=kind, top=3)
        assert [row.score for row in alone] == scores
    with pytest.raises(FocuseError, match="no probabilities"):
        run.discover(min_probability=0.5)


def test_confidence_model_orders_links_by_confidence(small: focuse.Graph) -> None:
    run = trained(small, model="ukge-logi", valid_fraction=0.0)
    found = run.discover(top=20)
    assert found.ordered_by == "confidence"
    scores = [row.score for row in found]
    assert scores == sorted(scores, reverse=True)
    assert len({row.relation for row in found}) > 1 or len(set(scores)) > 1


def test_loops_are_discovered_only_for_relations_with_loops() -> None:
    rows = [
        (f"n{i}", kind, f"n{i}" if kind == "own" else f"n{(i * 7 + 1) % 12}", 1.0)
        for i in range(12)
        for kind in ("own", "other")
    ]
    run = trained(rows, model="distmult", valid_fraction=0.0, test_fraction=0.0)
    found = run.discover(top=10**6, any_type=True)
    assert not [row for row in found if row.relation == "other" and row.head == row.tail]
    assert len([row for row in found if row.relation == "own"]) == 12 * 12 - 12
    more = trained(
        [*rows[:-2], ("n11", "other", "n6", 1.0), ("n1", "own", "n2", 1.0)],
        model="distmult",
        valid_fraction=0.0,
        test_fraction=0.0,
    )
    assert ("n11", "n11") in {(row.head, row.tail) for row in more.discover(relations="own", top=10**6, any_type=True)}


def test_tiny_graph_can_have_no_links_left() -> None:
    run = trained([("a", "r", "b", 1.0)], model="distmult", valid_fraction=0.0, test_fraction=0.0)
    assert [(row.head, row.tail) for row in run.discover(any_type=True)] == [("b", "a")]
    nothing = run.discover()
    assert list(nothing) == []
    assert str(nothing).startswith("no missing links found")
    other = run.discover(heads="b")
    assert "any_type" in str(other)


def test_known_negatives_are_not_discovered(small: focuse.Graph) -> None:
    best = trained(small, model="distmult").discover(top=1, any_type=True)[0]
    false = [(best.head, best.relation, best.tail, 1.0)]
    run = trained(small, model="distmult", known_negatives=false)
    every = {(row.head, row.relation, row.tail) for row in run.discover(top=10**6, any_type=True)}
    assert every
    assert false[0][:3] not in every


@pytest.mark.slow
def test_pool_is_ordered_by_probability_of_the_neighborhood() -> None:
    """The best of each relation by score, then by probability: as if that pool were all there is."""

    random = np.random.default_rng(0)
    factors, kinds = random.normal(size=(60, 4)), random.normal(size=(3, 4))
    fit = np.einsum("hk,rk,tk->hrt", factors, kinds, factors).ravel()
    chosen = random.choice(np.argsort(-fit)[:3200], 1600, replace=False)
    ends = np.unravel_index(chosen, (60, 3, 60))
    weights = 1 / (1 + np.exp(-fit[chosen]))
    rows = [(f"e{h}", f"r{r}", f"e{t}", w) for h, r, t, w in zip(*ends, weights, strict=True)]
    run = trained(rows, model="complex")
    predictor = run.weight_predictor(full=True)
    assert predictor.estimator is not None
    assert predictor.estimator.trees
    expected = brute(run)
    found = run.discover(top=10**6)
    assert {row[2:] for row in rows_of(run, found)} == {row[2:] for row in expected}
    chances = [row[0] for row in rows_of(run, found)]
    assert chances == sorted(chances, reverse=True)
    assert np.allclose(chances, [row[0] for row in expected])
    pooled = []
    for kind in range(3):
        of_kind = sorted((row for row in expected if row[3] == kind), key=lambda row: -row[1])
        pooled += of_kind[:40]
    few = run.discover(top=50, rerank=40)
    assert few.reranked == 120
    best = sorted((row[0] for row in pooled), reverse=True)[:50]
    assert np.allclose([row[0] for row in rows_of(run, few)], best)
    assert {row[2:] for row in rows_of(run, few)} <= {row[2:] for row in pooled}
    # The surroundings do change the order: by score alone it would be another one.
    alone = sorted((row for row in expected if row[3] == 0), key=lambda row: -row[1])
    assert [row[0] for row in alone] != sorted((row[0] for row in alone), reverse=True)


def test_predicted_weights_are_in_the_range_of_train(small: focuse.Graph, with_columns: Any) -> None:
    run = trained(with_columns(small), model="distmult", lower_is_better=("distance",))
    assert all(0 <= row.weight_mean <= 1 for row in run.discover(top=4))
    rows = [(f"h{i % 9}", "r", f"t{i % 40}", 1000.0 * (i % 7)) for i in range(300)]
    lower = trained(rows, model="distmult", lower_is_better=True)
    for row in lower.discover(top=3):
        assert row.weight_low <= row.weight_mean <= row.weight_high
        assert row.weight_low >= 0
        assert row.weight_high <= 6000


def test_unusual_names_and_an_expensive_model_work(tmp_path: Any) -> None:
    odd = ["tab\there", "line\nend", "ünï", "a:b", "'quoted\"", "e,f", "日本", " space "]
    rows = [(odd[i % 8], "r\u2028", odd[(i * 3 + 1) % 8], 1.0) for i in range(16)]
    run = trained(rows, model="convkb", valid_fraction=0.0, test_fraction=0.0)
    found = run.discover(top=5, any_type=True)
    assert len(found) == 5
    assert len(str(found).split("\n")) == 7  # headings, five links and a note
    found.write(tmp_path / "links.csv")
    with pytest.raises(FocuseError, match="tab or line end"):
        run.discover(top=10**4, any_type=True).write(tmp_path / "links.tsv")
    assert [path.name for path in tmp_path.iterdir()] == ["links.csv"]
    with pytest.raises(FocuseError, match="times the limit"):
        run.discover(max_scores=1000, any_type=True)


@pytest.mark.parametrize(("others", "found"), [(500, True), (1500, False)])
def test_few_self_loops_among_many_edges_are_no_example(others: int, found: bool) -> None:
    pairs = [(i, j) for i in range(45) for j in range(45) if i != j][:others]
    rows = [("n0", "r", "n0"), *((f"n{i}", "r", f"n{j}") for i, j in pairs)]
    graph = focuse.read(rows)
    space = link_search.CandidateSpace(graph, np.array([0]))
    assert space.has_self_loops.tolist() == [found]
    run = focuse.train(graph, dim=4, epochs=1, valid_fraction=0.0, test_fraction=0.0, progress=False)
    links = run.discover(top=10**4, weights=False)
    assert any(row.head == row.tail for row in links) == found
