"""Edges of statements and of numbers that are noted on them: what RDF says, as columns of ids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from focuse.errors import FocuseError, choose, counted, nearest
from focuse.graph.columns import Columns
from focuse.graph.graph import Graph, Ids
from focuse.graph.iris import BASE, check_base, from_iri, last_part, names_of, short_names
from focuse.graph.vocabulary import Vocabulary

LITERALS = ("skip", "keep")
Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Triples = tuple[Ids, Ids, Ids]


@dataclass(frozen=True)
class Options:
    """How RDF is to be read.

    `weights` names the properties that are weights, by IRI or last part (None: every one that gives a number to a
    triple). `literals`: whether facts with a literal as tail are left out ('skip') or have it as an entity ('keep').
    `missing` is the weight of facts without one, or 'drop'. `shorten` keeps the last part of IRIs alone. `base` is what
    names that are no IRIs were minted from.
    """

    weights: tuple[str, ...] | None = None
    literals: str = "skip"
    missing: float | str | None = None
    shorten: bool = False
    base: str = BASE

    def __post_init__(self) -> None:
        choose("way with literals", self.literals, LITERALS)
        check_base(self.base)
        if self.missing is not None and self.missing != "drop":
            try:
                right = math.isfinite(float(self.missing))
            except ValueError:
                right = False
            if not right:
                raise FocuseError(f"missing {self.missing!r}: give a number, the weight of facts without one, or drop")


@dataclass(frozen=True, eq=False)
class Rows:
    """What a file says, in places of one list of `terms`.

    `facts` are heads, relations and tails [F] each, `reified` nodes and the triple that each speaks of [Q], `place`
    [F + Q] where in the file they stand; `numbers` are nodes and properties [M], `values` [M] their numbers. `literals`
    and `odd` count statements with a literal, and those with a triple in another place than a note's.
    """

    terms: pa.Array
    facts: Triples
    reified: tuple[Ids, Ids, Ids, Ids]
    place: Places
    numbers: tuple[Ids, Ids]
    values: Numbers
    literals: int = 0
    odd: int = 0


@dataclass(frozen=True, eq=False)
class Edges:
    """Triples [n] with their numbers [n, C], NaN where one is missing, and their places in the file."""

    triples: Triples
    values: Numbers
    place: Places

    def take(self, rows: npt.NDArray[Any]) -> Edges:
        head, relation, tail = (column[rows] for column in self.triples)
        return Edges((head, relation, tail), self.values[rows], self.place[rows])


def to_graph(rows: Rows, options: Options, where: str) -> Graph:
    """The graph of what a file says."""
    reifiers = np.unique(rows.reified[0])
    properties = _properties(rows, np.isin(rows.numbers[0], reifiers), options, where)
    noted = _noted(rows, properties, where)
    about = np.isin(rows.facts[0], reifiers) | np.isin(rows.facts[2], reifiers)
    plain, unasserted = _plain(rows, noted, ~about)
    edges = Edges(
        _joined(noted.triples, plain.triples),
        np.concatenate([noted.values, plain.values]),
        np.concatenate([noted.place, plain.place]),
    )
    edges = edges.take(np.argsort(edges.place, kind="stable"))
    used = int(np.isin(rows.numbers[0], reifiers)[np.isin(rows.numbers[1], properties)].sum())
    notes = _notes(rows, options, used, int(about.sum()), unasserted, where)
    edges, dropped = _without_missing(edges, rows.terms, options, where)
    if dropped:
        notes.append(f"{where}: {counted(dropped, 'facts')} without a weight left out")
    return _encoded(edges, rows.terms.take(pa.array(properties)).to_pylist(), rows.terms, options, where, notes)


def _properties(rows: Rows, on_triples: npt.NDArray[np.bool_], options: Options, where: str) -> Ids:
    """The properties [C] that are weights: those asked for, else all that give numbers to triples."""
    found, first = np.unique(rows.numbers[1][on_triples], return_index=True)
    found = found[np.argsort(first)]
    if options.weights is None:
        return found
    known = rows.terms.take(pa.array(found)).to_pylist()
    chosen = []
    for wanted in options.weights:
        fits = [
            place for place, iri in enumerate(known) if wanted in (iri, last_part(iri), from_iri(iri, options.base))
        ]
        if len(fits) != 1:
            names = [last_part(iri) for iri in known]
            told = f"; numbers on triples are {', '.join(known)}" if known else "; no triple has a number"
            what = "several properties are called" if fits else "no property"
            raise FocuseError(f"{where}: {what} {wanted!r}{'' if fits else nearest(wanted, names)}{told}")
        chosen.append(found[fits[0]])
    if len(set(chosen)) < len(chosen):
        raise FocuseError(f"weights: {', '.join(options.weights)} name one property twice; give each its own")
    return np.array(chosen, np.int32)


def _noted(rows: Rows, properties: Ids, where: str) -> Edges:
    """One edge for each node that gives numbers to a triple."""
    order = np.argsort(rows.reified[0], kind="stable")
    nodes = rows.reified[0][order]
    wanted = np.isin(rows.numbers[1], properties)
    node, value = rows.numbers[0][wanted], rows.values[wanted]
    column = _places(rows.numbers[1][wanted], properties)
    left, right = np.searchsorted(nodes, node, "left"), np.searchsorted(nodes, node, "right")
    count = right - left  # of triples that the node speaks of
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    speaks = order[np.repeat(left, count) + within]
    column, value = np.repeat(column, count), np.repeat(value, count)
    if not np.isfinite(value).all():
        bad = int(np.flatnonzero(~np.isfinite(value))[0])
        triple = " ".join(rows.terms[int(part[speaks[bad]])].as_py() for part in rows.reified[1:])
        name = rows.terms[int(properties[column[bad]])].as_py()
        raise FocuseError(f"{where}: the number {name} of ({triple}) is not finite; give it one or remove it")
    # A node with two numbers of one property is two edges.
    cell = speaks * max(len(properties), 1) + column
    again = _occurrence(cell)
    edge, start, inverse = np.unique(
        speaks * (again.max(initial=0) + 1) + again, return_index=True, return_inverse=True
    )
    values = np.full((len(edge), len(properties)), np.nan)
    values[inverse, column] = value
    row = speaks[start]
    head, relation, tail = (part[row] for part in rows.reified[1:])
    place = rows.place[len(rows.facts[0]) :][row]
    return _star(Edges((head, relation, tail), values, place))


def _star(edges: Edges) -> Edges:
    """Edges of one triple that have one number each, all of other properties, are one: so RDF-star writes several."""
    if len(edges.place) < 2 or edges.values.shape[1] < 2:
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
    return Edges(edges.triples, values, edges.place).take(keep)


def _plain(rows: Rows, noted: Edges, wanted: npt.NDArray[np.bool_]) -> tuple[Edges, int]:
    """Facts that have no number, each once, and how many triples are only spoken of."""
    facts = tuple(column[wanted] for column in rows.facts)
    whole = [np.concatenate(parts) for parts in zip(noted.triples, facts, rows.reified[1:], strict=True)]
    keys = _keys(*whole)
    have, said, spoken = np.split(keys, np.cumsum([len(noted.place), len(facts[0])]))
    first = np.unique(said, return_index=True)[1]
    first = np.sort(first[~np.isin(said[first], have)])
    head, relation, tail = (column[first] for column in facts)
    empty = np.full((len(first), noted.values.shape[1]), np.nan)
    place = rows.place[: len(wanted)][wanted][first]
    unasserted = len(np.setdiff1d(spoken, np.concatenate([have, said]))) if len(spoken) else 0
    return Edges((head, relation, tail), empty, place), unasserted


def _keys(head: Ids, relation: Ids, tail: Ids) -> Places:
    """One number a distinct triple [n]."""
    nodes, ends = np.unique(np.concatenate([head, tail]), return_inverse=True)
    kinds, kind = np.unique(relation, return_inverse=True)
    if len(nodes) ** 2 * len(kinds) >= 2**63:
        raise FocuseError(f"{len(nodes):,} entities × {len(kinds):,} relations exceed 64-bit keys")
    keys: Places = (ends[: len(head)].astype(np.int64) * len(kinds) + kind) * len(nodes) + ends[len(head) :]
    return keys


def _joined(first: Triples, second: Triples) -> Triples:
    head, relation, tail = (np.concatenate(parts) for parts in zip(first, second, strict=True))
    return head, relation, tail


def _places(values: Ids, known: Ids) -> npt.NDArray[np.intp]:
    """Where each value stands in `known`, which has them all."""
    order = np.argsort(known)
    return order[np.searchsorted(known, values, sorter=order)] if len(known) else np.empty(0, np.intp)


def _occurrence(values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """How often each value stood before [n]."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(values) else np.empty(0, np.intp)
    count = np.diff(np.r_[starts, len(values)])
    result = np.empty(len(values), np.intp)
    result[order] = np.arange(len(values)) - np.repeat(starts, count)
    return result


def _notes(rows: Rows, options: Options, used: int, about: int, unasserted: int, where: str) -> list[str]:
    """What of a file is no edge, in words."""
    literals = rows.literals - used if options.literals == "skip" else 0
    told = [
        (literals, "statements with a literal (labels, numbers of entities) are left out; literals='keep' keeps them"),
        (about, "statements about statements are left out"),
        (unasserted, "triples that are spoken of, but neither stated nor given a number, are left out"),
        (rows.odd, "statements that have a triple as their object are left out"),
    ]
    return [f"{where}: {count:,} {words}" for count, words in told if count > 0]


def _without_missing(edges: Edges, terms: pa.Array, options: Options, where: str) -> tuple[Edges, int]:
    """Every edge with a number, if any has one, as the options say."""
    bare: npt.NDArray[np.bool_] = np.asarray(np.isnan(edges.values).all(axis=1))
    if not edges.values.shape[1] or not bare.any():
        return edges, 0
    if options.missing == "drop":
        return edges.take(~bare), int(bare.sum())
    if options.missing is None:
        shown = " ".join(terms[int(column[np.flatnonzero(bare)[0]])].as_py() for column in edges.triples)
        raise FocuseError(
            f"{where}: {int(bare.sum()):,} of {len(bare):,} facts have no weight, such as ({shown}); give them one "
            "(missing=1.0) or leave them out (missing='drop'); `focuse convert` has --missing for both"
        )
    values = edges.values.copy()
    values[bare] = float(options.missing)
    return Edges(edges.triples, values, edges.place), 0


def _encoded(
    edges: Edges, properties: Sequence[str], terms: pa.Array, options: Options, where: str, notes: Sequence[str]
) -> Graph:
    """The graph, with names in order of appearance, heads first."""
    head, relation, tail = edges.triples
    ends, nodes = _appearing(np.concatenate([head, tail]))
    kinds, used = _appearing(relation)
    entities = names_of(terms.take(pa.array(nodes)), options.base, options.shorten, where)
    relations = names_of(terms.take(pa.array(used)), options.base, options.shorten, where)
    columns = Columns(tuple(short_names(properties, options.base)), edges.values) if len(properties) > 1 else None
    weight = edges.values[:, 0] if len(properties) == 1 else np.ones(len(head))
    return Graph(
        ends[: len(head)],
        kinds,
        ends[len(head) :],
        weight if columns is None else columns.provisional(),
        Vocabulary(entities),
        Vocabulary(relations),
        where,
        len(properties) > 0,
        columns,
        notes=tuple(notes),
    )


def _appearing(ids: Ids) -> tuple[Ids, Ids]:
    """Ids counted anew in order of appearance [n], and what each stands for."""
    known, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(known), np.int32)
    rank[order] = np.arange(len(known), dtype=np.int32)
    return rank[inverse], known[order]
