"""What a sharded training costs: memory, bytes over the network and time, estimated before it is started.

benchmarks/scaling.py compares the estimates with measurements; benchmarks/plan.py and docs/distributed.md plan with
them. `python -m doctest benchmarks/sharding_costs.py` checks them against sums by hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FLOAT, ID = 4, 8
# An edge in the file that the processes of a machine share: head, relation, tail and weight of 4 bytes each.
EDGE = 16
# Messages of a step that wait for the network: ids with their counts, rows, gradients, who counts a row, sums, flags.
ROUNDS = 10


@dataclass(frozen=True)
class Job:
    """A training: `entities` with rows of `width` numbers, `edges`, `relations` with rows as wide.

    A batch shares `pool` negatives, or each positive has `own` negatives. The optimizer keeps `moments` numbers for
    each number of a row (sparse-adagrad 1, sparse-adam 2); `kept` is the number of copies of the table for the best
    weights so far (0 without validation).
    """

    entities: int
    width: int
    edges: int
    relations: int = 1000
    batch: int = 1024
    pool: int = 256
    own: int = 0
    moments: int = 1
    kept: int = 1
    counted: bool = True  # a regularizer of touched rows must know which process counts them


@dataclass(frozen=True)
class Machines:
    """`processes` that each send `bandwidth` bytes/s, wait `latency` s per message, and train `rate` triples/s."""

    processes: int
    bandwidth: float = 1.25e9  # 10 Gbit/s
    latency: float = 1e-4
    rate: float = 5e4


@dataclass(frozen=True)
class Costs:
    """Costs of one process: bytes of its `table`, rows and bytes `sent` per step, `seconds` per step and per `epoch`.

    `edges` are bytes of a file of which all processes of a machine map the same pages.
    """

    table: float
    edges: float
    rows: float
    sent: float
    seconds: float
    epoch: float


def costs(job: Job, machines: Machines) -> Costs:
    """The costs of one process of the job.

    >>> found = costs(Job(entities=100_000_000, width=200, edges=300_000_000, batch=65536), Machines(16))
    >>> f"{found.table / 1e9:.0f} GB of rows, {found.edges / 1e9:.0f} GB of edges, {found.sent / 1e6:.0f} MB per step"
    '15 GB of rows, 5 GB of edges, 14 MB per step'

    By hand: 25 heads, 25 tails and a pool of 20, three quarters of which lie elsewhere.

    >>> job = Job(entities=10**12, width=50, edges=1000, relations=10, batch=100, pool=20, moments=2, kept=0)
    >>> found = costs(job, Machines(4, bandwidth=1e6, latency=0.5, rate=10.0))
    >>> round(found.rows), round(found.sent), round(0.75 * (70 * (2 * 200 + 8 + 9) + 2 * 10 * 200))
    (70, 24892, 24892)
    >>> round(found.table) == 10**12 // 4 * 50 * 4 * 3, round(found.seconds, 2), round(found.epoch, 1)
    (True, 7.52, 75.2)
    >>> costs(Job(1000, 8, 1000), Machines(1)).sent
    0.0
    >>> round(costs(Job(10**12, 50, 1000, batch=100, pool=0, own=30), Machines(2)).rows) == 50 * 32
    True
    """
    share = job.batch / machines.processes
    drawn = 2 * share + job.pool + job.own * share
    rows = expected_distinct(drawn, job.entities)
    away = (machines.processes - 1) / machines.processes
    each = 2 * job.width * FLOAT + ID + (ID + 1 if job.counted else 0)
    summed = 2 * min(job.relations, job.batch) * job.width * FLOAT
    sent = away * (rows * each + summed)
    table = job.entities / machines.processes * job.width * FLOAT * (1 + job.moments + job.kept)
    waiting = ROUNDS * machines.latency if machines.processes > 1 else 0.0
    seconds = share / machines.rate + sent / machines.bandwidth + waiting
    return Costs(table, job.edges * EDGE, rows, sent, seconds, job.edges / job.batch * seconds)


def refused(job: Job) -> bool:
    """Whether a graph has too many entities and relations: a triple is looked up as one key of 63 bits.

    >>> refused(Job(10**8, 200, 10**9, relations=900)), refused(Job(10**9, 200, 10**9, relations=10))
    (False, True)
    """
    return job.entities**2 * job.relations >= 2**63


def expected_distinct(drawn: float, among: int) -> float:
    """How many distinct numbers `drawn` uniform draws among so many hit.

    >>> round(expected_distinct(10, 10), 2), round(expected_distinct(1000, 10**9), 2)
    (6.51, 1000.0)
    """
    return -among * math.expm1(drawn * math.log1p(-1 / among)) if among > 1 else float(min(drawn, 1))
