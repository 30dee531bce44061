"""Inverse relations: r + R is the inverse of r, from a training step to a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import focuse
from focuse.config import SETTINGS, Config
from focuse.data.triple_index import TripleIndex, build_triple_index
from focuse.engines.autograd import AutogradEngine
from focuse.engines.base import Step, unsupported_model
from focuse.engines.optimizers import make_optimizer
from focuse.errors import FocuseError
from focuse.evaluation.ranking import rank_graph
from focuse.models.base import join_inverse_relations, score_triples
from focuse.models.registry import make_model
from focuse.objective.focuse import FocusELayer
from focuse.objective.losses import FocusedLoss, Regularizer, SoftLabelLoss, SquaredError, make_loss
from focuse.objective.negatives import Batch, Negatives, NegativeSampler
from focuse.objective.randomness import generator
from focuse.random_streams import RandomStream
from focuse.training.problem import init_tables

SAMPLINGS = SETTINGS["negative_sampling"].choices

ENTITIES, RELATIONS, DIM, BETA, MISSING = 6, 2, 2, 0.3, 0.7
TRIPLES = [(0, 0, 1), (0, 1, 2), (3, 1, 3), (2, 0, 4), (0, 0, 1)]
WEIGHTS = [0.9, 0.0, 0.35, 1.0, 0.9]
INFERRED, BOUNDS = [(5, 1, 0), (1, 0, 2)], [0.95, 0.6]
Tables = Mapping[str, np.ndarray]
Triple = tuple[int, int, int]


# ---- a step against the objective written out -----------------------------------------------------------------------


def np_complex(known: np.ndarray, r: np.ndarray, other: np.ndarray) -> float:
    known, r, other = (row[:DIM] + 1j * row[DIM:] for row in (known, r, other))
    return float(np.real((known * r * np.conj(other)).sum()))


SCORES: dict[str, Callable[..., float]] = {
    "complex": np_complex,
    "transe": lambda known, r, other: float(-np.abs(known + r - other).sum()),
    "ukge-logi": lambda known, r, other: float((known * r * other).sum()),
}


def np_score(model: str, tables: Tables, triple: Triple, side: str) -> float:
    """f(h, r, t) as an answer for the tail, f(t, r + R, h) as an answer for the head."""
    h, r, t = triple
    known, row, other = (h, r, t) if side == "tail" else (t, r + RELATIONS, h)
    found = SCORES[model](tables["entity"][known], tables["relation"][row], tables["entity"][other])
    return found * tables["scale"][0] + tables["scale"][1] if "scale" in tables else found


def corrupted(groups: list[Negatives], row: int) -> list[tuple[str, list[Triple]]]:
    """The corruptions of a positive that count, for each side that has a softmax of its own."""
    h, r, t = TRIPLES[row]
    result = []
    for group in groups:
        own = range(ENTITIES) if group.entities is None else group.entities.expand(len(TRIPLES), -1)[row].tolist()
        mask = group.valid_mask(ENTITIES)
        counts = [True] * len(own) if mask is None else mask[row].tolist()
        for side in ("tail", "head"):
            if group.side not in (side, "both"):
                continue
            asked = counts
            if group.replaces_tail is not None:
                asked = [
                    c and tail == (side == "tail")
                    for c, tail in zip(counts, group.replaces_tail[row].tolist(), strict=True)
                ]
            result.append(
                (side, [(h, r, e) if side == "tail" else (e, r, t) for e, c in zip(own, asked, strict=True) if c])
            )
    return result


def np_objective(kind: str, model: str, groups: list[Negatives], tables: Tables) -> float:
    total = 0.0
    for row, w in enumerate(WEIGHTS):
        for side, triples in corrupted(groups, row):
            positive = np_score(model, tables, TRIPLES[row], side)
            negative = np.array([np_score(model, tables, triple, side) for triple in triples])
            if kind == "focus":
                h = (BETA + (1 - w) * (1 - BETA)) * np.logaddexp(0, positive)
                total += np.log1p(np.exp((BETA + w * (1 - BETA)) * np.logaddexp(0, negative) - h).sum())
            elif kind == "label":
                if len(negative):
                    odds = np.log(np.exp(negative).sum()) - positive + MISSING
                    total += w * np.logaddexp(0, odds) + (1 - w) * np.logaddexp(0, -odds)
            else:
                phi = [1 / (1 + np.exp(-f)) for f in (positive, negative)]
                total += (phi[0] - w) ** 2 + (phi[1] ** 2).sum() / max(len(negative), 1)
                hints = [1 / (1 + np.exp(-np_score(model, tables, triple, side))) for triple in INFERRED]
                total += 0.4 * np.mean(np.maximum(0, np.array(BOUNDS) - hints) ** 2)
    return float(total)


def start(model: str) -> dict[str, Tensor]:
    random, made = torch.Generator().manual_seed(4), make_model(model)
    shapes = {"entity": (ENTITIES, made.widths(DIM)[0]), "relation": (2 * RELATIONS, made.widths(DIM)[1])}
    tables = {name: torch.randn(shape, generator=random, dtype=torch.float64) for name, shape in shapes.items()}
    return tables | ({"scale": torch.tensor([0.8, 0.2], dtype=torch.float64)} if model == "ukge-logi" else {})


def batch_of(triples: list[Triple], weights: list[float]) -> Batch:
    return Batch(*torch.tensor(triples).unbind(1), torch.tensor(weights, dtype=torch.float64))


def corrupt(sampling: str, filtered: bool) -> list[Negatives]:
    known = TripleIndex(*torch.tensor(TRIPLES).unbind(1), ENTITIES, RELATIONS) if filtered else None
    return NegativeSampler(sampling, 4, ENTITIES, known)(batch_of(TRIPLES, WEIGHTS), (1, 2, 3))


def gradient_of(
    kind: str, model: str, groups: list[Negatives], penalty: Regularizer | None = None
) -> tuple[float, dict[str, np.ndarray]]:
    """The loss of a step, and its gradient as what plain descent took off the tables."""
    tables, made = start(model), make_model(model)
    optimizer = make_optimizer("sgd", tables, 0.5)
    engine = AutogradEngine(made, tables, optimizer, inverse_relations=True)
    chosen: Any = (
        FocusedLoss(make_loss("multiclass-nll"), FocusELayer("softplus")) if kind == "focus" else SoftLabelLoss(MISSING)
    )
    hints = None
    if kind == "squared":
        chosen = SquaredError(made.confidence_head, 0.4)
        hints = batch_of(INFERRED, BOUNDS)
    loss = engine.step(Step(batch_of(TRIPLES, WEIGHTS), groups, chosen, BETA, penalty, auxiliary=hints))
    return loss, {name: ((old - tables[name]) / 0.5).numpy() for name, old in start(model).items()}


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(
    ("kind", "model"),
    [("focus", "complex"), ("label", "complex"), ("focus", "transe"), ("label", "transe"), ("squared", "ukge-logi")],
)
def test_step_descends_the_objective(kind: str, model: str, sampling: str, filtered: bool) -> None:
    groups = corrupt(sampling, filtered)
    assert any(not triples for row in range(5) for _, triples in corrupted(groups, row)) or sampling != "per-triple"
    loss, gradient = gradient_of(kind, model, groups)
    arrays = {name: table.numpy() for name, table in start(model).items()}
    assert loss == pytest.approx(np_objective(kind, model, groups, arrays), rel=1e-8)
    for name, array in arrays.items():
        for place in np.ndindex(array.shape):
            middle, ends = array[place], []
            for step in (1e-6, -1e-6):
                array[place] = middle + step
                ends.append(np_objective(kind, model, groups, arrays))
            array[place] = middle
            assert gradient[name][place] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-7)
        assert np.abs(gradient[name]).max() > 0.01
    forth, back = np.split(gradient["relation"], 2)
    assert np.abs(forth).max() > 0.01
    assert np.abs(back).max() > 0.01


def test_n3_penalty_covers_relation_and_inverse() -> None:
    """γ Σ|z|³ over the rows of each triple, as often as they occur: h, r, r⁻¹ and t (Lacroix et al., 2018)."""
    groups = corrupt("all", False)
    without = gradient_of("label", "complex", groups)[1]
    found = gradient_of("label", "complex", groups, Regularizer(3, 0.07, "rows", moduli=True))[1]
    slope = {name: np.zeros_like(table) for name, table in without.items()}
    tables = {name: table.numpy() for name, table in start("complex").items()}

    for h, r, t in TRIPLES:
        for name, row in (("entity", h), ("entity", t), ("relation", r), ("relation", r + RELATIONS)):
            re, im = np.split(tables[name][row], 2)
            size = np.sqrt(re**2 + im**2)
            slope[name][row] += 0.07 * 3 * np.concatenate([size * re, size * im])
    for name, expected in slope.items():
        np.testing.assert_allclose(found[name] - without[name], expected, rtol=1e-7, atol=1e-10)


# ---- a run ----------------------------------------------------------------------------------------------------------

QUICK = {"reciprocal": True, "dim": 6, "epochs": 4, "eval_every": 2, "label_exponent": 1.0, "progress": False}
QUICK |= {"device": "cpu"}


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, **QUICK)


def same(one: focuse.Run, other: focuse.Run) -> bool:
    return all(torch.equal(one.scorer.tables[name], table) for name, table in other.scorer.tables.items())


def test_run_is_unchanged_after_save_load_and_resume(run: focuse.Run, small: focuse.Graph, tmp_path: Path) -> None:
    run.save(tmp_path / "run")
    loaded = focuse.load(tmp_path / "run", device="cpu")
    assert loaded.settings.reciprocal
    assert loaded.scorer.tables["relation"].shape == (2 * 3, 2 * 6)
    assert same(run, loaded)
    assert np.array_equal(loaded.evaluate().scores, run.evaluate().scores)
    focuse.train(small, out=tmp_path / "half", **{**QUICK, "epochs": 2})
    assert same(run, focuse.resume(tmp_path / "half", epochs=4, progress=False))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("model", ["complex", "transe", "ukge-rect"])
def test_loss_falls_with_every_sampling(small: focuse.Graph, model: str, sampling: str) -> None:
    more = {} if model == "ukge-rect" else {"label_exponent": 1.0}
    asked = {
        **QUICK,
        "epochs": 6,
        "negative_sampling": sampling,
        "model": model,
        "optimizer": "sparse-adagrad",
    }
    asked.pop("label_exponent")
    more |= {} if sampling == "all" else {"num_negatives": 8}
    losses = [row["loss"] for row in focuse.train(small, **asked, **more).history]
    assert losses[-1] < losses[0]


def ids(run: focuse.Run) -> tuple[Tensor, Tensor, Tensor]:
    graph = run.splits.test
    head, relation, tail = (
        torch.from_numpy(getattr(graph, name).astype(np.int64)) for name in ("head", "relation", "tail")
    )
    return head, relation, tail


def sides(run: focuse.Run, head: Tensor, relation: Tensor, tail: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Scores of triples as answers for tails and for heads."""
    entity, (forth, back) = run.scorer.tables["entity"], run.scorer.tables["relation"].chunk(2)
    model = make_model(run.settings.model)
    asked = (entity[head], forth[relation], entity[tail]), (entity[tail], back[relation], entity[head])
    of_tail, of_head = (score_triples(model, *rows).numpy() for rows in asked)
    return of_tail, of_head


def test_ranks_of_each_side_use_the_scores_of_that_side(run: focuse.Run) -> None:
    head, relation, tail = ids(run)
    graphs = [run.splits.train, run.splits.valid, run.splits.test]
    facts = {triple for graph in graphs for triple in zip(graph.head, graph.relation, graph.tail, strict=True)}
    ranking = rank_graph(run.scorer, run.splits.test, build_triple_index(graphs))
    of_tail, of_head = sides(run, head, relation, tail)
    np.testing.assert_allclose(ranking.tail_score, of_tail, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ranking.head_score, of_head, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ranking.score, (of_tail + of_head) / 2, rtol=1e-4, atol=1e-5)
    assert np.abs(of_tail - of_head).max() > 0.01
    every = torch.arange(len(run.graph.entities))
    for row, (h, r, t) in enumerate(zip(head.tolist(), relation.tolist(), tail.tolist(), strict=True)):
        kind = torch.full_like(every, r)
        tails, heads = (
            sides(run, torch.full_like(every, h), kind, every)[0],
            sides(run, every, kind, torch.full_like(every, t))[1],
        )
        better = [
            sum(tails[e] > tails[t] and (h, r, e) not in facts for e in every.tolist()),
            sum(heads[e] > heads[h] and (e, r, t) not in facts for e in every.tolist()),
        ]
        assert ranking.filtered.higher[row].tolist() == better


def test_score_of_a_triple_is_the_mean_of_both_sides(run: focuse.Run) -> None:
    found = run.evaluate()
    both = np.mean(sides(run, *ids(run)), axis=0)
    np.testing.assert_allclose(found.scores, both, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run.scorer.score(*ids(run)).numpy(), both, rtol=1e-4, atol=1e-5)
    assert found.order is not None
    weight, kind = run.splits.test.weight, run.splits.test.relation
    pairs = [(i, j) for i in range(len(both)) for j in range(i) if kind[i] == kind[j] and weight[i] != weight[j]]
    agree = np.mean([(both[i] > both[j]) == (weight[i] > weight[j]) for i, j in pairs])
    assert found.order.relation.pairs == len(pairs)
    assert found.order.relation.share == pytest.approx(agree, abs=1e-9)


def test_predictions_rank_by_one_side_and_weigh_by_the_mean_of_both(run: focuse.Run) -> None:
    names, predictor = run.graph, run.weight_predictor(full=True)
    for asked, side in (({"head": "e1", "relation": "r0"}, 0), ({"relation": "r0", "tail": "e2"}, 1)):
        rows = run.predict(**asked, top=5)
        heads, kinds, tails = (
            np.array([getattr(names, table).id(getattr(row, name), table) for row in rows])
            for name, table in (("head", "entities"), ("relation", "relations"), ("tail", "entities"))
        )
        scores = sides(run, *map(torch.from_numpy, (heads, kinds, tails)))
        np.testing.assert_allclose([row.score for row in rows], scores[side], rtol=1e-4, atol=1e-5)
        assert [row.probability for row in rows] == sorted((row.probability for row in rows), reverse=True)
        confidence = predictor.confidence(predictor.score(heads, kinds, tails), kinds)
        np.testing.assert_allclose([row.confidence for row in rows], confidence)
    kinds_asked = run.predict(head="e1", tail="e2")
    assert len(kinds_asked) == 3


def test_weights_probabilities_and_report_work_with_inverse_relations(run: focuse.Run, tmp_path: Path) -> None:
    made = run.calibrate("platt")
    test = run.splits.test
    both = np.mean(sides(run, *ids(run)), axis=0).astype(np.float64)
    given_true = made.given_true(both, test.relation)  # which are the weights themselves in [0, 1]
    row = run.evaluate_weights(estimator=False).to_dict()["rows"]["complex, platt"]
    assert row["positives"]["mse"] == pytest.approx(np.mean((given_true - test.weight) ** 2), rel=1e-4)
    found = run.predict_weights([("e1", "r0", "e2"), ("e3", "r1", "e4")])
    assert np.isfinite(found["weight_mean"]).all()
    assert ((found["probability"] >= 0) & (found["probability"] <= 1)).all()
    assert "after: platt" in run.evaluate_probabilities().to_dict()["rows"]
    page = run.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "complex" in page
    assert "reciprocal" in page


def test_unsupported_models_name_inverse_relations() -> None:
    refused = "its kernels cannot compute complex"
    assert unsupported_model(make_model("complex"), inverse_relations=True) == f"{refused} with inverse relations"
    assert unsupported_model(make_model("complex")) == refused


def test_initial_relations_and_inverses_come_from_one_draw() -> None:
    """Rows of twice the width, of their Xavier deviation, are split: seeds give the values they always gave."""
    settings = Config.from_kwargs(model="complex", dim=4, reciprocal=True, seed=3)
    table = init_tables(settings, make_model("complex"), 5, 3)["relation"]
    random = generator(3, 0, RandomStream.INITIAL_EMBEDDINGS)
    torch.randn(5, 8, generator=random)
    expected = torch.randn(3, 16, generator=random) * (2 / (3 + 16)) ** 0.5
    assert torch.equal(join_inverse_relations(table), expected)


@pytest.mark.parametrize("train_known", [True, False])
def test_extension_adds_a_row_for_a_relation_and_its_inverse(run: focuse.Run, train_known: bool) -> None:
    edges = [("e1", "new", "e2", 0.5), ("e3", "new", "n1", 0.9), ("n1", "r0", "e4", 0.7)]
    grown = focuse.extend(run, edges, train_known=train_known, epochs=2, progress=False)
    assert len(grown.scorer.tables["relation"]) == 8
    if not train_known:
        old, new = (join_inverse_relations(one.scorer.tables["relation"]) for one in (run, grown))
        assert torch.equal(new[:3], old)
    assert np.isfinite(grown.predict(head="e1", relation="new", top=1)[0].score)


@pytest.mark.parametrize("reciprocal", [True, False])
def test_warm_start_takes_rows_of_relations_and_inverses(
    run: focuse.Run, small: focuse.Graph, tmp_path: Path, reciprocal: bool
) -> None:
    run.save(tmp_path / "run")
    asked = {**QUICK, "reciprocal": reciprocal, "init_from": tmp_path / "run", "epochs": 1, "lr": 1e-12}
    if not reciprocal:
        with pytest.raises(FocuseError, match="it was trained with reciprocal=True; use the same"):
            focuse.train(small, **asked)
        return
    again = focuse.train(small, **asked)
    torch.testing.assert_close(again.scorer.tables["relation"], run.scorer.tables["relation"])


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("model", ["complex", "distmult", "transe", "transe-l2", "hole", "ukge-logi"])
def test_the_fused_engine_agrees_with_autograd(small: focuse.Graph, model: str, sampling: str) -> None:
    """Kernels compute a query with the row r + R as any other; of `hole` torch computes the queries."""
    asked = {
        "model": model,
        "negative_sampling": sampling,
        "reciprocal": True,
        "dim": 6,
        "epochs": 2,
        "batch_size": 128,
    }
    asked |= {
        "device": "cpu",
        "optimizer": "sparse-adagrad",
        "regularizer": "n3:1e-3",
        "regularizer_scope": "rows",
        "progress": False,
    }
    asked |= {} if model == "ukge-logi" else {"label_exponent": 1.0}
    fused, expected = (focuse.train(small, engine=engine, **asked) for engine in ("native", "torch"))
    for name, table in expected.scorer.tables.items():
        torch.testing.assert_close(fused.scorer.tables[name], table, rtol=1e-3, atol=1e-4)
