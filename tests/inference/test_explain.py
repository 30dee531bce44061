"""`run.explain` for every kind of model, also if there is little to explain."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import focuse
from focuse.errors import FocuseError
from focuse.inference.explain import Explanation
from focuse.results import ResultTable
from focuse.rules.grammar import parse_rules

QUICK = {"dim": 8, "epochs": 2, "progress": False}
KINDS: dict[str, dict[str, Any]] = {
    "dot": {"model": "complex", "label_exponent": 2.0},
    "distance": {"model": "rotate", "weight_mode": "none"},
    "focuse": {"model": "transe", "weight_mode": "focuse", "beta_decay_epochs": 2},
    "reciprocal": {"model": "distmult", "reciprocal": True, "weight_mode": "none", "negative_sampling": "all"},
    "confidence": {"model": "ukge-rect"},
    "neural": {"model": "conve", "weight_mode": "none", "dim": 16},
    "encoded": {"model": "kbgat", "weight_mode": "none"},
    "triples": {"model": "convkb", "weight_mode": "none"},
}


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, model="complex", label_exponent=2.0, **QUICK | {"epochs": 20})


def triple(graph: focuse.Graph, row: int) -> tuple[str, str, str]:
    return graph.entities[graph.head[row]], graph.relations[graph.relation[row]], graph.entities[graph.tail[row]]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_can_explain(small: focuse.Graph, kind: str) -> None:
    run = focuse.train(small, **QUICK | KINDS[kind])
    asked = triple(run.splits.test, 0)
    found = run.explain(*asked, top=3)
    assert found.triple == asked
    assert 0 < len(found.supporting) <= 3
    assert all(one.change < 0 and {one.head, one.tail} & {asked[0], asked[2]} for one in found.supporting)
    assert [one.change for one in found.supporting] == sorted(one.change for one in found.supporting)
    assert all(one.change > 0 for one in found.opposing)
    assert bool(found.notes) == (kind == "encoded")  # only there, embeddings are computed from other ones
    json.dumps(found.to_dict(), allow_nan=False)
    assert asked[0] in str(found)


def test_supporting_triples_are_of_train_with_their_weights(run: focuse.Run) -> None:
    known = {triple(run.graph, row): run.graph.weight[row] for row in range(len(run.graph))}
    found = run.explain(*triple(run.splits.test, 1))
    for one in (*found.supporting, *found.opposing, *found.similar, *found.same_head, *found.same_tail):
        assert known[one.head, one.relation, one.tail] == one.weight


def test_known_triple_is_explained_by_other_triples(run: focuse.Run) -> None:
    asked = triple(run.graph, 4)
    found = run.explain(*asked, top=1000)
    assert found.own_change is not None
    assert asked not in {(one.head, one.relation, one.tail) for one in (*found.supporting, *found.opposing)}
    assert asked not in {(one.head, one.relation, one.tail) for one in (*found.similar, *found.same_head)}
    assert "the triple itself" in str(found)
    assert run.explain(*triple(run.splits.test, 0)).own_change is None


def test_explanation_is_deterministic(run: focuse.Run) -> None:
    asked = triple(run.splits.test, 2)
    assert run.explain(*asked).to_dict() == run.explain(*asked).to_dict()


def test_given_rules_are_used_and_checked(run: focuse.Run, tmp_path: Path) -> None:
    asked = triple(run.graph, int(np.argmax(run.graph.weight)))
    run.fitted.rule_base = None
    path = tmp_path / "rules.txt"
    path.write_text(f"{asked[1]}(x, y) -> r1(y, x) : 0.9\n", encoding="utf-8")
    [found] = run.explain(asked[2], "r1", asked[0], rules=path).rules
    assert (found.confidence, found.soft_confidence, found.groundings) == (0.9, None, 1)
    assert found.steps == f"{' '.join(asked)} ({found.body:.3g})"
    assert found.implied == pytest.approx(max(0.0, found.body - 0.1))
    assert "mined" not in vars(run.fitted.rule_base)
    with pytest.raises(FocuseError, match="no relation 'other'"):
        run.explain(*asked, rules=parse_rules("other(x, y) -> r0(x, y)"))


def test_entities_with_few_triples_are_explained() -> None:
    rows = [("a", "r", f"t{number}", number / 10) for number in range(1, 9)] + [("lonely", "r", "t1", 0.5)]
    rows.append(("a", "r", "a", 0.7))
    run = focuse.train(rows, model="complex", valid_fraction=0.0, test_fraction=0.0, label_exponent=1.0, **QUICK)
    found = run.explain("lonely", "r", "t1")
    assert found.prediction.probability is None
    assert found.own_change is not None
    assert {one.tail for one in (*found.supporting, *found.opposing)} <= {"t1"}
    loop = run.explain("a", "r", "a")
    assert len(loop.supporting) + len(loop.opposing) > 0
    assert not found.rules


def test_invalid_questions_are_refused(run: focuse.Run) -> None:
    with pytest.raises(FocuseError, match="no entity 'e999'"):
        run.explain("e999", "r0", "e1")
    with pytest.raises(FocuseError, match="no relation 'q'"):
        run.explain("e0", "q", "e1")
    with pytest.raises(FocuseError, match="top 0"):
        run.explain("e0", "r0", "e1", top=0)


def test_known_negatives_can_oppose_a_prediction(small: focuse.Graph) -> None:
    false = [("e1", "r0", "e2"), ("e1", "r1", "e3"), ("e2", "r0", "e5")]
    known = {triple(small, row) for row in range(len(small))}
    false = [one for one in false if one not in known]
    run = focuse.train(small, known_negatives=false, model="complex", label_exponent=1.0, **QUICK)
    found = run.explain(*false[0], top=100)
    named = {(one.head, one.relation, one.tail) for one in (*found.supporting, *found.opposing) if one.known_negative}
    assert named <= set(false)


def test_models_with_attributes_can_explain(small: focuse.Graph) -> None:
    numbers = [(f"e{number}", "size", float(number)) for number in range(40)]
    run = focuse.train(small, model="literale-distmult", node_attributes=numbers, weight_mode="none", **QUICK)
    found = run.explain(*triple(run.splits.test, 0))
    assert found.supporting
    assert not found.notes


def test_probability_of_a_missing_link_is_that_of_discover(run: focuse.Run) -> None:
    best = run.discover(top=1)[0]
    found = run.explain(best.head, best.relation, best.tail)
    assert found.prediction.probability == pytest.approx(best.probability)
    assert f"probability {best.probability:.2g}" in found.summary()


def text_of(rank: int = 3, **tables: Any) -> str:
    """Return the summary for a prediction of a given rank among 100 tails."""
    row = {"head": ["a"], "relation": ["r"], "tail": ["n"], "weight": [0.5]}
    shown = {name: ResultTable({**row, "change": [change]}) for name, change in tables.items()}
    nothing = ResultTable({})
    numbers = {"score": 1.5, "known": False, "weight": None, "probability": 0.7}
    weights = {"weight_mean": 0.4, "weight_low": 0.1, "weight_high": 0.9}
    prediction = SimpleNamespace(rank=rank, head="a", relation="needs", tail="b", **numbers, **weights)
    found = Explanation(
        prediction, 100, shown.get("supporting", nothing), shown.get("opposing", nothing), None, *[nothing] * 4
    )
    return found.summary()


def test_summary_names_opposing_triples_only_if_they_are_strong() -> None:
    weak, strong = (text_of(supporting=-1.0, opposing=change) for change in (0.4, 0.5))
    assert "It is supported most by a r n (weight 0.5)." in weak
    assert "against it" not in weak
    assert "The strongest triple against it is a r n" in strong
    assert weak.startswith("a needs b: probability 0.7, predicted weight 0.4, 90 % interval 0.1 to 0.9, rank 3 of 100")


def test_summary_says_if_a_triple_is_not_predicted() -> None:
    assert "does not predict" not in text_of(rank=10, supporting=-1.0)
    assert "The model does not predict it: it ranks below the best tenth. It is supported" in text_of(
        11, supporting=-1.0
    )
    assert "No training triple at its head or tail supports it." in text_of()
