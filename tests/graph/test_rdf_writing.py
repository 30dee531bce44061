"""Writing RDF: what an independent parser finds in it, and that every name and digit comes back."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.graph import from_columns, read
from focuse.graph.columns import Columns
from focuse.graph.rdf_writing import Triples, lines_of

pyoxigraph = pytest.importorskip("pyoxigraph")
NAMES = st.text(min_size=1, max_size=8) | st.sampled_from(
    [
        "<>",
        '"',
        "a b",
        "\n",
        "\t",
        "\\",
        "http://e/a",
        "urn:focuse:x",
        "_:b",
        "_:edge0",
        "%20",
        "ü",
        "\u2028",
        "𝔘",
        "\x00",
    ]
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
ROWS = st.lists(st.tuples(NAMES, NAMES, NAMES, NUMBERS), min_size=1, max_size=6)
SUFFIXES = (".nt", ".nq", ".ttl", ".trig", ".nt.gz", ".ttl.zst")


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(rows=ROWS, base=st.sampled_from(["urn:focuse:", "https://example.org/"]))
@example(rows=[("a", "r", "b", 0.1), ("a", "r", "b", 0.1), ("_:edge1", "_:r", "_:x", 1 / 3)], base="urn:focuse:")
@settings(max_examples=25)
def test_names_and_weights_come_back(suffix: str, rows, base: str) -> None:
    graph = read(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"graph{suffix}"
        graph.write(path, base)
        back = read(path, base=base)
    assert back.to_arrow().to_pydict() == graph.to_arrow().to_pydict()
    assert back.entities == graph.entities


@given(
    st.lists(
        st.tuples(NAMES, NAMES, NAMES, st.none() | NUMBERS, NUMBERS),
        min_size=1,
        max_size=6,
        unique_by=lambda row: row[:3],
    ),
    st.sampled_from((".nt", ".ttl")),
)
@settings(max_examples=25)
def test_several_weights_come_back(rows, suffix: str) -> None:
    head, relation, tail, first, second = map(list, zip(*rows, strict=True))
    values = np.array([[np.nan if one is None else one, two] for one, two in zip(first, second, strict=True)])
    graph = from_columns(head, relation, tail, None, "g", Columns(("how sure", "http://e/year"), values))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"graph{suffix}"
        graph.write(path)
        back = read(path)
    if back.columns is None:  # the first column has no number at all, so nobody knows of it
        assert np.isnan(values[:, 0]).all()
        np.testing.assert_array_equal(back.weight, values[:, 1])
        return
    found = dict(zip(back.columns.names, back.columns.values.T, strict=True))
    np.testing.assert_array_equal(found["how sure"], values[:, 0])
    np.testing.assert_array_equal(found["year"], values[:, 1])
    assert back.to_arrow().select(["head", "relation", "tail"]) == graph.to_arrow().select(["head", "relation", "tail"])


def parsed(triples: Triples, suffix: str) -> set[str]:
    text = b"".join(bytes(piece) for piece in lines_of(triples, suffix))
    kind = {".nt": "N_TRIPLES", ".ttl": "TURTLE"}[suffix]
    quads = list(pyoxigraph.parse(text, getattr(pyoxigraph.RdfFormat, kind)))
    nodes = {quad.subject: quad.object for quad in quads if quad.predicate.value.endswith("reifies")}
    return {
        f"[{nodes.get(quad.subject, quad.subject)}] {quad.predicate} {quad.object}"
        for quad in quads
        if not quad.predicate.value.endswith("reifies")
    } | ({f"spoken of: {node}" for node in nodes.values()})


@pytest.mark.parametrize("suffix", [".nt", ".ttl"])
@pytest.mark.parametrize("asserted", [True, False])
def test_another_parser_finds_each_statement(suffix: str, asserted: bool) -> None:
    notes = {
        "weight": pa.array([0.1, None, float("nan")]),
        "rank": pa.array([1, None, 3]),
        "known": pa.array([True, None, False]),
        "says": pa.array(['a "quote"\\\n', None, "x"]),
    }
    ends = pa.array([0, 1, 0]), pa.array([0, 0, 0]), pa.array([1, 2, 2])
    triples = Triples(*ends, pa.array(["a", "b", "c"]), pa.array(["r"]), notes, asserted)
    xsd = "http://www.w3.org/2001/XMLSchema#"
    ab, bc, ac = (f"<urn:focuse:{x}> <urn:focuse:r> <urn:focuse:{y}>" for x, y in ("ab", "bc", "ac"))
    expected = {
        f"spoken of: {ab}",
        f"spoken of: {ac}",
        f'[{ab}] <urn:focuse:weight> "0.1"^^<{xsd}double>',
        f'[{ab}] <urn:focuse:rank> "1"^^<{xsd}integer>',
        f'[{ab}] <urn:focuse:known> "true"^^<{xsd}boolean>',
        f'[{ab}] <urn:focuse:says> "a \\"quote\\"\\\\\\n"',
        f'[{ac}] <urn:focuse:rank> "3"^^<{xsd}integer>',
        f'[{ac}] <urn:focuse:known> "false"^^<{xsd}boolean>',
        f'[{ac}] <urn:focuse:says> "x"',
    }
    if asserted:
        expected |= {f"[<urn:focuse:{x}>] <urn:focuse:r> <urn:focuse:{y}>" for x, y in ("ab", "bc", "ac")}
    else:
        expected.add(f"spoken of: {bc}")
    assert parsed(triples, suffix) == expected


def test_many_edges_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("focuse.graph.rdf_writing.CHUNK_ROWS", 100)
    count = 1_050
    graph = from_columns(
        [f"a{i % 999}" for i in range(count)], ["r"] * count, [f"b{i}" for i in range(count)], np.arange(count) / 7
    )
    graph.write(tmp_path / "x.nt")
    assert read(tmp_path / "x.nt").to_arrow().equals(graph.to_arrow())


def test_a_graph_without_weights_has_no_notes(tmp_path: Path) -> None:
    read([("a", "r", "b")]).write(tmp_path / "x.nt")
    assert (tmp_path / "x.nt").read_text(encoding="utf-8") == "<urn:focuse:a> <urn:focuse:r> <urn:focuse:b> .\n"
    assert not read(tmp_path / "x.nt").weighted


def test_a_base_that_is_none_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match="not the beginning of an IRI"):
        read([("a", "r", "b")]).write(tmp_path / "x.nt", "no base")
    assert list(tmp_path.iterdir()) == []
