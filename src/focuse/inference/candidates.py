"""The links that discovery searches: heads and tails per relation, chosen by name, type, training data or strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from focuse.data.graph import Graph, Side, Vocabulary
from focuse.errors import FocuseError, nearest
from focuse.option_strings import choose

Ids = npt.NDArray[np.int64]
Names = str | Sequence[str] | None
STRATEGIES = ("exhaustive", "neighborhood", "popular", "rare", "sampled")
SAMPLE_SIZE = 1000
COMMON_PREFIX = 0.95  # a prefix that this fraction of the names share is not their type
LISTED_TYPES = 8  # in an error message


@dataclass(frozen=True)
class CandidateSpace:
    """The heads and tails of each of `relations` between which links are searched.

    Attributes
    ----------
    heads, tails : sorted ids, or None for all entities
    any_type : bool
        By default, an entity is a candidate only where the training graph has it: as a head of the relation, or as a
        tail. If True, every entity is a candidate on both sides of every relation.
    strategy : str
        'popular', 'rare' and 'sampled' take `sample_size` of these entities per relation and side: those with the
        most edges, those with the fewest, or a random sample. The other strategies take all.
    entities_by_relation : dict
        A cache of sorted keys, which the candidate spaces of one run share.
    """

    train: Graph
    relations: Ids
    heads: Ids | None = None
    tails: Ids | None = None
    any_type: bool = False
    strategy: str = "exhaustive"
    sample_size: int = SAMPLE_SIZE
    seed: int = 0
    entities_by_relation: dict[str, Ids] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        choose("strategy", self.strategy, STRATEGIES)
        check_count("sample_size", self.sample_size)

    def ends(self, relation: int) -> tuple[Ids, Ids]:
        """Return the heads [H] and the tails [N] of one relation, ascending."""
        return self._side(relation, "head", self.heads), self._side(relation, "tail", self.tails)

    @cached_property
    def num_pairs(self) -> int:
        """The number of pairs of head and tail, over all relations."""
        return sum(len(heads) * len(tails) for heads, tails in map(self.ends, self.relations.tolist()))

    @cached_property
    def has_self_loops(self) -> npt.NDArray[np.bool_]:
        """Whether a relation links an entity to itself in train, bool [R]; elsewhere, self-loops are not candidates."""
        train = self.train
        return np.bincount(train.relation[train.head == train.tail], minlength=len(train.relations)).astype(bool)

    @cached_property
    def degree(self) -> Ids:
        """The number of training edges of each entity, [E]."""
        ends = np.concatenate([self.train.head, self.train.tail])
        return np.bincount(ends, minlength=len(self.train.entities))

    def _side(self, relation: int, side: Side, wanted: Ids | None) -> Ids:
        if self.any_type:
            found = np.arange(len(self.train.entities)) if wanted is None else wanted
        else:
            found = self._seen(relation, side)
            found = found if wanted is None else found[np.isin(found, wanted)]
        if self.strategy in ("exhaustive", "neighborhood") or len(found) <= self.sample_size:
            return found
        if self.strategy == "sampled":
            random = np.random.default_rng([self.seed, relation, side == "tail"])
            return np.sort(random.choice(found, self.sample_size, replace=False))
        sign = -1 if self.strategy == "popular" else 1
        return np.sort(found[np.argsort(sign * self.degree[found], kind="stable")[: self.sample_size]])

    def _seen(self, relation: int, side: Side) -> Ids:
        """Return the entities that train has on a side of a relation, ascending."""
        entities = max(len(self.train.entities), 1)
        if side not in self.entities_by_relation:
            ids = self.train.head if side == "head" else self.train.tail
            self.entities_by_relation[side] = np.unique(self.train.relation.astype(np.int64) * entities + ids)
        keys = self.entities_by_relation[side]
        start, stop = np.searchsorted(keys, [relation * entities, (relation + 1) * entities])
        return keys[start:stop] - relation * entities


# ---- names ----------------------------------------------------------------------------------------------------------


def check_count(name: str, value: Any) -> int:
    """Return an option that must be a positive integer, else raise FocuseError."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise FocuseError(f"{name} {value!r}: give a whole number, at least 1")
    return value


def find_names(given: Names, names: Vocabulary, kind: str) -> Ids | None:
    """Return the sorted distinct ids of names, None if none are given; an unknown name is an error."""
    if given is None:
        return None
    listed = [given] if isinstance(given, str) else list(given)
    for name in listed:
        if not isinstance(name, str):
            raise FocuseError(f"{name!r} is not the name of {kind}s; give text")
    try:
        ids = names.ids(listed).astype(np.int64)
    except UnicodeEncodeError:  # bytes from a shell that are not text
        ids = np.full(len(listed), -1)
    if (ids < 0).any():
        ids = np.array([names.id(name, kind) for name in listed], np.int64)
    return np.unique(ids)


def listed_names(names: Sequence[str] | None, path: Path | None) -> list[str] | None:
    """Return the given names and those of a file with one name per line; None if neither is given."""
    if path is None:
        return list(names) if names else None
    found = read_lines(path)
    if not found:
        raise FocuseError(f"{path}: no names; give one on each line")
    return [*(names or ()), *found]


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file that are not blank, without line ends."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise FocuseError(f"{path}: {reason}; give a readable text file") from None
    return [line.rstrip("\r") for line in text.split("\n") if line.strip()]


# ---- types of entities ----------------------------------------------------------------------------------------------


def entities_of_types(wanted: Names, types: Any, names: Vocabulary) -> Ids | None:
    """Return the sorted ids of the entities of some types, None if none are wanted; `types` as for `entity_types`."""
    if wanted is None:
        return None
    found = entity_types(types, names)
    listed = [wanted] if isinstance(wanted, str) else list(wanted)
    counts = pc.value_counts(found.drop_null())
    order = np.argsort(-counts.field("counts").to_numpy(), kind="stable")
    known = counts.field("values").take(pa.array(order)).to_pylist()
    for name in listed:
        if name not in known:
            shown = ", ".join(known[:LISTED_TYPES]) + (", …" if len(known) > LISTED_TYPES else "")
            advice = f"the types are {shown}; give others with" if known else "no entity has a type; give"
            raise FocuseError(f"no entity of type {name!r}{nearest(name, known)}; {advice} --types-file FILE")
    mask = pc.is_in(found, value_set=pa.array(listed, pa.string()))
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False)).astype(np.int64)


def entity_types(types: Any, names: Vocabulary) -> pa.Array:
    """Return the type of each entity [E], null if it has none.

    `types` is a mapping of entities to types, a file of lines (entity, tab, type), or None for the text before the
    first ':' of a name. If nearly all names begin alike, as in 'concept:athlete:…', it is the text before the second.
    """
    if types is None:
        found = _prefixes(names.column)
        counts = pc.value_counts(found.drop_null()).field("counts").to_numpy()
        if len(counts) and counts.max() >= max(COMMON_PREFIX * len(names), 2):
            second = _prefixes(pc.replace_substring_regex(names.column, "^[^:]*:", ""))
            found = second if second.null_count < len(second) else found
        return found
    table = types if isinstance(types, Mapping) else read_types(Path(types))
    entities, found = pa.array(list(table), pa.string()), pa.array(list(table.values()), pa.string())
    if not (names.ids(entities) >= 0).any():
        raise FocuseError(f"types: the graph has none of the {len(entities):,} entities; give (entity, tab, type)")
    return found.take(pc.index_in(names.column, value_set=entities))


def _prefixes(column: pa.Array) -> pa.Array:
    """Return the text before the first ':' of each name, null without one."""
    before = pc.list_element(pc.split_pattern(column, ":", max_splits=1), 0)
    return pc.if_else(pc.match_substring(column, ":"), before, pa.scalar(None, pa.string()))


def read_types(path: Path) -> dict[str, str]:
    """Read a file of lines (entity, tab, type)."""
    table: dict[str, str] = {}
    for line in read_lines(path):
        name, tab, found = line.rpartition("\t")
        if not tab or not name or not found.strip():
            raise FocuseError(f"{path}: {line[:60]!r} is not an entity, a tab and a type; fix the line")
        table[name] = found.strip()
    return table
