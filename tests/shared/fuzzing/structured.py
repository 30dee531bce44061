"""Hypothesis: valid files with edits, and graphs with hostile names written and read again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import strategies as st

from focuse.data.readers import read
from focuse.errors import FocuseError
from fuzzing.guard import WrongError
from fuzzing.mutating import LONGEST, NUMBERS, TOKENS
from fuzzing.text import compare, rows_of

ODD = [
    *("=1+1", "+x", "-x", "@x", "\tx", "\rx", "a\tb", "a\nb", "a\r\nb", '"', '""', 'a"b', "'", "\\", "\\n", "a;b"),
    *("nan", "NaN", "inf", "-inf", "null", "None", "true", "1", "1e5", "0x10", "\ufeffa", "\u202ea", "\u200b", "\x00"),
    *("head", "relation", "tail", "weight", "<script>", "&amp;", "../x", "CON", "a b", " a", "a ", "\u2028", "%41"),
    *("http://e.org/a", "urn:focuse:x", "_:b", "e:r", "\U0001f600", "é", "é", "\x1b[2J", "#a"),
]  # fmt: skip
SUFFIXES = (".tsv", ".csv", ".parquet", ".tsv.gz", ".csv.zst", ".nt", ".nq", ".ttl", ".trig", ".graphml", ".ttl.gz")
names = st.one_of(
    st.sampled_from(ODD), st.text(min_size=1, max_size=6), st.text("ab,\t\n\r\"'; ", min_size=1, max_size=5)
)
weights = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**53), 2**53).map(float), st.just(-0.0)
)
graphs = st.lists(st.tuples(names, names, names, weights), min_size=1, max_size=6)
edits = st.tuples(
    st.integers(0, LONGEST),
    st.integers(0, 12),
    st.one_of(st.sampled_from([*TOKENS, *NUMBERS]), st.binary(max_size=6), st.just(b"")),
)


@st.composite
def edited(draw: Any, seeds: Sequence[bytes]) -> bytes:
    """A seed with some bytes in it replaced."""
    data: bytes = draw(st.sampled_from(seeds))
    for at, cut, new in draw(st.lists(edits, min_size=1, max_size=5)):
        spot = at % (len(data) + 1)
        data = data[:spot] + new + data[spot + cut :]
    return data[:LONGEST]


def round_trip(rows: list[tuple[str, str, str, float]], suffix: str, folder: Path) -> None:
    """A graph that can be written reads back as it was; one that cannot is refused with one line."""
    graph = read(rows)
    path = folder / f"round{suffix}"
    graph.write(path)
    try:
        again = read(path)
    except FocuseError as error:
        raise WrongError(f"{suffix} was written and cannot be read: {error}") from None
    if suffix.split(".")[1] in ("nt", "nq", "ttl", "trig"):  # sets of triples: repeated rows are one, their order free
        if {row[:3] for row in rows_of(again)} != {row[:3] for row in rows}:
            raise WrongError(f"{suffix}: other triples than were written")
        if {row[3] for row in rows_of(again)} - {row[3] for row in rows}:
            raise WrongError(f"{suffix}: other weights than were written")
    else:
        compare(rows_of(again), rows)


def run(target: str, seeds: Sequence[bytes], take: Callable[[bytes], None], cases: int, seed: int) -> None:
    """So many cases of a target; `take` counts them."""
    cases_of = edited(seeds)

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=cases,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(cases_of)
    def test(data: bytes) -> None:
        take(data)

    test()


def graphs_target(folder: Path) -> tuple[Callable[[bytes], object], list[bytes]]:
    """Round trips as a target of bytes: hypothesis decodes a case to a graph, so that every driver can have it."""
    suffixes = st.sampled_from(SUFFIXES)

    @hypothesis.settings(database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(graphs, suffixes)
    def test(rows: list[tuple[str, str, str, float]], suffix: str) -> None:
        round_trip(rows, suffix, folder)

    decode = test.hypothesis.fuzz_one_input

    def call(data: bytes) -> None:
        if decode(data) is None:
            raise FocuseError("bytes that make no graph")

    return call, [bytes(range(place, place + 200)) for place in range(0, 50, 10)] + [bytes(400), b"\x01\xff" * 300]
