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
from focuse.data.roles import NONE, RELATION, WEIGHT
from focuse.data.sniffer import ROLES
from focuse.data.writers import column_bytes, refuse_characters
from focuse.errors import FocuseError, counted, nearest
from focuse.integrations.networks import UNDIRECTED, refuse_options
from focuse.integrations.rdf import check_annotation_options, check_xml
from focuse.system import chunks

NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
DEFAULT_RELATION = "related"  # of edges without data that names one
CHUNK_EDGES = 1 << 15
NUMBERED = re.compile(r"n?[0-9]+")  # ids of nodes, as igraph writes them
# Characters that XML 1.0 cannot represent, not even escaped.
NOT_XML = "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\ufffe\uffff]"
ESCAPES = (
    ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\t", "&#9;"), ("\n", "&#10;"), ("\r", "&#13;"),
)  # fmt: skip


# ---- reading --------------------------------------------------------------------------------------------------------


class EdgeKey(NamedTuple):
    """A key of data that a file declares for its edges."""

    name: str
    is_real: bool
    default: str | None


def read_graphml(path: Path, options: ReadOptions) -> Graph:
    """Read a GraphML file. An edge's relation is its data `relation`, `label` or `type`, else 'related'.

    Its weights are those that the options name, else the data called weight (score, confidence, …) and all of type
    double or float. A node's name is its id, or its data `name` if the ids are only numbers.
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
        self.keys: dict[str | None, EdgeKey] = {}
        self.chosen: list[str | None] = []  # the keys of the relation and the weights, once all are declared
        self.node_name: str | None = None  # the key of the names of nodes
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
                if element.get("attr.name") == "name":
                    self.node_name = element.get("id")
            elif tag == "node" and self.named:
                self._add_node(element)
            elif tag == "key" and element.get("for", "all") in ("edge", "all"):
                key = element.get("id", "")
                default = next((child.text or "" for child in element if _tag(child) == "default"), None)
                is_real = element.get("attr.type") in ("double", "float")
                self.keys[key] = EdgeKey(element.get("attr.name") or key, is_real, default)
            elif tag == "edge":
                self._add(element, graphs[-1][1] if graphs else True)
            elif tag == "graph":
                graphs.pop()
            if event == "end" and tag in ("node", "edge") and graphs:
                graphs[-1][0].clear()  # else all elements would stay in memory
        self._encode()

    def _add_node(self, element: ElementTree.Element) -> None:
        node = element.get("id", "")
        name = next((child.text for child in element if child.get("key") == self.node_name), None)
        self.named = self.node_name is not None and bool(name) and NUMBERED.fullmatch(node) is not None
        self.names[node] = name or ""

    def _add(self, element: ElementTree.Element, directed: bool) -> None:
        if not self.chosen:
            self._choose_keys()
        data = {child.get("key"): child.text or "" for child in element if _tag(child) == "data"}
        relation, *weights = [data.get(key, self.keys[key].default) for key in self.chosen]
        relation = relation or self.options.relation_name or DEFAULT_RELATION
        row = [element.get("source"), relation, element.get("target"), *weights]
        for column, value in zip(self.pending, row, strict=True):
            column.append(value)
        self.num_undirected += not (element.get("directed") == "true" if element.get("directed") else directed)
        if len(self.pending[0]) >= CHUNK_EDGES:
            self._encode()

    def _choose_keys(self) -> None:
        by_name = {key.name.lower(): each for each, key in reversed(self.keys.items())}
        words = ["relation", "label", "type", *RELATION]
        relation = next((by_name[word] for word in words if word in by_name), None)
        if self.options.relation is not None:
            relation = None if self.options.relation == NONE else self._key_of(str(self.options.relation))
        given = self.options.weight_columns
        if self.options.weight is not None:
            given = [] if self.options.weight == NONE else [self.options.weight]
        if given is not None:
            weights = list(map(self._key_of, map(str, given)))
        else:
            words = ["weight", *WEIGHT]
            usual = [by_name[word] for word in words if word in by_name][:1]
            real = [each for each, key in self.keys.items() if key.is_real]
            weights = [key for key in [*(key for key in usual if key not in real), *real] if key != relation]
        self.chosen = [relation, *weights]
        self.keys.setdefault(None, EdgeKey("relation", False, None))
        self.pending = [[] for _ in range(len(self.chosen) + 2)]
        self.blocks = [[] for _ in self.pending]

    def _key_of(self, name: str) -> str | None:
        """Return the key with this name or id; raise an error if there is none."""
        names = [key.name for key in self.keys.values()]
        for each, key in self.keys.items():
            if name in (key.name, each):
                return each
        raise FocuseError(
            f"{self.where}: edges have no data {name!r}{nearest(name, names)}; they have {', '.join(names) or 'none'}"
        )

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
        relation, *weights = self.chosen
        if relation is None:
            used = ", ".join(repr(self.keys[key].name) for key in weights)
            unused = [repr(key.name) for each, key in self.keys.items() if each not in (None, *weights)]
            note = f"{self.where}: read {f'weight {used}' if used else 'no weight'} from the data of edges; all edges "
            note += f"have the relation {self.options.relation_name or DEFAULT_RELATION!r} (--relation-name)"
            note += f"; not used: {', '.join(unused[:8])}{' …' if len(unused) > 8 else ''}" if unused else ""
            notes.append(f"{note}; to change it, give --relation and --weight")
        if self.num_undirected == sum(map(len, self.blocks[0])):
            notes.append(f"{self.where}: {UNDIRECTED}")
        elif self.num_undirected:
            edges = counted(self.num_undirected, "undirected edges", "are")
            notes.append(f"{self.where}: {edges} read once, from source to target")
        if len(columns) > 3 and missing is not None:
            bare = reduce(pc.and_, map(pc.is_null, columns[3:]))
            dropped = pc.sum(bare).as_py()
            if missing != "drop":
                columns[3:] = [pc.if_else(bare, str(float(missing)), column) for column in columns[3:]]
            elif dropped:
                columns = [column.filter(pc.invert(bare)) for column in columns]
                notes.append(f"{self.where}: {counted(dropped, 'edges')} without a weight left out")
        names = [*ROLES[:3], *(self.keys[key].name for key in self.chosen[1:])]
        table = pa.table(columns, names)
        graph = graph_from_table(table, ReadOptions(columns=range(1, len(names) + 1)), self.where)
        one = relation is None and self.options.relation_name is None
        both_ways = self.num_undirected == sum(map(len, self.blocks[0]))
        return replace(graph, notes=tuple(notes), one_relation=one, undirected=both_ways or None)

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
        notes.append(f"{self.where}: nodes have the names in their data 'name', because their ids are only numbers")


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
