"""Which links are looked at: the heads and tails of each relation, by names, types, train's own use, or a strategy."""

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

from focuse.data.graph import Graph, Vocabulary
from focuse.errors import FocuseError, nearest
from focuse.option_strings import choose

Ids = npt.NDArray[np.int64]
STRATEGIES = ("exhaustive", "popular", "rare", "sampled", "neighbourhood")
NEARLY_ALL = 0.95  # of the names: a first part that so many share tells no types apart
LISTED = 8  # types that an error names
SAMPLE = 1000  # entities a relation and side of the strategies that take some
Names = str | Sequence[str] | None


@dataclass(frozen=True)
class Scope:
    """Links to look at: for each of `relations` its heads and its tails.

    `heads` and `tails` are sorted ids, None for all. Unless `anywhere`, an entity stands only where train has it: as a
    head of this relation, or as a tail. `strategy` popular, rare or sampled takes `sample` of the entities that are
    left on each side, by their number of edges or by chance.
    """

    train: Graph
    relations: Ids
    heads: Ids | None = None
    tails: Ids | None = None
    anywhere: bool = False
    strategy: str = "exhaustive"
    sample: int = SAMPLE
    seed: int = 0
    _used: dict[str, Ids] = field(default_factory=dict, repr=False)

    def ends(self, relation: int) -> tuple[Ids, Ids]:
        """Heads [H] and tails [N] of one relation, ascending."""
        return self._side(relation, "head", self.heads), self._side(relation, "tail", self.tails)

    @cached_property
    def pairs(self) -> int:
        """How many links that makes, over all relations."""
        return sum(len(heads) * len(tails) for heads, tails in map(self.ends, self.relations.tolist()))

    @cached_property
    def loops(self) -> npt.NDArray[np.bool_]:
        """Relations [R] that link some entity with itself in train; only there such a link is a candidate."""
        train = self.train
        own = train.relation[train.head == train.tail]
        return np.bincount(own, minlength=len(train.relations)).astype(bool)

    @cached_property
    def degree(self) -> Ids:
        """Edges of each entity in train, [E]."""
        ends = np.concatenate([self.train.head, self.train.tail])
        return np.bincount(ends, minlength=len(self.train.entities))

    def _side(self, relation: int, side: str, asked: Ids | None) -> Ids:
        if self.anywhere:
            found = np.arange(len(self.train.entities)) if asked is None else asked
        else:
            found = self._seen(relation, side)
            found = found if asked is None else found[np.isin(found, asked)]
        if self.strategy in ("exhaustive", "neighbourhood") or len(found) <= self.sample:
            return found
        if self.strategy == "sampled":
            random = np.random.default_rng([self.seed, relation, side == "tail"])
            return np.sort(random.choice(found, self.sample, replace=False))
        sign = -1 if self.strategy == "popular" else 1
        return np.sort(found[np.argsort(sign * self.degree[found], kind="stable")[: self.sample]])

    def _seen(self, relation: int, side: str) -> Ids:
        """Entities that train has on a side of a relation, ascending."""
        entities = max(len(self.train.entities), 1)
        if side not in self._used:
            ids = self.train.head if side == "head" else self.train.tail
            self._used[side] = np.unique(self.train.relation.astype(np.int64) * entities + ids)
        keys = self._used[side]
        first, behind = np.searchsorted(keys, [relation * entities, (relation + 1) * entities])
        return keys[first:behind] - relation * entities


def find_names(given: Names, names: Vocabulary, kind: str) -> Ids | None:
    """Sorted distinct ids of some names, None for none given; an unknown one is an error that offers the nearest."""
    if given is None:
        return None
    listed = [given] if isinstance(given, str) else list(given)
    for name in listed:
        if not isinstance(name, str):
            raise FocuseError(f"discover: {name!r} is no name of a {kind}; give text")
    try:
        ids = names.ids(listed).astype(np.int64)
    except UnicodeEncodeError:  # a shell passes on bytes that are no text
        ids = np.array([names.id(name, kind) for name in listed], np.int64)
    for place in np.flatnonzero(ids < 0)[:1]:
        names.id(listed[place], kind)
    return np.unique(ids)


def of_types(wanted: Names, types: Any, names: Vocabulary) -> Ids | None:
    """Sorted ids of the entities of some types, None for none wanted.

    `types` maps entities to types: a mapping, a file of lines entity, tab, type, or None for what stands before the
    first ':' of a name (before the second, where nearly all names begin alike: 'concept:athlete:…').
    """
    if wanted is None:
        return None
    kinds = types_of(types, names)
    asked = [wanted] if isinstance(wanted, str) else list(wanted)
    known = pc.unique(kinds.drop_null())
    for name in asked:
        if not pc.is_in(pa.array([name], pa.string()), value_set=known)[0].as_py():
            raise FocuseError(f"no entity is of the type {name!r}{nearest(name, known.to_pylist())}; {_most(kinds)}")
    mask = pc.is_in(kinds, value_set=pa.array(asked, pa.string()))
    return np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).astype(np.int64)


def types_of(types: Any, names: Vocabulary) -> pa.Array:
    """The type of each entity, null where it has none; [E]."""
    if types is None:
        kinds = _before_colon(names.column)
        counts = pc.value_counts(kinds.drop_null()).field("counts").to_numpy() if len(kinds) else np.empty(0)
        if len(counts) and counts.max() >= max(NEARLY_ALL * len(names), 2):
            behind = _before_colon(pc.replace_substring_regex(names.column, "^[^:]*:", ""))
            kinds = behind if behind.null_count < len(behind) else kinds
        return kinds
    table = types if isinstance(types, Mapping) else _read_types(Path(types))
    if not table:
        raise FocuseError("types: empty; give an entity's type on each line (entity, tab, type)")
    listed, kinds = pa.array(list(table), pa.string()), pa.array(list(table.values()), pa.string())
    if not len(np.flatnonzero(names.ids(listed) >= 0)):
        raise FocuseError(f"types: the graph has none of the {len(listed):,} entities, such as {listed[0].as_py()!r}")
    return kinds.take(pc.index_in(names.column, value_set=listed))


def _before_colon(column: pa.Array) -> pa.Array:
    """What stands before the first ':' of each, null without one."""
    before = pc.list_element(pc.split_pattern(column, ":", max_splits=1), 0)
    return pc.if_else(pc.match_substring(column, ":"), before, pa.scalar(None, pa.string()))


def _most(kinds: pa.Array) -> str:
    """The most frequent types, and how to give others."""
    counted = pc.value_counts(kinds.drop_null())
    if not len(counted):
        return "no entity has one: give --types FILE (entity, tab, type)"
    order = np.argsort(-counted.field("counts").to_numpy(), kind="stable")
    shown = ", ".join(counted.field("values").take(pa.array(order[:LISTED])).to_pylist())
    said = f"the most frequent of {len(order):,} are" if len(order) > LISTED else "there are"
    return f"{said} {shown}; or give others with --types FILE (entity, tab, type)"


def named(listed: Sequence[str] | None, path: Path | None) -> list[str] | None:
    """Names given one by one and those of a file, None where neither is given."""
    if path is None:
        return list(listed) if listed else None
    found = read_lines(path)
    if not found:
        raise FocuseError(f"{path}: no names; give one on each line")
    return [*(listed or ()), *found]


def read_lines(path: Path) -> list[str]:
    """The lines of a text file that are not blank, without their ends."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise FocuseError(f"{path}: {reason}; give a readable text file") from None
    return [line.rstrip("\r") for line in text.split("\n") if line.strip()]


def _read_types(path: Path) -> dict[str, str]:
    table: dict[str, str] = {}
    for line in read_lines(path):
        name, tab, kind = line.rpartition("\t")
        if not tab or not name or not kind.strip():
            raise FocuseError(f"{path}: {line[:60]!r} is no entity, tab and type; mend the line")
        table[name] = kind.strip()
    return table


def check_strategy(strategy: str, sample: int) -> None:
    """Raise for a strategy that there is not, or a sample of nothing."""
    choose("strategy", strategy, STRATEGIES)
    if sample < 1:
        raise FocuseError(f"sample {sample}: give at least 1")
