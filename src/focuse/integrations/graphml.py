"""Read and write GraphML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import pyarrow as pa
import pyarrow.compute as pc

from focuse.data.graph import Graph
from focuse.data.readers import ReadOptions, graph_from_table, inspect_file, open_decompressed
from focuse.data.roles import NONE
from focuse.data.sniffer import ROLES
from focuse.data.writers import column_bytes, refuse_characters
from focuse.errors import FocuseError, counted, nearest
from focuse.integrations.networks import RELATION_DATA, WEIGHT_DATA, as_undirected, first_known, refuse_options
from focuse.integrations.rdf import check_annotation_options, check_xml
from focuse.system import chunks

NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
DEFAULT_RELATION = "related"  # of edges without data that names one
CHUNK_EDGES = 1 << 15
NUMBERED = re.compile(r"n?[0-9]+(\.0)?")  # ids of nodes, as igraph, Gephi and yEd write them
NODE_NAMES = ("name", "label", "nodegraphics")  # the data that names a node, the likeliest first; the last of yEd
# Characters that XML 1.0 cannot represent, not even escaped.
NOT_XML = "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\ufffe\uffff]"
ESCAPES = (
    ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\t", "&#9;"), ("\n", "&#10;"), ("\r", "&#13;"),
)  # fmt: skip


# ---- reading --------------------------------------------------------------------------------------------------------


class EdgeData(NamedTuple):
    """Data that a file declares for its edges; NetworkX writes a key for each type of value that occurs."""

    keys: list[str]
    is_real: bool
    default: str | None


def read_graphml(path: Path, options: ReadOptions) -> Graph:
    """Read a GraphML file. An edge's relation is its data `relation`, `label` or `type`, else 'related'.

    Its weights are those that the options name, else the data called weight (score, confidence, …) and all of type
    double or float. A node's name is its id, or if the ids are only numbers, its data `name` or `label`.
    """
    inspect_file(path)
    check_annotation_options(path, options)
    refuse_options(str(path), options)
    edges = _EdgeCollector(str(path), options)
    try:
        check_xml(path)
        with open_decompressed(path) as stream:
            edges.read(stream)
    except ElementTree.ParseError as error:
        line, _ = error.position
        raise FocuseError(f"{path}, line {line}: not XML: {str(error).partition(': line')[0]}") from None
    except (pa.ArrowException, OSError, EOFError, LookupError, ValueError) as error:  # also of unknown encodings
        raise FocuseError(f"{path}: {' '.join(str(error).split())[:200]}") from None
    return edges.graph()


class _EdgeCollector:
    """Collects edges while a file is parsed, encoded a chunk at a time."""

    def __init__(self, where: str, options: ReadOptions) -> None:
        self.where, self.options = where, options
        self.data: dict[str, EdgeData] = {}  # by name
        self.relation: str | None = None  # the names of the data that hold the relation and the weights
        self.weights: list[str] = []
        self.node_names: dict[str | None, str] = {}  # what the keys of the names of nodes are called
        self.names: dict[str, str] = {}
        self.named = True  # whether nodes have numbers as ids and each has a name
        self.pending: list[list[Any]] = []
        self.blocks: list[list[pa.Array]] = []
        self.num_undirected = 0

    def read(self, stream: Any) -> None:
        graphs: list[tuple[ElementTree.Element, bool]] = []  # that are open, with whether their edges are directed
        for event, element in ElementTree.iterparse(stream, ("start", "end")):
            tag = _tag(element)
            if event == "start":
                if tag == "graph":
                    graphs.append((element, element.get("edgedefault", "directed") != "undirected"))
                elif tag == "hyperedge":
                    raise FocuseError(f"{self.where}: it has hyperedges; give edges between two nodes")
            elif tag == "key" and element.get("for") == "node":
                name = element.get("yfiles.type") or element.get("attr.name", "").lower()
                if name in NODE_NAMES and name not in self.node_names.values():
                    self.node_names[element.get("id")] = name
            elif tag == "node" and self.named:
                self._add_node(element)
            elif tag == "key" and element.get("for", "all") in ("edge", "all"):
                self._declare(element)
            elif tag == "edge":
                self._add(element, graphs[-1][1] if graphs else True)
            elif tag == "graph":
                graphs.pop()
            if event == "end" and tag in ("node", "edge") and graphs:
                graphs[-1][0].clear()  # else all elements would stay in memory
        self._encode()

    def _add_node(self, element: ElementTree.Element) -> None:
        node = element.get("id", "")
        found = {self.node_names[key]: child for child in element if (key := child.get("key")) in self.node_names}
        child = next((found[name] for name in NODE_NAMES if name in found), None)
        name = "" if child is None else _label(child, "NodeLabel")
        self.named = bool(name) and NUMBERED.fullmatch(node) is not None
        self.names[node] = name

    def _declare(self, key: ElementTree.Element) -> None:
        identifier = key.get("id", "")
        name = key.get("yfiles.type") or key.get("attr.name") or identifier
        default = next((child.text or "" for child in key if _tag(child) == "default"), None)
        is_real = key.get("attr.type") in ("double", "float")
        known = self.data.get(name, EdgeData([], False, None))
        self.data[name] = EdgeData([*known.keys, identifier], known.is_real or is_real, known.default or default)

    def _add(self, element: ElementTree.Element, directed: bool) -> None:
        if not self.pending:
            self._choose_data()
        data = {child.get("key"): _label(child, "EdgeLabel") for child in element if _tag(child) == "data"}
        relation = self._value(data, self.relation) or self.options.relation_name or DEFAULT_RELATION
        weights = [self._value(data, name) for name in self.weights]
        row = [element.get("source"), relation, element.get("target"), *weights]
        for column, value in zip(self.pending, row, strict=True):
            column.append(value)
        self.num_undirected += not (element.get("directed") == "true" if element.get("directed") else directed)
        if len(self.pending[0]) >= CHUNK_EDGES:
            self._encode()

    def _value(self, data: dict[str | None, str], name: str | None) -> str | None:
        """Return what an edge's data say under one name."""
        if name is None:
            return None
        found = self.data[name]
        return next((data[key] for key in found.keys if key in data), found.default)

    def _choose_data(self) -> None:
        relation = first_known(self.data, (*RELATION_DATA, "edgegraphics"))
        if self.options.relation is not None:
            relation = None if self.options.relation == NONE else self._find(str(self.options.relation))
        given = self.options.weight_columns
        if self.options.weight is not None:
            given = [] if self.options.weight == NONE else [self.options.weight]
        if given is not None:
            weights = list(map(self._find, map(str, given)))
        else:
            usual = first_known(self.data, WEIGHT_DATA)
            real = [name for name, data in self.data.items() if data.is_real]
            weights = [*([usual] if usual is not None and usual not in real else []), *real]
            weights = [name for name in weights if name != relation]
        self.relation, self.weights = relation, weights
        self.pending = [[] for _ in range(len(weights) + 3)]
        self.blocks = [[] for _ in self.pending]

    def _find(self, name: str) -> str:
        """Return the name of the data with this name or key; raise an error if there is none."""
        for each, data in self.data.items():
            if name == each or name in data.keys:
                return each
        known = ", ".join(self.data) or "none"
        raise FocuseError(f"{self.where}: edges have no data {name!r}{nearest(name, self.data)}; they have {known}")

    def _encode(self) -> None:
        if self.pending and self.pending[0]:
            for index, (column, blocks) in enumerate(zip(self.pending, self.blocks, strict=True)):
                values = pa.array(column, pa.string())
                blocks.append(values.dictionary_encode() if index < 3 else values)
                column.clear()

    def graph(self) -> Graph:
        if not self.blocks:
            raise FocuseError(f"{self.where}: no edges; expected GraphML with <edge source=… target=…>")
        columns = [pa.chunked_array(blocks) for blocks in self.blocks]
        notes: list[str] = []
        missing = self.options.missing_weight
        self._rename_nodes(columns, notes)
        relation, weights = self.relation, self.weights
        if relation is None:
            used = ", ".join(map(repr, weights))
            unused = [repr(name) for name in self.data if name not in weights]
            note = f"{self.where}: read {f'weight {used}' if used else 'no weight'} from the data of edges; all edges "
            note += f"have the relation {self.options.relation_name or DEFAULT_RELATION!r} (--relation-name)"
            note += f"; not used: {', '.join(unused[:8])}{' …' if len(unused) > 8 else ''}" if unused else ""
            notes.append(f"{note}; to change it, give --relation and --weight")
        is_undirected = self.num_undirected == sum(map(len, self.blocks[0]))
        if self.num_undirected and not is_undirected:
            edges = counted(self.num_undirected, "undirected edges", "are")
            notes.append(f"{self.where}: {edges} read once, from source to target")
        if len(columns) > 4 and missing is not None:
            bare = reduce(pc.and_, map(pc.is_null, columns[3:]))
            dropped = pc.sum(bare).as_py()
            if missing != "drop":
                columns[3:] = [pc.if_else(bare, str(float(missing)), column) for column in columns[3:]]
            elif dropped:
                columns = [column.filter(pc.invert(bare)) for column in columns]
                notes.append(f"{self.where}: {counted(dropped, 'edges')} without a weight left out")
        table = pa.table(columns, [*ROLES[:3], *weights])
        given = ReadOptions(columns=range(1, len(columns) + 1), missing_weight=missing if len(weights) == 1 else None)
        graph = graph_from_table(table, given, self.where)
        one = relation is None and self.options.relation_name is None
        graph = replace(graph, notes=(*notes, *graph.notes), one_relation=one)
        return as_undirected(graph, self.options) if is_undirected else graph

    def _rename_nodes(self, columns: list[pa.ChunkedArray], notes: list[str]) -> None:
        """Replace ids of nodes that are only numbers by their names, if each has its own."""
        used = {node for at in (0, 2) for chunk in columns[at].chunks for node in chunk.dictionary.to_pylist()}
        if not self.named or len(set(self.names.values())) < len(self.names) or not used <= self.names.keys():
            return
        for at in (0, 2):
            chunks = []
            for chunk in columns[at].chunks:
                texts = [self.names[node] for node in chunk.dictionary.to_pylist()]
                chunks.append(pa.DictionaryArray.from_arrays(chunk.indices, pa.array(texts, pa.string())))
            columns[at] = pa.chunked_array(chunks)
        notes.append(f"{self.where}: nodes are named by their names or labels, because their ids are only numbers")


def _label(data: ElementTree.Element, tag: str) -> str:
    """Return the text of an element of data, or of the label that yEd writes into it."""
    label = next((each for each in data.iter() if _tag(each) == tag), data) if len(data) else data
    return (label.text or "").strip() if label is not data else label.text or ""


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


# ---- writing --------------------------------------------------------------------------------------------------------


def graph_pieces(graph: Graph, suffix: str, base: str, path: Path) -> Iterator[pa.Buffer | bytes]:
    """Yield the text of a GraphML file with a graph's edges and weights."""
    refuse_characters(graph, path, NOT_XML, "a character that XML cannot represent; write .csv or .parquet instead")
    ids = [pa.array(column) for column in (graph.head, graph.relation, graph.tail)]
    weights = graph.weights_by_name() if graph.weighted else {}
    keys = [f"w{number}" for number in range(1, len(weights) + 1)]
    declared = [
        f'<key id="{key}" for="edge" attr.name={quoteattr(name)} attr.type="double"/>'
        for key, name in zip(keys, weights, strict=True)
    ]
    opening = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<graphml xmlns="{NAMESPACE}">',
        '<key id="relation" for="edge" attr.name="relation" attr.type="string"/>',
        *declared,
        '<graph edgedefault="directed">',
    ]
    yield ("\n".join(opening) + "\n").encode()
    entities, relations = (escape_xml(names.column) for names in (graph.entities, graph.relations))
    if len(entities):
        yield column_bytes(pc.binary_join_element_wise('<node id="', entities, '"/>\n', ""))
    for chunk in chunks(len(graph), CHUNK_EDGES):
        head, relation, tail = (column[chunk] for column in ids)
        parts: list[Any] = ['<edge source="', entities.take(head), '" target="', entities.take(tail)]
        parts += ['"><data key="relation">', relations.take(relation), "</data>"]
        for key, column in zip(keys, weights.values(), strict=True):
            text = column[chunk].cast(pa.string())
            parts.append(pc.fill_null(pc.binary_join_element_wise(f'<data key="{key}">', text, "</data>", ""), ""))
        yield column_bytes(pc.binary_join_element_wise(*parts, "</edge>\n", ""))
    yield b"</graph>\n</graphml>\n"


def escape_xml(names: pa.Array) -> pa.Array:
    """Return names escaped for XML attributes and data; line ends as numbers, because they would become spaces."""
    for character, escaped in ESCAPES:
        names = pc.replace_substring(names, character, escaped)
    return names
