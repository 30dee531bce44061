"""Entities that may be one and the same: embeddings that nearly coincide, and edges that are nearly the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import torch
from torch import Tensor

from focuse.data.graph import Graph
from focuse.data.weights import WeightScaler
from focuse.engines.scorer import TableScorer
from focuse.errors import FocuseError, printable
from focuse.inference.answers import write_table
from focuse.inference.discovery.likeness import unit_rows
from focuse.inference.discovery.pool import Pool
from focuse.inference.discovery.scope import Ids

AT_ONCE = 1 << 22  # cosines held at once: 16 MB
PAIRS_AT_ONCE = 1 << 14
DRAWN = 20_000  # pairs by chance that say what is usual
FAR = 6.0  # deviations above what is usual, from which two embeddings nearly coincide
SIMILARITY = (0.5, 0.98)  # bounds of an automatic threshold
OVERLAP = (0.1, 0.5)
SPARE = 20  # times as many pairs are compared by their edges as are wanted
SHOWN = 50
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Duplicate:
    """Two entities with the cosine of their embeddings and how far their edges are the same, both at most 1.

    `overlap` is Σ min / Σ max over all (relation, direction, other entity) of either; an edge counts (1 + share) / 2,
    by its weight's share of the relation's range. `shared` counts the edges that both have. `names` is how alike the
    names are, None if that was not asked for.
    """

    first: str
    second: str
    similarity: float
    overlap: float
    shared: int
    names: float | None = None


class Duplicates(list[Duplicate]):
    """Pairs, the most suspicious first (by similarity · overlap), and the `groups` that they make."""

    def __init__(self, rows: list[Duplicate], groups: list[list[str]], similarity: float, overlap: float) -> None:
        super().__init__(rows)
        self.groups, self.min_similarity, self.min_overlap = groups, similarity, overlap

    def to_dict(self) -> dict[str, Any]:
        return {
            "pairs": [asdict(row) for row in self],
            "groups": self.groups,
            "min_similarity": self.min_similarity,
            "min_overlap": self.min_overlap,
        }

    def to_arrow(self) -> pa.Table:
        """first, second, similarity, overlap, shared, names and the group's number, one row a pair."""
        group = {name: number for number, members in enumerate(self.groups, 1) for name in members}
        kinds = {"first": pa.string(), "second": pa.string(), "similarity": pa.float64(), "overlap": pa.float64()}
        kinds |= {"shared": pa.int64(), "names": pa.float64()}
        columns = {name: pa.array([getattr(row, name) for row in self], kind) for name, kind in kinds.items()}
        return pa.table(columns | {"group": pa.array([group[row.first] for row in self], pa.int64())})

    def write(self, path: str | Path) -> None:
        """Write to .tsv, .csv (with a header) or .parquet, whole or not at all."""
        write_table(self.to_arrow(), Path(path))

    def __str__(self) -> str:
        bounds = f"similarity ≥ {self.min_similarity:.2f} and overlap ≥ {self.min_overlap:.2f}"
        if not self:
            return f"no near-duplicates with {bounds}"
        lines = [f"pairs to look at: {len(self):,} in {len(self.groups):,} groups with {bounds}"]
        widths = [max(len(printable(getattr(row, end))) for row in self[:SHOWN]) for end in ("first", "second")]
        for row in self[:SHOWN]:
            alike = "" if row.names is None else f"  names {row.names:.2f}"
            lines.append(
                f"  {printable(row.first):{widths[0]}}  {printable(row.second):{widths[1]}}  similarity "
                f"{row.similarity:.3f}  overlap {row.overlap:.3f}  {row.shared} shared edges{alike}"
            )
        if len(self) > SHOWN:
            lines.append(f"… {len(self) - SHOWN:,} more (--out FILE has all)")
        lines += [f"group: {', '.join(map(printable, group))}" for group in self.groups if len(group) > 2]
        return "\n".join(lines)


@torch.no_grad()
def find_duplicates(
    scorer: TableScorer,
    names: Graph,
    similarity: float | None = None,
    overlap: float | None = None,
    top: int = 100,
    compare_names: bool = False,
    seed: int = 0,
) -> Duplicates:
    """The `top` most suspicious pairs with at least this `similarity` and `overlap`; None: told from pairs by chance.

    Cosines of all pairs are looked at in blocks; at most 20 · `top` pairs, the most similar, are compared by edges.
    """
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise FocuseError(f"top {top!r}: give at least 1")
    for name, value in (("similarity", similarity), ("overlap", overlap)):
        if value is not None and not 0 <= value <= 1:
            raise FocuseError(f"{name} {value!r}: give a number in [0, 1]")
    rows, edges = unit_rows(scorer), _edges(names)
    random = np.random.default_rng(seed)
    drawn = random.integers(0, max(len(rows), 1), (2, DRAWN)) if len(rows) > 1 else np.empty((2, 0), np.int64)
    drawn = drawn[:, drawn[0] != drawn[1]]
    if similarity is None:
        ends = (rows[torch.from_numpy(ids).to(rows.device)] for ids in drawn)
        similarity = _unusual(_products(*ends).cpu().numpy(), SIMILARITY)
    if overlap is None:
        overlap = _unusual(_overlap(edges, drawn[0], drawn[1])[0], OVERLAP)
    first, second, cosine = _close(rows, similarity, SPARE * top)
    common, shared = _overlap(edges, first, second)
    keep = np.flatnonzero(common >= overlap)
    keep = keep[np.lexsort((second[keep], first[keep], -(cosine * common)[keep]))][:top]
    first, second = first[keep], second[keep]
    ends_of = [names.entities.take(ids).to_pylist() for ids in (first, second)]
    found = [
        Duplicate(a, b, float(x), float(y), int(n), name_likeness(a, b) if compare_names else None)
        for a, b, x, y, n in zip(*ends_of, cosine[keep], common[keep], shared[keep], strict=True)
    ]
    return Duplicates(found, _groups(names, first, second), float(similarity), float(overlap))


def name_likeness(first: str, second: str) -> float:
    """How alike two names are, in [0, 1]; capitals aside.

    >>> round(name_likeness("New York", "new york city"), 2)
    0.76
    """
    return SequenceMatcher(None, first.casefold(), second.casefold(), autojunk=False).ratio()


def _unusual(value: Floats, bounds: tuple[float, float]) -> float:
    """Far above what pairs by chance have, within bounds."""
    if not len(value):
        return bounds[0]
    return float(np.clip(value.mean() + FAR * value.std(), *bounds))


def _products(first: Tensor, second: Tensor) -> Tensor:
    return (first * second).sum(1)


def _close(rows: Tensor, least: float, most: int) -> tuple[Ids, Ids, Floats]:
    """Pairs of rows of length 1 with a cosine of at least `least`, the `most` closest: both places, and the cosine."""
    entities = len(rows)
    pool = Pool(most)
    least -= 1e-6  # a row's cosine with itself is 1 but for rounding
    size = max(1, AT_ONCE // max(entities, 1))
    for start in range(0, entities, size):
        block = rows[start : start + size] @ rows[start:].T
        row, column = torch.nonzero(block >= max(least, pool.bar), as_tuple=True)
        later = column > row  # each pair once, and none with itself
        row, column = row[later], column[later]
        pool.add(block[row, column], (row + start) * entities + column + start)
    cosine, keys = (part.cpu().numpy() for part in pool.best())
    return keys // max(entities, 1), keys % max(entities, 1), np.clip(cosine.astype(np.float64), -1.0, 1.0)


def _edges(names: Graph) -> Any:
    """Entities by (relation, direction, other entity), as a sparse matrix of what each edge counts, in [1/2, 1]."""
    from scipy import sparse  # type: ignore[import-untyped, unused-ignore]

    once = names.merge_repeated("max")
    share = np.clip(WeightScaler.fit(names).to_unit(once.weight, once.relation), 0.0, 1.0)
    head, relation, tail = (ids.astype(np.int64) for ids in (once.head, once.relation, once.tail))
    entities = max(len(names.entities), 1)
    keys = np.concatenate([2 * relation * entities + tail, (2 * relation + 1) * entities + head])
    distinct, place = np.unique(keys, return_inverse=True)
    entries = np.tile((1 + share) / 2, 2), (np.concatenate([head, tail]), place)
    return sparse.csr_matrix(entries, shape=(entities, len(distinct)))


def _overlap(edges: Any, first: Ids, second: Ids) -> tuple[Floats, Ids]:
    """Σ min / Σ max of the rows of pairs [n], and how many entries both have [n]."""
    shares, counts = [np.empty(0)], [np.empty(0, np.int64)]
    total = np.asarray(edges.sum(1)).ravel()
    for start in range(0, len(first), PAIRS_AT_ONCE):
        one, other = first[start : start + PAIRS_AT_ONCE], second[start : start + PAIRS_AT_ONCE]
        least = edges[one].minimum(edges[other])
        both = np.asarray(least.sum(1)).ravel()
        most = total[one] + total[other] - both
        shares.append(np.divide(both, most, out=np.zeros(len(one)), where=most > 0))
        counts.append(np.diff(least.tocsr().indptr).astype(np.int64))
    return np.concatenate(shares), np.concatenate(counts)


def _groups(names: Graph, first: Ids, second: Ids) -> list[list[str]]:
    """Entities that pairs hold together, the largest group first."""
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped, unused-ignore]

    ids, place = np.unique(np.concatenate([first, second]), return_inverse=True)
    if not len(ids):
        return []
    ends = place[: len(first)], place[len(first) :]
    links = sparse.csr_matrix((np.ones(len(first)), ends), shape=(len(ids), len(ids)))
    label = connected_components(links, directed=False)[1]
    order = np.argsort(label, kind="stable")
    parts = np.split(ids[order], np.flatnonzero(np.diff(label[order])) + 1)
    parts.sort(key=lambda part: (-len(part), int(part[0])))
    return [[str(name) for name in names.entities.take(part).to_pylist()] for part in parts]
