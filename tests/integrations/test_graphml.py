"""GraphML is read as NetworkX reads it, and written files are read back."""

from __future__ import annotations

import gzip
import re
import tempfile
from pathlib import Path
from typing import Any

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.data.readers import read
from focuse.errors import FocuseError
from focuse.integrations.graphml import NOT_XML

NAMES = st.text(min_size=1, max_size=8).filter(lambda name: not re.search(NOT_XML, name)) | st.sampled_from(
    ["<>", '"', "a b", " a ", "\n", "\t", "\r", "&amp;", "'", "\u2028", "𝔘"]
)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


ROWS = st.lists(st.tuples(NAMES, NAMES, NAMES, NUMBERS), min_size=1, max_size=6)


@pytest.mark.parametrize("suffix", [".graphml", ".graphml.gz"])
@given(rows=ROWS)
@settings(max_examples=25)
def test_names_and_weights_are_read_back(suffix: str, rows) -> None:
    graph = read(rows)
    with tempfile.TemporaryDirectory() as folder:
        graph.write(Path(folder) / f"graph{suffix}")
        back = read(Path(folder) / f"graph{suffix}")
        theirs = networkx.read_graphml(Path(folder) / f"graph{suffix}", force_multigraph=True)
    assert back.to_arrow().equals(graph.to_arrow())
    assert back.entities == graph.entities
    told = [(head, data["relation"], tail, data["weight"]) for head, tail, data in theirs.edges(data=True)]
    assert sorted(told) == sorted(rows)


def test_several_weights_are_read_back(tmp_path: Path) -> None:
    graph = read([("a", "r", "b", 0.9, None), ("a", "r", "c", 0.2, 30)])
    graph.write(tmp_path / "x.graphml")
    assert read(tmp_path / "x.graphml").to_arrow().equals(graph.to_arrow())
    assert read(tmp_path / "x.graphml", weight_columns=["w1"]).weight.tolist() == [0.9, 0.2]


def test_many_edges_are_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("focuse.integrations.graphml.CHUNK_EDGES", 100)
    graph = read([(f"a{i % 99}", f"r{i % 3}", f"b{i}", i / 7) for i in range(1_050)])
    graph.write(tmp_path / "x.graphml")
    assert read(tmp_path / "x.graphml").to_arrow().equals(graph.to_arrow())


def test_files_of_networkx_are_read(tmp_path: Path) -> None:
    theirs = networkx.MultiDiGraph()
    theirs.add_node("alone", size=3)
    theirs.add_edge("a", "b", label="knows", weight=2)
    theirs.add_edge("a", "b", label="likes", weight=3, note="x")
    networkx.write_graphml(theirs, tmp_path / "x.graphml")
    graph = read(tmp_path / "x.graphml")
    assert graph.to_arrow().to_pylist() == [
        {"head": "a", "relation": "knows", "tail": "b", "weight": 2.0},
        {"head": "a", "relation": "likes", "tail": "b", "weight": 3.0},
    ]
    assert graph.notes == ()


def test_edges_without_relations_get_a_default_relation(tmp_path: Path) -> None:
    networkx.write_graphml(networkx.path_graph(4), tmp_path / "x.graphml")
    graph = read(tmp_path / "x.graphml")
    assert list(graph.relations) == ["related"]
    assert len(graph) == 3
    assert not graph.weighted
    assert "all edges have the relation 'related'" in graph.notes[0]
    assert "its edges are undirected (--directed" in graph.notes[1]
    assert graph.undirected
    assert graph.one_relation


PAGE = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
<key id="d0" for="edge" attr.name="{name}" attr.type="double">{usual}</key>
<key id="d1" for="node" attr.name="relation" attr.type="string"/>
<graph edgedefault="directed"><node id="a"/><node id="b"/>
<edge source="a" target="b"><data key="d0">0.5</data></edge><edge source="b" target="a">{data}</edge></graph></graphml>
"""


@pytest.fixture
def page(tmp_path: Path):
    def write(name: str = "weight", usual: str = "", data: str = "") -> Path:
        path = tmp_path / "x.graphml"
        path.write_text(PAGE.format(name=name, usual=usual, data=data), encoding="utf-8")
        return path

    return write


def test_missing_weights_are_refused_filled_or_dropped(page) -> None:
    with pytest.raises(FocuseError, match=r"x\.graphml, row 2: the weight is empty"):
        read(page())
    assert read(page(), missing_weight=2).weight.tolist() == [0.5, 2.0]
    dropped = read(page(), missing_weight="drop")
    assert dropped.weight.tolist() == [0.5]
    assert dropped.notes[1].endswith("1 edge without a weight left out")
    assert read(page(usual="<default>7</default>")).weight.tolist() == [0.5, 7.0]


def test_any_real_number_of_edges_is_a_weight(page) -> None:
    assert read(page(name="flow", usual="<default>7</default>")).weight.tolist() == [0.5, 7.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        ({"data": '<data key="d0">much</data>'}, r"row 2: the weight 'much' is not a number"),
        ({"data": "<oops>"}, r"line 5: not XML: mismatched tag"),
        ({"data": "</edge><hyperedge/><edge source='a' target='b'>"}, "it has hyperedges"),
    ],
)
def test_faulty_files_are_reported_in_one_line(page, make, message: str) -> None:
    with pytest.raises(FocuseError, match=message):
        read(page(**make))


def test_unknown_weights_and_missing_edges_are_refused(page, tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match=r"edges have no data 'weigt' \(did you mean weight\?\)"):
        read(page(), weight_columns=["weigt"])
    (tmp_path / "e.graphml").write_text("<graphml/>", encoding="utf-8")
    with pytest.raises(FocuseError, match="no edges"):
        read(tmp_path / "e.graphml")
    (tmp_path / "e.graphml.gz").write_bytes(gzip.compress(b"<graphml>" + b"x" * 9999)[:-12])
    with pytest.raises(FocuseError, match=r"e\.graphml\.gz"):
        read(tmp_path / "e.graphml.gz")
    with pytest.raises(FocuseError, match="a character that XML cannot represent; write"):
        read([("a\x01", "r", "b")]).write(tmp_path / "odd.graphml")
    assert not (tmp_path / "odd.graphml").exists()


def test_nested_graph_has_a_direction_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "x.graphml").write_text(
        """<graphml><graph edgedefault="directed">
        <node id="a"><graph edgedefault="undirected"><edge source="c" target="d"/></graph></node>
        <edge source="a" target="b"/><edge source="b" target="a"/></graph></graphml>""",
        encoding="utf-8",
    )
    graph = read(tmp_path / "x.graphml")
    assert len(graph) == 3
    assert "1 undirected edge is read once" in " ".join(graph.notes)


def test_the_user_chooses_relation_and_weight_among_the_data(tmp_path: Path) -> None:
    theirs = networkx.DiGraph()
    theirs.add_edge("a", "b", weight=2.0, cost=0.5, label="x", kind="likes")
    networkx.write_graphml(theirs, tmp_path / "x.graphml")
    path = tmp_path / "x.graphml"
    assert set(read(path).columns.names) == {"weight", "cost"}
    chosen = read(path, relation="kind", weight="cost")
    assert chosen.to_arrow().to_pylist() == [{"head": "a", "relation": "likes", "tail": "b", "weight": 0.5}]
    bare = read(path, relation="none", weight="none", relation_name="knows")
    assert (list(bare.relations), bare.weighted, bare.one_relation) == (["knows"], False, False)
    with pytest.raises(FocuseError, match=r"no data 'kinds' \(did you mean kind\?\)"):
        read(path, relation="kinds")
    with pytest.raises(FocuseError, match=r"x\.graphml: head has no effect"):
        read(path, head=1)


def test_keys_with_one_name_are_one_weight(tmp_path: Path) -> None:
    """NetworkX writes one key for whole numbers and one for others."""
    theirs = networkx.DiGraph([("a", "b", {"weight": 1}), ("a", "c", {"weight": 2.5}), ("b", "c", {"weight": 4})])
    networkx.write_graphml(theirs, tmp_path / "x.graphml")
    assert (tmp_path / "x.graphml").read_text().count('attr.name="weight"') == 2
    assert read(tmp_path / "x.graphml").weight.tolist() == [1, 2.5, 4]
    assert read(tmp_path / "x.graphml", weight="weight").weight.tolist() == [1, 2.5, 4]


def test_weights_that_are_nan_are_missing(tmp_path: Path) -> None:
    theirs = networkx.DiGraph([("a", "b", {"weight": 1.5}), ("a", "c", {"weight": float("nan")})])
    networkx.write_graphml(theirs, tmp_path / "x.graphml")
    with pytest.raises(FocuseError, match="row 2: the weight 'nan' is not finite"):
        read(tmp_path / "x.graphml")
    assert read(tmp_path / "x.graphml", missing_weight="drop").weight.tolist() == [1.5]
    assert read(tmp_path / "x.graphml", missing_weight=3).weight.tolist() == [1.5, 3]


YED = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns" xmlns:y="http://www.yworks.com/xml/graphml">
<key for="node" id="d6" yfiles.type="nodegraphics"/><key for="edge" id="d10" yfiles.type="edgegraphics"/>
<key for="node" id="d5" attr.name="description" attr.type="string"/>
<graph edgedefault="directed" id="G">
<node id="n0"><data key="d5"/><data key="d6"><y:ShapeNode><y:NodeLabel>Alice</y:NodeLabel></y:ShapeNode></data></node>
<node id="n1"><data key="d6"><y:ShapeNode><y:NodeLabel>Bob
</y:NodeLabel></y:ShapeNode></data></node>
<edge id="e0" source="n0" target="n1"><data key="d10"><y:PolyLineEdge>
<y:EdgeLabel>knows<y:LabelModel/></y:EdgeLabel></y:PolyLineEdge></data></edge></graph></graphml>"""
GEPHI = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key attr.name="label" attr.type="string" for="node"
id="label"/><key attr.name="weight" attr.type="double" for="edge" id="weight"/><graph edgedefault="undirected">
<node id="1.0"><data key="label">Alice</data></node><node id="2.0"><data key="label">Bob</data></node>
<edge source="1.0" target="2.0"><data key="weight">0.5</data></edge></graph></graphml>"""


@pytest.mark.parametrize(
    ("text", "edge"), [(YED, ("Alice", "knows", "Bob", 1)), (GEPHI, ("Alice", "related", "Bob", 0.5))]
)
def test_labels_name_nodes_with_numbers(tmp_path: Path, text: str, edge: tuple[Any, ...]) -> None:
    (tmp_path / "x.graphml").write_text(text, encoding="utf-8")
    assert tuple(read(tmp_path / "x.graphml").to_arrow().to_pylist()[0].values()) == edge


NUMBERED = """<graphml xmlns="http://graphml.graphdrawing.org/xmlns"><key id="k" for="node" attr.name="name"/><graph>
<node id="n0"><data key="k">{}</data></node><node id="{}"><data key="k">b</data></node>
<edge source="n0" target="n1"/></graph></graphml>"""


@pytest.mark.parametrize(
    ("name", "node", "entities"),
    [("a", "n1", ["a", "b"]), ("b", "n1", ["n0", "n1"]), ("", "n1", ["n0", "n1"]), ("a", "n2", ["n0", "n1"]),
     ("a", "b", ["n0", "n1"])],
)  # fmt: skip
def test_numbered_nodes_take_their_names_if_each_has_its_own(tmp_path: Path, name, node, entities) -> None:
    (tmp_path / "x.graphml").write_text(NUMBERED.format(name, node), encoding="utf-8")
    assert list(read(tmp_path / "x.graphml").entities) == entities
