"""GraphML: edges between nodes, with their relation and numbers as data. Read and written in one pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from focuse.errors import FocuseError, counted, nearest
from focuse.graph.columns import ALL_MISSING, Columns
from focuse.graph.graph import Graph, from_columns
from focuse.graph.layout import HEADINGS
from focuse.graph.markup import check_entities
from focuse.graph.rdf_writing import text_of
from focuse.graph.tables import names_in, numbers_in

SPACE = "http://graphml.graphdrawing.org/xmlns"
RELATION = "related"  # where edges have no data that names one
CHUNK = 1 << 15
# What XML 1.0 cannot carry, however it is written.
NOT_XML = "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\ufffe\uffff]"
ESCAPES = (
    ("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\t", "&#9;"), ("\n", "&#10;"), ("\r", "&#13;"),
)  # fmt: skip


# ---- reading --------------------------------------------------------------------------------------------------------


@dataclass
class Keys:
    """What a file declares of its edges' data: each key's name, which are real numbers, what is meant without one."""

    names: dict[str, str] = field(default_factory=dict)
    real: list[str] = field(default_factory=list)
    usual: dict[str, str] = field(default_factory=dict)

    def declare(self, element: ElementTree.Element) -> None:
        if element.get("for", "all") in ("edge", "all"):
            key = element.get("id", "")
            self.names[key] = element.get("attr.name") or key
            if element.get("attr.type") in ("double", "float"):
                self.real.append(key)
            for child in element:
                if _tag(child) == "default":
                    self.usual[key] = child.text or ""

    def find(self, words: Sequence[str]) -> str | None:
        """The key with the first of these names that there is."""
        by_name = {name.lower(): key for key, name in reversed(self.names.items())}
        return next((by_name[word] for word in words if word in by_name), None)

    def exactly(self, name: str, where: str) -> str:
        for key, known in self.names.items():
            if name in (known, key):
                return key
        known = ", ".join(self.names.values()) or "none"
        raise FocuseError(
            f"{where}: edges have no data {name!r}{nearest(name, self.names.values())}; they have {known}"
        )


def is_graphml(path: Path) -> bool:
    """Whether a file's name says that it is GraphML, plain or packed."""
    return re.search(r"\.graphml(\.gz|\.zst)?$", path.name, re.IGNORECASE) is not None


def read_graphml(
    path: Path,
    stream: Any,
    weights: Sequence[str | int] | None,
    missing: float | str | None,
    opened: Callable[[Path], Any] | None = None,
) -> Graph:
    """The graph in a GraphML file. An edge's relation is its data `relation`, `label` or `type`, else 'related'.

    Its weights are those named, else the data called weight (score, confidence, …) and all of type double or float.
    What it declares is looked at first, where `opened` opens it once more.
    """
    where = str(path)
    found = _Edges(where, weights)
    try:
        if opened is not None:
            check_entities(path, opened)
        found.read(stream)
    except ElementTree.ParseError as error:
        line, _ = error.position
        raise FocuseError(f"{where}, line {line}: not XML: {str(error).partition(': line')[0]}") from None
    except (pa.ArrowException, OSError, EOFError, LookupError, ValueError) as error:  # also of unknown encodings
        raise FocuseError(f"{where}: {' '.join(str(error).split())[:200]}") from None
    return found.graph(missing)


class _Edges:
    """Edges as they are met, encoded a chunk at a time."""

    def __init__(self, where: str, weights: Sequence[str | int] | None) -> None:
        self.where, self.weights = where, None if weights is None else [str(name) for name in weights]
        self.keys = Keys()
        self.relation: str | None = None
        self.numbers: list[str] | None = None  # keys of weights, once all keys are known
        self.waiting: list[list[Any]] = [[], [], []]
        self.blocks: list[list[pa.Array]] = [[], [], []]
        self.undirected = 0

    def read(self, stream: Any) -> None:
        directed, above = True, None
        for event, element in ElementTree.iterparse(stream, ("start", "end")):
            tag = _tag(element)
            if event == "start":
                if tag == "graph":
                    above = element
                    directed = element.get("edgedefault", "directed") != "undirected"
                elif tag == "hyperedge":
                    raise FocuseError(f"{self.where}: it has hyperedges; give edges between two nodes")
            elif tag == "key":
                self.keys.declare(element)
            elif tag == "edge":
                self._edge(element, directed)
            if event == "end" and tag in ("node", "edge") and above is not None:
                above.clear()  # what was read, else the whole file would stay in memory
        self._encode()

    def _edge(self, element: ElementTree.Element, directed: bool) -> None:
        if self.numbers is None:
            self._choose()
        data = {child.get("key"): child.text or "" for child in element if _tag(child) == "data"}
        relation = data.get(self.relation, self.keys.usual.get(self.relation or "", RELATION))
        row = [element.get("source"), relation or RELATION, element.get("target")]
        row += [data.get(key, self.keys.usual.get(key)) for key in self.numbers or ()]
        for column, value in zip(self.waiting, row, strict=True):
            column.append(value)
        self.undirected += not (element.get("directed") == "true" if element.get("directed") else directed)
        if len(self.waiting[0]) >= CHUNK:
            self._encode()

    def _choose(self) -> None:
        first = ["relation", "label", "type"]
        self.relation = self.keys.find([*first, *sorted(HEADINGS["relation"] - set(first))])
        if self.weights is not None:
            self.numbers = [self.keys.exactly(name, self.where) for name in self.weights]
        else:
            key = self.keys.find(["weight", *sorted(HEADINGS["weight"] - {"weight"})])
            self.numbers = [key] if key is not None and key not in self.keys.real else []
            self.numbers = [found for found in [*self.numbers, *self.keys.real] if found != self.relation]
        self.waiting += [[] for _ in self.numbers]
        self.blocks += [[] for _ in self.numbers]

    def _encode(self) -> None:
        if self.waiting[0]:
            for place, (column, blocks) in enumerate(zip(self.waiting, self.blocks, strict=True)):
                values = pa.array(column, pa.string())
                blocks.append(values.dictionary_encode() if place < 3 else values)
                column.clear()

    def graph(self, missing: float | str | None) -> Graph:
        if not self.blocks[0]:
            raise FocuseError(f"{self.where}: no edges; expected GraphML with <edge source=… target=…>")
        columns = [pa.chunked_array(blocks) for blocks in self.blocks]
        notes = []
        if self.undirected:
            notes.append(f"{self.where}: {self.undirected:,} undirected edges are read once, from source to target")
        if len(columns) > 3 and missing is not None:
            bare = pc.is_null(columns[3])
            for column in columns[4:]:
                bare = pc.and_(bare, pc.is_null(column))
            if missing == "drop":
                columns = [column.filter(pc.invert(bare)) for column in columns]
                left = pc.sum(bare).as_py()
                notes += [f"{self.where}: {counted(left, 'edges')} without a weight left out"] if left else []
            else:
                columns[3:] = [pc.if_else(bare, str(float(missing)), column) for column in columns[3:]]
        return replace(self._made(columns), notes=tuple(notes))

    def _made(self, columns: list[pa.ChunkedArray]) -> Graph:
        head, relation, tail = (
            names_in(column, role, self.where)
            for column, role in zip(columns, ("head", "relation", "tail"), strict=False)
        )
        if len(columns) == 3:
            return from_columns(head, relation, tail, None, self.where)
        if len(columns) == 4:
            return from_columns(head, relation, tail, numbers_in(columns[3], self.where), self.where)
        values = np.stack([numbers_in(column, self.where, may_miss=True) for column in columns[3:]], axis=1)
        several = Columns(tuple(self.keys.names[key] for key in self.numbers or ()), values)
        if not several.present.any(axis=1).all():
            row = int(np.flatnonzero(~several.present.any(axis=1))[0]) + 1
            raise FocuseError(f"{self.where}, edge {row}: {ALL_MISSING}")
        return from_columns(head, relation, tail, None, self.where, several)


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


# ---- writing --------------------------------------------------------------------------------------------------------


def graphml_lines(
    head: pa.Array,
    relation: pa.Array,
    tail: pa.Array,
    names: tuple[pa.Array, pa.Array],
    numbers: Mapping[str, pa.Array],
) -> Iterator[pa.Buffer | bytes]:
    """The text of a GraphML file in pieces: places [n] in `names` of entities and relations, and numbers [n]."""
    keys = [f"w{place}" for place in range(1, len(numbers) + 1)]
    declared = [
        f'<key id="{key}" for="edge" attr.name={quoteattr(name)} attr.type="double"/>'
        for key, name in zip(keys, numbers, strict=True)
    ]
    start = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<graphml xmlns="{SPACE}">',
        '<key id="relation" for="edge" attr.name="relation" attr.type="string"/>',
        *declared,
        '<graph edgedefault="directed">',
    ]
    yield ("\n".join(start) + "\n").encode()
    entities, relations = (escaped(each) for each in names)
    if len(entities):
        yield text_of(pc.binary_join_element_wise('<node id="', entities, '"/>\n', ""))
    for begin in range(0, len(head), CHUNK):
        ids = [column.slice(begin, CHUNK) for column in (head, relation, tail)]
        parts: list[Any] = ['<edge source="', entities.take(ids[0]), '" target="', entities.take(ids[2])]
        parts += ['"><data key="relation">', relations.take(ids[1]), "</data>"]
        for key, column in zip(keys, numbers.values(), strict=True):
            text = column.slice(begin, CHUNK).cast(pa.string())
            parts.append(pc.fill_null(pc.binary_join_element_wise(f'<data key="{key}">', text, "</data>", ""), ""))
        yield text_of(pc.binary_join_element_wise(*parts, "</edge>\n", ""))
    yield b"</graph>\n</graphml>\n"


def escaped(names: pa.Array) -> pa.Array:
    """Names as they stand in attributes and data of XML; line ends as numbers, else they would become spaces."""
    for letter, written in ESCAPES:
        names = pc.replace_substring(names, letter, written)
    return names
