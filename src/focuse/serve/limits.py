"""What one request may ask for. Every limit is documented in docs/explorer.md and answered with 413, 422 or 503."""

from __future__ import annotations

BODY = 256 * 1024  # bytes of a request's body
NAME = 1000  # characters of a name that is asked for
SEARCH = 200  # characters of a search
SUGGESTIONS = 50  # names that a search gives
TOP = 200  # completions of one question
EDGES = 300  # edges of a neighbourhood
DEPTH = 2  # steps of a neighbourhood
BATCH = 100  # questions in one request
TRIPLES = 1000  # triples to weigh in one request
FACTS = 500  # facts of an entity in one page; an export has all
WAITING = 32  # questions that wait for the model; more are turned away
SECONDS = 60.0  # that a question may wait and be worked on
METRICS_WORK = 2e8  # scores that ranking the test split may take before figures count as dear
