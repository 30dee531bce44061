"""What sections draw from: links of the busiest heads, and notes instead of what a run cannot tell."""

import math
from collections import Counter

import focuse
from focuse.reports.gathered import HEADS, LINKS, gather, new_links


def test_new_links_are_of_the_busiest_heads(small: focuse.Graph) -> None:
    run = focuse.train(small, dim=6, epochs=2, progress=False)
    graph = run.graph
    names = [(graph.entities[h], graph.relations[r]) for h, r in zip(graph.head, graph.relation, strict=True)]
    facts, pairs = Counter(head for head, _ in names), Counter(names)
    found = new_links(run)
    assert len(found) == HEADS
    counts = [facts[rows[0].head] for rows in found]
    assert counts == sorted(facts.values(), reverse=True)[:HEADS]
    for rows in found:
        head, relation = rows[0].head, rows[0].relation
        assert pairs[head, relation] == max(count for (name, _), count in pairs.items() if name == head)
        assert 1 <= len(rows) <= LINKS
        assert not any(row.known or row.tail == row.head for row in rows)
        # The best of all that is new.
        best = run.predict(head=head, relation=relation, top=99, new_only=True)
        assert list(rows) == [row for row in best if row.tail != head][: len(rows)]


def test_what_diverged_is_noted_once(small: focuse.Graph) -> None:
    run = focuse.train(small, dim=6, epochs=2, progress=False)
    run.engine.tables["entity"].fill_(math.nan)
    run.history.append({"epoch": 3, "loss": math.nan})
    found = gather(run)
    assert (found.evaluation, found.weights, found.links) == (None, None, [])
    assert len(found.notes) == 1
    assert "training diverged" in found.notes[0]
    assert found.data["history"][-1] == {"epoch": 3, "loss": None}
