"""Tables in JSON and Excel files, compared with pandas."""

from __future__ import annotations

import builtins
import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import networkx
import openpyxl
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import focuse
from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.errors import FocuseError

FRAME = pandas.DataFrame(
    {
        "source": ["P04637", "P04637", "Q00987"],
        "target": ["Q00987", "P38936", "P38936"],
        "interaction": ["binds", "activates", "binds"],
        "score": [0.999, 0.972, 0.641],
    }
)


def rows(graph: Graph) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in graph.to_arrow().to_pylist()]


def complaint(source: Any, **options: Any) -> str:
    with pytest.raises(FocuseError) as caught:
        read(source, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---- JSON -----------------------------------------------------------------------------------------------------------
def json_forms(frame: pandas.DataFrame) -> dict[str, str]:
    return {
        "records.json": frame.to_json(orient="records"),
        "lines.jsonl": frame.to_json(orient="records", lines=True),
        "lines.json": frame.to_json(orient="records", lines=True),
        "columns.json": frame.to_json(),
        "lists.json": json.dumps(frame.to_dict("list")),
        "indented.ndjson": json.dumps(frame.to_dict("records"), indent=2),
        "graph.json": json.dumps({"nodes": [], "edges": frame.to_dict("records")}),
    }


@pytest.mark.parametrize("name", json_forms(FRAME))
def test_forms_of_json_are_read_like_the_frame(name: str, tmp_path: Path) -> None:
    text = json_forms(FRAME)[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text.encode("utf-8-sig")))
    expected = read(FRAME)
    for path in (tmp_path / name, tmp_path / f"{name}.gz"):
        graph = read(path)
        assert graph.to_arrow().equals(expected.to_arrow())
        assert graph.entities == expected.entities
        assert graph.weight_name == "score"


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


@given(st.lists(st.tuples(NAMES, NAMES, NAMES, st.floats(-1e9, 1e9)), min_size=1, max_size=6))
@settings(max_examples=30, deadline=None)
def test_any_text_in_json_lines_is_read_back(tmp_path_factory: pytest.TempPathFactory, edges: list[Any]) -> None:
    path = tmp_path_factory.mktemp("json") / "x.jsonl"
    keys = ("head", "relation", "tail", "weight")
    for ascii_only in (True, False):
        lines = (json.dumps(dict(zip(keys, edge, strict=True)), ensure_ascii=ascii_only) + "\n" for edge in edges)
        path.write_text("".join(lines), encoding="utf-8", newline="")
        assert rows(read(path)) == edges


def test_json_of_rows_and_options(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([["a", "b", 0.5], ["b", "c", 0.25]]))
    assert rows(read(path)) == [("a", "x", "b", 0.5), ("b", "x", "c", 0.25)]  # the relation is the file's name
    path.write_text(json.dumps([{"x": "a", "y": "b", "n": 1, "m": 0.5, "tags": ["t"]}]))
    assert rows(read(path, head="x", tail="y", weight="m"))[0][::3] == ("a", 0.5)
    assert "no column 'tags'" in complaint(path, head="x", tail="y", weight="tags")
    path.write_text(json.dumps([{"head": "a", "tail": "b", "weight": 1}, {"head": "a", "tail": "c"}]))
    assert "x.json, row 2: the weight is empty" in complaint(path)
    assert len(read(path, missing_weight="drop")) == 1


def test_node_link_json_is_undirected_if_it_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for directed in (False, True):
        links = [{"source": "a", "target": "b", "weight": 3}]
        path.write_text(json.dumps({"directed": directed, "nodes": [{"id": "a"}], "links": links}))
        graph = read(path)
        assert graph.undirected is (None if directed else True)
        assert graph.notes[0].endswith("the edges are the list 'links'")


def test_an_object_without_edges_is_no_edge(tmp_path: Path) -> None:
    path, graph = tmp_path / "x.json", networkx.Graph([("a", "b", {"weight": 0.5}), ("b", "c", {"weight": 0.25})])
    cytoscape = networkx.cytoscape_data(graph)
    elements = [*cytoscape["elements"]["nodes"], *cytoscape["elements"]["edges"]]
    forms = networkx.adjacency_data(graph), cytoscape, {"directed": False, "elements": elements}
    for value in forms:
        path.write_text(json.dumps(value))
        message = complaint(path)
        assert "a graph in another form than a list of edges" in message
        names = {"focuse": focuse, "networkx": networkx, "json": json, "file": path}
        found, expected = eval(message.partition("; give ")[2], names), read(graph)
        assert [edge[::2] for edge in rows(found)] == [edge[::2] for edge in rows(expected)]
        assert found.weight.tolist() == expected.weight.tolist()
        assert found.undirected is True
    path.write_text('{"name": "my graph", "version": "1", "n": 2}')
    assert "an object with 'name', 'version', 'n', but neither a list of edges nor the head and tail" in complaint(path)
    assert rows(read(path, head="name", tail="version", weight="n")) == [("my graph", "n", "1", 2.0)]
    path.write_text('{"source": "a", "target": "b", "weight": 0.5, "documents": ["x"]}')
    assert rows(read(path)) == [("a", "x", "b", 0.5)]


def test_json_of_apoc_is_refused_with_a_query(tmp_path: Path) -> None:
    node = {"type": "node", "id": "0", "labels": ["Person"], "properties": {"name": "Ann"}}
    edge = {"type": "relationship", "id": "0", "label": "KNOWS", "start": {"id": "0"}, "end": {"id": "1"}}
    for lines in ([edge], [node, edge]):
        (tmp_path / "x.json").write_text("\n".join(map(json.dumps, lines)))
        assert "as APOC exports them from Neo4j; export a table by a query like MATCH" in complaint(tmp_path / "x.json")


def test_values_that_are_objects_are_noted(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"source": "a", "target": "b", "attributes": {"weight": 2}}\n')
    graph = read(tmp_path / "x.jsonl")
    assert rows(graph) == [("a", "x", "b", 1.0)]
    assert graph.notes[-1].endswith("not used, because they hold lists or objects: 'attributes'")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "line 1: not JSON: Expecting value"),
        (b"[]", "no edges"),
        (b"3", "no edges"),
        (b'{"head": "a"}\n{"head": \n', "line 2: not JSON"),
        (b'[{"head": "a"},\n {"head" "b"}]', "line 2: not JSON: Expecting ':' delimiter"),
        (b'[{"head": "a"}, 3]', "row 2: 3 is not an object"),
        (b'[{"head": "a"}] x', "line 1: not JSON: Extra data"),
        (b"[" * 100_000, "JSON that cannot be read"),
        (b'[{"head": ' + b"1" * 5000 + b"}]", "JSON that cannot be read"),
        (b'{"a": [1], "b": [1, 2]}', "no edges"),
        (b"\xff\xfe[]", "not UTF-8 text"),
        (b'[{"head": "a\\ud800", "relation": "r", "tail": "b"}]', "is not Unicode text"),
        (b'[{"head\\ud800": "a", "tail": "b"}]', "is not Unicode text"),
        (b'[{"head": "a", "tail": "b", "weight": NaN}]', "row 1: the weight 'nan' is not finite"),
    ],
)
def test_faulty_json_is_refused(text: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(text)
    assert complaint(tmp_path / "x.json").startswith(f"{tmp_path / 'x.json'}")
    assert message in complaint(tmp_path / "x.json")


# ---- Excel ----------------------------------------------------------------------------------------------------------
@pytest.fixture
def sheet(tmp_path: Path):
    def write(*lines: list[Any], offset: int = 0) -> Path:
        book = openpyxl.Workbook()
        for number, line in enumerate(lines, 1 + offset):
            for column, value in enumerate(line, 1 + offset):
                book.active.cell(number, column, value)
        book.save(tmp_path / "x.xlsx")
        return tmp_path / "x.xlsx"

    return write


def test_excel_is_read_like_the_frame(tmp_path: Path) -> None:
    path = tmp_path / "x.xlsx"
    FRAME.to_excel(path, index=False, startrow=2, startcol=1)
    assert read(path).to_arrow().equals(read(FRAME).to_arrow())
    assert read(path).weight_name == "score"
    FRAME.to_excel(path, index=False, header=False)
    assert read(path, head=1, tail=2, relation=3, weight=4).to_arrow().equals(read(FRAME).to_arrow())


def test_headings_of_excel_are_options_and_numbers_stay_names(sheet) -> None:
    path = sheet(["n", "a", "b", "km"], [1, 7, 8, 1.5], [2, 8, 9, 2], offset=1)
    graph = read(path, head="a", tail="b", weight="km")
    assert rows(graph) == [("7", "km", "8", 1.5), ("8", "km", "9", 2.0)]
    path = sheet(["a", "r", "b", 0.5], ["b", "r", "c", 2])
    assert rows(read(path)) == [("a", "r", "b", 0.5), ("b", "r", "c", 2.0)]


def test_a_faulty_row_of_excel_has_the_number_of_the_sheet(sheet) -> None:
    path = sheet(["head", "relation", "tail", "weight"], ["a", "r", "b", 1], ["a", "r", "b", "x"], offset=2)
    assert "x.xlsx, row 5: the weight 'x' is not a number" in complaint(path)
    path = sheet(["a", "r", "b", 1], ["a", "r", None, 2])
    assert "x.xlsx, row 2: the tail is empty" in complaint(path)
    assert "no sheet has cells" in complaint(sheet())
    path = sheet(["Skills of jobs"], [], ["head", "relation", "tail", "weight"], ["a", "r", "b", "x"])
    assert "x.xlsx, row 4: the weight 'x' is not a number" in complaint(path)


def test_other_sheets_are_named(tmp_path: Path) -> None:
    with pandas.ExcelWriter(tmp_path / "x.xlsx") as writer:
        for name in ("links", "more", "most"):
            FRAME.to_excel(writer, sheet_name=name, index=False)
    assert "x.xlsx: the sheet 'links' was read, not 'more', 'most'; for" in read(tmp_path / "x.xlsx").notes[0]


def test_a_sheet_of_edges_comes_before_nodes_and_hidden_ones(tmp_path: Path) -> None:
    book, edges = openpyxl.Workbook(), [list(FRAME.columns), *FRAME.to_numpy().tolist()]
    book.active.title = "empty"
    for title, table in (("hidden", [["x", "y"]] * 3), ("nodes", edges), ("Edges", edges[:3])):
        sheet = book.create_sheet(title)
        for row in table:
            sheet.append(row)
        sheet.sheet_state = "hidden" if title == "hidden" else "visible"
    for title, count in (("Edges", 2), ("nodes", len(FRAME))):
        book.save(tmp_path / "x.xlsx")
        graph = read(tmp_path / "x.xlsx")
        assert (len(graph), f"the sheet {title!r} was read" in graph.notes[0]) == (count, True)
        if title == "Edges":
            book.remove(book["Edges"])


def test_files_that_are_no_spreadsheets_are_refused(tmp_path: Path, sheet) -> None:
    path = sheet(["a", "r", "b", 1])
    whole = path.read_bytes()
    for damaged in (b"", b"a\tr\tb\t1\n", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        assert "x.xlsx: not a readable Excel file (.xlsx): " in complaint(path)
    path.write_bytes(whole)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("xl/more.xml", '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "b">]><x/>')
    assert "declares entities" in complaint(path)


def test_archives_that_unpack_to_very_much_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.xlsx"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/sheet1.xml", bytes(1 << 27))
    assert "it unpacks to 134 MB" in complaint(path)


@pytest.mark.parametrize("byte", range(0, 5000, 211))
def test_damaged_sheets_are_read_or_refused(byte: int, sheet) -> None:
    path = sheet(*[["a", "r", f"b{number}", number] for number in range(9)])
    data = bytearray(path.read_bytes())
    data[byte % len(data)] ^= 0x55
    path.write_bytes(data)
    try:
        read(path)
    except FocuseError:
        complaint(path)


def test_without_openpyxl_the_error_names_the_extra(sheet, monkeypatch: pytest.MonkeyPatch) -> None:
    path, genuine = sheet(["a", "r", "b", 1]), builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("openpyxl"):
            raise ImportError(name)
        return genuine(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    assert "reading Excel files needs openpyxl; in your clone" in complaint(path)
