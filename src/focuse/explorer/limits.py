"""What one request may ask for, and what a server takes at once.

Every limit is documented in docs/explorer.md and answered with 408, 413, 414, 422, 429, 431 or 503.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from focuse.errors import FocuseError

ADDRESS = 40 * 1024  # bytes of an address with its query: three names of a thousand letters
HEADERS = 64 * 1024  # bytes of a request before its body
DISCARDED = 4 * 1024 * 1024  # bytes of a body too large that are read on, so that its sender hears the answer
UNTAKEN = 256 * 1024  # bytes of an answer that the system keeps for a client that does not take it
NAME = 1000  # characters of a name that is asked for
SEARCH = 200  # characters of a search
SUGGESTIONS = 50  # names that a search gives
TOP = 200  # completions of one question
EDGES = 300  # edges of a neighbourhood
DEPTH = 2  # steps of a neighbourhood
BATCH = 100  # questions in one request
LINKS = 5000  # completions of all questions of a request together
TRIPLES = 1000  # triples to weigh in one request
FEW = 50  # triples that are weighed quickly
FACTS = 500  # facts of an entity in one page; an export has all
DEAR = 8  # dear questions (missing, explain, batch) of a client that wait; they have a queue of their own
ALL_CLIENTS = 2  # times as many questions of all clients together may wait as of one
READERS, READING = 4, 64  # threads for names and facts of large graphs, and how many may wait for them
SMALL_NAMES, SMALL_FACTS = 2_000, 200_000  # up to which they are looked up at once, without a thread
CLIENTS = 10_000  # addresses whose rate is remembered
KEEP_ALIVE = 5  # seconds that a connection stays open without a request
METRICS_WORK = 2e8  # scores that ranking the test split may take before figures count as dear


@dataclass(frozen=True)
class Limits:
    """What the command's options set."""

    waiting: int = 32  # questions of one client that wait for the model; more are turned away
    seconds: float = 60.0  # that a question may wait and be worked on
    connections: int = 1000  # open at once
    patience: float = 10.0  # seconds for a request to arrive, and for an answer to be taken
    body: int = 256 * 1024  # bytes of a request's body
    rate: float = 0.0  # requests a second of one client; 0 does not count them

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            least = 0 if one.name == "rate" else 1 if isinstance(one.default, int) else 0.1
            if not math.isfinite(value) or value < least:
                raise FocuseError(f"{OPTIONS[one.name]} {value}: give {least} or more")


OPTIONS = {
    "waiting": "--waiting",
    "seconds": "--timeout",
    "connections": "--connections",
    "patience": "--patience",
    "body": "--max-body",
    "rate": "--rate",
}
