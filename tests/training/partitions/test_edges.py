"""Entities dealt out, edges sorted on disk, and how crowded a stage is."""

from pathlib import Path

import numpy as np
import pytest

from focuse.graph.graph import from_columns
from focuse.graph.weights import fit_normaliser
from focuse.training.partitions import edges
from focuse.training.partitions.edges import Dealt, EdgeFile, sort_edges
from focuse.training.partitions.plan import Stage, stages_of


def test_every_entity_has_a_row_of_its_own_and_popular_ones_spread() -> None:
    dealt = Dealt.of(1003, 7, 5)
    assert dealt.sizes.max() - dealt.sizes.min() <= 1
    assert len(set(zip(dealt.part.tolist(), dealt.row.tolist(), strict=True))) == 1003
    for part in range(7):
        assert dealt.row[dealt.part == part].tolist() == list(range(dealt.sizes[part]))  # in the order of ids
    assert len(set(dealt.part[:20].tolist())) > 4


@pytest.mark.parametrize("partitions", [1, 4])
def test_edges_come_back_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    monkeypatch.setattr(edges, "CHUNK", 70)
    random = np.random.default_rng(0)
    names = [[f"e{id}" for id in random.integers(0, 50, 500)] for _ in range(2)]
    graph = from_columns(names[0], [f"r{id}" for id in random.integers(0, 3, 500)], names[1], random.random(500))
    dealt = Dealt.of(len(graph.entities), partitions, 0)
    sort_edges(tmp_path / "edges", graph, fit_normaliser("none", graph), dealt, lambda: None)
    file, rows = EdgeFile.open(tmp_path / "edges"), int(dealt.sizes.max())
    assert np.array_equal(file.dealt.row, dealt.row)
    found = []
    for stage in stages_of(partitions, min(2, partitions), 0, 0, rounds=2):
        some = file.read(stage, rows)
        assert len(some) == file.count(stage)
        held = np.array(stage.slots)
        ids = {(int(part), int(row)): id for id, (part, row) in enumerate(zip(dealt.part, dealt.row, strict=True))}
        heads, tails = ([ids[int(held[i // rows]), int(i % rows)] for i in some[:, at]] for at in (0, 2))
        found += zip(heads, some[:, 1].tolist(), tails, some[:, 3].copy().view(np.float32).tolist(), strict=True)
    columns = (graph.head, graph.relation, graph.tail, graph.weight.astype(np.float32))
    given = list(zip(*(column.tolist() for column in columns), strict=True))
    assert sorted(found) == sorted(given)
    assert (found == given) == (partitions == 1)  # one partition keeps the graph's order


def test_a_part_has_edges_from_all_over_a_file_that_is_sorted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges, "CHUNK", 1000)  # less is mixed at a time
    random, count = np.random.default_rng(0), 20_000
    names = [[f"e{id}" for id in random.integers(0, 50, count)] for _ in range(2)]
    graph = from_columns(names[0], [f"r{at * 20 // count:02}" for at in range(count)], names[1], random.random(count))
    dealt = Dealt.of(len(graph.entities), 4, 0)
    file = sort_edges(tmp_path / "edges", graph, fit_normaliser("none", graph), dealt, lambda: None)
    for stage in stages_of(4, 2, 0, 0, rounds=3):
        relations = np.bincount(file.read(stage, 20)[:, 1], minlength=20)
        assert np.median(relations) > 0.8 * relations.mean()


def test_crowding_is_the_chance_that_two_ends_share_a_partition(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    names = [[f"e{id}" for id in random.integers(0, 400, 9000)] for _ in range(2)]
    graph = from_columns(names[0], ["r"] * 9000, names[1], random.random(9000))
    dealt = Dealt.of(len(graph.entities), 4, 0)
    file = sort_edges(tmp_path / "edges", graph, fit_normaliser("none", graph), dealt, lambda: None)

    def stage(slots: tuple[int, ...], parts: object) -> Stage:
        """Of the edges between its partitions the first of so many parts, [c, c]; 0 for none."""
        parts = np.array(parts)
        return Stage(slots, np.where(parts > 0, 0, 10**6), np.maximum(parts, 10**6 * (parts == 0)))

    assert file.crowding(stage((0, 1, 2, 3), np.ones((4, 4)))) == pytest.approx(1 / 4, rel=0.02)
    assert file.crowding(stage((1, 2), [[0, 0], [0, 1]])) == 1.0
    newcomer = [[0, 1, 1], [1, 0, 0], [1, 0, 0]]  # half of the ends are of 0, a quarter each of 1 and 2
    assert file.crowding(stage((0, 1, 2), newcomer)) == pytest.approx(1 / 4 + 2 / 16, rel=0.02)
