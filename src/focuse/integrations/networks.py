"""Read graphs of NetworkX, igraph and PyTorch Geometric."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from focuse.data.graph import Graph
from focuse.data.readers import ReadOptions, graph_from_table, to_arrow_column
from focuse.data.roles import DIRECTIONS, NONE, RELATION, TIME, WEIGHT, words_of
from focuse.errors import FocuseError, nearest

# The data of edges that name a relation or are a weight, the likeliest first.
RELATION_DATA = ("relation", "label", "type", *RELATION, "edge_type")
WEIGHT_DATA = ("weight", *WEIGHT, "edge_weight", "edge_attr", "edge_label")
TABLE_OPTIONS = ("columns", "head", "tail", "delimiter", "header")
UNDIRECTED = "its edges are undirected (--directed, or undirected=False, changes this)"


def refuse_options(where: str, options: ReadOptions, names: Iterable[str] = TABLE_OPTIONS) -> None:
    """Raise FocuseError for options that have no effect on a source without columns."""
    for name in names:
        if getattr(options, name) is not None:
            raise FocuseError(f"{where}: {name} has no effect, because its endpoints are known; leave it out")


def first_known(names: Iterable[str], words: Sequence[str]) -> str | None:
    """Return the name that comes first among known words, in any case.

    >>> first_known(["color", "Type", "Label"], RELATION_DATA)
    'Label'
    """
    by_word = {name.lower(): name for name in reversed(list(names))}
    return next((by_word[word] for word in words if word in by_word), None)


class EdgeData:
    """The data of a source's edges by name: `column` returns the values of one name, with None where there is none."""

    def __init__(self, where: str, names: Sequence[str], column: Callable[[str], Any]) -> None:
        self.where, self.names, self.column = where, names, column

    def relation(self, options: ReadOptions) -> str | None:
        """Return the name of the data that holds relations, as asked or by its name."""
        if options.relation is not None:
            return None if options.relation == NONE and NONE not in self.names else self._find(options.relation)
        texts = [name for name in self.names if name.lower() in RELATION_DATA and self._may_be_relation(name)]
        return first_known(texts, RELATION_DATA)

    def weights(self, options: ReadOptions, relation: str | None) -> list[str]:
        """Return the names of the data that are weights: as asked, else by name, else the only numbers with a point.

        Texts are weights only if they are called weight, and times never are.
        """
        if options.weight_columns is not None:
            return [self._find(name) for name in options.weight_columns]
        if options.weight is not None:
            return [] if options.weight == NONE and NONE not in self.names else [self._find(options.weight)]
        kinds = {name: self.array(name).type for name in self.names if name != relation}
        usual = first_known([name for name in kinds if name == "weight" or not _is_text(kinds[name])], WEIGHT_DATA)
        if usual is not None:
            return [usual]
        real = [name for name, kind in kinds.items() if pa.types.is_floating(kind) and not TIME & set(words_of(name))]
        if len(real) > 1:
            raise FocuseError(
                f"{self.where}: which of {', '.join(real[:8])}{' …' if len(real) > 8 else ''} is the weight? Give "
                f"weight={real[0]!r}, several weights: weight_columns, or none: weight={NONE!r}"
            )
        return real

    def _find(self, name: str | int) -> str:
        if name in self.names:
            return str(name)
        known = f"they have {', '.join(map(str, self.names))}" if self.names else "they have none"
        raise FocuseError(f"{self.where}: edges have no data {name!r}{nearest(str(name), self.names)}; {known}")

    def _may_be_relation(self, name: str) -> bool:
        values = self.array(name)
        is_number = pa.types.is_floating(values.type) or pa.types.is_nested(values.type)
        return not is_number and not {str(value).lower() for value in values.slice(0, 1000).to_pylist()} <= DIRECTIONS

    def array(self, name: str) -> pa.Array:
        """Return the values of one name as a column."""
        values = self.column(name)
        return pa.array(values) if isinstance(values, np.ndarray) else to_arrow_column(list(values), self.where)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_nested(kind))


def graph_of_edges(
    where: str,
    head: pa.Array,
    tail: pa.Array,
    data: EdgeData,
    options: ReadOptions,
    keys: Sequence[Any] | None = None,
    relations: pa.Array | None = None,
) -> Graph:
    """Encode edges as a graph, whose relations and weights are data of the edges.

    `keys` are relations of edges without other ones, if they are text, and `relations` those of all edges.
    """
    if not len(head):
        raise FocuseError(f"{where}: no edges; give a graph with at least one")
    relation = data.relation(options) if relations is None else None
    weights = data.weights(options, relation)
    if relation is not None or (keys is not None and options.relation is None):
        relations = _relations(where, head, tail, relation, data, keys)
    names = {"head": head, "tail": tail} | ({} if relations is None else {"relation": relations})
    columns = [*names.values(), *map(data.array, weights)]
    numbers = list(range(len(names) + 1, len(columns) + 1))
    given = ReadOptions(
        head=1,
        tail=2,
        relation=NONE if relations is None else 3,
        weight=NONE if not numbers else None,
        weight_columns=numbers or None,
        relation_name=options.relation_name,
        same_ids=True,
        missing_weight=options.missing_weight,
    )
    labels = [f"data {name}" if name.isdecimal() else name for name in weights]  # no number of a column
    graph = graph_from_table(pa.table(columns, [*names, *labels]), given, where)
    used = {relation, *weights}
    unused = [repr(name) for name in data.names if name not in used]
    if relations is None or unused:
        parts = [f"relation {relation!r}"] if relation is not None else []
        parts += [f"weight {', '.join(map(repr, weights))}" if weights else "no weight"]
        note = f"{where}: read {', '.join(parts)} from the data of edges"
        if relations is None:
            note += f"; all edges have the relation {graph.relations[0]!r} (relation_name)"
        if unused:
            note += f"; not used: {', '.join(unused[:8])}{' …' if len(unused) > 8 else ''}"
        graph = replace(graph, notes=(f"{note}; to change it, give relation and weight", *graph.notes))
    return graph


def _relations(
    where: str, head: pa.Array, tail: pa.Array, relation: str | None, data: EdgeData, keys: Sequence[Any] | None
) -> pa.Array | None:
    """Return the relation of each edge: its data, else its key if that is text; None if no edge has either."""
    values = [None] * len(head) if relation is None else data.array(relation).to_pylist()
    if keys is not None:
        texts = (key if isinstance(key, str) else None for key in keys)
        values = [key if value is None else value for value, key in zip(values, texts, strict=True)]
    missing = next((row for row, value in enumerate(values) if value is None), None)
    if missing is None:
        return to_arrow_column(values, where)
    if relation is None and all(value is None for value in values):
        return None
    edge = head[missing].as_py(), tail[missing].as_py()
    raise FocuseError(
        f"{where}, edge {edge!r}: no {relation or 'relation'!r} in its data, which other edges have; add it, or give "
        f"relation={NONE!r}"
    )


# ---- NetworkX -------------------------------------------------------------------------------------------------------


def read_networkx(graph: Any, options: ReadOptions) -> Graph:
    """Encode a NetworkX graph: the relation and the weight are read from the data of its edges.

    An edge of a multigraph without a relation takes its key, if that is text.
    """
    where = "NetworkX graph"
    if not hasattr(graph, "edges"):
        raise FocuseError(f"cannot read a graph from {type(graph).__name__}: give a NetworkX graph")
    refuse_options(where, options)
    texts = distinct_names(where, list(graph))
    edges = list(graph.edges(keys=True, data=True) if graph.is_multigraph() else graph.edges(data=True))
    head, tail = (pa.array([texts[edge[side]] for edge in edges], pa.string()) for side in (0, 1))
    keys = [edge[2] for edge in edges] if graph.is_multigraph() else None
    names = {str(name): name for *_, attributes in edges for name in attributes}
    data = EdgeData(where, list(names), lambda name: [attributes.get(names[name]) for *_, attributes in edges])
    result = graph_of_edges(where, head, tail, data, options, keys)
    return result if graph.is_directed() else as_undirected(result, options)


def distinct_names(where: str, nodes: Sequence[Any]) -> dict[Any, str]:
    """Return the name of each node; two nodes with the same name, such as 1 and '1', are an error."""
    names = {node: str(node) for node in nodes}
    owner: dict[str, Any] = {}
    for node, name in names.items():
        if owner.setdefault(name, node) is not node:
            raise FocuseError(f"{where}: the nodes {owner[name]!r} and {node!r} have the same name; rename one of them")
    try:
        "".join(owner).encode("utf-8")
    except UnicodeEncodeError:
        raise FocuseError(f"{where}: a node's name is not Unicode text; correct it") from None
    return names


def as_undirected(graph: Graph, options: ReadOptions) -> Graph:
    """Return a graph of undirected edges, with a note if the user does not say whether they are."""
    note = () if options.undirected is not None else (f"{graph.source}: {UNDIRECTED}",)
    return replace(graph, undirected=True, notes=(*graph.notes, *note))


# ---- igraph ---------------------------------------------------------------------------------------------------------


def read_igraph(graph: Any, options: ReadOptions) -> Graph:
    """Encode a graph of igraph: nodes have the name in the attribute `name`, else their number."""
    where = "igraph graph"
    if not hasattr(graph, "get_edgelist"):
        raise FocuseError(f"cannot read a graph from {type(graph).__name__}: give a graph of igraph")
    refuse_options(where, options)
    named = "name" in graph.vs.attributes()
    nodes = list(map(str, graph.vs["name"])) if named else list(map(str, range(graph.vcount())))
    if len(set(nodes)) < len(nodes):
        twice = next(name for name, count in Counter(nodes).items() if count > 1)
        raise FocuseError(f"{where}: several nodes have the name {twice!r}; give each its own, or delete vs['name']")
    ends = np.array(graph.get_edgelist(), np.int64).reshape(-1, 2)
    names = pa.array(nodes, pa.string())
    data = EdgeData(where, graph.es.attributes(), lambda name: graph.es[name])
    result = graph_of_edges(where, names.take(pa.array(ends[:, 0])), names.take(pa.array(ends[:, 1])), data, options)
    if not named and graph.vs.attributes():
        note = f"{where}: nodes are named by their numbers from 0, because they have no attribute 'name'"
        result = replace(result, notes=(*result.notes, note))
    return result if graph.is_directed() else as_undirected(result, options)


# ---- PyTorch Geometric ----------------------------------------------------------------------------------------------


def read_pyg(data: Any, options: ReadOptions) -> Graph:
    """Encode PyTorch Geometric's Data or HeteroData: edge_index, edge_type, edge_weight and edge_attr.

    Nodes are named by their numbers; if there are several types of nodes, after their type.
    """
    where = f"PyTorch Geometric {type(data).__name__}"
    if not hasattr(data, "edge_stores"):
        raise FocuseError(f"cannot read a graph from {type(data).__name__}: give Data or HeteroData")
    refuse_options(where, options)
    is_hetero = hasattr(data, "edge_types")
    types: list[Any] = list(data.edge_types) if is_hetero else [None]
    stores = list(data.edge_stores)
    kinds = {kind for each in types if each is not None for kind in (each[0], each[2])}
    apart = len(kinds) > 1 and options.same_ids is not True
    blocks = []
    for each, store in zip(types, stores, strict=True):
        label = where if each is None else f"{where}, {each!r}"
        index = _numpy(store["edge_index"]) if "edge_index" in store else None
        if index is None or index.ndim != 2 or index.shape[0] != 2:
            raise FocuseError(f"{label}: no edge_index of 2 rows; give the edges as edge_index")
        sides = []
        for side in (0, 1):
            names = pa.array(index[side]).cast(pa.string())
            word = pa.scalar(each[2 * side] if apart else "", pa.string())
            sides.append(pc.binary_join_element_wise(word, names, " ") if apart else names)
        blocks.append((label, *sides, _edge_arrays(store, index.shape[1])))
    blocks = [block for block in blocks if len(block[1])]
    if not blocks:
        raise FocuseError(f"{where}: no edges; give a graph with at least one")
    notes = _join_weights(blocks) if options.weight is None and options.weight_columns is None else []
    names = list(dict.fromkeys(name for *_, arrays in blocks for name in arrays))
    chosen = EdgeData(where, names, lambda name: _joined(name, blocks, options))
    head, tail = (pa.chunked_array([block[side] for block in blocks]).combine_chunks() for side in (1, 2))
    relations = _edge_type_names(types, stores) if is_hetero else None
    if relations is not None and options.relation is not None:
        raise FocuseError(f"{where}: relation has no effect, because the types of edges are relations; leave it out")
    graph = graph_of_edges(where, head, tail, chosen, options, relations=relations)
    if apart:
        first = sorted(kinds)[0]
        notes.append(f"nodes of different types are kept apart, as '{first} 0' (same_ids=True merges equal numbers)")
    return replace(graph, notes=(*graph.notes, *(f"{where}: {note}" for note in notes)))


def _join_weights(blocks: Sequence[Any]) -> list[str]:
    """Give the weights of all types of edges the same name, if each type has one; return a note if names differ."""
    names = [first_known(arrays, WEIGHT_DATA) for *_, arrays in blocks]
    different = sorted({name for name in names if name is not None})
    if None in names or len(different) < 2:
        return []
    for name, (*_, arrays) in zip(names, blocks, strict=True):
        arrays["weight"] = arrays.pop(name)
    return [f"the weights of some types of edges are called {different[0]!r}, of others {different[1]!r}"]


def _edge_arrays(store: Any, edges: int) -> dict[str, npt.NDArray[Any]]:
    """Return the numbers of edges by name; those with several columns as edge_attr[0], edge_attr[1], …."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    supervision = {"edge_index", "edge_label_index"} | ({"edge_label"} if "edge_label_index" in store else set())
    for name in store.edge_attrs():
        values = store[name]
        if name in supervision or not hasattr(values, "detach"):
            continue
        array = _numpy(values)
        if array.ndim in (1, 2) and len(array) == edges:
            columns = array.reshape(edges, -1).T
            several = len(columns) > 1
            arrays |= {f"{name}[{at}]" if several else name: column for at, column in enumerate(columns)}
    return arrays


def _numpy(tensor: Any) -> npt.NDArray[Any]:
    tensor = tensor.detach().cpu()
    tensor = tensor.double() if tensor.is_floating_point() else tensor  # NumPy has no bfloat16
    array: npt.NDArray[Any] = np.ascontiguousarray(tensor.numpy())
    return array


def _joined(name: str, blocks: Sequence[Any], options: ReadOptions) -> npt.NDArray[Any]:
    """Return the numbers of one name of all types of edges; NaN where a type has none, if that is allowed."""
    parts = []
    for label, head, _, arrays in blocks:
        if name not in arrays and options.missing_weight is None:
            raise FocuseError(f"{label}: no {name!r}, which other edges have; add it, or give missing_weight")
        parts.append(arrays.get(name, np.full(len(head), np.nan)))
    return np.concatenate(parts)


def _edge_type_names(types: Sequence[tuple[str, str, str]], stores: Sequence[Any]) -> pa.Array:
    """Return the relation of each edge: the middle of its type, or all of it if types of other nodes have the same."""
    middles = [each[1] for each in types]
    names = [each[1] if middles.count(each[1]) == 1 else " ".join(each) for each in types]
    counts = [store["edge_index"].shape[1] for store in stores]
    return pa.array(names).take(pa.array(np.repeat(np.arange(len(names)), counts)))
