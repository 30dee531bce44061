"""Reading RDF: triples as edges, numbers noted on them as weights.

A note on a triple has a node of its own, the reifier: RDF 1.2 (`rdf:reifies`, `{| … |}`), RDF-star (`<< … >>`) and the
classic rdf:Statement all become rows of (reifier, head, relation, tail) here, and every number of a node a row of
(node, property, value). Which nodes are reifiers is known only at the end of the file; until then rows wait, encoded,
in blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers import expat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from focuse.errors import FocuseError
from focuse.graph.annotations import Options, Rows, to_graph
from focuse.graph.graph import Graph, Ids, unified
from focuse.graph.iris import RDF, XSD
from focuse.graph.markup import check_entities

SUFFIXES = {
    ".nt": "N_TRIPLES",
    ".ntriples": "N_TRIPLES",
    ".nq": "N_QUADS",
    ".nquads": "N_QUADS",
    ".ttl": "TURTLE",
    ".turtle": "TURTLE",
    ".trig": "TRIG",
    ".n3": "N3",
    ".rdf": "RDF_XML",
    ".owl": "RDF_XML",
    ".xml": "RDF_XML",
    ".jsonld": "JSON_LD",
}
SIGNED = ["integer", "int", "long", "short", "byte", "positiveInteger", "nonPositiveInteger", "negativeInteger"]
UNSIGNED = ["nonNegativeInteger", "unsignedInt", "unsignedLong", "unsignedShort", "unsignedByte"]
NUMBERS = frozenset(XSD + kind for kind in ["decimal", "double", "float", *SIGNED, *UNSIGNED])
PARTS = {f"{RDF}subject": 0, f"{RDF}predicate": 1, f"{RDF}object": 2}
REIFIES, TYPE, STATEMENT = f"{RDF}reifies", f"{RDF}type", f"{RDF}Statement"
SPECIAL = frozenset([*PARTS, TYPE])
CHUNK = 1 << 14  # statements whose names are Python objects at a time


class Kinds(NamedTuple):
    """The classes of terms."""

    named: Any
    blank: Any
    literal: Any


class Block:
    """Rows of so many terms, encoded a chunk at a time, and where in the file each stands."""

    def __init__(self, width: int) -> None:
        self.waiting: list[tuple[Any, ...]] = []  # rows of a place and then the terms
        self.columns: list[list[pa.Array]] = [[] for _ in range(width)]
        self.places: list[npt.NDArray[np.int64]] = []

    def __len__(self) -> int:
        return sum(map(len, self.places))

    def encode(self) -> None:
        """Make arrays of the rows that wait."""
        if self.waiting:
            place, *names = zip(*self.waiting, strict=True)
            self.places.append(np.array(place, np.int64))
            for column, values in zip(self.columns, names, strict=True):
                column.append(pa.array(values, pa.string()).dictionary_encode())
            self.waiting.clear()

    def where(self) -> npt.NDArray[np.int64]:
        return np.concatenate(self.places) if self.places else np.empty(0, np.int64)


class Statements:
    """All that a file says, sorted by what it may mean; `literals` and `terms` count what is no edge."""

    def __init__(self, options: Options, kinds: Kinds) -> None:
        self.options, self.kinds = options, kinds
        self.facts, self.reified, self.numbers = Block(3), Block(4), Block(2)
        self.parts = (Block(2), Block(2), Block(2))
        self.values: list[npt.NDArray[np.float64]] = []
        self.waiting: list[float] = []
        self.seen = self.literals = self.terms = 0

    def blocks(self) -> list[Block]:
        return [self.facts, self.reified, self.numbers, *self.parts]

    def take(self, statements: Iterable[Any]) -> int:
        """Sort statements in and keep their terms encoded; how many there were."""
        named, blank, _ = self.kinds
        facts = self.facts.waiting
        place = start = self.seen
        for place, (subject, predicate, tail, _) in enumerate(statements, start + 1):
            head = subject.value if type(subject) is named else f"_:{subject.value}"
            relation, kind = predicate.value, type(tail)
            if kind is named and relation not in SPECIAL:  # by far the most
                facts.append((place, head, relation, tail.value))
            elif kind is named or kind is blank:
                self._node(place, head, relation, tail.value if kind is named else f"_:{tail.value}")
            else:
                self._other(place, head, relation, tail)
        self.seen = place
        self.values.append(np.array(self.waiting, np.float64))
        self.waiting.clear()
        for block in self.blocks():
            block.encode()
        return place - start

    def _node(self, place: int, head: str, relation: str, tail: str) -> None:
        part = PARTS.get(relation)
        if part is not None:
            self.parts[part].waiting.append((place, head, tail))
        elif relation != TYPE or tail != STATEMENT:
            self.facts.waiting.append((place, head, relation, tail))

    def _other(self, place: int, head: str, relation: str, tail: Any) -> None:
        """A statement whose object is a literal or a triple."""
        named, blank, literal = self.kinds
        if type(tail) is literal:
            self.literals += 1
            number = self._number(tail)
            if number is not None:
                self.numbers.waiting.append((place, head, relation))
                self.waiting.append(number)
            if self.options.literals == "keep":
                self.facts.waiting.append((place, head, relation, str(tail)))
        elif relation == REIFIES and type(tail.object) in (named, blank):
            first, kind, last = tail
            start = first.value if type(first) is named else f"_:{first.value}"
            end = last.value if type(last) is named else f"_:{last.value}"
            self.reified.waiting.append((place, head, start, kind.value, end))
        else:  # a triple with a literal, or one that is the object of something else
            self.terms += 1

    def _number(self, value: Any) -> float | None:
        """The number that a literal is; one of a text only if the user says which properties are numbers."""
        kind = value.datatype.value
        if kind not in NUMBERS and not (self.options.weights and kind == f"{XSD}string"):
            return None
        try:
            return float(value.value)
        except ValueError:
            return math.nan if kind in NUMBERS else None


def rdf_kind(path: Path) -> str | None:
    """The RDF format that a file's name says it has, also packed (.gz, .zst); None for other files."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".zst"):
        suffixes.pop()
    return SUFFIXES.get(suffixes[-1]) if suffixes else None


def read_rdf(path: Path, options: Options, opened: Callable[[Path], Any]) -> Graph:
    """The graph in an RDF file, whose unpacked bytes `opened` gives."""
    kind = rdf_kind(path) or "TURTLE"
    try:
        try:
            found = _parsed(path, kind, options, opened)
        except SyntaxError:
            if kind != "N_TRIPLES":
                raise
            # Lines of RDF-star (<< … >> as a subject) are no N-Triples today, but they are Turtle.
            with suppress(SyntaxError):
                return to_graph(_rows(_parsed(path, "TURTLE", options, opened)), options, str(path))
            raise
    except SyntaxError as error:
        raise _fault(error, path, kind, opened) from None
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise FocuseError(f"{path}: {' '.join(str(error).split())[:200]}") from None
    return to_graph(_rows(found), options, str(path))


def load_pyoxigraph() -> Any:
    """The library that parses RDF."""
    try:
        import pyoxigraph
    except ImportError:
        raise FocuseError("reading RDF needs focuse[rdf]: pip install 'focuse[rdf]'") from None
    return pyoxigraph


def _parsed(path: Path, kind: str, options: Options, opened: Callable[[Path], Any]) -> Statements:
    """All statements of a file; only CHUNK of them are Python objects at a time."""
    pyoxigraph = load_pyoxigraph()
    found = Statements(options, Kinds(pyoxigraph.NamedNode, pyoxigraph.BlankNode, pyoxigraph.Literal))
    if kind == "RDF_XML":
        check_entities(path, opened)
    with opened(path) as stream:
        bom = stream.read(3) == b"\xef\xbb\xbf"
    with opened(path) as stream:
        if bom:
            stream.read(3)  # editors on Windows leave it; no grammar but XML's knows it
        parser = pyoxigraph.parse(stream, getattr(pyoxigraph.RdfFormat, kind))
        while found.take(islice(parser, CHUNK)):
            pass
    return found


def _fault(error: SyntaxError, path: Path, kind: str, opened: Callable[[Path], Any]) -> FocuseError:
    """What is wrong, and on which line."""
    words = " ".join(str(error.msg).split())
    line, words = error.lineno, words.partition(": ")[2] if words.startswith("Parser error at") else words
    if line is None and kind == "RDF_XML":
        line, words = _xml_fault(path, words, opened)
    if "No scheme found" in words:
        words = "a relative IRI; say what it is relative to (@base in the file)"
    where = f"{path}, line {line}" if line is not None else f"{path}"
    return FocuseError(f"{where}: {words[:200]}")


def _xml_fault(path: Path, words: str, opened: Callable[[Path], Any]) -> tuple[int | None, str]:
    """The line on which a file stops being XML; None if it is XML, yet no RDF."""
    parser = expat.ParserCreate()
    try:
        with opened(path) as stream:
            parser.ParseFile(stream)
    except expat.ExpatError as error:
        return error.lineno, f"not XML: {expat.ErrorString(error.code)}"
    except (LookupError, ValueError) as error:  # encodings that there are not
        return None, f"not XML: {error}"
    return None, words


def _rows(found: Statements) -> Rows:
    """What was found, in ids of one list of terms."""
    blocks = [part for block in found.blocks() for column in block.columns for part in column]
    ids, terms = unified(blocks)
    columns: list[Ids] = []
    start = 0
    for block in found.blocks():
        for _ in block.columns:
            columns.append(ids[start : start + len(block)])
            start += len(block)
    facts, reified, numbers = columns[:3], columns[3:7], columns[7:9]
    parts = tuple((columns[9 + 2 * part], columns[10 + 2 * part]) for part in range(3))
    place = np.concatenate([found.facts.where(), found.reified.where()])
    classic, place_of = _classic(parts, found.parts[0].where())
    nodes, heads, relations, tails = (np.concatenate(pair) for pair in zip(reified, classic, strict=True))
    return Rows(
        terms.column,
        (facts[0], facts[1], facts[2]),
        (nodes, heads, relations, tails),
        np.concatenate([place, place_of]),
        (numbers[0], numbers[1]),
        np.concatenate(found.values) if found.values else np.empty(0),
        found.literals,
        found.terms,
    )


def _classic(parts: Sequence[tuple[Ids, Ids]], place: npt.NDArray[np.int64]) -> tuple[list[Ids], npt.NDArray[np.int64]]:
    """Nodes with an rdf:subject, rdf:predicate and rdf:object, as rows (reifier, head, relation, tail)."""
    nodes, first = np.unique(parts[0][0], return_index=True)
    columns = [nodes, parts[0][1][first]]
    whole = np.ones(len(nodes), bool)
    for node, term in parts[1:]:
        known, at = np.unique(node, return_index=True)
        spot = np.searchsorted(known, nodes)
        inside = spot < len(known)
        inside[inside] = known[spot[inside]] == nodes[inside]
        whole &= inside
        spot = np.where(inside, spot, 0)
        columns.append(term[at[spot]] if len(at) else np.zeros(len(nodes), np.int32))
    return [column[whole] for column in columns], place[first][whole]
