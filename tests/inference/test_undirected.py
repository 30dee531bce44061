"""Runs of undirected graphs: one predicted weight per pair, links suggested once, both directions known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import focuse
from focuse.api import Run

ENTITIES = 90
SETTINGS: dict[str, Any] = {"epochs": 3, "dim": 8, "label_exponent": 1, "progress": False}


def pairs() -> list[tuple[str, str, str, float]]:
    """Pairs of similar entities, whose weight is their similarity, each once and in a random direction."""
    random = np.random.default_rng(4)
    place = random.random((ENTITIES, 2))
    first, second = np.triu_indices(ENTITIES, 1)
    near = np.exp(-4 * np.linalg.norm(place[first] - place[second], axis=1))
    chosen = random.choice(len(first), 1_800, replace=False, p=near / near.sum())
    turn = random.random(len(chosen)) < 0.5
    return [
        (f"p{b}", "binds", f"p{a}", float(w)) if t else (f"p{a}", "binds", f"p{b}", float(w))
        for a, b, w, t in zip(first[chosen], second[chosen], near[chosen].round(4), turn, strict=True)
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("undirected") / "run"
    return focuse.train(pairs(), undirected=True, out=folder, **SETTINGS)


def turned(rows: list[Any]) -> list[Any]:
    return [(tail, relation, head, *rest) for head, relation, tail, *rest in rows]


def rows_of(graph: focuse.Graph) -> list[tuple[str, str, str]]:
    return [(row["head"], row["relation"], row["tail"]) for row in graph.to_arrow().to_pylist()]


def test_train_and_held_out_parts_have_both_directions(run: Run) -> None:
    for part in (run.splits.train, run.splits.valid, run.splits.test):
        assert set(turned(rows_of(part))) == set(rows_of(part))
    assert len(run.splits.train) + len(run.splits.valid) + len(run.splits.test) == 3_600


def test_both_directions_have_the_same_predictions(run: Run) -> None:
    assert run.weight_predictor(full=True).estimator.trees  # type: ignore[union-attr]
    known = {frozenset(row[::2]) for part in (run.graph, run.splits.valid, run.splits.test) for row in rows_of(part)}
    names = [f"p{i}" for i in range(ENTITIES)]
    new = [(a, "binds", b) for a in names[:30] for b in names[30:] if frozenset((a, b)) not in known][:200]
    asked = [*new, *rows_of(run.splits.test)[:40], *rows_of(run.graph)[:40]]
    for coverage in (0.9, 0.5):
        one, other = (run.predict_weights(rows, coverage=coverage) for rows in (asked, turned(asked)))
        for column in ("weight_mean", "weight_median", "weight_low", "weight_high", "probability", "in_train"):
            assert list(one[column]) == list(other[column])
    assert len(set(one["weight_mean"])) > 100
    by_head, by_tail = run.predict("p3", "binds", top=ENTITIES), run.predict(None, "binds", "p3", top=ENTITIES)
    found = {row.tail: (row.weight_mean, row.probability, row.confidence, row.known) for row in by_head}
    assert found == {row.head: (row.weight_mean, row.probability, row.confidence, row.known) for row in by_tail}


def test_a_known_pair_is_known_from_either_end(run: Run) -> None:
    listed = {frozenset((head, tail)) for head, _, tail, _ in pairs()}
    for name in ("p3", "p40"):
        for new in (run.predict(name, "binds", new_only=True), run.predict(None, "binds", name, new_only=True)):
            assert not {frozenset((row.head, row.tail)) for row in new} & listed


def test_discover_suggests_each_pair_once(run: Run) -> None:
    listed = {frozenset((head, tail)) for head, _, tail, _ in pairs()}
    found = [frozenset((row.head, row.tail)) for row in run.discover(top=150)]
    assert len(found) == 150 == len(set(found))
    assert not set(found) & listed
    probability = run.discover(top=150)["probability"]
    assert list(probability) == sorted(probability, reverse=True)
    of_one = run.discover(heads="p7", top=20)
    assert {row.head for row in of_one} == {"p7"}
    assert len({row.tail for row in of_one}) == len(of_one) == 20


def test_evaluation_counts_pairs_and_has_no_leakage(run: Run) -> None:
    found = run.evaluate()
    size = len(run.splits.test)
    assert found.all.n == 2 * size or found.all.n == size
    assert any(f"{size // 2} pairs are undirected, and ranked in both directions" in note for note in found.notes)
    assert not any("leakage" in note for note in found.notes)
    given = [("p1", "binds", "p2", 0.5), ("p5", "binds", "p3", 0.5)]
    assert any("2 pairs are undirected" in note for note in run.evaluate(given).notes)


def test_report_says_that_pairs_are_undirected(run: Run, tmp_path: Path) -> None:
    text = run.report(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Pairs of entities are undirected: each is one fact" in text


def test_leakage_is_reported_with_the_metrics() -> None:
    rows = pairs()
    directed = focuse.train([*rows, *turned(rows)], undirected=False, **SETTINGS)
    known = set(rows_of(directed.graph))
    test = rows_of(directed.splits.test)
    count = sum(row in known for row in turned(test))
    assert count > 0.6 * len(test)
    [note] = [note for note in directed.evaluate().notes if "leakage" in note]
    assert f"the reverse of {count:,} of {len(test):,} test triples ({count / len(test):.0%}) is in train" in note
    assert "--undirected" in note
    assert note in directed.evaluate_weights(estimator=False).notes


def test_stored_and_extended_runs_stay_undirected(run: Run) -> None:
    assert run.folder is not None
    loaded = focuse.load(run.folder)
    assert loaded.graph.undirected == run.graph.undirected == (0,)
    ask = [("p0", "binds", "p9"), ("p9", "binds", "p0")]
    assert loaded.predict_weights(ask).to_dicts() == run.predict_weights(ask).to_dicts()
    head, relation, tail, _ = pairs()[0]
    more = focuse.extend(run, [("new", "binds", "p1", 0.7)], remove=[(head, relation, tail)], epochs=1, progress=False)
    have = {row for part in (more.graph, more.splits.valid, more.splits.test) for row in rows_of(part)}
    assert {("new", "binds", "p1"), ("p1", "binds", "new")} <= have
    assert not {(head, relation, tail), (tail, relation, head)} & have


def test_command_recognizes_pairs_and_reports_leakage(command: Callable[..., Any], tmp_path: Path) -> None:
    rows = pairs()
    lines = [f"{head}\t{relation}\t{tail}\t{weight}" for head, relation, tail, weight in [*rows, *turned(rows)]]
    (tmp_path / "links.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    fast = ("--epochs", "1", "--dim", "4", "--label-exponent", "1")
    done = command("train", tmp_path / "links.tsv", "--out", tmp_path / "one", *fast, check=True)
    assert "every pair is listed in both directions with the same weight: each pair is one fact" in done.stderr
    assert "leakage" not in done.stdout
    done = command("train", tmp_path / "links.tsv", "--directed", "--out", tmp_path / "two", *fast, check=True)
    assert "one fact" not in done.stderr
    assert "leakage: the reverse of " in done.stdout
    assert "leakage: the reverse of " in command("evaluate", tmp_path / "two", check=True).stdout
    text = command("describe", tmp_path / "links.tsv", check=True).stdout
    assert "each pair is one fact" in text
    shown = json.loads(command("describe", tmp_path / "links.tsv", "--directed", "--json", check=True).stdout)
    assert (shown["undirected"], shown["undirected_note"]) == ([], "")
