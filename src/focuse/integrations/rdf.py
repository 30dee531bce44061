"""Read and write RDF: triples as edges, numeric annotations as weights.

A note on a triple has a node of its own, the reifier: RDF 1.2 (`rdf:reifies`, `{| … |}`), RDF-star (`<< … >>`) and
the classic rdf:Statement all become rows of (reifier, head, relation, tail) here, and every number of a node a row of
(node, property, value). Which nodes are reifiers is known only at the end of the file; until then rows wait, encoded,
in blocks.

Names that are IRIs stay; others are minted from a base, so that nothing is lost. N-Triples, N-Quads, Turtle and TriG
are written as RDF 1.2, column by column, without a library and without a Python object per edge. What an XML file
declares is looked at before it is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote
from xml.parsers import expat

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from focuse.data.graph import (
    BASE_IRI,
    Graph,
    Ids,
    Vocabulary,
    WeightColumns,
    find_all_sorted,
    find_sorted,
    unify_dictionaries,
)
from focuse.data.readers import ReadOptions, format_suffix, inspect_file, open_decompressed
from focuse.data.writers import NAME_COLUMNS, column_bytes
from focuse.errors import FocuseError, counted, install_command, nearest
from focuse.option_strings import choose

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
XSD = "http://www.w3.org/2001/XMLSchema#"

# ---- names and IRIs -------------------------------------------------------------------------------------------------

# Narrower than the standard, so that what matches is an IRI to every parser. Other names are appended to a base IRI.
_LETTERS = r"A-Za-z0-9\u00c0-\u024f\u0370-\u1fff\u3041-\ud7ff"
_SAFE = rf"(?:[{_LETTERS}._~:@!$&'()*+,;=/?-]|%[0-9A-Fa-f]{{2}})"
_FIRST = rf"(?:[{_LETTERS}._~:@!$&'()*+,;=-]|%[0-9A-Fa-f]{{2}})"
_HOST = r"//[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:[/?]" + _SAFE + r"*)?"
_IRI = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:(?:{_HOST}|{_FIRST}{_SAFE}*)(?:#{_SAFE}*)?")
_BLANK = re.compile(r"_:[A-Za-z0-9]{1,60}")
# The parser's name of a node without a label, different each time the file is read.
_UNLABELLED = re.compile(r"_:[a-f][0-9a-f]{20,31}")


def check_base(base: str) -> str:
    """Return a base IRI that names can be appended to; raise an error if it is none."""
    if not _IRI.fullmatch(f"{base}x"):
        raise FocuseError(f"base {base!r} is not the beginning of an IRI; give one like 'https://example.org/graph/'")
    return base


def is_iri(name: str) -> bool:
    """Return whether a name is an IRI.

    >>> is_iri("http://example.org/a"), is_iri("a b"), is_iri("GO:0008150")
    (True, False, True)
    """
    return _IRI.fullmatch(name) is not None


def to_iri(name: str, base: str = BASE_IRI) -> str:
    """Return a name as an IRI: itself if it is one, else appended to `base`.

    >>> to_iri("http://example.org/a"), to_iri("data science")
    ('http://example.org/a', 'urn:focuse:data%20science')
    """
    return name if is_iri(name) and not name.startswith(base) else base + quote(name, safe="")


def from_iri(iri: str, base: str = BASE_IRI) -> str:
    """Return the name of an IRI, undoing `to_iri`.

    >>> from_iri("urn:focuse:data%20science")
    'data science'
    """
    name = unquote(iri[len(base) :], errors="replace") if iri.startswith(base) else ""
    return name if name and to_iri(name, base) == iri else iri


def to_terms(names: pa.Array, base: str = BASE_IRI, blank: bool = True) -> pa.Array:
    """Return each name [n] as a term of N-Triples and Turtle: `<iri>`, or `_:label` for a blank node if `blank`."""
    found = [name if blank and _BLANK.fullmatch(name) else f"<{to_iri(name, base)}>" for name in names.to_pylist()]
    return pa.array(found, pa.string())


def names_from_terms(terms: pa.Array, base: str = BASE_IRI, shorten: bool = False, where: str = "") -> pa.Array:
    """Return the names [n] of IRIs and blank nodes; with `shorten` their local names, which must be distinct."""
    listed = terms.to_pylist()
    unlabelled = dict.fromkeys(term for term in listed if term.startswith("_:") and _UNLABELLED.fullmatch(term))
    label = {term: f"_:unlabelled{number}" for number, term in enumerate(unlabelled, 1)}
    names = [label.get(term) or from_iri(term, base) for term in listed]
    if shorten:
        names = [local_name(name) if is_iri(name) else name for name in names]
        _check_distinct(listed, names, where)
    return pa.array(names, pa.string())


def _check_distinct(terms: list[str], names: list[str], where: str) -> None:
    first: dict[str, str] = {}
    for term, name in zip(terms, names, strict=True):
        if first.setdefault(name, term) != term:
            raise FocuseError(
                f"{where}: shortened, {first[name]} and {term} would both be {name!r}; read it without shorten"
            )


def local_name(iri: str) -> str:
    """Return what follows the last #, / or : of an IRI, or all of it if nothing does.

    >>> local_name("http://example.org/terms#weight"), local_name("urn:isbn:123"), local_name("weight")
    ('weight', '123', 'weight')
    """
    return re.split(r"[#/:]", iri)[-1] or iri


def column_names(iris: Iterable[str], base: str = BASE_IRI) -> list[str]:
    """Return names of weight columns for properties: their local names if these are distinct."""
    names = [from_iri(iri, base) for iri in iris]
    short = [local_name(name) if is_iri(name) else name for name in names]
    distinct = len(set(short)) == len(short) and not set(NAME_COLUMNS) & set(short)
    return short if distinct else names


# ---- from statements to a graph -------------------------------------------------------------------------------------

LITERALS = ("skip", "keep")
Positions = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
TripleIds = tuple[Ids, Ids, Ids]


@dataclass(frozen=True)
class RdfOptions:
    """How RDF is read.

    Attributes
    ----------
    weights : tuple of str or None
        The properties that are weights, by IRI or local name; None for every property that gives a triple a number.
    literals : 'skip' or 'keep'
        Whether triples with a literal as tail are left out, or the literal becomes an entity.
    missing : float, 'drop' or None
        The weight of triples without one, or 'drop' to leave them out; None to raise an error.
    shorten : bool
        Keep only the local names of IRIs.
    base : str
        The IRI that names were appended to when the file was written.
    """

    weights: tuple[str, ...] | None = None
    literals: str = "skip"
    missing: float | str | None = None
    shorten: bool = False
    base: str = BASE_IRI

    def __post_init__(self) -> None:
        choose("way with literals", self.literals, LITERALS)
        check_base(self.base)
        check_missing(self.missing)


def check_missing(missing: float | str | None) -> None:
    """Raise unless `missing` is None, 'drop' or a finite number."""
    if missing is not None and missing != "drop":
        try:
            valid = math.isfinite(float(missing))
        except ValueError:
            valid = False
        if not valid:
            raise FocuseError(f"missing {missing!r}: give a number, the weight of facts without one, or drop")


@dataclass(frozen=True, eq=False)
class RdfStatements:
    """What a file states, as ids in one list of `terms`.

    Attributes
    ----------
    triples : (head, relation, tail), ids [F] each
    reified : (node, head, relation, tail), ids [Q] each
        Nodes that stand for a triple, which other statements annotate.
    position : int64 [F + Q]
        Where in the file the triples and the reified triples are.
    annotations : (node, property), ids [M] each
        Properties with a number, and their `values` [M].
    num_literals : int
        Statements with a literal.
    num_quoted : int
        Statements with a triple as their object that do not reify it.
    """

    terms: pa.Array
    triples: TripleIds
    reified: tuple[Ids, Ids, Ids, Ids]
    position: Positions
    annotations: tuple[Ids, Ids]
    values: Numbers
    num_literals: int = 0
    num_quoted: int = 0


@dataclass(frozen=True, eq=False)
class AnnotatedTriples:
    """Triples [n] with their numbers [n, C], NaN where one is missing, and their positions in the file."""

    triples: TripleIds
    values: Numbers
    position: Positions

    def take(self, rows: npt.NDArray[Any]) -> AnnotatedTriples:
        head, relation, tail = (column[rows] for column in self.triples)
        return AnnotatedTriples((head, relation, tail), self.values[rows], self.position[rows])


def graph_from_statements(statements: RdfStatements, options: RdfOptions, where: str) -> Graph:
    """Make a graph of what a file states."""
    nodes = np.unique(statements.reified[0])
    annotates_triple = np.isin(statements.annotations[0], nodes)
    properties = _weight_properties(statements, annotates_triple, options, where)
    annotated = _annotated_triples(statements, properties, where)
    about_triples = np.isin(statements.triples[0], nodes) | np.isin(statements.triples[2], nodes)
    plain, num_unasserted = _plain_triples(statements, annotated, ~about_triples)
    edges = AnnotatedTriples(
        _concatenated(annotated.triples, plain.triples),
        np.concatenate([annotated.values, plain.values]),
        np.concatenate([annotated.position, plain.position]),
    )
    edges = edges.take(np.argsort(edges.position, kind="stable"))
    num_used = int(annotates_triple[np.isin(statements.annotations[1], properties)].sum())
    notes = _omission_notes(statements, options, num_used, int(about_triples.sum()), num_unasserted, where)
    edges, num_dropped = _without_missing(edges, statements.terms, options, where)
    if num_dropped:
        notes.append(f"{where}: {counted(num_dropped, 'facts')} without a weight left out")
    names = statements.terms.take(pa.array(properties)).to_pylist()
    return _encode(edges, names, statements.terms, options, where, notes)


def _weight_properties(
    statements: RdfStatements, annotates_triple: npt.NDArray[np.bool_], options: RdfOptions, where: str
) -> Ids:
    """Return the properties [C] that are weights: those asked for, else all that give triples numbers."""
    found, first = np.unique(statements.annotations[1][annotates_triple], return_index=True)
    found = found[np.argsort(first)]
    if options.weights is None:
        return found
    known = statements.terms.take(pa.array(found)).to_pylist()
    chosen = []
    for wanted in options.weights:
        fits = [
            index for index, iri in enumerate(known) if wanted in (iri, local_name(iri), from_iri(iri, options.base))
        ]
        if len(fits) != 1:
            names = [local_name(iri) for iri in known]
            available = f"; numbers on triples are {', '.join(known)}" if known else "; no triple has a number"
            what = "several properties are called" if fits else "no property"
            raise FocuseError(f"{where}: {what} {wanted!r}{'' if fits else nearest(wanted, names)}{available}")
        chosen.append(found[fits[0]])
    if len(set(chosen)) < len(chosen):
        raise FocuseError(f"weights: {', '.join(options.weights)} name one property twice; give each its own")
    return np.array(chosen, np.int32)


def _annotated_triples(statements: RdfStatements, properties: Ids, where: str) -> AnnotatedTriples:
    """Return one edge per node that gives numbers to a triple."""
    order = np.argsort(statements.reified[0], kind="stable")
    nodes = statements.reified[0][order]
    wanted = np.isin(statements.annotations[1], properties)
    node, value = statements.annotations[0][wanted], statements.values[wanted]
    by_property = np.argsort(properties)
    column = by_property[find_sorted(properties[by_property], statements.annotations[1][wanted])[0]]
    # A node may stand for several triples.
    annotation, index = find_all_sorted(nodes, node)
    triple, column, value = order[index], column[annotation], value[annotation]
    if not np.isfinite(value).all():
        bad = int(np.flatnonzero(~np.isfinite(value))[0])
        text = " ".join(statements.terms[int(part[triple[bad]])].as_py() for part in statements.reified[1:])
        name = statements.terms[int(properties[column[bad]])].as_py()
        raise FocuseError(f"{where}: the number {name} of ({text}) is not finite; give it one or remove it")
    # A node with two numbers of one property is two edges.
    repetition = _occurrence_number(triple * max(len(properties), 1) + column)
    edge, first, inverse = np.unique(
        triple * (repetition.max(initial=0) + 1) + repetition, return_index=True, return_inverse=True
    )
    values = np.full((len(edge), len(properties)), np.nan)
    values[inverse, column] = value
    row = triple[first]
    head, relation, tail = (part[row] for part in statements.reified[1:])
    position = statements.position[len(statements.triples[0]) :][row]
    return _merge_rdf_star(AnnotatedTriples((head, relation, tail), values, position))


def _merge_rdf_star(edges: AnnotatedTriples) -> AnnotatedTriples:
    """Merge edges of one triple that have one number each, all of different properties: so RDF-star writes several."""
    if len(edges.position) < 2 or edges.values.shape[1] < 2:
        return edges
    group = np.unique(np.stack(edges.triples), axis=1, return_inverse=True)[1].ravel()
    present = ~np.isnan(edges.values)
    groups = int(group.max()) + 1
    filled = np.zeros((groups, present.shape[1]), np.int64)
    np.add.at(filled, group, present)
    single = np.ones(groups, bool)
    single[group[present.sum(axis=1) != 1]] = False
    merge = single & (filled <= 1).all(axis=1)
    first = np.full(groups, len(group))
    np.minimum.at(first, group, np.arange(len(group)))
    values = edges.values.copy()
    row, column = np.nonzero(present & merge[group][:, None])
    values[first[group[row]], column] = edges.values[row, column]
    keep = ~merge[group] | (first[group] == np.arange(len(group)))
    return AnnotatedTriples(edges.triples, values, edges.position).take(keep)


def _plain_triples(
    statements: RdfStatements, annotated: AnnotatedTriples, wanted: npt.NDArray[np.bool_]
) -> tuple[AnnotatedTriples, int]:
    """Return the triples without a number, each once, and how many triples are reified but not stated."""
    stated = tuple(column[wanted] for column in statements.triples)
    columns = [np.concatenate(parts) for parts in zip(annotated.triples, stated, statements.reified[1:], strict=True)]
    keys = _triple_keys(*columns)
    annotated_keys, stated_keys, reified_keys = np.split(keys, np.cumsum([len(annotated.position), len(stated[0])]))
    first = np.unique(stated_keys, return_index=True)[1]
    first = np.sort(first[~np.isin(stated_keys[first], annotated_keys)])
    head, relation, tail = (column[first] for column in stated)
    values = np.full((len(first), annotated.values.shape[1]), np.nan)
    position = statements.position[: len(wanted)][wanted][first]
    known_keys = np.concatenate([annotated_keys, stated_keys])
    num_unasserted = len(np.setdiff1d(reified_keys, known_keys)) if len(reified_keys) else 0
    return AnnotatedTriples((head, relation, tail), values, position), num_unasserted


def _triple_keys(head: Ids, relation: Ids, tail: Ids) -> npt.NDArray[np.int64]:
    """Return one number per distinct triple [n]."""
    nodes, ends = np.unique(np.concatenate([head, tail]), return_inverse=True)
    relations, relation_ids = np.unique(relation, return_inverse=True)
    if len(nodes) ** 2 * len(relations) >= 2**63:
        raise FocuseError(f"{len(nodes):,} entities × {len(relations):,} relations exceed 64-bit keys")
    query = ends[: len(head)].astype(np.int64) * len(relations) + relation_ids
    keys: npt.NDArray[np.int64] = query * len(nodes) + ends[len(head) :]
    return keys


def _concatenated(first: TripleIds, second: TripleIds) -> TripleIds:
    head, relation, tail = (np.concatenate(parts) for parts in zip(first, second, strict=True))
    return head, relation, tail


def _occurrence_number(values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return how often each value occurred before [n]."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(values) else np.empty(0, np.intp)
    count = np.diff(np.r_[starts, len(values)])
    result = np.empty(len(values), np.intp)
    result[order] = np.arange(len(values)) - np.repeat(starts, count)
    return result


def _omission_notes(
    statements: RdfStatements, options: RdfOptions, num_used: int, num_about: int, num_unasserted: int, where: str
) -> list[str]:
    """Return one line per kind of statement that is no edge."""
    num_literals = statements.num_literals - num_used if options.literals == "skip" else 0
    omitted = [
        (num_literals, "statements with a literal (labels, attributes) are left out; literals='keep' keeps them"),
        (num_about, "statements about statements are left out"),
        (num_unasserted, "triples that are quoted, but neither stated nor given a number, are left out"),
        (statements.num_quoted, "statements that have a triple as their object are left out"),
    ]
    return [f"{where}: {count:,} {words}" for count, words in omitted if count > 0]


def _without_missing(
    edges: AnnotatedTriples, terms: pa.Array, options: RdfOptions, where: str
) -> tuple[AnnotatedTriples, int]:
    """Drop or fill edges without a number, if any edge has one; return the edges and how many were dropped."""
    bare: npt.NDArray[np.bool_] = np.asarray(np.isnan(edges.values).all(axis=1))
    if not edges.values.shape[1] or not bare.any():
        return edges, 0
    if options.missing == "drop":
        return edges.take(~bare), int(bare.sum())
    if options.missing is None:
        shown = " ".join(terms[int(column[np.flatnonzero(bare)[0]])].as_py() for column in edges.triples)
        raise FocuseError(
            f"{where}: {int(bare.sum()):,} of {len(bare):,} facts have no weight, such as ({shown}); give them one "
            "(missing_weight=1.0, --missing-weight 1) or leave them out (missing_weight='drop', --missing-weight drop)"
        )
    values = edges.values.copy()
    values[bare] = float(options.missing)
    return AnnotatedTriples(edges.triples, values, edges.position), 0


def _encode(
    edges: AnnotatedTriples,
    properties: Sequence[str],
    terms: pa.Array,
    options: RdfOptions,
    where: str,
    notes: Sequence[str],
) -> Graph:
    """Return the graph, with names in order of appearance, heads first."""
    head, relation, tail = edges.triples
    entity_ids, entity_terms = _renumber_by_appearance(np.concatenate([head, tail]))
    relation_ids, relation_terms = _renumber_by_appearance(relation)
    entities = names_from_terms(terms.take(pa.array(entity_terms)), options.base, options.shorten, where)
    relations = names_from_terms(terms.take(pa.array(relation_terms)), options.base, options.shorten, where)
    columns = None
    if len(properties) > 1:
        columns = WeightColumns(tuple(column_names(properties, options.base)), edges.values)
    weight = edges.values[:, 0] if len(properties) == 1 else np.ones(len(head))
    return Graph(
        entity_ids[: len(head)],
        relation_ids,
        entity_ids[len(head) :],
        weight if columns is None else columns.provisional_weight(),
        Vocabulary(entities),
        Vocabulary(relations),
        where,
        len(properties) > 0,
        columns,
        notes=tuple(notes),
    )


def _renumber_by_appearance(ids: Ids) -> tuple[Ids, Ids]:
    """Return new ids [n] in order of appearance, and the old id of each new one."""
    known, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(known), np.int32)
    rank[order] = np.arange(len(known), dtype=np.int32)
    return rank[inverse], known[order]


# ---- parsing --------------------------------------------------------------------------------------------------------

FORMATS = {
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
SIGNED_TYPES = ["integer", "int", "long", "short", "byte", "positiveInteger", "nonPositiveInteger", "negativeInteger"]
UNSIGNED_TYPES = ["nonNegativeInteger", "unsignedInt", "unsignedLong", "unsignedShort", "unsignedByte"]
NUMBER_TYPES = frozenset(XSD + name for name in ["decimal", "double", "float", *SIGNED_TYPES, *UNSIGNED_TYPES])
REIFICATION_PARTS = {f"{RDF}subject": 0, f"{RDF}predicate": 1, f"{RDF}object": 2}
REIFIES, TYPE, STATEMENT = f"{RDF}reifies", f"{RDF}type", f"{RDF}Statement"
RESERVED_PREDICATES = frozenset([*REIFICATION_PARTS, TYPE])
CHUNK_STATEMENTS = 1 << 14  # whose terms are Python objects at a time


class TermClasses(NamedTuple):
    """The parser's classes of terms."""

    named: Any
    blank: Any
    literal: Any


class TermBuffer:
    """Rows of `width` terms with their positions in the file, encoded a chunk at a time."""

    def __init__(self, width: int) -> None:
        self.pending: list[tuple[Any, ...]] = []  # rows of a position and then the terms
        self.columns: list[list[pa.Array]] = [[] for _ in range(width)]
        self.position_chunks: list[Positions] = []

    def __len__(self) -> int:
        return sum(map(len, self.position_chunks))

    def encode(self) -> None:
        """Encode the pending rows as arrays."""
        if self.pending:
            positions, *terms = zip(*self.pending, strict=True)
            self.position_chunks.append(np.array(positions, np.int64))
            for column, values in zip(self.columns, terms, strict=True):
                column.append(pa.array(values, pa.string()).dictionary_encode())
            self.pending.clear()

    def positions(self) -> Positions:
        return np.concatenate(self.position_chunks) if self.position_chunks else np.empty(0, np.int64)


class StatementCollector:
    """Sorts the statements of a file by what they may mean: triples, reified triples and annotations with numbers."""

    def __init__(self, options: RdfOptions, classes: TermClasses) -> None:
        self.options, self.classes = options, classes
        self.triples, self.reified, self.annotations = TermBuffer(3), TermBuffer(4), TermBuffer(2)
        self.reification_parts = (TermBuffer(2), TermBuffer(2), TermBuffer(2))  # rdf:subject, rdf:predicate, rdf:object
        self.value_chunks: list[Numbers] = []
        self.pending_values: list[float] = []
        self.num_statements = self.num_literals = self.num_quoted = 0

    def buffers(self) -> list[TermBuffer]:
        return [self.triples, self.reified, self.annotations, *self.reification_parts]

    def add(self, statements: Iterable[Any]) -> int:
        """Sort statements into the buffers and encode them; return how many there were."""
        named, blank, _ = self.classes
        triples = self.triples.pending
        position = start = self.num_statements
        for position, (subject, predicate, tail, _) in enumerate(statements, start + 1):
            head = subject.value if type(subject) is named else f"_:{subject.value}"
            relation, tail_class = predicate.value, type(tail)
            if tail_class is named and relation not in RESERVED_PREDICATES:  # by far the most
                triples.append((position, head, relation, tail.value))
            elif tail_class is named or tail_class is blank:
                self._add_node(position, head, relation, tail.value if tail_class is named else f"_:{tail.value}")
            else:
                self._add_other(position, head, relation, tail)
        self.num_statements = position
        self.value_chunks.append(np.array(self.pending_values, np.float64))
        self.pending_values.clear()
        for buffer in self.buffers():
            buffer.encode()
        return position - start

    def _add_node(self, position: int, head: str, relation: str, tail: str) -> None:
        part = REIFICATION_PARTS.get(relation)
        if part is not None:
            self.reification_parts[part].pending.append((position, head, tail))
        elif relation != TYPE or tail != STATEMENT:
            self.triples.pending.append((position, head, relation, tail))

    def _add_other(self, position: int, head: str, relation: str, tail: Any) -> None:
        """Add a statement whose object is a literal or a triple."""
        named, blank, literal = self.classes
        if type(tail) is literal:
            self.num_literals += 1
            number = self._number(tail)
            if number is not None:
                self.annotations.pending.append((position, head, relation))
                self.pending_values.append(number)
            if self.options.literals == "keep":
                self.triples.pending.append((position, head, relation, str(tail)))
        elif relation == REIFIES and type(tail.object) in (named, blank):
            first, predicate, last = tail
            start = first.value if type(first) is named else f"_:{first.value}"
            end = last.value if type(last) is named else f"_:{last.value}"
            self.reified.pending.append((position, head, start, predicate.value, end))
        else:  # a triple with a literal, or one that is the object of another predicate
            self.num_quoted += 1

    def _number(self, literal: Any) -> float | None:
        """Return the number of a literal; text counts only if the user names the properties that are weights."""
        datatype = literal.datatype.value
        if datatype not in NUMBER_TYPES and not (self.options.weights and datatype == f"{XSD}string"):
            return None
        try:
            return float(literal.value)
        except ValueError:
            return math.nan if datatype in NUMBER_TYPES else None

    def statements(self) -> RdfStatements:
        """Return all statements, as ids in one list of terms."""
        blocks = [block for buffer in self.buffers() for column in buffer.columns for block in column]
        ids, terms = unify_dictionaries(blocks)
        columns: list[Ids] = []
        start = 0
        for buffer in self.buffers():
            for _ in buffer.columns:
                columns.append(ids[start : start + len(buffer)])
                start += len(buffer)
        triples, reified, annotations = columns[:3], columns[3:7], columns[7:9]
        parts = tuple((columns[9 + 2 * part], columns[10 + 2 * part]) for part in range(3))
        classic, classic_positions = _classic_reification(parts, self.reification_parts[0].positions())
        nodes, heads, relations, tails = (np.concatenate(pair) for pair in zip(reified, classic, strict=True))
        return RdfStatements(
            terms.column,
            (triples[0], triples[1], triples[2]),
            (nodes, heads, relations, tails),
            np.concatenate([self.triples.positions(), self.reified.positions(), classic_positions]),
            (annotations[0], annotations[1]),
            np.concatenate(self.value_chunks) if self.value_chunks else np.empty(0),
            self.num_literals,
            self.num_quoted,
        )


def _classic_reification(parts: Sequence[tuple[Ids, Ids]], position: Positions) -> tuple[list[Ids], Positions]:
    """Return nodes with an rdf:subject, rdf:predicate and rdf:object as rows (node, head, relation, tail)."""
    nodes, first = np.unique(parts[0][0], return_index=True)
    columns = [nodes, parts[0][1][first]]
    complete = np.ones(len(nodes), bool)
    for node, term in parts[1:]:
        known, first_row = np.unique(node, return_index=True)
        index, found = find_sorted(known, nodes)
        complete &= found
        columns.append(term[first_row[index]] if len(known) else np.zeros(len(nodes), np.int32))
    return [column[complete] for column in columns], position[first][complete]


def rdf_format(path: Path) -> str | None:
    """Return the RDF format that a file's name says it has, also compressed (.gz, .zst); None for other files."""
    return FORMATS.get(format_suffix(path))


def read_rdf(path: Path, options: ReadOptions) -> Graph:
    """Read an RDF file: triples as edges, numeric annotations as weights."""
    inspect_file(path)
    rdf_options = RdfOptions(
        annotation_names(path, options), options.literals, options.missing_weight, options.short_names, options.base_iri
    )
    return _read_file(path, rdf_format(path) or "TURTLE", rdf_options)


def annotation_names(path: Path, options: ReadOptions) -> tuple[str, ...] | None:
    """Return the weights that the user names in a file without columns."""
    if options.columns is not None or isinstance(options.weights, str):
        raise FocuseError(f"{path}: it has no columns; name its weights in a list with weights (--weight-columns)")
    return None if options.weights is None else tuple(map(str, options.weights))


def _read_file(path: Path, format_name: str, options: RdfOptions) -> Graph:
    try:
        try:
            found = _parse(path, format_name, options)
        except SyntaxError:
            if format_name != "N_TRIPLES":
                raise
            # Lines of RDF-star (<< … >> as a subject) are not N-Triples today, but they are Turtle.
            with suppress(SyntaxError):
                return graph_from_statements(_parse(path, "TURTLE", options), options, str(path))
            raise
    except SyntaxError as error:
        raise _syntax_error(error, path, format_name) from None
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise FocuseError(f"{path}: {' '.join(str(error).split())[:200]}") from None
    return graph_from_statements(found, options, str(path))


def load_pyoxigraph() -> Any:
    """Import the library that parses RDF."""
    try:
        import pyoxigraph
    except ImportError:
        raise FocuseError(f"reading RDF needs pyoxigraph; {install_command('rdf')}") from None
    return pyoxigraph


def _parse(path: Path, format_name: str, options: RdfOptions) -> RdfStatements:
    """Parse all statements of a file; only CHUNK_STATEMENTS of them are Python objects at a time."""
    pyoxigraph = load_pyoxigraph()
    classes = TermClasses(pyoxigraph.NamedNode, pyoxigraph.BlankNode, pyoxigraph.Literal)
    collector = StatementCollector(options, classes)
    if format_name == "RDF_XML":
        refuse_dangerous_entities(path)
    with open_decompressed(path) as stream:
        has_byte_order_mark = stream.read(3) == b"\xef\xbb\xbf"
    with open_decompressed(path) as stream:
        if has_byte_order_mark:
            stream.read(3)  # written by editors on Windows, and part of no grammar but XML's
        parser = pyoxigraph.parse(stream, getattr(pyoxigraph.RdfFormat, format_name))
        while collector.add(islice(parser, CHUNK_STATEMENTS)):
            pass
    return collector.statements()


def _syntax_error(error: SyntaxError, path: Path, format_name: str) -> FocuseError:
    """Return an error that says what is wrong, and on which line."""
    message = " ".join(str(error.msg).split())
    line, message = error.lineno, message.partition(": ")[2] if message.startswith("Parser error at") else message
    if line is None and format_name == "RDF_XML":
        line, message = _xml_error(path, message)
    if "No scheme found" in message:
        message = "a relative IRI; declare what it is relative to (@base in the file)"
    where = f"{path}, line {line}" if line is not None else f"{path}"
    return FocuseError(f"{where}: {message[:200]}")


def _xml_error(path: Path, message: str) -> tuple[int | None, str]:
    """Return the line on which a file is no XML and the reason; None and `message` if it is XML, but not RDF."""
    parser = expat.ParserCreate()
    try:
        with open_decompressed(path) as stream:
            parser.ParseFile(stream)
    except expat.ExpatError as error:
        return error.lineno, f"not XML: {expat.ErrorString(error.code)}"
    except (LookupError, ValueError) as error:  # unknown encodings
        return None, f"not XML: {error}"
    return None, message


MAX_ENTITY_CHARACTERS = 1_000  # that an XML entity may stand for; ontologies use entities for beginnings of IRIs
SCAN_BYTES = 1 << 14


def refuse_dangerous_entities(path: Path) -> None:
    """Raise for XML entities that nest, are long or name other files: a parser would fill the memory or open them."""
    elements: list[str] = []

    def declared(name: str, parameter: bool, value: str | None, *_: object) -> None:
        if value is None:
            raise FocuseError(f"{path}: the XML entity {name!r} is another file; write out what it stands for")
        if len(value) > MAX_ENTITY_CHARACTERS or "&" in value or parameter:
            raise FocuseError(f"{path}: the XML entity {name!r} stands for too much; write out what it stands for")

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = declared
    parser.StartElementHandler = lambda name, _: elements.append(name)
    with open_decompressed(path) as stream:
        while not elements and (data := stream.read(SCAN_BYTES)):
            try:
                parser.Parse(data)
            except (expat.ExpatError, LookupError, ValueError) as error:
                if elements:
                    return
                line = f", line {error.lineno}" if isinstance(error, expat.ExpatError) else ""
                reason = expat.ErrorString(error.code) if isinstance(error, expat.ExpatError) else error
                raise FocuseError(f"{path}{line}: not XML: {reason}") from None


# ---- writing --------------------------------------------------------------------------------------------------------

TURTLE_SUFFIXES = (".ttl", ".trig")
CHUNK_ROWS = 1 << 16
# In this order: what is escaped first must not be escaped again.
ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"))


@dataclass(frozen=True, eq=False)
class TriplesToWrite:
    """Triples as ids [n] in lists of distinct names, with columns [n] of annotations.

    If `asserted`, the triples are stated; else they are only quoted, as suits predictions.
    """

    head: pa.Array
    relation: pa.Array
    tail: pa.Array
    entities: pa.Array
    relations: pa.Array
    annotations: Mapping[str, pa.Array]
    asserted: bool = True

    def slice(self, start: int, length: int) -> TriplesToWrite:
        head, relation, tail = (column.slice(start, length) for column in (self.head, self.relation, self.tail))
        annotations = {name: column.slice(start, length) for name, column in self.annotations.items()}
        return TriplesToWrite(head, relation, tail, self.entities, self.relations, annotations, self.asserted)


def graph_pieces(graph: Graph, suffix: str, base: str, path: Path) -> Iterator[pa.Buffer | bytes]:
    """Yield the text of an RDF file with a graph's edges, annotated by their weights."""
    head, relation, tail = (pa.array(column) for column in (graph.head, graph.relation, graph.tail))
    weights = graph.weights_by_name() if graph.weighted else {}
    triples = TriplesToWrite(head, relation, tail, graph.entities.column, graph.relations.column, weights)
    return triples_to_text(triples, suffix, base)


def link_pieces(links: pa.Table, suffix: str, base: str, asserted: bool) -> Iterator[pa.Buffer | bytes]:
    """Yield the text of an RDF file with links, annotated by all other columns of the table."""
    head, relation, tail = (_single_array(links.column(name).cast(pa.string())) for name in NAME_COLUMNS)
    entities, relations = pa.concat_arrays([head, tail]).dictionary_encode(), relation.dictionary_encode()
    annotations = {name: _single_array(links.column(name)) for name in links.column_names if name not in NAME_COLUMNS}
    triples = TriplesToWrite(
        entities.indices.slice(0, len(links)),
        relations.indices,
        entities.indices.slice(len(links)),
        entities.dictionary,
        relations.dictionary,
        annotations,
        asserted,
    )
    return triples_to_text(triples, suffix, base)


def _single_array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def triples_to_text(triples: TriplesToWrite, suffix: str, base: str = BASE_IRI) -> Iterator[pa.Buffer | bytes]:
    """Yield the text of an RDF file in pieces."""
    check_base(base)
    turtle = suffix in TURTLE_SUFFIXES
    entities, relations = to_terms(triples.entities, base), to_terms(triples.relations, base, blank=False)
    label = "edge"
    while pc.any(pc.starts_with(triples.entities, f"_:{label}")).as_py():
        label += "x"  # nodes of annotations must not be nodes of the graph
    if turtle and triples.annotations:
        yield f"@prefix xsd: <{XSD}> .\n".encode()
    for start in range(0, len(triples.head), CHUNK_ROWS):
        chunk = triples.slice(start, CHUNK_ROWS)
        terms = entities.take(chunk.head), relations.take(chunk.relation), entities.take(chunk.tail)
        properties = [f"<{to_iri(name, base)}>" for name in chunk.annotations]
        values = [to_literals(column, turtle) for column in chunk.annotations.values()]
        triple = pc.binary_join_element_wise(*terms, " ")
        if turtle:
            lines = _turtle_lines(triple, properties, values, triples.asserted)
        else:
            nodes = pc.binary_join_element_wise(
                f"_:{label}", pa.array(range(start, start + len(triple))).cast(pa.string()), ""
            )
            lines = _ntriples_lines(triple, nodes, properties, values, triples.asserted)
        yield column_bytes(lines)


def _turtle_lines(triple: pa.Array, properties: list[str], values: list[pa.Array], asserted: bool) -> pa.Array:
    """Return `h r t {| property value ; … |} .`, or `<< h r t >> property value ; … .` for triples that are quoted."""
    joined = None
    if properties:
        annotations = [
            pc.fill_null(pc.binary_join_element_wise(f" ; {name} ", value, ""), "")
            for name, value in zip(properties, values, strict=True)
        ]
        # Without the first separator. (Arrow's own way to skip nulls loses rows that have nothing else.)
        joined = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*annotations, ""), start=3)
    if joined is None or not asserted:
        quoted = triple if asserted else pc.binary_join_element_wise("<<", triple, ">>", " ")
        return pc.binary_join_element_wise(quoted, *([] if joined is None else [joined]), ".\n", " ")
    bare = pc.equal(joined, "")
    annotation = pc.if_else(bare, pa.scalar(None, pa.string()), pc.binary_join_element_wise("{|", joined, "|}", " "))
    return pc.binary_join_element_wise(triple, annotation, ".\n", " ", null_handling="skip")


def _ntriples_lines(
    triple: pa.Array, nodes: pa.Array, properties: list[str], values: list[pa.Array], asserted: bool
) -> pa.Array:
    """Return one statement per line: the triple, the node that reifies it, and the annotations of that node."""
    stated = pc.binary_join_element_wise(triple, " .\n", "")
    if not values:
        return stated
    annotated = values[0].is_valid()
    for value in values[1:]:
        annotated = pc.or_(annotated, value.is_valid())
    reified = pc.binary_join_element_wise(nodes, f" <{RDF}reifies> <<( ", triple, " )>> .\n", "")
    if asserted:
        reified = pc.if_else(annotated, reified, pa.scalar(None, pa.string()))
    annotations = [
        pc.binary_join_element_wise(nodes, f" {name} ", value, " .\n", "")
        for name, value in zip(properties, values, strict=True)
    ]
    return pc.binary_join_element_wise(*([stated] if asserted else []), reified, *annotations, "", null_handling="skip")


def to_literals(column: pa.Array, turtle: bool) -> pa.Array:
    """Return numbers, truth values or texts [n] as literals, with every digit; null where there is none."""
    data_type = column.type
    if pa.types.is_floating(data_type):
        column, name = pc.if_else(pc.is_finite(column), column, pa.scalar(None, data_type)), "double"
    elif pa.types.is_integer(data_type):
        name = "integer"
    elif pa.types.is_boolean(data_type):
        name = "boolean"
    else:
        text = column.cast(pa.string())
        for character, escaped in ESCAPES:
            text = pc.replace_substring(text, character, escaped)
        return pc.binary_join_element_wise('"', text, '"', "")
    ending = f'"^^xsd:{name}' if turtle else f'"^^<{XSD}{name}>'
    return pc.binary_join_element_wise('"', column.cast(pa.string()), ending, "")
