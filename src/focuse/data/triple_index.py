"""An index of known triples: membership, known answers and the filter of filtered ranks.

The index consists of two sorted arrays instead of a dictionary of lists. If graphs are too large to sort,
`relevant_triple_index` keeps only the triples that filter the ranks of given triples.
This is the only module of `data` that imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from focuse.data.graph import Graph, Ids, Side, isin_sorted
from focuse.data.out_of_core import LARGE_GRAPH
from focuse.errors import FocuseError
from focuse.system import chunks

CHUNK_EDGES = 1 << 20  # edges examined at once


class TripleIndex:
    """An index of known triples as sorted 64-bit keys, so that whole batches are looked up by binary search.

    `keys["tail"]` is sorted by (head, relation, tail), to answer (head, relation, ?). `keys["head"]` is sorted by
    (tail, relation, head), to answer (?, relation, tail). The triples, ids int64 [n], may repeat and have any order.
    """

    def __init__(self, head: Tensor, relation: Tensor, tail: Tensor, entities: int, relations: int) -> None:
        if entities * entities * relations >= 2**63:
            raise FocuseError(f"{entities:,} entities × {relations:,} relations exceed 64-bit keys")
        self.entities, self.relations = entities, relations
        self.keys = {
            "tail": _sorted_distinct(self.query_key(head, relation) * entities + tail),
            "head": _sorted_distinct(self.query_key(tail, relation) * entities + head),
        }

    def query_key(self, given: Tensor, relation: Tensor) -> Tensor:
        """Return one number per query (given entity, relation): [...] -> [...]."""
        return given * self.relations + relation

    def contains(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Return a mask of the known triples: ids [...] -> bool [...]."""
        known = self.keys["tail"]
        keys = self.query_key(head, relation) * self.entities + tail
        # Known triples that are mapped from a file stay on the CPU, where they are looked up.
        return find_sorted_tensor(known, keys.to(known.device))[1].to(keys.device)

    def answer_ranges(self, query: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """Return the ranges of `keys[side]` that hold the known answers to query keys: [B] -> start [B], stop [B]."""
        known = self.keys[side]
        return torch.searchsorted(known, query * self.entities), torch.searchsorted(known, (query + 1) * self.entities)

    def known_answers(self, given: Tensor, relation: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """Return every known answer to queries (given, relation, ?): ids [B] -> row of the query [m], entity [m]."""
        rows, indices = expand_ranges(*self.answer_ranges(self.query_key(given, relation), side))
        return rows, self.keys[side][indices] % self.entities


def _sorted_distinct(keys: Tensor) -> Tensor:
    """Return each key once, ascending."""
    if keys.device.type != "cpu":
        distinct: Tensor = torch.unique(keys)
        return distinct
    ordered = np.sort(keys.numpy())  # it uses vector instructions and is ten times as fast as torch and np.unique
    return torch.from_numpy(ordered[np.diff(ordered, prepend=-1) != 0])


def find_sorted_tensor(keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Find values [...] in ascending keys [k]: an index of each [...] and whether it is among the keys, bool [...].

    The tensor version of `focuse.data.graph.find_sorted`.
    """
    if not len(keys):
        return torch.zeros_like(values), torch.zeros_like(values, dtype=torch.bool)
    index = torch.searchsorted(keys, values).clamp_(max=len(keys) - 1)
    return index, torch.eq(keys[index], values)


def expand_ranges(start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
    """List the numbers of ranges [start, stop) [n]: the range that each number belongs to [m], and the number [m].

    The tensor version of `focuse.data.graph.ranges_to_indices`.
    """
    count = stop - start
    row = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
    offset = torch.repeat_interleave(start - (count.cumsum(0) - count), count)
    return row, offset + torch.arange(len(row), device=count.device)


def id_tensors(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """Return heads, relations and tails as int64 tensors [n]."""
    columns = (graph.head, graph.relation, graph.tail)
    head, relation, tail = (torch.from_numpy(column.astype(np.int64)) for column in columns)
    return head, relation, tail


def build_triple_index(graphs: list[Graph], device: torch.device | str = "cpu") -> TripleIndex:
    """Index all triples of graphs that share their vocabularies."""
    parts = zip(*(id_tensors(graph) for graph in graphs), strict=True)
    head, relation, tail = (torch.cat(columns).to(device) for columns in parts)
    return TripleIndex(head, relation, tail, len(graphs[0].entities), len(graphs[0].relations))


def filter_index(ranked: Graph, known: list[Graph], device: torch.device | str = "cpu") -> TripleIndex:
    """Index the known triples that filter the ranks of `ranked`: all, or if there are many the relevant ones."""
    if sum(map(len, known)) >= LARGE_GRAPH:
        return relevant_triple_index(known, ranked, device)
    return build_triple_index(known, device)


def relevant_triple_index(known: Sequence[Graph], ranked: Graph, device: torch.device | str = "cpu") -> TripleIndex:
    """Index only the known triples that answer (head, relation, ?) or (?, relation, tail) of a triple in `ranked`.

    Ranks of `ranked` that are filtered by these triples equal ranks that are filtered by all known triples. Only the
    relevant triples take memory.

    >>> from focuse.data.readers import read
    >>> graph = read([("a", "r", "b", 1), ("a", "r", "c", 1), ("c", "r", "d", 1), ("d", "s", "b", 1)])
    >>> len(relevant_triple_index([graph], graph.select(np.array([0]))).keys["tail"])
    2
    """
    columns = zip(*_relevant_triples(known, ranked), strict=True)
    ids = [torch.from_numpy(np.concatenate(parts).astype(np.int64)) for parts in columns]
    head, relation, tail = (column.to(device) for column in ids or [torch.empty(0, dtype=torch.int64)] * 3)
    return TripleIndex(head, relation, tail, len(ranked.entities), len(ranked.relations))


def contained_in(graph: Graph, other: Graph) -> npt.NDArray[np.bool_]:
    """Return a mask of the triples of a graph that are in another one with the same vocabularies; bool [n]."""
    contained: npt.NDArray[np.bool_] = filter_index(graph, [other]).contains(*id_tensors(graph)).numpy()
    return contained


def _relevant_triples(known: Sequence[Graph], ranked: Graph) -> Iterator[list[Ids]]:
    """Yield the heads, relations and tails of triples that answer a query of `ranked`, in chunks."""
    is_head, is_tail = np.zeros(len(ranked.entities), bool), np.zeros(len(ranked.entities), bool)
    is_head[ranked.head], is_tail[ranked.tail] = True, True
    tail_queries = np.unique(_query_keys(ranked, ranked.head, ranked.relation))
    head_queries = np.unique(_query_keys(ranked, ranked.tail, ranked.relation))
    for graph in known:
        for chunk in chunks(len(graph), CHUNK_EDGES):
            head, relation, tail = columns = [column[chunk] for column in (graph.head, graph.relation, graph.tail)]
            # The table of flags excludes most rows from the binary search.
            rows = np.flatnonzero(is_head[head] | is_tail[tail])
            relevant = isin_sorted(_query_keys(ranked, head[rows], relation[rows]), tail_queries)
            relevant |= isin_sorted(_query_keys(ranked, tail[rows], relation[rows]), head_queries)
            yield [column[rows[relevant]] for column in columns]


def _query_keys(ranked: Graph, given: Ids, relation: Ids) -> npt.NDArray[np.int64]:
    return given.astype(np.int64) * max(len(ranked.relations), 1) + relation
