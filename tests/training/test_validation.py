"""The metrics of early stopping, and the best tables."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scoring import make_scorer

import focuse
from focuse.config import Config
from focuse.data.graph import Graph, from_columns
from focuse.data.triple_index import build_triple_index
from focuse.data.weights import fit_normalizer
from focuse.engines.base import ModelScorer
from focuse.models.registry import make_model
from focuse.training.callbacks import Reporter
from focuse.training.trainer import Trainer, make_trainer
from focuse.training.validation import Validator, best_epoch_row, confidence_validator, rank_validator


def graph_of(weight: list[float] | np.ndarray) -> Graph:
    """An edge a weight, all with tails of their own, so that a tail tells the row."""
    n = len(weight)
    return from_columns(["a"] * n, ["r"] * n, [f"t{i}" for i in range(n)], weight)


def judge_of(valid: list[float] | np.ndarray, train: list[float], threshold: float = 0.8, seed: int = 0) -> Validator:
    judge = rank_validator(graph_of(valid), graph_of(train), [], threshold, seed)
    assert judge is not None
    return judge


def rows_of(judge: Validator) -> list[int]:
    return [int(judge.graph.entities[t][1:]) for t in judge.graph.tail]


def test_threshold_is_inclusive() -> None:
    valid = [0.8] * 30 + [0.79999] * 40 + [1.0] * 30
    judge = judge_of(valid, [0.0, 1.0])
    assert rows_of(judge) == [*range(30), *range(70, 100)]


def test_threshold_uses_unit_weights() -> None:
    """In other units than [0, 1] it is train's range that counts: 0.8 of 10 to 60 is 50."""
    valid = [49.9] * 60 + [50.0] * 55 + [500.0] * 5
    assert rows_of(judge_of(valid, [10.0, 60.0])) == list(range(60, 120))
    # All in [0, 1]: as they are, whatever train's range.
    assert rows_of(judge_of([0.4] * 60 + [0.9] * 60, [0.0, 0.4])) == list(range(60, 120))


@pytest.mark.parametrize("reach", [0, 1, 49])
@pytest.mark.parametrize("n", [60, 300, 900])
def test_too_few_triples_above_the_threshold_use_the_top_tenth(reach: int, n: int) -> None:
    weight = np.random.default_rng(n).permutation(np.linspace(0, 0.5, n))
    weight[np.argsort(weight)[n - reach :]] = 0.9
    judge = judge_of(weight, [0.0, 1.0])
    wanted = max(50, n // 10)
    expected = sorted(range(n), key=lambda row: -weight[row])[:wanted]
    assert rows_of(judge) == sorted(expected)


def test_fifty_triples_are_enough() -> None:
    judge = judge_of([0.9] * 50 + [0.1] * 950, [0.0, 1.0])
    assert rows_of(judge) == list(range(50))


def test_fewer_than_fifty_triples_are_all_used() -> None:
    assert rows_of(judge_of([0.1, 0.9, 0.3], [0.0, 1.0])) == [0, 1, 2]


def test_ties_at_the_cut_are_all_used() -> None:
    assert rows_of(judge_of([0.2] * 70 + [0.1] * 100 + [0.3] * 10, [0.0, 1.0])) == [*range(70), *range(170, 180)]


def test_at_most_10000_triples_are_drawn_by_seed() -> None:
    weight = np.where(np.arange(13_000) % 6 == 0, 0.2, 0.9)
    first, again, other = (judge_of(weight, [0.0, 1.0], seed=seed) for seed in (1, 1, 2))
    rows = rows_of(first)
    assert len(rows) == len(set(rows)) == 10_000
    assert rows == rows_of(again) == sorted(rows)
    assert rows != rows_of(other)
    assert all(weight[row] >= 0.8 for row in rows)
    # Drawn from all over: not the first 10,000 of the 10,833.
    assert np.mean(rows) == pytest.approx(6_500, rel=0.02)
    assert len(rows_of(judge_of([0.9] * 10_000, [0.0, 1.0]))) == 10_000


def test_smallest_weights_are_validated_where_lower_is_better() -> None:
    valid, train = graph_of(np.arange(200.0)), graph_of([0.0, 100.0]).with_lower_is_better(True)
    judge = rank_validator(valid, train, [], 0.4, 0)
    assert judge is not None
    assert rows_of(judge) == [*range(61)]  # a strength of at least 0.4


def graph_of_units(weights: dict[str, np.ndarray]) -> Graph:
    """A row per weight of each relation, with a tail of its own."""
    relations = [name for name, values in weights.items() for _ in values]
    rows = range(len(relations))
    return from_columns(["a" for _ in rows], relations, [f"t{i}" for i in rows], np.concatenate(list(weights.values())))


def test_heavy_triples_are_those_of_each_relation_where_units_differ() -> None:
    """The heaviest fifth of either relation, and all triples that have the highest weight of their relation."""
    stars = np.resize([5.0, 5.0, 5.0, 2.0, 1.0], 200)
    for factor in (1, 1000, 1e-6):
        graph = graph_of_units({"plays": factor * np.arange(1.0, 201.0), "stars": stars})
        judge = rank_validator(graph, graph, [], 0.8, 0)
        assert judge is not None
        assert rows_of(judge) == [*range(159, 200), *(200 + np.flatnonzero(stars == 5.0))]


UNITS_GRAPH = np.random.default_rng(5).integers((0, 0, 0, 1), (90, 2, 90, 90), (6000, 4))


@pytest.mark.parametrize("weight_mode", ["focuse", "soft-labels"])
def test_the_unit_of_a_relation_changes_neither_stopping_nor_label_exponent(weight_mode: str) -> None:
    runs = []
    for factor in (1, 1000):
        rows = [(f"e{h}", f"r{r}", f"e{t}", float(w * factor if r else w)) for h, r, t, w in UNITS_GRAPH]
        chosen = {"weight_mode": weight_mode, "weight_scaling": "relation", "epochs": 12, "dim": 8, "eval_every": 1}
        runs.append(focuse.train(rows, **chosen, patience=2, progress=False, seed=1, duplicates="max"))
    first, second = runs
    timeless = [[{k: v for k, v in row.items() if "second" not in k} for row in run.history] for run in runs]
    assert timeless[0] == timeless[1]
    assert first.settings.label_exponent == second.settings.label_exponent
    assert first.label_exponent_trials == second.label_exponent_trials
    assert bool(first.label_exponent_trials) == (weight_mode == "soft-labels")
    assert first.evaluate().to_dict() == second.evaluate().to_dict()


def test_no_triples_give_no_rank_validator() -> None:
    assert rank_validator(graph_of([]), graph_of([1.0]), [], 0.8, 0) is None


def test_rank_validator_measures_filtered_mrr_with_ties_worst() -> None:
    """TransE on a line: from 0 with step 1 the tails lie at 0, 1, 1, 2, 3 and two of them are facts."""
    names = ["origin", "one", "uno", "two", "three"]
    train = from_columns(["origin", "one", "uno", "two", "three"], ["r"] * 5, names, [0.0, 1.0, 1.0, 1.0, 1.0])
    valid = from_columns(["origin", "origin"], ["r", "r"], ["one", "three"], [0.9, 0.9]).align(train).graph
    entity = torch.tensor([[0.0], [1.0], [1.0], [2.0], [3.0]])
    engine = make_scorer(make_model("transe"), entity, torch.tensor([[1.0]]))
    facts = from_columns(["origin"] * 4, ["r"] * 4, ["one", "three", "origin", "two"], np.ones(4)).align(train).graph
    judge = rank_validator(valid, train, [facts], 0.8, 0)
    assert judge is not None
    # Tails: 'one' ties with 'uno', so 2; before 'three' stand only 'uno', the others being facts, so 2.
    # Heads: 0 fits 'one' best, so 1; for 'three' (2 wanted) 0 is the farthest of five, so 5.
    assert judge(engine) == pytest.approx((1 / 2 + 1 / 2 + 1 + 1 / 5) / 4)


class Told:
    """A validator that finds the given values, one per validation."""

    metric, sign = "valid_mrr", 1

    def __init__(self, *values: float) -> None:
        self.values = iter(values)

    def __call__(self, scorer: ModelScorer) -> float:
        return next(self.values)


def validated(small: Graph, *values: float) -> Iterator[Trainer]:
    """Yield a trainer after each validation; every table is then filled with the number of the validation."""
    splits = focuse.split(small, seed=3)
    config = Config.from_kwargs(dim=2, label_exponent=1.0, eval_every=1, epochs=99).resolve(splits.train, "cpu")
    trainer = make_trainer(config, splits, fit_normalizer("relation", splits.train), Reporter())
    trainer.placement.validator = Told(*values)  # type: ignore[assignment]
    for number in range(1, len(values) + 1):
        trainer.progress.epoch = 10 * number
        trainer.engine.tables["entity"].fill_(number)
        trainer._validate({})
        yield trainer


def test_best_tables_are_copies_and_validations_since_then_are_counted(small: Graph) -> None:
    values = [0.2, 0.1, 0.2, math.nan, 0.3]  # equal is no better
    expected = [(0.2, 10, 0, 1), (0.2, 10, 1, 1), (0.2, 10, 2, 1), (0.2, 10, 3, 1), (0.3, 50, 0, 5)]
    for trainer, (value, epoch, checks, kept) in zip(validated(small, *values), expected, strict=True):
        at, best = trainer.progress, trainer.placement.best
        assert (at.best_value, at.best_epoch, at.checks_since_best) == (value, epoch, checks)
        assert best is not None
        assert (best["entity"] == kept).all()
        assert not best["entity"].requires_grad


def test_the_first_validation_is_kept_even_at_0(small: Graph) -> None:
    for trainer in validated(small, 0.0):
        assert trainer.placement.best is not None
        assert trainer.progress.checks_since_best == 0


class TestConfidenceValidator:
    """On the graph of all tests: every validation triple, and corruptions that no split has."""

    def parts(self, small, seed=0):
        split = focuse.split(small, seed=3)
        facts = build_triple_index([split.train, split.valid, split.test])
        valid = split.valid
        judge = confidence_validator(valid, valid.weight, facts, seed)
        assert judge is not None
        return judge, small, valid

    def test_targets_are_the_weights_of_triples_and_0_of_negatives(self, small):
        judge, graph, valid = self.parts(small)
        n = len(valid)
        for column in ("head", "relation", "tail"):
            np.testing.assert_array_equal(getattr(judge.triples, column)[:n], getattr(valid, column))
        np.testing.assert_array_equal(judge.triples.weight[:n], valid.weight)
        assert (judge.triples.weight[n:] == 0).all()
        assert 0.6 * n < len(judge.triples.weight) - n <= n  # what was drawn and is a fact is left out
        facts = {tuple(row.values())[:3] for row in graph.to_arrow().to_pylist()}
        ids = judge.triples.head, judge.triples.relation, judge.triples.tail
        triples = list(zip(*(column.tolist() for column in ids), strict=True))
        named = [(valid.entities[h], valid.relations[r], valid.entities[t]) for h, r, t in triples]
        assert all((triple in facts) == (place < n) for place, triple in enumerate(named))
        # One side of each stays, and over all of them both sides change.
        heads, tails = ({*zip(side, valid.relation, strict=True)} for side in (valid.head, valid.tail))
        kept = [((h, r) in heads, (t, r) in tails) for h, r, t in triples[n:]]
        assert all(any(sides) for sides in kept)
        assert (
            min(sum(head and not tail for head, tail in kept), sum(tail and not head for head, tail in kept)) > n / 10
        )

    def test_negatives_depend_on_the_seed_only(self, small):
        one, again, other = (self.parts(small, seed)[0] for seed in (1, 1, 2))
        torch.manual_seed(5)
        assert torch.equal(one.triples.head, again.triples.head)
        assert torch.equal(one.triples.tail, again.triples.tail)
        assert one.triples.head.tolist() != other.triples.head.tolist()

    @pytest.mark.parametrize("name", ["ukge-logi", "ukge-rect"])
    def test_measures_the_squared_error_of_bounded_confidences(self, small, name):
        judge, graph, _ = self.parts(small)
        random = np.random.default_rng(0)
        entity, relation = random.normal(size=(len(graph.entities), 3)), random.normal(size=(len(graph.relations), 3))
        w, b = 2.5, -0.4
        triples = judge.triples
        f = w * (entity[triples.head] * relation[triples.relation] * entity[triples.tail]).sum(1) + b
        assert ((f < 0).any(), (f > 1).any()) == (True, True)
        phi = 1 / (1 + np.exp(-f)) if name == "ukge-logi" else np.clip(f, 0, 1)
        tables = torch.from_numpy(entity), torch.from_numpy(relation)
        engine = make_scorer(make_model(name), *tables, parameters={"scale": torch.tensor([w, b], dtype=torch.float64)})
        assert judge(engine) == pytest.approx(np.mean((phi - judge.triples.weight.numpy()) ** 2), rel=1e-9)
        assert (judge.metric, judge.sign) == ("valid_mse", -1)  # less is better

    def test_no_triples_give_no_confidence_validator(self, small):
        nothing = small.select(np.empty(0, np.int64))
        assert confidence_validator(nothing, nothing.weight, build_triple_index([small]), 0) is None


def test_best_epoch_has_the_highest_mrr_or_the_lowest_mse() -> None:
    rows = [{"epoch": 1}, {"epoch": 2, "value": 0.2}, {"epoch": 3, "value": 0.1}, {"epoch": 4, "value": 0.3}]
    for figure, best in (("valid_mrr", 4), ("valid_mse", 3)):
        history = [{figure if key == "value" else key: value for key, value in row.items()} for row in rows]
        found = best_epoch_row(history)
        assert found is not None
        assert found["epoch"] == best
    assert best_epoch_row(rows) is None
    assert best_epoch_row([{"epoch": 1, "valid_mrr": None}, {"epoch": 2, "valid_mse": 0.0}]) == {
        "epoch": 2,
        "valid_mse": 0.0,
    }


def test_validation_mse_is_independent_of_test(small):
    """Other facts in test, other corruptions to leave out: the figures that stop training stay."""
    import focuse

    train, valid, test = (small.select(rows) for rows in np.split(np.arange(len(small)), [400, 480]))
    runs = [
        focuse.train(train, valid=valid, test=part, model="ukge-rect", dim=8, epochs=2, eval_every=1, progress=False)
        for part in (test, test.select(np.arange(3)))
    ]
    assert [row["valid_mse"] for row in runs[0].history] == [row["valid_mse"] for row in runs[1].history]
