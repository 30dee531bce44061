"""Reading RDF: facts, numbers noted on them in every way there is, and what is wrong with a file."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import pytest

import focuse
from focuse.errors import FocuseError
from focuse.graph import read
from focuse.graph.rdf import rdf_kind

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
def test_a_weight_may_be_noted_in_any_of_these_ways(turtle, text: str) -> None:
    assert turtle(text) == [("a", "p", "b", 0.25), ("b", "p", "c", 0.01)]
    assert turtle.graph.weighted
    assert turtle.graph.notes == ()


def test_facts_without_numbers_are_a_graph_without_weights(turtle) -> None:
    assert turtle(":a :p :b , :c . :a :p :b .") == [("a", "p", "b", 1.0), ("a", "p", "c", 1.0)]
    assert not turtle.graph.weighted


def test_several_properties_are_several_columns(turtle) -> None:
    text = ":a :p :b {| :sure 0.9 ; :year 1999 |} . :b :p :c {| :sure 0.1 |} ."
    assert turtle(text) == [("a", "p", "b", 0.9, 1999.0), ("b", "p", "c", 0.1, None)]
    assert turtle.graph.columns.names == ("sure", "year")
    assert turtle(text, weights=["year", "http://e/sure"]) == [("a", "p", "b", 1999.0, 0.9), ("b", "p", "c", None, 0.1)]
    assert turtle(text, weights=["sure"]) == [("a", "p", "b", 0.9), ("b", "p", "c", 0.1)]


def test_notes_of_one_triple_under_several_nodes(turtle) -> None:
    # RDF-star: the same triple is quoted twice to say two things of it.
    assert turtle("<<:a :p :b>> :sure 0.9 . <<:a :p :b>> :year 3 .") == [("a", "p", "b", 0.9, 3.0)]
    # Two that say the same thing differently are two edges, each with what it says.
    both = ":a :p :b {| :sure 0.9 ; :year 1 |} {| :sure 0.5 |} ."
    assert turtle(both) == [("a", "p", "b", 0.9, 1.0), ("a", "p", "b", 0.5, None)]
    assert turtle(":a :p :b {| :sure 0.9, 0.5 |} .") == [("a", "p", "b", 0.9), ("a", "p", "b", 0.5)]
    one = "_:x rdf:reifies <<( :a :p :b )>> , <<( :b :p :c )>> ; :sure 0.5 ."
    assert turtle(one) == [("a", "p", "b", 0.5), ("b", "p", "c", 0.5)]


def test_facts_without_a_weight_beside_others_with_one(turtle) -> None:
    text = ":a :p :b {| :w 0.5 |} . :b :p :c . :c a :Thing ."
    with pytest.raises(FocuseError, match=r"2 of 3 facts have no weight, such as \(http://e/b http://e/p http://e/c\)"):
        turtle(text)
    assert turtle(text, missing="drop") == [("a", "p", "b", 0.5)]
    assert turtle.graph.notes[-1].endswith("2 facts without a weight left out")
    assert [row[3] for row in turtle(text, missing=1)] == [0.5, 1.0, 1.0]
    with pytest.raises(FocuseError, match="missing 'some': give a number"):
        turtle(text, missing="some")


def test_what_is_no_edge_is_counted(turtle) -> None:
    text = """:a :p :b {| :w 0.5 ; :source :paper ; :comment "fine" |} . :a :label "A"@en ; :age 7 .
        _:q rdf:reifies <<( :x :p :y )>> . :bob :says <<( :a :p :b )>> ."""
    assert turtle(text) == [("a", "p", "b", 0.5)]
    told = [note.partition(": ")[2] for note in turtle.graph.notes]
    assert [note.partition(" ")[0] for note in told] == ["3", "1", "1", "1"]
    assert "with a literal" in told[0]
    assert "about statements" in told[1]
    assert "spoken of" in told[2]
    assert "as their object" in told[3]


def test_literals_can_be_entities(turtle) -> None:
    rows = turtle(':a :p :b ; :label "A"@en ; :age 7 .', literals="keep")
    xsd = '"7"^^<http://www.w3.org/2001/XMLSchema#integer>'
    assert rows == [("a", "p", "b", 1.0), ("a", "label", '"A"@en', 1.0), ("a", "age", xsd, 1.0)]
    with pytest.raises(FocuseError, match="unknown way with literals 'numbers'"):
        turtle(":a :p :b .", literals="numbers")


def test_nodes_without_a_label_have_the_same_names_every_time(turtle) -> None:
    text = ":a :p [ :q :c ] . [] :q _:own ."
    first = turtle(text)
    assert first == turtle(text)
    assert {"_:unlabelled1", "_:unlabelled2", "_:own"} <= set(turtle.graph.entities)


def test_text_is_a_number_only_where_the_user_says_so(turtle) -> None:
    assert turtle(':a :p :b {| :w "0.5" |} .') == [("a", "p", "b", 1.0)]
    assert turtle(':a :p :b {| :w "0.5" |} .', weights=["w"]) == [("a", "p", "b", 0.5)]


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
def test_faults_are_one_line(turtle, text: str, message: str) -> None:
    with pytest.raises(FocuseError, match=rf"graph\.ttl.*{message}"):
        turtle(text)


def test_unknown_and_ambiguous_properties(turtle) -> None:
    text = ":a :p :b {| :sure 0.9 ; <http://f/sure> 1 |} ."
    with pytest.raises(
        FocuseError, match=r"no property 'sre' \(did you mean sure\?\); numbers on triples are http://e"
    ):
        turtle(text, weights=["sre"])
    with pytest.raises(FocuseError, match="several properties are called 'sure'"):
        turtle(text, weights=["sure"])
    with pytest.raises(FocuseError, match="name one property twice"):
        turtle(text, weights=["http://e/sure", "http://e/sure"])
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
def test_every_form_plain_and_packed(suffix: str, packed: bool, tmp_path: Path) -> None:
    path = tmp_path / f"graph.{suffix}{'.gz' if packed else ''}"
    data = FORMS[suffix].encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    weight = 0.5 if b"w>" in data or b":w" in data else 1.0
    row = {"head": "http://e/a", "relation": "http://e/p", "tail": "http://e/b", "weight": weight}
    assert read(path).to_arrow().to_pylist() == [row]


def test_faults_of_other_forms_name_the_line(tmp_path: Path) -> None:
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


def test_entities_of_xml_that_blow_up_are_refused(tmp_path: Path) -> None:
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
def test_a_byte_order_mark_is_passed_over(suffix: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / f"graph{suffix}"
    path.write_text(text, encoding="utf-8-sig")
    assert read(path).entities.column.to_pylist() == ["http://e/a", "http://e/b"]


def test_the_form_is_told_by_the_name() -> None:
    assert rdf_kind(Path("a.NT")) == rdf_kind(Path("a.b.nt.gz")) == "N_TRIPLES"
    assert rdf_kind(Path("ttl")) is rdf_kind(Path("a.ttl.tsv")) is rdf_kind(Path("a")) is None


def test_without_pyoxigraph_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.nt").write_text("<a:b> <a:b> <a:b> .\n", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    with pytest.raises(FocuseError, match=r"pip install 'focuse\[rdf\]'"):
        read(tmp_path / "x.nt")


def test_statements_come_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number may stand in another chunk than what it is of."""
    monkeypatch.setattr("focuse.graph.rdf.CHUNK", 7)
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


def test_a_large_file_is_kept_with_its_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"<http://e/{i}> <http://e/p> <http://e/{i + 1}> .\n" for i in range(500)]
    path = tmp_path / "x.nt"
    path.write_text('<http://e/0> <http://e/label> "zero" .\n' + "".join(lines), encoding="utf-8")
    monkeypatch.setattr("focuse.graph.reading.CACHED_BYTES", 1000)
    monkeypatch.setenv("FOCUSE_GRAPH_CACHE", "1")
    monkeypatch.setenv("FOCUSE_CACHE", str(tmp_path / "cache"))
    first = read(path)
    assert list((tmp_path / "cache" / "graphs").glob("*.graph"))
    monkeypatch.setattr("focuse.graph.reading.read_rdf", None)
    again = read(path)
    assert again.to_arrow().equals(first.to_arrow())
    assert again.notes == first.notes
    assert len(first.notes) == 1
    assert len(first) == 500
    with pytest.raises(TypeError):  # other options, another graph
        read(path, literals="keep")


def test_training_says_what_was_left_out(tmp_path: Path, listen) -> None:
    rows = "".join(f"<http://e/{i}> <http://e/p> <http://e/{i * 7 % 12}> .\n" for i in range(12))
    (tmp_path / "x.nt").write_text(rows + '<http://e/1> <http://e/label> "one" .\n', encoding="utf-8")
    heard = listen()
    focuse.train(tmp_path / "x.nt", epochs=1, dim=2, valid_share=0, test_share=0)
    assert any("1 statements with a literal" in note for note in heard.notes)
