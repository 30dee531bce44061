"""A whole evaluation against loops over names, sets and dicts."""

import json
import math
import statistics
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from scoring import make_scorer

from focuse.data.graph import AlignedGraph, Graph, from_columns
from focuse.data.triple_index import build_triple_index
from focuse.errors import FocuseError
from focuse.evaluation.evaluate import Evaluation, evaluate
from focuse.models.registry import MODELS

ENTITIES, RELATIONS = 13, 2
Row = tuple[str, str, str, float]
PARTS = ("all", "top", "bottom", "weighted")


def random_rows(seed: int, n: int, weights: list[float]) -> list[Row]:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, (ENTITIES, RELATIONS, ENTITIES), (n, 3))
    picked = rng.choice(weights, n)
    return [(f"e{h}", f"r{r}", f"e{t}", float(w)) for (h, r, t), w in zip(ids, picked, strict=True)]


def graph_of(rows: list[Row], source: str = "graph") -> Graph:
    head, relation, tail, weight = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [], [])
    return from_columns(head, relation, tail, weight, source)


class Case:
    """Train that names everything, test, and a random engine of whole numbers (so ties abound)."""

    def __init__(self, model: str = "distmult", weights: list[float] | None = None, seed: int = 0, n: int = 43) -> None:
        weights = weights or [0.1, 0.3, 0.3, 0.8]
        every = [(f"e{i}", f"r{i % RELATIONS}", f"e{(i + 1) % ENTITIES}", weights[0]) for i in range(ENTITIES)]
        self.train_rows = every + random_rows(seed, 40, weights)
        self.test_rows = random_rows(seed + 1, n, weights) + self.train_rows[:2]
        self.train = graph_of(self.train_rows, "train.tsv")
        self.test = graph_of(self.test_rows, "test.tsv").align(self.train)
        draw = torch.Generator().manual_seed(seed)
        self.model = MODELS[model]()
        shapes = ((ENTITIES, self.model.widths(3)[0]), (RELATIONS, self.model.widths(3)[1]))
        entity, relation = (torch.randint(-2, 3, shape, generator=draw).float() for shape in shapes)
        self.engine = make_scorer(self.model, entity, relation)

    def evaluate(self, **options: object) -> Evaluation:
        known = build_triple_index([self.train, self.test.graph])
        return evaluate(self.engine, self.test, self.train, known, **options)  # type: ignore[arg-type]

    def score(self, h: str, r: str, t: str) -> float:
        entities, relations = list(self.train.entities), list(self.train.relations)
        ids = (entities.index(h), relations.index(r), entities.index(t))
        rows = zip(("entity", "relation", "entity"), ids, strict=True)
        x, y, z = (self.engine.tables[table][place].double().numpy() for table, place in rows)
        if self.model.name == "distmult":
            return float((x * y * z).sum())
        return -float(np.abs(x + y - z).sum())

    def ranks(self, ties: float = 1.0, joint: bool = False, filtered: bool = True) -> list[list[float]]:
        """For each test row the rank of its tail and of its head (or the joint one), by a loop."""
        facts = {row[:3] for row in self.train_rows + self.test_rows} if filtered else set()
        found = []
        for h, r, t, _ in self.test_rows:
            own = self.score(h, r, t)
            sides = []
            for corruptions in ([(h, r, e) for e in self.train.entities], [(e, r, t) for e in self.train.entities]):
                rivals = [self.score(*c) for c in corruptions if c != (h, r, t) and c not in facts]
                sides.append(sum(s > own for s in rivals) + ties * sum(s == own for s in rivals))
            found.append([1 + sum(sides)] if joint else [1 + side for side in sides])
        return found


def mean_of(ranks: list[list[float]], share: list[float], what: str) -> float:
    formulas = {"mr": lambda rank: rank, "mrr": lambda rank: 1 / rank}
    measure = formulas.get(what) or (lambda rank: float(rank <= int(what.removeprefix("hits@"))))
    total = sum(share) * len(ranks[0])
    return sum(part * measure(rank) for row, part in zip(ranks, share, strict=True) for rank in row) / total


def tenths(weight: list[float]) -> tuple[list[float], list[float]]:
    """Shares of the heaviest and the lightest tenth."""
    k, shares = max(len(weight) // 10, 1), []
    for sign in (-1, 1):
        signed = [sign * w for w in weight]
        cut = sorted(signed)[k - 1]
        left = (k - sum(w < cut for w in signed)) / signed.count(cut)
        shares.append([1.0 if w < cut else left if w == cut else 0.0 for w in signed])
    return shares[0], shares[1]


def median_of(values: list[float], share: list[float]) -> float:
    """Shares are fractions with a small denominator: repeat instead."""
    common = next(d for d in range(1, 100_000) if all(abs(part * d - round(part * d)) < 1e-7 for part in share))
    return statistics.median([v for v, part in zip(values, share, strict=True) for _ in range(round(part * common))])


@pytest.mark.parametrize("model", ["distmult", "transe"])
@pytest.mark.parametrize("ties", ["worst", "mean", "best"])
@pytest.mark.parametrize("protocol", ["per-side", "combined"])
@pytest.mark.parametrize("filtered", [True, False])
def test_metrics_match_loops_over_triples_and_entities(model: str, ties: str, protocol: str, filtered: bool) -> None:
    case = Case(model)
    found = case.evaluate(ties=ties, protocol=protocol, filtered=filtered)
    ranks = case.ranks({"worst": 1.0, "mean": 0.5, "best": 0.0}[ties], protocol == "combined", filtered)
    weight = [row[3] for row in case.test_rows]
    top, bottom = tenths(weight)
    told = found.to_dict()
    shares = {"all": [1.0] * len(weight), "top": top, "bottom": bottom, "weighted": weight}
    for part, share in shares.items():
        for what in ("mr", "mrr", "hits@1", "hits@3", "hits@10"):
            assert told[part][what] == pytest.approx(mean_of(ranks, share, what)), (part, what)
    assert [told[part]["n"] for part in PARTS] == [45, 4, 4, 45]
    assert told["delta_mrr"] == pytest.approx(mean_of(ranks, top, "mrr") - mean_of(ranks, bottom, "mrr"))
    scores = [case.score(*row[:3]) for row in case.test_rows]
    assert told["delta_median"] == pytest.approx(abs(median_of(scores, top) - median_of(scores, bottom)))
    chosen = {"ranks": "filtered" if filtered else "unfiltered", "ties": ties, "protocol": protocol}
    assert found.settings == chosen | {"deciles": "of all weights"}
    np.testing.assert_allclose(found.scores, scores)


def test_delta_median_is_absolute() -> None:
    deltas = []
    for seed in range(12):
        case = Case(seed=seed)
        found = case.evaluate()
        top, bottom = tenths([row[3] for row in case.test_rows])
        scores = [case.score(*row[:3]) for row in case.test_rows]
        deltas.append(median_of(scores, top) - median_of(scores, bottom))
        assert found.delta_median == pytest.approx(abs(deltas[-1]))
    assert min(deltas) < 0 < max(deltas)  # both kinds were seen


@pytest.mark.parametrize(
    ("train", "test", "expected"),
    [
        # All in [0, 1]: as they are, though train's range is narrower than test's.
        ([0.4, 0.6], [0.1, 0.5, 0.9, 1.0], [0.1, 0.5, 0.9, 1.0]),
        # Beyond it: train's minimum and maximum, clipped, so 9 and 30 tie at the top and -5 and 2 at the bottom.
        ([2.0, 6.0], [-5.0, 2.0, 3.0, 9.0, 30.0], [0, 0, 0.25, 1, 1]),
        # Test alone leaves [0, 1].
        ([0.0, 0.5], [0.25, 7.0], [0.5, 1.0]),
        # Train alone does.
        ([0.0, 10.0], [0.0, 0.5, 1.0], [0.0, 0.05, 0.1]),
    ],
)
def test_global_deciles_use_unit_weights(train: list[float], test: list[float], expected: list[float]) -> None:
    case = Case()
    weights = np.resize(train, len(case.train))
    names = [row[:3] for row in case.train_rows]
    case.train_rows = [(*name, float(w)) for name, w in zip(names, weights, strict=True)]
    case.test_rows = [(*name, w) for name, w in zip(names[5:], test, strict=False)]
    case.train = graph_of(case.train_rows)
    case.test = graph_of(case.test_rows).align(case.train)
    found = case.evaluate(deciles="global")
    top, bottom = tenths(expected)
    np.testing.assert_allclose(found.top_share, top)
    np.testing.assert_allclose(found.bottom_share, bottom)
    assert found.weighted.mrr == pytest.approx(mean_of(case.ranks(), expected, "mrr"))


UNITS = [lambda w: w * 1000, lambda w: w / 7 - 40, np.exp]


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("unit", UNITS)
def test_the_unit_of_a_relation_changes_no_metric(unit: Callable[[np.ndarray], np.ndarray], lower: bool) -> None:
    case = Case(weights=[1.0, 3.0, 3.5, 8.0], n=200)

    def evaluation(unit: Callable[[np.ndarray], np.ndarray], **options: object) -> Evaluation:
        parts = [
            replace(part, weight=np.where(part.relation == 1, unit(part.weight), part.weight), lower_is_better=lower)
            for part in (case.train, case.test.graph)
        ]
        known = build_triple_index(parts)
        return evaluate(case.engine, AlignedGraph(parts[1]), parts[0], known, **options)  # type: ignore[arg-type]

    plain, changed = evaluation(lambda weight: weight), evaluation(unit)
    assert plain.settings["deciles"] == "within each relation"
    assert changed.to_dict() == plain.to_dict()
    assert changed.top_share.tolist() == plain.top_share.tolist()
    if not lower:
        assert evaluation(unit, deciles="global").to_dict() != plain.to_dict()


def test_deciles_have_the_same_mix_of_relations() -> None:
    """Test weights are those of train, and ties are wide: still a decile has a tenth of each relation's triples."""
    case = Case()
    names = [(f"e{i % 13}", f"r{i % 2}", f"e{i // 13}", 0.0) for i in range(160)]
    weight = {"r0": [1, 1, 1, 1, 1, 1, 1, 2, 3, 4], "r1": [90, 70, 100, 100, 100, 100, 100, 100, 100, 100]}
    rows = [(*name[:3], float(weight[name[1]][i // 2 % 10])) for i, name in enumerate(names)]
    case.train, case.train_rows = graph_of(rows), rows
    case.test, case.test_rows = graph_of(rows).align(case.train), rows
    found, second = case.evaluate(), np.array([name[1] == "r1" for name in names])
    assert found.top.n == found.bottom.n == 16
    for share in (found.top_share, found.bottom_share):
        assert share.sum() == pytest.approx(16)
        assert share[second].sum() == pytest.approx(8)


def test_relations_with_one_weight_belong_to_no_decile() -> None:
    case = Case()
    rows = [(*row[:3], 5.0 if row[1] == "r0" else float(i)) for i, row in enumerate(case.train_rows)]
    case.train, case.train_rows = graph_of(rows), rows
    case.test, case.test_rows = graph_of(rows).align(case.train), rows
    found, first = case.evaluate(), np.array([row[1] == "r0" for row in rows])
    assert found.top.n == found.bottom.n == (~first).sum() // 10
    assert not found.top_share[first].any()
    assert not found.bottom_share[first].any()
    rows = [(*row[:3], {"r0": 5.0, "r1": 7.0}[row[1]]) for row in rows]
    case.train, case.train_rows = graph_of(rows), rows
    case.test, case.test_rows = graph_of(rows).align(case.train), rows
    same, apart = case.evaluate(), case.evaluate(deciles="global")
    assert same.delta_mrr == pytest.approx(0, abs=1e-12)
    assert any("every relation has a single weight" in note for note in same.notes)
    assert abs(apart.delta_mrr) > 0.01


def test_unknown_rules_for_deciles_are_errors() -> None:
    with pytest.raises(FocuseError, match="did you mean relation"):
        Case().evaluate(deciles="relations")


def test_evaluation_prints_a_table_and_json() -> None:
    found = Case().evaluate()
    told = found.to_dict()
    assert set(told) >= {"all", "top", "bottom", "delta_mrr", "delta_median"}
    for part in ("all", "top", "bottom"):
        assert set(told[part]) == {"mr", "mrr", "hits@1", "hits@3", "hits@10", "n"}
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    lines = str(found).splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["all", "top", "bottom", "weighted"]
    for line, part in zip(lines[1:5], PARTS, strict=True):
        row = told[part]
        numbers = [f"{row['mr']:.1f}", *(f"{row[key]:.3f}" for key in ("mrr", "hits@1", "hits@3", "hits@10"))]
        assert line.split()[-6:] == [str(row["n"]), *numbers]
    # Each number ends below the end of its heading.
    assert {len(line) for line in lines[:5]} == {len(lines[0])}
    assert f"ΔMRR {found.delta_mrr:.3f}" in lines[5]
    assert f"ΔM {found.delta_median:.3f}" in lines[5]
    assert "\n".join(lines[6:12]) == f"{found.order}\n{found.suggestions}"
    assert "ties worst" in lines[12]
    again = sum(row[:3] in {known[:3] for known in Case().train_rows} for row in Case().test_rows)
    assert again == told["rows_in_train"] > 0
    pairs = {(tail, head) for head, _, tail, *_ in Case().train_rows}
    back = sum((head, tail) in pairs and head != tail for head, _, tail, *_ in Case().test_rows)
    size = len(Case().test_rows)
    assert lines[13].startswith(f"test.tsv: leakage: the reverse of {back} of {size} test triples ({back / size:.0%})")
    assert lines[14:] == [f"test.tsv: {again} of {size} triples are in train as well"]


def test_unseen_rows_are_reported_and_left_out() -> None:
    case = Case()
    plain = case.evaluate()
    strange = [("stranger", "r0", "e1", 0.5), ("e1", "odd", "e2", 0.5), ("e1", "r1", "stranger", 0.1)]
    case.test = graph_of(case.test_rows + strange, "test.tsv").align(case.train)
    found = case.evaluate()
    assert found.to_dict()["unseen_rows"] == 3
    last = next(line for line in str(found).splitlines() if "rows name" in line)
    for word in ("test.tsv", "3 of 48 rows", "stranger", "odd", "left out"):
        assert word in last
    assert found.all == plain.all
    assert found.delta_mrr == plain.delta_mrr
    assert plain.to_dict()["unseen_rows"] == 0
    assert "left out" not in str(plain)


@pytest.mark.parametrize("rows", [[], [("who", "r0", "e1", 0.5)]])
def test_nothing_to_rank_is_an_error(rows: list[Row]) -> None:
    case = Case()
    case.test = graph_of(rows, "empty.tsv").align(case.train)
    with pytest.raises(FocuseError, match=r"empty\.tsv.*" + ("who" if rows else "empty")):
        case.evaluate()


def test_one_triple_has_no_deciles() -> None:
    case = Case()
    case.test = AlignedGraph(case.test.graph.select(np.array([0])))
    case.test_rows = case.test_rows[:1]
    found = case.evaluate()
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["top"] == told["bottom"] == {**dict.fromkeys(("mr", "mrr", "hits@1", "hits@3", "hits@10")), "n": 0}
    assert told["delta_mrr"] is told["delta_median"] is None
    assert math.isnan(found.delta_mrr)
    assert told["all"]["mr"] == pytest.approx(mean_of(case.ranks(), [1.0], "mr"))
    assert len(str(found).splitlines()) >= 7


def test_equal_weights_give_equal_deciles() -> None:
    found = Case(weights=[0.4]).evaluate()
    assert found.delta_mrr == pytest.approx(0)
    assert found.delta_median == 0
    assert found.top.mrr == pytest.approx(found.all.mrr)
