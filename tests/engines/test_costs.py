"""The cost model, against sums by hand; benchmarks/scaling.py holds it against what is measured."""

from dataclasses import replace

import numpy as np
import pytest

from focuse.engines.costs import Job, Machines, costs, expected_distinct, refused
from focuse.errors import FocuseError
from focuse.graph import Graph


class Many:
    """So many names, none of which is there."""

    def __init__(self, count: int) -> None:
        self.count, self.beside = count, None

    def __len__(self) -> int:
        return self.count


def test_bytes_and_memory_by_hand() -> None:
    job = Job(entities=10**12, width=50, edges=1000, relations=10, batch=100, pool=20, moments=2, kept=0)
    found = costs(job, Machines(4, bandwidth=1e6, latency=0.5, rate=10.0))
    assert found.rows == pytest.approx(70)  # 25 heads, 25 tails, a pool of 20
    assert found.sent == pytest.approx(0.75 * (70 * (2 * 200 + 8 + 9) + 2 * 10 * 200))
    assert found.table == pytest.approx(10**12 / 4 * 50 * 4 * 3)
    assert found.edges == 16 * 1000  # ids and weight, by whatever processes a machine has
    assert found.seconds == pytest.approx(25 / 10 + found.sent / 1e6 + 10 * 0.5)
    assert found.epoch == pytest.approx(10 * found.seconds)


def test_one_process_sends_nothing() -> None:
    assert costs(Job(1000, 8, 1000), Machines(1)).sent == 0


def test_own_negatives_are_rows_of_their_own() -> None:
    job = Job(10**12, 50, 1000, batch=100, pool=0, own=30)
    assert costs(job, Machines(2)).rows == pytest.approx(50 * 32)


def test_distinct_draws_as_they_are_drawn() -> None:
    random = np.random.default_rng(0)
    drawn = [len(np.unique(random.integers(0, 300, 200))) for _ in range(400)]
    assert np.mean(drawn) == pytest.approx(expected_distinct(200, 300), rel=0.01)


def test_what_is_refused_is_what_the_graph_refuses() -> None:
    """The same bound as of a graph's keys."""
    for entities, fits in ((3_037_000_499, True), (3_037_000_500, False)):  # the root of 2⁶³ lies between them
        assert refused(Job(entities, 8, 1, relations=1)) != fits
    graph = Graph(*(np.zeros(1, np.int32) for _ in range(3)), np.ones(1), Many(10**8), Many(923))  # type: ignore[arg-type]
    assert refused(Job(10**8, 8, 1, relations=923))
    with pytest.raises(FocuseError, match="exceed 64-bit keys"):
        _ = graph.keys
    assert not refused(Job(10**8, 8, 1, relations=922))
    assert len(replace(graph, relations=Many(922)).keys) == 1  # type: ignore[arg-type]
