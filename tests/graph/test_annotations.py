"""The joins behind RDF's notes, against loops over dictionaries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from focuse.graph.annotations import Options, Rows, to_graph

TERMS = [f"http://e/{i}" for i in range(9)]
NODE, PROPERTY, REIFIER = st.integers(0, 2), st.integers(3, 4), st.integers(5, 8)
TRIPLE = st.tuples(NODE, NODE, NODE)


def columns(rows: list[tuple[int, ...]], width: int) -> tuple[np.ndarray, ...]:
    return tuple(np.array([row[place] for row in rows], np.int32) for place in range(width))


def slowly(facts, reified, numbers) -> list[tuple]:
    """One edge a reifier and repetition of a property, then facts that none speaks of, in order of their places."""
    edges, noted = [], set()
    properties = sorted({p for n, p, _ in numbers if any(n == r for r, *_ in reified)})
    for place, (node, *triple) in enumerate(reified):
        own = {p: [v for n, q, v in numbers if n == node and q == p] for p in properties}
        for turn in range(max(map(len, own.values()), default=0)):
            values = [own[p][turn] if turn < len(own[p]) else None for p in properties]
            edges.append([tuple(triple), values, len(facts) + place])
            noted.add(tuple(triple))
    for triple in noted:  # RDF-star: one number each, of other properties
        same = [edge for edge in edges if edge[0] == triple]
        single = all(sum(v is not None for v in edge[1]) == 1 for edge in same)
        apart = all(sum(edge[1][c] is not None for edge in same) <= 1 for c in range(len(properties)))
        if len(same) > 1 and single and apart:
            same[0][1] = [next((e[1][c] for e in same if e[1][c] is not None), None) for c in range(len(properties))]
            edges = [edge for edge in edges if edge[0] != triple or edge is same[0]]
    for place, fact in enumerate(facts):
        if fact not in noted and fact not in facts[:place]:
            edges.append([fact, [None] * len(properties), place])
    return [(triple, values) for triple, values, _ in sorted(edges, key=lambda edge: edge[2])]


@given(
    st.lists(TRIPLE, max_size=8),
    st.lists(st.tuples(REIFIER, NODE, NODE, NODE), max_size=8, unique=True),
    st.lists(st.tuples(REIFIER, PROPERTY, st.floats(-9, 9)), max_size=10),
)
def test_edges_are_those_of_a_slow_loop(facts, reified, numbers) -> None:
    expected = slowly(facts, reified, numbers)
    rows = Rows(
        pa.array(TERMS),
        columns(facts, 3),
        columns(reified, 4),
        np.arange(len(facts) + len(reified)),
        columns(numbers, 2),
        np.array([value for *_, value in numbers], np.float64),
        len(numbers),
    )
    graph = to_graph(rows, Options(missing=0.125), "here")
    width = len(expected[0][1]) if expected else 0
    filled = [
        (triple, values if any(v is not None for v in values) else [0.125] * width) for triple, values in expected
    ]
    found = graph.to_arrow().to_pylist()
    names = [tuple(row.pop(key) for key in ("head", "relation", "tail")) for row in found]
    assert names == [tuple(TERMS[i] for i in triple) for triple, _ in filled]
    if width == 0:
        assert not graph.weighted
    elif width == 1:
        assert [row["weight"] for row in found] == [values[0] for _, values in filled]
    else:  # columns stand in order of appearance
        assert [[row["3"], row["4"]] for row in found] == [values for _, values in filled]
    assert [graph.entities[i] for i in range(len(graph.entities))] == list(
        dict.fromkeys([head for head, *_ in names] + [tail for *_, tail in names])
    )
