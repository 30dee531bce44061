"""RDF: triples with annotated weights are read and written, and faulty files reported."""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import focuse
from focuse.data.graph import BASE_IRI, WeightColumns, from_columns
from focuse.data.readers import ReadOptions, read
from focuse.errors import FocuseError
from focuse.integrations.rdf import (
    RdfStatements,
    check_base,
    column_names,
    from_iri,
    graph_from_statements,
    is_iri,
    link_pieces,
    names_from_terms,
    to_iri,
    to_terms,
)

pytest.importorskip("pyoxigraph")


PREFIXES = """@prefix : <http://e/> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
"""


@pytest.fixture
def turtle(tmp_path: Path):
    """`turtle(text, …)`: the graph of a Turtle file; names without their common beginning."""

    def make(text: str, **options: Any) -> list[tuple[Any, ...]]:
        path = tmp_path / "graph.ttl"
        path.write_text(PREFIXES + text, encoding="utf-8")
        make.graph = read(path, **options)  # type: ignore[attr-defined]
        rows = make.graph.to_arrow().to_pylist()  # type: ignore[attr-defined]
        return [tuple(v.removeprefix("http://e/") if isinstance(v, str) else v for v in row.values()) for row in rows]

    return make


SAME = {
    "RDF-star": "<<:a :p :b>> :weight 0.25 . <<:b :p :c>> :weight 1e-2 .",
    "RDF-star, stated too": ":a :p :b . :b :p :c . <<:a :p :b>> :weight 0.25 . <<:b :p :c>> :weight 1e-2 .",
    "RDF 1.2 notes": ":a :p :b {| :weight 0.25 |} . :b :p :c {| :weight 0.01 |} .",
    "RDF 1.2 reifiers": """:a :p :b . :b :p :c .
        _:x rdf:reifies <<( :a :p :b )>> ; :weight "0.25"^^<http://www.w3.org/2001/XMLSchema#float> .
        :y rdf:reifies <<( :b :p :c )>> . :y :weight 0.01 .""",
    "named reifiers": ":a :p :b ~ :one {| :weight 0.25 |} . :b :p :c ~ :two {| :weight 0.01 |} .",
    "numbers before what they are of": "_:x :weight 0.25 . _:y :weight 0.01 . _:x rdf:reifies <<( :a :p :b )>> ."
    "_:y rdf:reifies <<( :b :p :c )>> .",
    "rdf:Statement": """[] a rdf:Statement ; rdf:subject :a ; rdf:predicate :p ; rdf:object :b ; :weight 0.25 .
        [] rdf:object :c ; rdf:predicate :p ; rdf:subject :b ; :weight 0.01 ; a rdf:Statement .""",
    "rdf:Statement, stated too": """:a :p :b . :b :p :c .
        :s rdf:subject :a ; rdf:predicate :p ; rdf:object :b ; :weight 0.25 .
        _:t rdf:object :c ; rdf:predicate :p ; rdf:subject :b ; :weight 0.01 .""",
}


@pytest.mark.parametrize("text", SAME.values(), ids=SAME.keys())
def test_weights_are_read_from_every_form_of_annotation(turtle, text: str) -> None:
    assert turtle(text) == [("a", "p", "b", 0.25), ("b", "p", "c", 0.01)]
    assert turtle.graph.weighted
    assert turtle.graph.notes == ()


def test_triples_without_annotations_give_a_graph_without_weights(turtle) -> None:
    assert turtle(":a :p :b , :c . :a :p :b .") == [("a", "p", "b", 1.0), ("a", "p", "c", 1.0)]
    assert not turtle.graph.weighted


def test_several_properties_are_several_columns(turtle) -> None:
    text = ":a :p :b {| :sure 0.9 ; :year 1999 |} . :b :p :c {| :sure 0.1 |} ."
    assert turtle(text) == [("a", "p", "b", 0.9, 1999.0), ("b", "p", "c", 0.1, None)]
    assert turtle.graph.columns.names == ("sure", "year")
    assert turtle(text, weight_columns=["year", "http://e/sure"]) == [
        ("a", "p", "b", 1999.0, 0.9),
        ("b", "p", "c", None, 0.1),
    ]
    assert turtle(text, weight_columns=["sure"]) == [("a", "p", "b", 0.9), ("b", "p", "c", 0.1)]


def test_annotations_of_one_triple_by_several_nodes(turtle) -> None:
    # RDF-star: the same triple is quoted twice to say two things of it.
    assert turtle("<<:a :p :b>> :sure 0.9 . <<:a :p :b>> :year 3 .") == [("a", "p", "b", 0.9, 3.0)]
    # Two that say the same thing differently are two edges, each with what it says.
    both = ":a :p :b {| :sure 0.9 ; :year 1 |} {| :sure 0.5 |} ."
    assert turtle(both) == [("a", "p", "b", 0.9, 1.0), ("a", "p", "b", 0.5, None)]
    assert turtle(":a :p :b {| :sure 0.9, 0.5 |} .") == [("a", "p", "b", 0.9), ("a", "p", "b", 0.5)]
    one = "_:x rdf:reifies <<( :a :p :b )>> , <<( :b :p :c )>> ; :sure 0.5 ."
    assert turtle(one) == [("a", "p", "b", 0.5), ("b", "p", "c", 0.5)]


def test_triples_without_a_weight_among_weighted_ones(turtle) -> None:
    text = ":a :p :b {| :w 0.5 |} . :b :p :c . :c a :Thing ."
    with pytest.raises(
        FocuseError, match=r"2 of 3 triples have no weight, such as \(http://e/b http://e/p http://e/c\)"
    ):
        turtle(text)
    assert turtle(text, missing_weight="drop") == [("a", "p", "b", 0.5)]
    assert turtle.graph.notes[-1].endswith("2 triples without a weight left out")
    assert [row[3] for row in turtle(text, missing_weight=1)] == [0.5, 1.0, 1.0]
    with pytest.raises(FocuseError, match="missing_weight 'some': give a number"):
        turtle(text, missing_weight="some")


def test_statements_that_are_no_edges_are_counted(turtle) -> None:
    text = """:a :p :b {| :w 0.5 ; :source :paper ; :comment "fine" |} . :a :label "A"@en ; :age 7 .
        _:q rdf:reifies <<( :x :p :y )>> . :bob :says <<( :a :p :b )>> ."""
    assert turtle(text) == [("a", "p", "b", 0.5)]
    told = [note.partition(": ")[2] for note in turtle.graph.notes]
    assert [note.partition(" ")[0] for note in told] == ["3", "1", "2"]
    assert "with a literal" in told[0]
    assert "about statements" in told[1]
    assert "quoted" in told[2]


def test_literals_can_be_entities(turtle) -> None:
    rows = turtle(':a :p :b ; :label "A"@en ; :age 7 .', literals="keep")
    xsd = '"7"^^<http://www.w3.org/2001/XMLSchema#integer>'
    assert rows == [("a", "p", "b", 1.0), ("a", "label", '"A"@en', 1.0), ("a", "age", xsd, 1.0)]
    with pytest.raises(FocuseError, match="unknown value of literals 'numbers'"):
        turtle(":a :p :b .", literals="numbers")


def test_nodes_without_a_label_have_the_same_names_every_time(turtle) -> None:
    text = ":a :p [ :q :c ] . [] :q _:own ."
    first = turtle(text)
    assert first == turtle(text)
    assert {"_:unlabeled1", "_:unlabeled2", "_:own"} <= set(turtle.graph.entities)


def test_text_is_a_number_only_if_the_user_names_the_property(turtle) -> None:
    assert turtle(':a :p :b {| :w "0.5" |} .') == [("a", "p", "b", 1.0)]
    assert turtle(':a :p :b {| :w "0.5" |} .', weight_columns=["w"]) == [("a", "p", "b", 0.5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (":a :p :b .\n:a :p bad .", "line 4: bad is not a valid RDF object"),
        (":a :p <b> .", "line 3: a relative IRI"),
        (":a :p :b {| :w 1e999 |} .", r"http://e/w of \(http://e/a http://e/p http://e/b\) is not finite"),
        (':a :p :b {| :w "x"^^<http://www.w3.org/2001/XMLSchema#double> |} .', "is not finite"),
        (':a :label "x" .', "no edges"),
    ],
)
def test_faulty_files_are_reported_in_one_line(turtle, text: str, message: str) -> None:
    with pytest.raises(FocuseError, match=rf"graph\.ttl.*{message}"):
        turtle(text)


def test_unknown_and_ambiguous_properties(turtle) -> None:
    text = ":a :p :b {| :sure 0.9 ; <http://f/sure> 1 |} ."
    with pytest.raises(
        FocuseError, match=r"no property 'sre' \(did you mean sure\?\); numbers on triples are http://e"
    ):
        turtle(text, weight_columns=["sre"])
    with pytest.raises(FocuseError, match="several properties are called 'sure'"):
        turtle(text, weight_columns=["sure"])
    with pytest.raises(FocuseError, match="name one property twice"):
        turtle(text, weight_columns=["http://e/sure", "http://e/sure"])
    with pytest.raises(FocuseError, match="it has no columns"):
        turtle(text, columns=[1, 2, 3])


TRIPLE = "<http://e/a> <http://e/p> <http://e/b>"


HALF = '<http://e/w> "0.5"^^<http://www.w3.org/2001/XMLSchema#double> .\n'


REIFIES = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#reifies>"


FORMS = {
    "nt": f"{TRIPLE} .\n_:x {REIFIES} <<( {TRIPLE} )>> .\n_:x {HALF}",
    "star.nt": f"<< {TRIPLE} >> {HALF}",
    "nq": f"{TRIPLE} <http://g/1> .\n{TRIPLE} <http://g/2> .\n",
    "trig": "@prefix : <http://e/> . :g { :a :p :b {| :w 0.5 |} . }",
    "n3": "@prefix : <http://e/> . :a :p :b .",
    "rdf": """<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">
        <rdf:Description rdf:about="http://e/a"><e:p rdf:resource="http://e/b"/></rdf:Description>
        <rdf:Statement><rdf:subject rdf:resource="http://e/a"/><rdf:predicate rdf:resource="http://e/p"/>
        <rdf:object rdf:resource="http://e/b"/>
        <e:w rdf:datatype="http://www.w3.org/2001/XMLSchema#double">0.5</e:w></rdf:Statement></rdf:RDF>""",
    "jsonld": '{"@id": "http://e/a", "http://e/p": {"@id": "http://e/b"}}',
}  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("suffix", FORMS)
def test_every_format_plain_and_compressed(suffix: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / f"graph.{suffix}{'.gz' if packed else ''}"
    data = FORMS[suffix].encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    weight = 0.5 if b"w>" in data or b":w" in data else 1.0
    row = {"head": "http://e/a", "relation": "http://e/p", "tail": "http://e/b", "weight": weight}
    assert read(path).to_arrow().to_pylist() == [row]


def test_faults_of_other_formats_name_the_line(tmp_path: Path) -> None:
    for name, text, message in (
        ("x.nt", "<a:b> <a:b> <a:b> .\n<a:b> <a:b> .\n", "line 2: "),
        (
            "x.rdf",
            "<rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'>\n<a>\n</rdf:RDF>",
            "line 3: not XML",
        ),
        ("x.rdf", "<html/>", "x.rdf: "),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(FocuseError, match=message):
            read(tmp_path / name)
    (tmp_path / "x.ttl.gz").write_bytes(gzip.compress(b"<a:b> <a:b> <a:b> ." * 9999)[:-20])
    with pytest.raises(FocuseError, match=r"x\.ttl\.gz: "):
        read(tmp_path / "x.ttl.gz")
    with pytest.raises(FocuseError, match="No such file"):
        read(tmp_path / "absent.ttl")


def test_xml_entity_bombs_are_refused(tmp_path: Path) -> None:
    xml = (
        '<!DOCTYPE x [<!ENTITY e "http://e/"> {}]>'
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/">'
        '<rdf:Description rdf:about="&e;a"><e:p rdf:resource="&e;b"/></rdf:Description></rdf:RDF>'
    )
    path = tmp_path / "graph.rdf"
    path.write_text(xml.format(""), encoding="utf-8")
    assert read(path).entities.column.to_pylist() == ["http://e/a", "http://e/b"]
    for declared in ('<!ENTITY f "&e;&e;&e;">', f'<!ENTITY f "{"x" * 2000}">', "<!ENTITY % f 'x'>"):
        path.write_text(xml.format(declared), encoding="utf-8")
        with pytest.raises(FocuseError, match=r"graph\.rdf: the XML entity 'f' stands for too much"):
            read(path)


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".ttl", "<http://e/a> <http://e/p> <http://e/b> ."),
        (".nt", "<http://e/a> <http://e/p> <http://e/b> ."),
        (".jsonld", '{"@id": "http://e/a", "http://e/p": {"@id": "http://e/b"}}'),
    ],
)
def test_a_byte_order_mark_is_skipped(suffix: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / f"graph{suffix}"
    path.write_text(text, encoding="utf-8-sig")
    assert read(path).entities.column.to_pylist() == ["http://e/a", "http://e/b"]


def test_missing_pyoxigraph_names_the_extra_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.nt").write_text("<a:b> <a:b> <a:b> .\n", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    with pytest.raises(FocuseError, match=r"pip install .*'\.\[rdf\]'"):
        read(tmp_path / "x.nt")


def test_numbers_may_stand_before_what_they_are_of(tmp_path: Path) -> None:
    rows = [(f"a{i % 13}", f"r{i % 2}", f"b{i}", i / 7) for i in range(100)]
    lines = [
        f'_:x{i} <http://e/w> "{w}"^^<http://www.w3.org/2001/XMLSchema#double> .' for i, (*_, w) in enumerate(rows)
    ]
    lines += [
        f"_:x{i} {REIFIES} <<( <urn:focuse:{h}> <urn:focuse:{r}> <urn:focuse:{t}> )>> ."
        for i, (h, r, t, _) in enumerate(rows)
    ]
    (tmp_path / "x.nt").write_text("\n".join(lines), encoding="utf-8")
    assert read(tmp_path / "x.nt").to_arrow().equals(read(rows).to_arrow())


def test_training_notes_skipped_statements(tmp_path: Path, listen) -> None:
    rows = "".join(f"<http://e/{i}> <http://e/p> <http://e/{i * 7 % 12}> .\n" for i in range(12))
    (tmp_path / "x.nt").write_text(rows + '<http://e/1> <http://e/label> "one" .\n', encoding="utf-8")
    heard = listen()
    focuse.train(tmp_path / "x.nt", epochs=1, dim=2, valid_fraction=0, test_fraction=0)
    assert any("1 statements with a literal" in note for note in heard.notes)


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
def test_names_and_weights_are_read_back(suffix: str, rows, base: str) -> None:
    graph = read(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"graph{suffix}"
        graph.write(path, base)
        back = read(path, base_iri=base)
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
def test_several_weights_are_read_back(rows, suffix: str) -> None:
    head, relation, tail, first, second = map(list, zip(*rows, strict=True))
    values = np.array([[np.nan if one is None else one, two] for one, two in zip(first, second, strict=True)])
    graph = from_columns(head, relation, tail, None, "g", WeightColumns(("how sure", "http://e/year"), values))
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


def parsed(links: pa.Table, suffix: str) -> set[str]:
    text = b"".join(bytes(piece) for piece in link_pieces(links, suffix, BASE_IRI))
    kind = {".nt": "N_TRIPLES", ".ttl": "TURTLE"}[suffix]
    quads = list(pyoxigraph.parse(text, getattr(pyoxigraph.RdfFormat, kind)))
    nodes = {quad.subject: quad.object for quad in quads if quad.predicate.value.endswith("reifies")}
    return {
        f"[{nodes.get(quad.subject, quad.subject)}] {quad.predicate} {quad.object}"
        for quad in quads
        if not quad.predicate.value.endswith("reifies")
    } | ({f"spoken of: {node}" for node in nodes.values()})


@pytest.mark.parametrize("suffix", [".nt", ".ttl"])
def test_an_independent_parser_finds_each_statement(suffix: str) -> None:
    notes = {
        "weight": pa.array([0.1, None, float("nan")]),
        "rank": pa.array([1, None, 3]),
        "known": pa.array([True, None, False]),
        "says": pa.array(['a "quote"\\\n', None, "x"]),
    }
    links = pa.table({"head": ["a", "b", "a"], "relation": ["r", "r", "r"], "tail": ["b", "c", "c"], **notes})
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
    expected.add(f"spoken of: {bc}")
    assert parsed(links, suffix) == expected
    assert parsed(links[:0], suffix) == set()


def test_many_edges_are_written_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("focuse.integrations.rdf.CHUNK_ROWS", 100)
    count = 1_050
    graph = from_columns(
        [f"a{i % 999}" for i in range(count)], ["r"] * count, [f"b{i}" for i in range(count)], np.arange(count) / 7
    )
    graph.write(tmp_path / "x.nt")
    assert read(tmp_path / "x.nt").to_arrow().equals(graph.to_arrow())


def test_a_graph_without_weights_has_no_annotations(tmp_path: Path) -> None:
    read([("a", "r", "b")]).write(tmp_path / "x.nt")
    assert (tmp_path / "x.nt").read_text(encoding="utf-8") == "<urn:focuse:a> <urn:focuse:r> <urn:focuse:b> .\n"
    assert not read(tmp_path / "x.nt").weighted


def test_an_invalid_base_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match="not the beginning of an IRI"):
        read([("a", "r", "b")]).write(tmp_path / "x.nt", "no base")
    assert list(tmp_path.iterdir()) == []


TERMS = [f"http://e/{i}" for i in range(9)]  # as the parser prints them, in brackets


NODE, PROPERTY, REIFIER = st.integers(0, 2), st.integers(3, 4), st.integers(5, 8)


ANNOTATIONS_TRIPLE = st.tuples(NODE, NODE, NODE)


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
    st.lists(ANNOTATIONS_TRIPLE, max_size=8),
    st.lists(st.tuples(REIFIER, NODE, NODE, NODE), max_size=8, unique=True),
    st.lists(st.tuples(REIFIER, PROPERTY, st.floats(-9, 9)), max_size=10),
)
def test_edges_agree_with_a_loop_over_dictionaries(facts, reified, numbers) -> None:
    expected = slowly(facts, reified, numbers)
    rows = RdfStatements(
        [f"<{term}>" for term in TERMS],
        np.array([*((-1, *fact) for fact in facts), *reified], np.int32).reshape(-1, 4),
        np.array([row[:2] for row in numbers], np.int32).reshape(-1, 2),
        np.array([value for *_, value in numbers], np.float64),
        len(numbers),
    )
    graph = graph_from_statements(rows, ReadOptions(missing_weight=0.125), "here")
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


IRIS_NAMES = st.text(min_size=1) | st.from_regex(r"[a-z]{1,4}:(//)?[a-zA-Z0-9:%/#?@é\[\]._-]{0,12}", fullmatch=True)


@given(IRIS_NAMES, st.sampled_from([BASE_IRI, "https://example.org/graph/"]))
@example("urn:focuse:a%20b", BASE_IRI)
@example("http://e:port/", BASE_IRI)
@example("a:%zz", BASE_IRI)
@example("a://[", BASE_IRI)
@example("x#y#z", BASE_IRI)
@example("a:b#c#d", BASE_IRI)
@example("_:x", BASE_IRI)
def test_every_name_comes_back_from_an_iri_that_a_strict_parser_takes(name: str, base: str) -> None:
    iri = to_iri(name, base)
    line = f"<{iri}> <{iri}> <{iri}> .".encode()
    (triple,) = pyoxigraph.parse(line, pyoxigraph.RdfFormat.N_TRIPLES)
    assert triple.subject.value == triple.predicate.value == triple.object.value == iri
    assert from_iri(triple.subject.value, base) == name


@given(st.lists(IRIS_NAMES, unique=True, max_size=8))
def test_distinct_names_have_distinct_iris(names: list[str]) -> None:
    assert len({to_iri(name) for name in names}) == len(names)


def test_iris_are_not_changed() -> None:
    for iri in ("http://example.org/a#b", "https://e.org:8080/x?y=z", "urn:isbn:0", "GO:0008150", "http://e/ä"):
        assert is_iri(iri)
        assert to_iri(iri) == iri
    for name in ("plain", "with space", "http://e/<", "1a:b", "", "a:", "x://"):
        assert not is_iri(name)


def test_blank_nodes_stay_blank_but_not_as_relations() -> None:
    names = pa.array(["_:b1", "_:not a label"])
    assert to_terms(names).to_pylist() == ["_:b1", "<urn:focuse:_%3Anot%20a%20label>"]
    assert to_terms(names, blank=False).to_pylist()[0] == "<urn:focuse:_%3Ab1>"


def test_shortened_names_must_stay_distinct() -> None:
    assert names_from_terms(["http://e/a", "http://e#b", "_:c"], shorten=True) == ["a", "b", "_:c"]
    with pytest.raises(FocuseError, match=r"f\.ttl: shortened, http://e/a and http://f/a would both be 'a'"):
        names_from_terms(["http://e/a", "http://f/a"], shorten=True, where="f.ttl")


def test_column_names_are_local_names_if_these_are_distinct() -> None:
    assert column_names(["http://e/weight", "http://e/year"]) == ["weight", "year"]
    assert column_names(["http://e/weight", "http://f/weight"]) == ["http://e/weight", "http://f/weight"]
    assert column_names(["http://e/head", "http://e/x"]) == ["http://e/head", "http://e/x"]
    assert column_names(["urn:focuse:two%20words"]) == ["two words"]


def test_a_base_is_the_beginning_of_an_iri() -> None:
    assert check_base("https://example.org/") == "https://example.org/"
    with pytest.raises(FocuseError, match="base 'no iri' is not the beginning of an IRI"):
        check_base("no iri")


EDGE = '<edge source="a" target="b"/>'


RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"


def documents(declared: str, used: str = "&x;") -> dict[str, str]:
    """The same declaration before GraphML and before RDF/XML."""
    graphml = f"<!DOCTYPE g [{declared}]>\n<graphml><graph>{EDGE}<edge source='{used}' target='c'/></graph></graphml>"
    about = f"<rdf:Description rdf:about='http://e.org/{used}'><e:r rdf:resource='http://e.org/b'/></rdf:Description>"
    rdf = f'<!DOCTYPE r [{declared}]>\n<rdf:RDF xmlns:rdf="{RDF}" xmlns:e="http://e.org/">{about}</rdf:RDF>'
    return {"graph.graphml": graphml, "graph.rdf": rdf}


def laughs() -> str:
    levels = ["<!ENTITY l0 'lol'>", *(f"<!ENTITY l{n} '{f'&l{n - 1};' * 10}'>" for n in range(1, 10))]
    return "".join(levels) + "<!ENTITY x '&l9;'>"


@pytest.mark.parametrize("name", ["graph.graphml", "graph.rdf"])
@pytest.mark.parametrize(
    ("declared", "told"),
    [
        (laughs(), "stands for too much"),
        ("<!ENTITY x '" + "y" * 5_000 + "'>", "stands for too much"),
        ("<!ENTITY % x 'y'>", "stands for too much"),
        ("<!ENTITY x SYSTEM 'file:///etc/passwd'>", "is another file"),
        ("<!ENTITY x PUBLIC 'p' 'http://127.0.0.1:9/x'>", "is another file"),
    ],
)
def test_dangerous_xml_entities_are_refused(name: str, declared: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(documents(declared)[name], encoding="utf-8")
    with pytest.raises(FocuseError, match=told):
        read(path)


@pytest.mark.parametrize("name", ["graph.graphml", "graph.rdf"])
def test_xml_entities_for_namespaces_are_allowed(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(documents('<!ENTITY x "people/">', "&x;ann")[name], encoding="utf-8")
    assert any("people/ann" in entity for entity in read(path).entities)


@pytest.mark.parametrize("encoding", ["UTF2", "utf-7", "ebcdic", "rot13", "idna"])
def test_unknown_xml_encodings_are_refused(encoding: str, tmp_path: Path) -> None:
    for name, text in documents("").items():
        path = tmp_path / name
        path.write_text(f'<?xml version="1.0" encoding="{encoding}"?>\n{text}', encoding="utf-8")
        with pytest.raises(FocuseError) as caught:
            read(path)
        assert str(path) in str(caught.value)
