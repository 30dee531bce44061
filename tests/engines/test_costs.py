"""The cost model, against sums by hand; benchmarks/scaling.py holds it against what is measured."""

import numpy as np
import pytest

from focuse.engines.costs import Job, Machines, costs, expected_distinct


def test_bytes_and_memory_by_hand() -> None:
    job = Job(entities=10**12, width=50, edges=1000, relations=10, batch=100, pool=20, moments=2, kept=0)
    found = costs(job, Machines(4, bandwidth=1e6, latency=0.5, rate=10.0))
    assert found.rows == pytest.approx(70)  # 25 heads, 25 tails, a pool of 20
    assert found.sent == pytest.approx(0.75 * (70 * (2 * 200 + 8 + 9) + 2 * 10 * 200))
    assert found.table == pytest.approx(10**12 / 4 * 50 * 4 * 3)
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
