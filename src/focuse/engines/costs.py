"""What a sharded training costs: memory, bytes over the network and time, told before it is started.

benchmarks/scaling.py holds these numbers against measured ones; docs/distributed.md plans with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

FLOAT, ID = 4, 8
# An edge in the file that the processes of a machine share: head, relation and tail of 4 bytes, and its weight.
EDGE = 16
# Rounds of a step that wait for the network: ids with their counts, rows, gradients, who counts a row, sums, wishes.
ROUNDS = 10


@dataclass(frozen=True)
class Job:
    """A training: `entities` with rows of `width` numbers, `edges`, `relations` with rows as wide.

    `pool` entities are shared by a batch, or `own` are each positive's. `moments` numbers an optimiser keeps for each
    (row-adagrad 1, row-adam 2); `kept` copies of the table stand for the best weights so far (0 without validation).
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
    counted: bool = True  # a penalty of touched rows asks who counts them


@dataclass(frozen=True)
class Machines:
    """`processes` that each send `bandwidth` bytes a second, wait `latency` seconds, and do `rate` triples a second."""

    processes: int
    bandwidth: float = 1.25e9  # 10 Gbit/s
    latency: float = 1e-4
    rate: float = 5e4


@dataclass(frozen=True)
class Costs:
    """Of one process: bytes of its `table`, rows it asks for and bytes it sends a step, seconds a step and an epoch.

    `edges` are bytes of a file of which all processes of a machine map the same pages; none holds them for itself.
    """

    table: float
    edges: float
    rows: float
    sent: float
    seconds: float
    epoch: float


def costs(job: Job, machines: Machines) -> Costs:
    """What a process of the job needs.

    >>> found = costs(Job(entities=100_000_000, width=200, edges=300_000_000, batch=65536), Machines(16))
    >>> f"{found.table / 1e9:.0f} GB of rows, {found.edges / 1e9:.0f} GB of edges, {found.sent / 1e6:.0f} MB a step"
    '15 GB of rows, 5 GB of edges, 14 MB a step'
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
    """Whether a graph has too many entities and relations: a triple is one number of 63 bits wherever it is looked up.

    >>> refused(Job(10**8, 200, 10**9, relations=900)), refused(Job(10**9, 200, 10**9, relations=10))
    (False, True)
    """
    return job.entities**2 * job.relations >= 2**63


def expected_distinct(drawn: float, among: int) -> float:
    """How many different ones `drawn` uniform draws hit.

    >>> round(expected_distinct(10, 10), 2), round(expected_distinct(1000, 10**9), 2)
    (6.51, 1000.0)
    """
    return -among * math.expm1(drawn * math.log1p(-1 / among)) if among > 1 else float(min(drawn, 1))
