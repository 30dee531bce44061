"""Rankings without a model, each against a count by hand."""

from collections import Counter

import numpy as np
import torch

import focuse
from focuse.evaluation.frequency import FREQUENCY, LINKED, FrequencyScorer, LinkedScorer, rank_trivially
from focuse.graph.graph import from_columns
from focuse.graph.splits import split


def facts_of(graph: focuse.Graph) -> list[tuple[int, int, int]]:
    return list(zip(graph.head.tolist(), graph.relation.tolist(), graph.tail.tolist(), strict=True))


def test_frequency_is_counted_at_its_place(small: focuse.Graph) -> None:
    facts, size = facts_of(small), len(small.entities)
    degree = Counter(h for h, _, _ in facts) + Counter(t for _, _, t in facts)
    scorer = FrequencyScorer(small)
    given, relation = torch.arange(size), torch.arange(size) % len(small.relations)
    for side, place in (("tail", 2), ("head", 0)):
        found = scorer.score_all(given, relation, side).numpy()  # type: ignore[arg-type]
        count = Counter((fact[1], fact[place]) for fact in facts)
        for row, kind in enumerate(relation.tolist()):
            expected = [count[kind, e] + degree[e] / (max(degree.values()) + 1) for e in range(size)]
            assert np.allclose(found[row], expected)


def test_an_edge_back_comes_before_any_edge_and_that_before_frequency(small: focuse.Graph) -> None:
    facts = set(facts_of(small))
    pairs = {(h, t) for h, _, t in facts} | {(t, h) for h, _, t in facts}
    scorer = LinkedScorer(small)
    size = len(small.entities)
    given, relation = torch.arange(size), torch.arange(size) % len(small.relations)
    for side in ("tail", "head"):
        found = scorer.score_all(given, relation, side)  # type: ignore[arg-type]
        for row, kind in enumerate(relation.tolist()):
            for entity in range(size):
                back = (entity, kind, row) if side == "tail" else (row, kind, entity)
                level = ((row, entity) in pairs) + (back in facts)
                assert level <= float(found[row, entity]) < level + 1
    head, tail = given, given.flip(0)
    both = torch.stack([
        scorer.score_all(head, relation, "tail").gather(1, tail[:, None])[:, 0],
        scorer.score_all(tail, relation, "head").gather(1, head[:, None])[:, 0],
    ])  # fmt: skip
    assert torch.allclose(scorer.score(head, relation, tail).floor(), both.mean(0).floor())
    assert torch.allclose(scorer.score(head, relation, tail), both.mean(0), atol=1e-6)


def test_ranks_of_a_graph_known_by_hand() -> None:
    # b stands at the tail of r three times, c once; all questions of test ask for tails and heads by r.
    train = from_columns(["a", "d", "e", "a"], ["r"] * 4, ["b", "b", "b", "c"], [1.0, 0.5, 0.2, 0.1])
    test = from_columns(["d", "e"], ["r", "r"], ["c", "c"], [0.9, 0.1]).align(train)
    nothing = train.select(np.empty(0, np.int64))
    found = rank_trivially(train, nothing, test, [train])
    assert list(found) == [FREQUENCY, LINKED]
    # b is known for both heads, so c is the first tail; a is known to have c, so d and e are next but for each other.
    assert found[FREQUENCY].ranks[:, 0].tolist() == [1.0, 1.0]
    assert found[FREQUENCY].ranks[:, 1].tolist() == [1.0, 1.0]
    assert found[FREQUENCY].notes == ()


def test_a_symmetric_graph_is_told_by_the_edge_back() -> None:
    rows = [(f"e{i}", "r", f"e{(i * 7 + 3) % 50}", 0.5) for i in range(50)]
    parts = split(focuse.read([(t, r, h, w) for h, r, t, w in rows] + rows), valid=0.0, test=0.2, seed=1)
    nothing = parts.train.select(np.empty(0, np.int64))
    found = rank_trivially(parts.train, nothing, parts.test, [parts.train])
    assert found[LINKED].all.mrr > 2 * found[FREQUENCY].all.mrr
