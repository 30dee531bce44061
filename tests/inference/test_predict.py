"""Completions of a triple, compared with sorting all scores."""

import json
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from scoring import make_scorer

from focuse.data.graph import Graph, from_columns
from focuse.data.splits import Splits, ValidationParts
from focuse.data.weights import fit_normalizer
from focuse.engines.autograd import AutogradEngine
from focuse.errors import FocuseError
from focuse.inference.predict import BatchPredictor, find_query
from focuse.inference.weight_predictor import WeightPredictor
from focuse.models.registry import MODELS
from focuse.results import ResultTable

PLAIN = ("complex", "distmult", "transe", "transe-l2", "ukge-logi", "ukge-rect")

ENTITIES = [f"entity {i}" for i in range(11)]
RELATIONS = ["knows", "likes", "hates"]
Fact = tuple[str, str, str, float]
COLUMNS = ["query", "rank", "head", "relation", "tail", "score", "known", "weight"]
COLUMNS += ["weight_mean", "weight_median", "weight_low", "weight_high", "probability", "confidence"]
CANDIDATES = np.arange(2)
Row = tuple[int, str, str, str, float, bool, float | None]


def predict(
    scorer: AutogradEngine,
    graphs: list[Graph],
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    top: int = 10,
    new_only: bool = False,
    predictor: WeightPredictor | None = None,
    candidates: np.ndarray | None = None,
    any_type: bool = False,
) -> ResultTable:
    query = find_query(graphs[0], (head, relation, tail))
    return BatchPredictor(scorer, graphs, top, new_only, candidates, any_type).predict(query, predictor)


def rows_of(found: ResultTable) -> list[Row]:
    """Rank, triple, score, whether known, and weight."""
    return [row[1:8] for row in found]


def random_facts(seed: int, n: int) -> list[Fact]:
    rng = np.random.default_rng(seed)
    return [
        (ENTITIES[h], RELATIONS[r], ENTITIES[t], float(w))
        for (h, r, t), w in zip(
            rng.integers(0, (11, 3, 11), (n, 3)), rng.choice([-2.0, -0.5, 0.0, 7.5], n), strict=True
        )
    ]


# Everything is named in train; facts repeat with other weights within a part and between parts.
TRAIN = [(e, RELATIONS[i % 3], e, 1.0) for i, e in enumerate(ENTITIES)] + random_facts(0, 120)
VALID = random_facts(1, 40) + [(h, r, t, w + 1) for h, r, t, w in TRAIN[15:25]]
TEST = random_facts(2, 40) + [(h, r, t, w - 1) for h, r, t, w in TRAIN[20:30]]


def graphs() -> list[Graph]:
    train, *others = (from_columns(*zip(*rows, strict=True)) for rows in (TRAIN, VALID, TEST))
    return [train, *(other.align(train).graph for other in others)]


def engine_of(names: Graph, model: str = "distmult", seed: int = 3) -> AutogradEngine:
    """Whole numbers from a small range: scores tie often and are exact."""
    draw = torch.Generator().manual_seed(seed)
    chosen = MODELS[model]()
    shapes = ((11, chosen.widths(2)[0]), (3, chosen.widths(2)[1]))
    entity, relation = (torch.randint(-2, 3, shape, generator=draw).float() for shape in shapes)
    return make_scorer(chosen, entity, relation)


def brute(engine: AutogradEngine, names: Graph, asked: dict[str, str | None]) -> list[Row]:
    """Every completion, best score first, ties by the order of the vocabulary."""
    entities, relations = list(names.entities), list(names.relations)
    weight: dict[tuple[str, str, str], float] = {}
    for h, r, t, w in TRAIN + VALID + TEST:
        weight[h, r, t] = max(w, weight.get((h, r, t), w))
    choices = [
        [asked[part]] if asked[part] is not None else every
        for part, every in (("head", entities), ("relation", relations), ("tail", entities))
    ]
    found = []
    for h, r, t in product(*choices):
        x, y, z = (
            engine.tables[table][every.index(name)].double().numpy()
            for table, every, name in (("entity", entities, h), ("relation", relations, r), ("entity", entities, t))
        )
        score = (x * y * z).sum() if engine.model.name == "distmult" else -np.abs(x + y - z).sum()
        found.append((float(score), h, r, t))
    found.sort(key=lambda row: -row[0])  # stable
    return [
        (place, h, r, t, score, (h, r, t) in weight, weight.get((h, r, t)))
        for place, (score, h, r, t) in enumerate(found, 1)
    ]


ASKED = [
    *({"head": h, "relation": r, "tail": None} for h in ENTITIES[:4] for r in RELATIONS),
    *({"head": None, "relation": r, "tail": t} for t in ENTITIES[:4] for r in RELATIONS),
    *({"head": h, "relation": None, "tail": t} for h, t in zip(ENTITIES, ENTITIES[3:], strict=False)),
]


@pytest.mark.parametrize("model", ["distmult", "transe"])
@pytest.mark.parametrize("new_only", [False, True])
def test_completions_agree_with_sorting_all_scores(model: str, new_only: bool) -> None:
    parts = graphs()
    engine = engine_of(parts[0], model)
    seen_known, seen_tie = False, False
    for asked in ASKED:
        expected = [row for row in brute(engine, parts[0], asked) if not (new_only and row[5])]
        for top in (1, 4, 1_000):
            assert rows_of(predict(engine, parts, **asked, top=top, new_only=new_only)) == expected[:top]
        seen_known |= any(row[5] for row in expected)
        seen_tie |= len({row[4] for row in expected}) < len(expected)
    assert seen_known is not new_only
    assert seen_tie


def test_known_triple_shows_its_largest_weight() -> None:
    """Of train, valid and test together; the largest may be negative."""
    parts = [from_columns(["a", "b"], ["r", "r"], ["b", "a"], [-3.0, 0.0])]
    parts += [from_columns(["a"], ["r"], ["b"], [w]).align(parts[0]).graph for w in (-1.0, -2.0)]
    engine = make_scorer(MODELS["distmult"](), torch.ones(2, 3), torch.ones(1, 3))
    found = predict(engine, parts, head="a", relation="r")
    assert [(row.tail, row.known, row.weight) for row in found] == [("a", False, None), ("b", True, -1.0)]


def test_complete_triple_gets_its_rank_among_tails() -> None:
    parts = graphs()
    engine = engine_of(parts[0])
    for h, r, t in product(ENTITIES[:3], RELATIONS, ENTITIES):
        every = brute(engine, parts[0], {"head": h, "relation": r, "tail": None})
        found = predict(engine, parts, h, r, t)
        assert rows_of(found) == [row for row in every if row[3] == t]


@pytest.mark.parametrize("model", PLAIN)
def test_ties_are_ordered_by_vocabulary(model: str) -> None:
    """At real sizes too, where a product could round equal rows apart."""
    count, draw = 301, torch.Generator().manual_seed(0)
    names = from_columns([f"n{i}" for i in range(count)], ["r"] * count, ["n0"] * count, np.ones(count))
    chosen = MODELS[model]()
    rows = torch.randn(2, chosen.widths(200)[0], generator=draw)[torch.arange(count) % 2]
    engine = make_scorer(chosen, rows, torch.randn(1, chosen.widths(200)[1], generator=draw))
    for asked in ({"head": "n1"}, {"tail": "n1"}):
        found = predict(engine, [names], **asked, relation="r", top=count, any_type=True)
        other = "tail" if "head" in asked else "head"
        order = [int(getattr(row, other)[1:]) for row in found]
        halves = [list(range(0, count, 2)), list(range(1, count, 2))]
        assert order in (halves[0] + halves[1], halves[1] + halves[0])
        assert [row.rank for row in found] == list(range(1, count + 1))
        assert len({row.score for row in found}) == 2


def test_tied_relations_are_ordered_by_vocabulary() -> None:
    count = 37
    names = from_columns(["a"] * count, [f"r{i}" for i in range(count)], ["b"] * count, np.ones(count))
    draw = torch.Generator().manual_seed(0)
    relation = torch.randn(1, 200, generator=draw).expand(count, 200).contiguous()
    engine = make_scorer(MODELS["distmult"](), torch.randn(2, 200, generator=draw), relation)
    found = predict(engine, [names], head="a", tail="b", top=100)
    assert [row.relation for row in found] == [f"r{i}" for i in range(count)]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"head": "entity1", "relation": "knows"}, ["no entity 'entity1'", "did you mean", "entity 1"]),
        ({"relation": "knows", "tail": "Entity 4"}, ["no entity 'Entity 4'", "entity 4"]),
        ({"head": "entity 1", "relation": "knwos"}, ["no relation 'knwos'", "did you mean knows"]),
        ({"head": "zzzzzz", "relation": "knows"}, ["no entity 'zzzzzz'"]),
        ({"head": "entity 1"}, ["two of head, relation and tail"]),
        ({"relation": "knows"}, ["two of head, relation and tail"]),
        ({"tail": "entity 1"}, ["two of head, relation and tail"]),
        ({}, ["two of head, relation and tail"]),
        ({"head": "entity 1", "relation": "knows", "top": 0}, ["top 0"]),
        ({"head": "entity 1", "relation": "knows", "top": -3}, ["top -3"]),
        (
            {"head": "entity 1", "relation": "knows", "tail": "entity 2", "new_only": True},
            ["new_only requires"],
        ),
        (
            {"head": "entity 1", "tail": "entity 2", "candidates": CANDIDATES},
            ["candidates require a missing head"],
        ),
        ({"head": 3, "relation": "knows"}, ["entity 3: give its name as text"]),
        ({"head": "entity 1", "relation": "knows", "top": 2.0}, ["top 2.0"]),
    ],
)
def test_invalid_queries_are_refused(asked: dict[str, object], words: list[str]) -> None:
    parts = graphs()
    with pytest.raises(FocuseError) as error:
        predict(engine_of(parts[0]), parts, **asked)  # type: ignore[arg-type]
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_predictions_print_a_table_and_convert_to_json() -> None:
    parts = graphs()
    found = predict(engine_of(parts[0]), parts, head="entity 1", relation="knows", top=11)
    headings, *lines = str(found).splitlines()
    # Without a predictor, no weights and probabilities are shown.
    assert headings.split() == ["query", "rank", "head", "relation", "tail", "score", "known", "weight"]
    assert len(lines) == 11
    for line, row in zip(lines, found, strict=True):
        assert line.split()[1] == str(row.rank)
        assert row.tail in line
        end = ["yes", f"{row.weight:.3f}"] if row.known else ["no", "–"]
        assert line.split()[-3:] == [f"{row.score:.3f}", *end]
    assert {row.known for row in found} == {True, False}
    rows = json.loads(json.dumps(found.to_json(), allow_nan=False))["rows"]
    assert [row["tail"] for row in rows] == found["tail"].tolist()
    assert list(rows[0]) == found.columns == COLUMNS
    assert {row[name] for row in rows for name in COLUMNS[8:]} == {None}


def ids_of_names(graph: Graph, row: Any) -> list[np.ndarray]:
    kind = graph.relations.id(row.relation, "relation")
    return [np.array([one]) for one in (graph.entities.id(row.head, "e"), kind, graph.entities.id(row.tail, "e"))]


def weigher_of(engine: AutogradEngine, parts: list[Graph]) -> WeightPredictor:
    splits = Splits(parts[0], parts[1], parts[2])
    nothing = parts[1].select(np.empty(0, np.int64))
    held = ValidationParts(nothing, parts[1], nothing)
    bare = WeightPredictor("distmult", engine, splits, fit_normalizer("relation", parts[0]), held)
    return replace(bare, calibration=bare.fit_calibration("isotonic", seed=2))


@pytest.mark.parametrize("asked", [ASKED[1], ASKED[14], ASKED[-1]])
def test_each_completion_has_an_expected_weight_and_a_confidence(asked: dict[str, str | None]) -> None:
    """Of its own relation, also where relations are ranked; the order and all else stay as they are."""
    parts = graphs()
    engine = engine_of(parts[0])
    predictor = weigher_of(engine, parts)
    low, high = (float(end(parts[0].weight)) for end in (np.min, np.max))
    for new_only in (False, True):
        plain = predict(engine, parts, **asked, top=7, new_only=new_only)
        found = predict(engine, parts, **asked, top=7, new_only=new_only, predictor=predictor)
        assert rows_of(found) == rows_of(plain)
        for row in found:
            facts = parts[0].select(parts[0].keys == parts[0].keys_of(*ids_of_names(parts[0], row)))
            if len(facts):  # what train knows is not guessed
                assert row.weight_mean == pytest.approx(facts.weight.mean())
                assert (row.weight_low, row.weight_high) == (facts.weight.min(), facts.weight.max())
                continue
            assert (row.weight_low, row.weight_high) == (None, None)
            score, kind = np.array([row.score]), np.array([parts[0].relations.id(row.relation, "relation")])
            share = predictor.calibration.given_true(score, kind)[0]
            assert row.weight_mean == pytest.approx(low + (high - low) * share)
            assert row.confidence == predictor.calibration.with_negatives(score, kind)[0]
            assert type(row.weight_mean) is type(row.confidence) is float
        json.dumps(found.to_json(), allow_nan=False)
    assert len({(row.weight_mean, row.confidence) for row in found}) > 1 or len(found) < 2


def test_no_predictions_print_a_message() -> None:
    names = from_columns(["a", "a"], ["r", "r"], ["a", "b"], [1.0, 1.0])
    engine = make_scorer(MODELS["distmult"](), torch.ones(2, 2), torch.ones(1, 2))
    found = predict(engine, [names], head="a", relation="r", new_only=True)
    assert list(found) == []
    assert found.columns == COLUMNS
    assert str(found) == "nothing to predict"
