"""Read and write RDF: triples as edges, numeric annotations as weights.

An annotation of a triple belongs to a node that stands for the triple, the reifier: RDF 1.2 (`rdf:reifies`, `{| … |}`),
RDF-star (`<< … >>`) and the classic rdf:Statement all become rows of (reifier, head, relation, tail) here, and every
number of a node becomes a row of (node, property, value). Which nodes are reifiers is known at the end of the file.

Names that are IRIs stay as they are; others are appended to a base IRI, so that nothing is lost. N-Triples, N-Quads,
Turtle and TriG are written as RDF 1.2, column by column, without a library and without a Python object per edge.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import count
from pathlib import Path
from typing import Any
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
    Weights,
    find_all_sorted,
    find_sorted,
    isin_sorted,
    lookup_sorted,
)
from focuse.data.readers import ReadOptions, format_suffix, inspect_file, open_decompressed
from focuse.data.writers import NAME_COLUMNS, column_bytes
from focuse.errors import FocuseError, counted, install_command, nearest
from focuse.option_strings import choose
from focuse.system import chunks

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
XSD = "http://www.w3.org/2001/XMLSchema#"
Rows = npt.NDArray[np.intp]

# ---- names and IRIs -------------------------------------------------------------------------------------------------

# Narrower than the standard, so that what matches is an IRI to every parser. Other names are appended to a base IRI.
_LETTERS = r"A-Za-z0-9\u00c0-\u024f\u0370-\u1fff\u3041-\ud7ff"
_SAFE = rf"(?:[{_LETTERS}._~:@!$&'()*+,;=/?-]|%[0-9A-Fa-f]{{2}})"
_FIRST = rf"(?:[{_LETTERS}._~:@!$&'()*+,;=-]|%[0-9A-Fa-f]{{2}})"
_HOST = r"//[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:[/?]" + _SAFE + r"*)?"
_IRI = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:(?:{_HOST}|{_FIRST}{_SAFE}*)(?:#{_SAFE}*)?")
_BLANK = re.compile(r"_:[A-Za-z0-9]{1,60}")
# The parser's name of a node without a label, different each time the file is read.
_UNLABELED = re.compile(r"_:[a-f][0-9a-f]{20,31}")


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


def local_name(name: str) -> str:
    """Return what follows the last #, / or : of an IRI, or all of a name if nothing does.

    >>> local_name("http://example.org/terms#weight"), local_name("urn:isbn:123"), local_name("two words")
    ('weight', '123', 'two words')
    """
    return (re.split(r"[#/:]", name)[-1] if is_iri(name) else "") or name


def names_from_terms(terms: Sequence[str], base: str = BASE_IRI, shorten: bool = False, where: str = "") -> list[str]:
    """Return the names of distinct IRIs and blank nodes; with `shorten` their local names, which must be distinct."""
    unlabeled = [term for term in terms if term.startswith("_:") and _UNLABELED.fullmatch(term)]
    label = {term: f"_:unlabeled{number}" for number, term in enumerate(unlabeled, 1)}
    names = [label.get(term) or from_iri(term, base) for term in terms]
    if shorten:
        names = list(map(local_name, names))
        first: dict[str, str] = {}
        for term, name in zip(terms, names, strict=True):
            if first.setdefault(name, term) != term:
                raise FocuseError(
                    f"{where}: shortened, {first[name]} and {term} would both be {name!r}; read it without shorten"
                )
    return names


def column_names(iris: Sequence[str], base: str = BASE_IRI) -> list[str]:
    """Return names of weight columns for properties: their local names if these are distinct."""
    names = [from_iri(iri, base) for iri in iris]
    short = list(map(local_name, names))
    return short if len({*short, *NAME_COLUMNS}) == len(short) + len(NAME_COLUMNS) else names


# ---- from statements to a graph -------------------------------------------------------------------------------------

LITERALS = ("skip", "keep")


@dataclass(frozen=True, eq=False)
class RdfStatements:
    """What a file states, as ids in one list of `terms`, which print as in N-Triples.

    Attributes
    ----------
    triples : ids [n, 4]
        Reifier, head, relation and tail; the reifier is −1 for a triple that is stated.
    numbers : ids [m, 2]
        Nodes and their properties with a number, and the numbers as `values` [m].
    num_literals, num_quoted : int
        The number of statements with a literal, and of those with a triple as their object that do not reify it.
    """

    terms: Sequence[Any]
    triples: Ids
    numbers: Ids
    values: Weights
    num_literals: int = 0
    num_quoted: int = 0

    def texts(self, ids: npt.NDArray[Any]) -> list[str]:
        """Return terms as text, IRIs without brackets."""
        texts = [str(self.terms[index]) for index in ids]
        return [text[1:-1] if text.startswith("<") else text for text in texts]


def graph_from_statements(statements: RdfStatements, options: ReadOptions, where: str) -> Graph:
    """Make a graph of what a file states."""
    reifier, head, relation, tail = statements.triples.T
    reifiers = np.sort(reifier[reifier >= 0])  # faster than np.unique
    on_triple = isin_sorted(statements.numbers[:, 0], reifiers)
    properties = _weight_properties(statements, on_triple, options, where)
    triple = _pair_ids(_pair_ids(head, relation), tail)  # equal for rows of the same triple
    annotated, values = _annotated_rows(statements, triple, properties, where)
    stated = np.flatnonzero(reifier < 0)
    about_triples = isin_sorted(head[stated], reifiers) | isin_sorted(tail[stated], reifiers)
    plain = stated[~about_triples]
    plain = plain[np.unique(triple[plain], return_index=True)[1]]
    plain = plain[~isin_sorted(triple[plain], np.sort(triple[annotated]))]
    rows = np.concatenate([annotated, plain])
    values = np.concatenate([values, np.full((len(plain), len(properties)), np.nan)])
    order = np.argsort(rows, kind="stable")
    rows, values = rows[order], values[order]
    num_used = int(np.isin(statements.numbers[on_triple, 1], properties).sum())
    num_quoted = statements.num_quoted + int((~isin_sorted(triple[reifier >= 0], np.sort(triple[rows]))).sum())
    num_literals = statements.num_literals - num_used if options.literals == "skip" else 0
    omitted = {
        "statements with a literal are left out; literals='keep' keeps them": num_literals,
        "statements about statements are left out": int(about_triples.sum()),
        "triples that are only quoted are left out": num_quoted,
    }
    notes = [f"{where}: {number:,} {words}" for words, number in omitted.items() if number > 0]
    if len(properties):
        rows, values = _without_missing(statements, rows, values, options, notes, where)
    ends, entities = _encode(statements, statements.triples[rows][:, [1, 3]].T.ravel(), options, where)
    relation, relations = _encode(statements, statements.triples[rows, 2], options, where)
    columns, weight = None, values[:, 0] if len(properties) else np.ones(len(rows))
    if len(properties) > 1:
        columns = WeightColumns(tuple(column_names(statements.texts(properties), options.base_iri)), values)
        weight = columns.provisional_weight()
    head, tail, weighted = ends[: len(rows)], ends[len(rows) :], len(properties) > 0
    return Graph(head, relation, tail, weight, entities, relations, where, weighted, columns, notes=tuple(notes))


def _without_missing(
    statements: RdfStatements, rows: Rows, values: Weights, options: ReadOptions, notes: list[str], where: str
) -> tuple[Rows, Weights]:
    """Return edges and their numbers without those that have none, which are dropped or get the number given."""
    bare = np.asarray(np.isnan(values).all(axis=1))
    number, missing = int(bare.sum()), options.missing_weight
    if not number:
        return rows, values
    if missing is None:
        shown = " ".join(statements.texts(statements.triples[rows[np.argmax(bare)], 1:]))
        raise FocuseError(
            f"{where}: {number:,} of {len(bare):,} triples have no weight, such as ({shown}); give them one "
            "(missing_weight 1) or leave them out (missing_weight 'drop')"
        )
    if missing == "drop":
        notes.append(f"{where}: {counted(number, 'triples')} without a weight left out")
        return rows[~bare], values[~bare]
    return rows, np.where(bare[:, None], float(missing), values)


def _encode(statements: RdfStatements, ids: Ids, options: ReadOptions, where: str) -> tuple[Ids, Vocabulary]:
    """Return terms as ids [n] of names, which are numbered by appearance."""
    used, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    names = names_from_terms(statements.texts(used[order]), options.base_iri, options.short_names, where)
    return np.argsort(order).astype(np.int32)[inverse], Vocabulary(names)


def _pair_ids(first: npt.NDArray[Any], second: Ids) -> npt.NDArray[np.int64]:
    """Return a number below n per row [n], which is equal for equal pairs."""
    keys = first.astype(np.int64) * (int(second.max(initial=0)) + 1) + second
    return np.asarray(np.unique(keys, return_inverse=True)[1], np.int64)


def _weight_properties(
    statements: RdfStatements, on_triple: npt.NDArray[np.bool_], options: ReadOptions, where: str
) -> Ids:
    """Return the properties [C] that are weights: those asked for, else all that give triples numbers."""
    found, first = np.unique(statements.numbers[on_triple, 1], return_index=True)
    found = found[np.argsort(first)]
    if options.weight_columns is None:
        return found
    known = statements.texts(found)
    chosen = []
    for wanted in map(str, options.weight_columns):
        fits = [i for i, iri in enumerate(known) if wanted in (iri, local_name(iri), from_iri(iri, options.base_iri))]
        if len(fits) != 1:
            similar = "" if fits else nearest(wanted, list(map(local_name, known)))
            available = f"numbers on triples are {', '.join(known)}" if known else "no triple has a number"
            what = "several properties are called" if fits else "no property"
            raise FocuseError(f"{where}: {what} {wanted!r}{similar}; {available}")
        chosen.append(found[fits[0]])
    if len(set(chosen)) < len(chosen):
        raise FocuseError(
            f"weight_columns: {', '.join(map(str, options.weight_columns))} name one property twice; give each its own"
        )
    return np.array(chosen, np.int32)


def _annotated_rows(
    statements: RdfStatements, triple: npt.NDArray[np.int64], properties: Ids, where: str
) -> tuple[Rows, Weights]:
    """Return one row of the triples per edge [e] that has numbers, and the numbers [e, C], NaN where one is missing."""
    reified = np.flatnonzero(statements.triples[:, 0] >= 0)
    reified = reified[np.argsort(statements.triples[reified, 0], kind="stable")]
    wanted = np.isin(statements.numbers[:, 1], properties)
    node, named, value = *statements.numbers[wanted].T, statements.values[wanted]
    by_id = np.argsort(properties)
    column = by_id[find_sorted(properties[by_id], named)[0]]
    # A node may stand for several triples.
    number, index = find_all_sorted(statements.triples[reified, 0], node)
    order = np.argsort(reified[index], kind="stable")
    row, column, value = reified[index][order], column[number][order], value[number][order]
    if not np.isfinite(value).all():
        bad = int(np.argmin(np.isfinite(value)))
        [name], shown = statements.texts(properties[[column[bad]]]), statements.texts(statements.triples[row[bad], 1:])
        raise FocuseError(f"{where}: the number {name} of ({' '.join(shown)}) is not finite; give it one or remove it")
    # RDF-star writes several numbers of a triple with a node for each. They are one edge if their properties differ.
    several = np.bincount(row)[row] > 1 if len(row) else np.empty(0, bool)
    several |= _occurrence_number(triple[row] * len(properties) + column) > 0
    _, first, inverse = np.unique(triple[row], return_index=True, return_inverse=True)
    edge_row = np.where(np.isin(triple[row], triple[row[several]]), row, row[first][inverse])
    # A node with two numbers of one property is two edges.
    repetition = _occurrence_number(edge_row * len(properties) + column)
    keys = edge_row * (repetition.max(initial=0) + 1) + repetition
    _, first, edge = np.unique(keys, return_index=True, return_inverse=True)
    values = np.full((len(first), len(properties)), np.nan)
    values[edge, column] = value
    return edge_row[first], values


def _occurrence_number(values: npt.NDArray[Any]) -> Rows:
    """Return how often each value occurred before [n].

    >>> _occurrence_number(np.array([7, 3, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    result = np.empty(len(values), np.intp)
    result[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return result


# ---- parsing --------------------------------------------------------------------------------------------------------

XML_SUFFIXES = (".rdf", ".owl", ".xml")
NUMBER_TYPES = [
    "decimal",
    "double",
    "float",
    "integer",
    "int",
    "long",
    "short",
    "byte",
    "positiveInteger",
    "nonPositiveInteger",
    "negativeInteger",
    "nonNegativeInteger",
    "unsignedInt",
    "unsignedLong",
    "unsignedShort",
    "unsignedByte",
]


def read_rdf(path: Path, options: ReadOptions) -> Graph:
    """Read an RDF file: triples as edges, numeric annotations as weights."""
    inspect_file(path)
    check_annotation_options(path, options)
    choose("value of literals", options.literals, LITERALS)
    check_base(options.base_iri)
    suffix = format_suffix(path)
    is_xml = suffix in XML_SUFFIXES
    try:
        if is_xml:
            check_xml(path)
        try:
            statements = _parse(path, "rdf" if is_xml else suffix[1:], options)
        except SyntaxError:
            if suffix != ".nt":
                raise
            # Lines of RDF-star (<< … >> as a subject) are not N-Triples today, but they are Turtle.
            statements = _parse(path, "ttl", options)
    except SyntaxError as error:
        if is_xml and error.lineno is None:
            check_xml(path, whole=True)
        message = re.sub(r"^Parser error at.*?: ", "", " ".join(str(error.msg).split()))
        if "No scheme found" in message:
            message = "a relative IRI; declare what it is relative to (@base in the file)"
        line = "" if error.lineno is None else f", line {error.lineno}"
        raise FocuseError(f"{path}{line}: {message[:200]}") from None
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise FocuseError(f"{path}: {' '.join(str(error).split())[:200]}") from None
    return graph_from_statements(statements, options, str(path))


def check_annotation_options(path: Path, options: ReadOptions) -> None:
    """Raise for columns, which a file of annotations does not have, and for a missing weight that is no number."""
    if options.columns is not None or isinstance(options.weight_columns, str):
        raise FocuseError(f"{path}: it has no columns; name its weights in a list with weight_columns")
    missing = options.missing_weight
    try:
        valid = missing is None or missing == "drop" or math.isfinite(float(missing))
    except ValueError:
        valid = False
    if not valid:
        raise FocuseError(f"missing_weight {missing!r}: give a number, the weight of triples without one, or 'drop'")


def _parse(path: Path, extension: str, options: ReadOptions) -> RdfStatements:
    """Parse all statements of a file; only distinct terms stay Python objects."""
    try:
        from pyoxigraph import Literal, NamedNode, RdfFormat, Triple, parse
    except ImportError:
        raise FocuseError(f"reading RDF needs pyoxigraph; {install_command('rdf')}") from None
    reifies = NamedNode(f"{RDF}reifies")
    # Text is a number only if the user names the properties that are weights.
    number_types: dict[Any, float | None] = {NamedNode(XSD + name): math.nan for name in NUMBER_TYPES}
    number_types |= {} if options.weight_columns is None else {NamedNode(f"{XSD}string"): None}
    ids: defaultdict[Any, int] = defaultdict(count().__next__)
    triples, numbers, values = array("i"), array("i"), array("d")
    num_literals = num_quoted = 0
    with open_decompressed(path) as stream:
        mark = stream.read(3)  # a byte order mark, written by editors on Windows, is part of no grammar but XML's
    with open_decompressed(path) as stream:
        if mark == b"\xef\xbb\xbf":
            stream.read(3)
        for subject, predicate, tail, _ in parse(stream, RdfFormat.from_extension(extension)):
            tail_class = type(tail)
            if tail_class is not Literal and tail_class is not Triple:
                triples.extend((-1, ids[subject], ids[predicate], ids[tail]))
            elif tail_class is Literal:
                num_literals += 1
                number = _number(tail, number_types)
                if number is not None:
                    numbers.extend((ids[subject], ids[predicate]))
                    values.append(number)
                if options.literals == "keep":
                    triples.extend((-1, ids[subject], ids[predicate], ids[tail]))
            elif predicate == reifies and type(tail.object) not in (Literal, Triple):
                triples.extend((ids[subject], ids[tail.subject], ids[tail.predicate], ids[tail.object]))
            else:  # a triple with a literal, or one that is the object of another predicate
                num_quoted += 1
    known = np.array(triples, np.int32).reshape(-1, 4)
    parts = [ids[NamedNode(RDF + name)] for name in ("subject", "predicate", "object", "type", "Statement")]
    known = _with_statement_nodes(known, *parts)
    pairs = np.array(numbers, np.int32).reshape(-1, 2)
    return RdfStatements(list(ids), known, pairs, np.array(values), num_literals, num_quoted)


def _number(literal: Any, number_types: Mapping[Any, float | None]) -> float | None:
    """Return the number of a literal; None if it is none, NaN if it is none in spite of its type."""
    datatype = literal.datatype
    try:
        return float(literal.value) if datatype in number_types else None
    except ValueError:
        return number_types[datatype]


def _with_statement_nodes(triples: Ids, subject: int, predicate: int, object_: int, type_: int, statement: int) -> Ids:
    """Replace the triples of an rdf:Statement by one that its node reifies, in the place of its rdf:subject."""
    rows = [np.flatnonzero((triples[:, 0] < 0) & (triples[:, 2] == part)) for part in (subject, predicate, object_)]
    node, first = np.unique(triples[rows[0], 1], return_index=True)
    row = rows[0][first]
    reified = [node, triples[row, 3]]
    for part in rows[1:]:
        known, first = np.unique(triples[part, 1], return_index=True)
        reified.append(lookup_sorted(known, triples[part[first], 3], node, np.int32(-1)))
    complete = (reified[2] >= 0) & (reified[3] >= 0)
    kept = (triples[:, 0] >= 0) | (triples[:, 2] != type_) | (triples[:, 3] != statement)
    kept[np.concatenate(rows)] = False
    kept[row[complete]] = True
    triples[row[complete]] = np.stack(reified, axis=1)[complete]
    found: Ids = triples[kept]
    return found


MAX_ENTITY_CHARACTERS = 1_000  # that an XML entity may stand for; ontologies use entities for beginnings of IRIs
SCAN_BYTES = 1 << 14


def check_xml(path: Path, whole: bool = False) -> None:
    """Raise for what is no XML before the first element or, if `whole`, anywhere, and for dangerous entities.

    Those nest, are long or name other files: a parser would fill the memory or open the files.
    """
    elements: list[str] = []

    def declared(name: str, parameter: bool, value: str | None, *_: object) -> None:
        if value is None:
            raise FocuseError(f"{path}: the XML entity {name!r} is another file; write out what it stands for")
        if len(value) > MAX_ENTITY_CHARACTERS or "&" in value or parameter:
            raise FocuseError(f"{path}: the XML entity {name!r} stands for too much; write out what it stands for")

    parser = expat.ParserCreate()
    parser.EntityDeclHandler = declared
    parser.StartElementHandler = lambda name, _: None if elements else elements.append(name)
    with open_decompressed(path) as stream:
        while (whole or not elements) and (data := stream.read(SCAN_BYTES)):
            try:
                parser.Parse(data)
            except expat.ExpatError as error:
                if whole or not elements:
                    reason = expat.ErrorString(error.code)
                    raise FocuseError(f"{path}, line {error.lineno}: not XML: {reason}") from None
            except (LookupError, ValueError) as error:  # unknown encodings
                raise FocuseError(f"{path}: not XML: {error}") from None


# ---- writing --------------------------------------------------------------------------------------------------------

TURTLE_SUFFIXES = (".ttl", ".trig")
CHUNK_ROWS = 1 << 16
# In this order: what is escaped first must not be escaped again.
ESCAPES = (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"))


def graph_pieces(graph: Graph, suffix: str, base: str, path: Path) -> Iterator[pa.Buffer | bytes]:
    """Yield the text of an RDF file with a graph's edges, annotated by their weights."""
    ids = [pa.array(column) for column in (graph.head, graph.relation, graph.tail)]
    weights = graph.weights_by_name() if graph.weighted else {}
    return _pieces(ids, graph.entities.column, graph.relations.column, weights, suffix, base)


def link_pieces(links: pa.Table, suffix: str, base: str) -> Iterator[pa.Buffer | bytes]:
    """Yield the text of an RDF file with links, annotated by all other columns of the table."""
    columns = {name: pa.concat_arrays(links.column(name).chunks) for name in links.column_names if len(links)}
    head, relation, tail = (columns.pop(name, pa.nulls(0)).cast(pa.string()) for name in NAME_COLUMNS)
    entities, relations = pa.concat_arrays([head, tail]).dictionary_encode(), relation.dictionary_encode()
    ids = [entities.indices[: len(head)], relations.indices, entities.indices[len(head) :]]
    return _pieces(ids, entities.dictionary, relations.dictionary, columns, suffix, base, asserted=False)


def to_terms(names: pa.Array, base: str = BASE_IRI, blank: bool = True) -> pa.Array:
    """Return each name [n] as a term of N-Triples and Turtle: `<iri>`, or `_:label` for a blank node if `blank`."""
    found = [name if blank and _BLANK.fullmatch(name) else f"<{to_iri(name, base)}>" for name in names.to_pylist()]
    return pa.array(found, pa.string())


def _pieces(
    ids: Sequence[pa.Array],
    entities: pa.Array,
    relations: pa.Array,
    annotations: Mapping[str, pa.Array],
    suffix: str,
    base: str,
    asserted: bool = True,
) -> Iterator[pa.Buffer | bytes]:
    """Yield the text of an RDF file: triples as ids of distinct names, with columns of annotations.

    If `asserted`, the triples are stated; else they are only quoted, as suits predictions.
    """
    check_base(base)
    turtle = suffix in TURTLE_SUFFIXES
    label = "edge"
    while pc.any(pc.starts_with(entities, f"_:{label}")).as_py():
        label += "x"  # nodes of annotations must not be nodes of the graph
    entity_terms, relation_terms = to_terms(entities, base), to_terms(relations, base, blank=False)
    if turtle and annotations:
        yield f"@prefix xsd: <{XSD}> .\n".encode()
    for chunk in chunks(len(ids[0]), CHUNK_ROWS):
        head, relation, tail = (column[chunk] for column in ids)
        names = entity_terms.take(head), relation_terms.take(relation), entity_terms.take(tail)
        triple = pc.binary_join_element_wise(*names, " ")
        values = {f"<{to_iri(name, base)}>": to_literals(column[chunk], turtle) for name, column in annotations.items()}
        if turtle:
            yield column_bytes(_turtle_lines(triple, values, asserted))
        else:
            numbers = pa.array(range(chunk.start, chunk.stop)).cast(pa.string())
            nodes = pc.binary_join_element_wise(f"_:{label}", numbers, "")
            yield column_bytes(_ntriples_lines(triple, nodes, values, asserted))


def _turtle_lines(triple: pa.Array, values: Mapping[str, pa.Array], asserted: bool) -> pa.Array:
    """Return `h r t {| property value ; … |} .`, or `<< h r t >> property value ; … .` for triples that are quoted."""
    # Arrow's own way to skip nulls loses rows that have nothing else.
    annotations = [
        pc.fill_null(pc.binary_join_element_wise(f" ; {name} ", value, ""), "") for name, value in values.items()
    ]
    joined = pa.array([""] * len(triple))
    if annotations:
        joined = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*annotations, ""), start=3)
    if not asserted:
        return pc.binary_join_element_wise("<< ", triple, " >> ", joined, " .\n", "")
    noted = pc.if_else(pc.equal(joined, ""), "", pc.binary_join_element_wise(" {| ", joined, " |}", ""))
    return pc.binary_join_element_wise(triple, noted, " .\n", "")


def _ntriples_lines(triple: pa.Array, nodes: pa.Array, values: Mapping[str, pa.Array], asserted: bool) -> pa.Array:
    """Return one statement per line: the triple, the node that reifies it, and the annotations of that node."""
    stated = pc.binary_join_element_wise(triple, " .\n", "")
    if not values:
        return stated
    reified = pc.binary_join_element_wise(nodes, f" <{RDF}reifies> <<( ", triple, " )>> .\n", "")
    annotations = [pc.binary_join_element_wise(nodes, f" {name} ", value, " .\n", "") for name, value in values.items()]
    if asserted:
        annotated = reduce(pc.or_, (value.is_valid() for value in values.values()))
        reified = pc.if_else(annotated, reified, pa.scalar(None, pa.string()))
    return pc.binary_join_element_wise(*([stated] if asserted else []), reified, *annotations, "", null_handling="skip")


def to_literals(column: pa.Array, turtle: bool) -> pa.Array:
    """Return numbers, truth values or texts [n] as literals, with every digit; null where there is none."""
    if pa.types.is_floating(column.type):
        column, name = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type)), "double"
    elif pa.types.is_integer(column.type):
        name = "integer"
    elif pa.types.is_boolean(column.type):
        name = "boolean"
    else:
        text = column.cast(pa.string())
        for character, escaped in ESCAPES:
            text = pc.replace_substring(text, character, escaped)
        return pc.binary_join_element_wise('"', text, '"', "")
    ending = f'"^^xsd:{name}' if turtle else f'"^^<{XSD}{name}>'
    return pc.binary_join_element_wise('"', column.cast(pa.string()), ending, "")
