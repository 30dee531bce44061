"""Entities are assigned to partitions, edges are written in buckets, and each edge comes back once per epoch."""

from pathlib import Path

import numpy as np
import pytest

from focuse.data.graph import from_columns
from focuse.data.weights import fit_normalizer
from focuse.engines import partitioned
from focuse.engines.partitioned import EdgeBuckets, PartitionAssignment, Stage, epoch_stages, write_edge_buckets


def test_every_entity_has_its_own_row_and_graph_neighbors_are_spread() -> None:
    assignment = PartitionAssignment.random(1003, 7, 5)
    assert assignment.sizes.max() - assignment.sizes.min() <= 1
    assert len(set(zip(assignment.part.tolist(), assignment.row.tolist(), strict=True))) == 1003
    for part in range(7):
        assert assignment.row[assignment.part == part].tolist() == list(
            range(assignment.sizes[part])
        )  # in the order of ids
    assert len(set(assignment.part[:20].tolist())) > 4


@pytest.mark.parametrize("partitions", [1, 4])
def test_every_edge_is_read_once_with_its_ids_and_weight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    monkeypatch.setattr(partitioned, "CHUNK", 70)
    random = np.random.default_rng(0)
    names = [[f"e{id}" for id in random.integers(0, 50, 500)] for _ in range(2)]
    graph = from_columns(names[0], [f"r{id}" for id in random.integers(0, 3, 500)], names[1], random.random(500))
    assignment = PartitionAssignment.random(len(graph.entities), partitions, 0)
    write_edge_buckets(tmp_path / "edges", graph, fit_normalizer("none", graph), assignment)
    file, rows = EdgeBuckets.open(tmp_path / "edges"), int(assignment.sizes.max())
    assert np.array_equal(file.assignment.row, assignment.row)
    found, stages = [], list(epoch_stages(partitions, min(2, partitions), 0, 0, rounds=2))
    for stage in stages:
        some = file.read(stage, rows)
        assert len(some) == file.count(stage)
        held = np.array(stage.slots)
        ids = {
            (int(part), int(row)): id
            for id, (part, row) in enumerate(zip(assignment.part, assignment.row, strict=True))
        }
        heads, tails = ([ids[int(held[i // rows]), int(i % rows)] for i in some[:, at]] for at in (0, 2))
        found += zip(heads, some[:, 1].tolist(), tails, some[:, 3].copy().view(np.float32).tolist(), strict=True)
    columns = (graph.head, graph.relation, graph.tail, graph.weight.astype(np.float32))
    given = list(zip(*(column.tolist() for column in columns), strict=True))
    assert sorted(found) == sorted(given)
    assert (found == given) == (partitions == 1)  # one partition keeps the graph's order


def test_a_stage_has_edges_from_all_over_a_sorted_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitioned, "CHUNK", 1000)  # less is mixed at a time
    random, count = np.random.default_rng(0), 20_000
    names = [[f"e{id}" for id in random.integers(0, 50, count)] for _ in range(2)]
    graph = from_columns(names[0], [f"r{at * 20 // count:02}" for at in range(count)], names[1], random.random(count))
    assignment = PartitionAssignment.random(len(graph.entities), 4, 0)
    file = write_edge_buckets(tmp_path / "edges", graph, fit_normalizer("none", graph), assignment)
    for stage in epoch_stages(4, 2, 0, 0, rounds=3):
        relations = np.bincount(file.read(stage, 20)[:, 1], minlength=20)
        assert np.median(relations) > 0.8 * relations.mean()


def test_crowding_is_the_probability_that_two_ends_are_in_the_same_partition(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    names = [[f"e{id}" for id in random.integers(0, 400, 9000)] for _ in range(2)]
    graph = from_columns(names[0], ["r"] * 9000, names[1], random.random(9000))
    assignment = PartitionAssignment.random(len(graph.entities), 4, 0)
    file = write_edge_buckets(tmp_path / "edges", graph, fit_normalizer("none", graph), assignment)

    def stage(slots: tuple[int, ...], parts: object) -> Stage:
        """Of the edges between its partitions the first of so many parts, [c, c]; 0 for none."""
        parts = np.array(parts)
        return Stage(slots, np.where(parts > 0, 0, 10**6), np.maximum(parts, 10**6 * (parts == 0)))

    assert file.same_partition_probability(stage((0, 1, 2, 3), np.ones((4, 4)))) == pytest.approx(1 / 4, rel=0.02)
    assert file.same_partition_probability(stage((1, 2), [[0, 0], [0, 1]])) == 1.0
    star = [[0, 1, 1], [1, 0, 0], [1, 0, 0]]  # half of the ends are in 0, a quarter each in 1 and 2
    assert file.same_partition_probability(stage((0, 1, 2), star)) == pytest.approx(1 / 4 + 2 / 16, rel=0.02)
