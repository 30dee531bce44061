"""Read and write GraphML."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from focuse.data.graph import ALL_WEIGHTS_MISSING, Graph, WeightColumns, from_columns
from focuse.data.readers import (
    ReadOptions,
    inspect_file,
    number_column,
    open_decompressed,
    text_column,
)
from focuse.data.sniffer import HEADINGS, ROLES
from focuse.data.writers import column_bytes, refuse_characters
from focuse.errors import FocuseError, counted, nearest
from focuse.integrations.rdf import check_annotation_options, check_xml

NAMESPACE = "http://graphml.graphdrawing.org/xmlns"
DEFAULT_RELATION = "related"  # of edges without data that names one
CHUNK_EDGES = 1 << 15
# Characters that XML 1.0 cannot represent, not even escaped.
NOT_XML = "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\ufffe\uffff]"
ESCAPES = (
    ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\t", "&#9;"), ("\n", "&#10;"), ("\r", "&#13;"),
)  # fmt: skip


# ---- reading --------------------------------------------------------------------------------------------------------


@dataclass
class EdgeKeys:
    """The data keys that a file declares for its edges: their names, which are real numbers, and their defaults."""

    names: dict[str, str] = field(default_factory=dict)
    real: list[str] = field(default_factory=list)
    defaults: dict[str, str] = field(default_factory=dict)

    def declare(self, element: ElementTree.Element) -> None:
        if element.get("for", "all") in ("edge", "all"):
            key = element.get("id", "")
            self.names[key] = element.get("attr.name") or key
            if element.get("attr.type") in ("double", "float"):
                self.real.append(key)
            for child in element:
                if _tag(child) == "default":
                    self.defaults[key] = child.text or ""

    def find(self, words: Sequence[str]) -> str | None:
        """Return the key with the first of these names that is declared."""
        by_name = {name.lower(): key for key, name in reversed(self.names.items())}
        return next((by_name[word] for word in words if word in by_name), None)

    def key_of(self, name: str, where: str) -> str:
        """Return the key with this name or id; raise an error if there is none."""
        for key, known in self.names.items():
            if name in (known, key):
                return key
        known = ", ".join(self.names.values()) or "none"
        raise FocuseError(
            f"{where}: edges have no data {name!r}{nearest(name, self.names.values())}; they have {known}"
        )


def read_graphml(path: Path, options: ReadOptions) -> Graph:
    """Read a GraphML file. An edge's relation is its data `relation`, `label` or `type`, else 'related'.

    Its weights are those that the options name, else the data called weight (score, confidence, …) and all of type
    double or float.
    """
    inspect_file(path)
    check_annotation_options(path, options)
    weights = None if options.weights is None else tuple(map(str, options.weights))
    return _read_file(path, weights, options.missing_weight)


def _read_file(path: Path, weights: Sequence[str] | None, missing: float | str | None) -> Graph:
    where = str(path)
    edges = _EdgeCollector(where, weights)
    try:
        check_xml(path)
        with open_decompressed(path) as stream:
            edges.read(stream)
    except ElementTree.ParseError as error:
        line, _ = error.position
        raise FocuseError(f"{where}, line {line}: not XML: {str(error).partition(': line')[0]}") from None
    except (pa.ArrowException, OSError, EOFError, LookupError, ValueError) as error:  # also of unknown encodings
        raise FocuseError(f"{where}: {' '.join(str(error).split())[:200]}") from None
    return edges.graph(missing)


class _EdgeCollector:
    """Collects edges while a file is parsed, encoded a chunk at a time."""

    def __init__(self, where: str, weights: Sequence[str] | None) -> None:
        self.where, self.weights = where, weights
        self.keys = EdgeKeys()
        self.relation_key: str | None = None
        self.weight_keys: list[str] | None = None  # chosen once all keys are declared
        self.pending: list[list[Any]] = [[], [], []]
        self.blocks: list[list[pa.Array]] = [[], [], []]
        self.num_undirected = 0

    def read(self, stream: Any) -> None:
        directed, parent = True, None
        for event, element in ElementTree.iterparse(stream, ("start", "end")):
            tag = _tag(element)
            if event == "start":
                if tag == "graph":
                    parent = element
                    directed = element.get("edgedefault", "directed") != "undirected"
                elif tag == "hyperedge":
                    raise FocuseError(f"{self.where}: it has hyperedges; give edges between two nodes")
            elif tag == "key":
                self.keys.declare(element)
            elif tag == "edge":
                self._add(element, directed)
            if event == "end" and tag in ("node", "edge") and parent is not None:
                parent.clear()  # else all elements would stay in memory
        self._encode()

    def _add(self, element: ElementTree.Element, directed: bool) -> None:
        if self.weight_keys is None:
            self._choose_keys()
        data = {child.get("key"): child.text or "" for child in element if _tag(child) == "data"}
        relation = data.get(self.relation_key, self.keys.defaults.get(self.relation_key or "", DEFAULT_RELATION))
        row = [element.get("source"), relation or DEFAULT_RELATION, element.get("target")]
        row += [data.get(key, self.keys.defaults.get(key)) for key in self.weight_keys or ()]
        for column, value in zip(self.pending, row, strict=True):
            column.append(value)
        self.num_undirected += not (element.get("directed") == "true" if element.get("directed") else directed)
        if len(self.pending[0]) >= CHUNK_EDGES:
            self._encode()

    def _choose_keys(self) -> None:
        first = ["relation", "label", "type"]
        self.relation_key = self.keys.find([*first, *sorted(HEADINGS["relation"] - set(first))])
        if self.weights is not None:
            self.weight_keys = [self.keys.key_of(name, self.where) for name in self.weights]
        else:
            key = self.keys.find(["weight", *sorted(HEADINGS["weight"] - {"weight"})])
            self.weight_keys = [key] if key is not None and key not in self.keys.real else []
            self.weight_keys = [found for found in [*self.weight_keys, *self.keys.real] if found != self.relation_key]
        self.pending += [[] for _ in self.weight_keys]
        self.blocks += [[] for _ in self.weight_keys]

    def _encode(self) -> None:
        if self.pending[0]:
            for index, (column, blocks) in enumerate(zip(self.pending, self.blocks, strict=True)):
                values = pa.array(column, pa.string())
                blocks.append(values.dictionary_encode() if index < 3 else values)
                column.clear()

    def graph(self, missing: float | str | None) -> Graph:
        if not self.blocks[0]:
            raise FocuseError(f"{self.where}: no edges; expected GraphML with <edge source=… target=…>")
        columns = [pa.chunked_array(blocks) for blocks in self.blocks]
        notes = []
        if self.num_undirected:
            notes.append(f"{self.where}: {self.num_undirected:,} undirected edges are read once, from source to target")
        if len(columns) > 3 and missing is not None:
            bare = pc.is_null(columns[3])
            for column in columns[4:]:
                bare = pc.and_(bare, pc.is_null(column))
            if missing == "drop":
                columns = [column.filter(pc.invert(bare)) for column in columns]
                dropped = pc.sum(bare).as_py()
                notes += [f"{self.where}: {counted(dropped, 'edges')} without a weight left out"] if dropped else []
            else:
                columns[3:] = [pc.if_else(bare, str(float(missing)), column) for column in columns[3:]]
        return replace(self._encoded(columns), notes=tuple(notes))

    def _encoded(self, columns: list[pa.ChunkedArray]) -> Graph:
        head, relation, tail = (
            text_column(column, role, self.where) for column, role in zip(columns, ROLES[:3], strict=False)
        )
        if len(columns) == 3:
            return from_columns(head, relation, tail, None, self.where)
        if len(columns) == 4:
            return from_columns(head, relation, tail, number_column(columns[3], self.where), self.where)
        values = np.stack([number_column(column, self.where, allow_missing=True) for column in columns[3:]], axis=1)
        several = WeightColumns(tuple(self.keys.names[key] for key in self.weight_keys or ()), values)
        if not several.present.any(axis=1).all():
            row = int(np.flatnonzero(~several.present.any(axis=1))[0]) + 1
            raise FocuseError(f"{self.where}, edge {row}: {ALL_WEIGHTS_MISSING}")
        return from_columns(head, relation, tail, None, self.where, several)


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


# ---- writing --------------------------------------------------------------------------------------------------------


def graph_pieces(graph: Graph, suffix: str, base: str, path: Path) -> Iterator[pa.Buffer | bytes]:
    """Yield the text of a GraphML file with a graph's edges and weights."""
    refuse_characters(graph, path, NOT_XML, "a character that XML cannot represent; write .csv or .parquet instead")
    head, relation, tail = (pa.array(column) for column in (graph.head, graph.relation, graph.tail))
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
    for start in range(0, len(head), CHUNK_EDGES):
        ids = [column.slice(start, CHUNK_EDGES) for column in (head, relation, tail)]
        parts: list[Any] = ['<edge source="', entities.take(ids[0]), '" target="', entities.take(ids[2])]
        parts += ['"><data key="relation">', relations.take(ids[1]), "</data>"]
        for key, column in zip(keys, weights.values(), strict=True):
            text = column.slice(start, CHUNK_EDGES).cast(pa.string())
            parts.append(pc.fill_null(pc.binary_join_element_wise(f'<data key="{key}">', text, "</data>", ""), ""))
        yield column_bytes(pc.binary_join_element_wise(*parts, "</edge>\n", ""))
    yield b"</graph>\n</graphml>\n"


def escape_xml(names: pa.Array) -> pa.Array:
    """Return names escaped for XML attributes and data; line ends as numbers, because they would become spaces."""
    for character, escaped in ESCAPES:
        names = pc.replace_substring(names, character, escaped)
    return names
