"""Writing triples and their numbers as RDF 1.2: N-Triples, N-Quads, Turtle and TriG.

Lines are put together column by column; no library is needed, and no Python object an edge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from focuse.graph.iris import BASE, RDF, XSD, check_base, terms, to_iri

SUFFIXES = (".nt", ".nq", ".ttl", ".trig")
TURTLE = (".ttl", ".trig")
CHUNK_ROWS = 1 << 16
# In this order: what is escaped first must not be escaped again.
ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"))


@dataclass(frozen=True, eq=False)
class Triples:
    """Edges over lists of distinct names: places [n] in `entities` and `relations`, and columns [n] of what they have.

    Where `asserted`, the triples are stated; else they are only spoken of, as befits a guess.
    """

    head: pa.Array
    relation: pa.Array
    tail: pa.Array
    entities: pa.Array
    relations: pa.Array
    notes: Mapping[str, pa.Array]
    asserted: bool = True

    def slice(self, start: int, length: int) -> Triples:
        head, relation, tail = (column.slice(start, length) for column in (self.head, self.relation, self.tail))
        notes = {name: column.slice(start, length) for name, column in self.notes.items()}
        return Triples(head, relation, tail, self.entities, self.relations, notes, self.asserted)


def lines_of(triples: Triples, suffix: str, base: str = BASE) -> Iterator[pa.Buffer | bytes]:
    """The text of an RDF file in pieces."""
    check_base(base)
    turtle = suffix in TURTLE
    entities, relations = terms(triples.entities, base), terms(triples.relations, base, blank=False)
    label = "edge"
    while pc.any(pc.starts_with(triples.entities, f"_:{label}")).as_py():
        label += "x"  # nodes of notes must not be nodes of the graph
    if turtle and triples.notes:
        yield f"@prefix xsd: <{XSD}> .\n".encode()
    for start in range(0, len(triples.head), CHUNK_ROWS):
        part = triples.slice(start, CHUNK_ROWS)
        named = [names.take(ids) for names, ids in ((entities, part.head), (relations, part.relation))]
        named.append(entities.take(part.tail))
        notes = [f"<{to_iri(name, base)}>" for name in part.notes]
        values = [literals(column, turtle) for column in part.notes.values()]
        triple = pc.binary_join_element_wise(*named, " ")
        if turtle:
            lines = _turtle(triple, notes, values, triples.asserted)
        else:
            nodes = pc.binary_join_element_wise(
                f"_:{label}", pa.array(range(start, start + len(triple))).cast(pa.string()), ""
            )
            lines = _lines(triple, nodes, notes, values, triples.asserted)
        yield text_of(lines)


def _turtle(triple: pa.Array, notes: list[str], values: list[pa.Array], asserted: bool) -> pa.Array:
    """`h r t {| note value ; … |} .`, or `<< h r t >> note value ; … .` where it is only spoken of."""
    joined = None
    if notes:
        said = [
            pc.fill_null(pc.binary_join_element_wise(f" ; {note} ", value, ""), "")
            for note, value in zip(notes, values, strict=True)
        ]
        # Without the first separator. (Arrow's own way to skip nulls loses rows that have nothing else.)
        joined = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*said, ""), start=3)
    if joined is None or not asserted:
        quoted = triple if asserted else pc.binary_join_element_wise("<<", triple, ">>", " ")
        return pc.binary_join_element_wise(quoted, *([] if joined is None else [joined]), ".\n", " ")
    bare = pc.equal(joined, "")
    noted = pc.if_else(bare, pa.scalar(None, pa.string()), pc.binary_join_element_wise("{|", joined, "|}", " "))
    return pc.binary_join_element_wise(triple, noted, ".\n", " ", null_handling="skip")


def _lines(triple: pa.Array, nodes: pa.Array, notes: list[str], values: list[pa.Array], asserted: bool) -> pa.Array:
    """One statement a line: the triple, the node that speaks of it, and what that has."""
    stated = pc.binary_join_element_wise(triple, " .\n", "")
    if not values:
        return stated
    some = values[0].is_valid()
    for value in values[1:]:
        some = pc.or_(some, value.is_valid())
    spoken = pc.binary_join_element_wise(nodes, f" <{RDF}reifies> <<( ", triple, " )>> .\n", "")
    if asserted:
        spoken = pc.if_else(some, spoken, pa.scalar(None, pa.string()))
    said = [
        pc.binary_join_element_wise(nodes, f" {note} ", value, " .\n", "")
        for note, value in zip(notes, values, strict=True)
    ]
    return pc.binary_join_element_wise(*([stated] if asserted else []), spoken, *said, "", null_handling="skip")


def literals(column: pa.Array, turtle: bool) -> pa.Array:
    """Numbers, truth values or texts [n] as literals, with every digit; null where there is none."""
    kind = column.type
    if pa.types.is_floating(kind):
        column, name = pc.if_else(pc.is_finite(column), column, pa.scalar(None, kind)), "double"
    elif pa.types.is_integer(kind):
        name = "integer"
    elif pa.types.is_boolean(kind):
        name = "boolean"
    else:
        text = column.cast(pa.string())
        for letter, escaped in ESCAPES:
            text = pc.replace_substring(text, letter, escaped)
        return pc.binary_join_element_wise('"', text, '"', "")
    ending = f'"^^xsd:{name}' if turtle else f'"^^<{XSD}{name}>'
    return pc.binary_join_element_wise('"', column.cast(pa.string()), ending, "")


def text_of(lines: pa.Array) -> pa.Buffer | bytes:
    """All lines [n] as one text: it lies in one piece in an Arrow column."""
    if isinstance(lines, pa.ChunkedArray):
        lines = lines.combine_chunks()
    length = pc.sum(pc.binary_length(lines)).as_py() or 0
    return (
        lines.buffers()[2].slice(0, length)
        if length and not lines.offset
        else b"".join(map(str.encode, lines.to_pylist()))
    )
