"""Data of the sections: the most probable new links, and notes on missing parts."""

import math
from collections import Counter

import pytest

import focuse
from focuse.report.gathered import LINKS, PER_HEAD, gather, new_links


def test_new_links_are_most_probable_and_limited_per_head(small: focuse.Graph) -> None:
    run = focuse.train(small, dim=6, epochs=2, progress=False)
    found = list(new_links(run))
    assert 1 <= len(found) <= LINKS
    chances = [row.probability for row in found]
    assert chances == sorted(chances, reverse=True)
    assert max(Counter(row.head for row in found).values()) <= PER_HEAD
    best = run.discover(top=1)[0]
    assert (found[0].head, found[0].relation, found[0].tail) == (best.head, best.relation, best.tail)


def test_large_graph_is_searched_among_popular_entities(small: focuse.Graph, monkeypatch) -> None:
    run = focuse.train(small, dim=6, epochs=2, progress=False)
    asked = []
    whole = run.discover

    def discover(**options):
        asked.append(options.get("strategy", "exhaustive"))
        return whole(**options, max_scores=1 if asked[-1] == "exhaustive" else 1e9)

    monkeypatch.setattr(run, "discover", discover)
    assert len(new_links(run))
    assert asked == ["exhaustive", "popular"]


def test_diverged_run_is_noted_once(small: focuse.Graph) -> None:
    run = focuse.train(small, dim=6, epochs=2, progress=False)
    run.scorer.tables["entity"].fill_(math.nan)
    run.history.append({"epoch": 3, "loss": math.nan})
    found = gather(run)
    assert (found.evaluation, found.weights, found.links) == (None, None, [])
    assert len(found.notes) == 1
    assert "training diverged" in found.notes[0]
    assert found.data["history"][-1] == {"epoch": 3, "loss": None}


def test_test_graph_with_other_names_is_refused(small: focuse.Graph) -> None:
    run = focuse.train(small, dim=6, epochs=2, progress=False)
    with pytest.raises(focuse.FocuseError, match="no test triple has all its names in train"):
        gather(run, [("nobody", "knows", "anyone", 0.5)])
