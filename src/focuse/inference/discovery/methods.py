"""The part of a `Run` that looks at the whole graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from focuse.graph.graph import Graph
from focuse.inference.asking import WeightMethods
from focuse.inference.discovery.discover import LIMIT, Wish, at_rate, discover
from focuse.inference.discovery.discoveries import Discoveries
from focuse.inference.discovery.scope import SAMPLE, Ids, Names, Scope, find_names, of_types


class DiscoveryMethods(WeightMethods):
    """What a `Run` finds: missing links."""

    def discover(
        self,
        heads: Names = None,
        relations: Names = None,
        tails: Names = None,
        top: int = 100,
        *,
        min_probability: float = 0.0,
        per_relation: int | None = None,
        per_head: int | None = None,
        types: Any = None,
        head_types: Names = None,
        tail_types: Names = None,
        anywhere: bool = False,
        candidates: str = "exhaustive",
        sample: int = SAMPLE,
        seed: int = 0,
        pool: int | None = None,
        limit: float = LIMIT,
        base_rate: float | None = None,
        column: str | None = None,
        progress: bool = False,
    ) -> Discoveries:
        """The most probable links that the graph lacks: of all, or between some heads and tails, by some relations.

        Every such link is scored; the `pool` best of each relation are ordered by probability (equal ones by the
        evidence behind it), and the `top` of these come back with what each would weigh. Facts of train, valid and
        test and triples known to be false are left out, as are links of an entity with itself by relations that have
        none in train. Entities stand only where train has them, as a head or a tail of that relation, unless
        `anywhere`. `head_types` and `tail_types` take entities of some types (`types`: a mapping, a file of lines
        entity, tab, type, or what stands before ':' in names). At most `per_relation` links of a relation and
        `per_head` of a head. Where there are more links than `limit`, `candidates` 'popular', 'rare' or 'sampled' take
        `sample` entities a relation and side, 'neighbourhood' entities at most two steps apart.

        `run.discover(relations="requires skill", top=20, min_probability=0.9)`
        """
        names = self.splits.train
        asked = find_names(relations, names.relations, "relation")
        scope = Scope(
            names,
            np.arange(len(names.relations)) if asked is None else asked,
            _both(find_names(heads, names.entities, "entity"), of_types(head_types, types, names.entities)),
            _both(find_names(tails, names.entities, "entity"), of_types(tail_types, types, names.entities)),
            anywhere,
            candidates,
            sample,
            seed,
        )
        wish = Wish(top, min_probability, per_relation, per_head, pool, limit)
        wish.check()
        weigher = at_rate(self.weigher(full=True), base_rate)
        teller = None if column is None else self._column_weigher(column)
        return discover(self.engine, self._facts(), scope, weigher, wish, teller, progress)

    def _facts(self) -> list[Graph]:
        """Graphs of what is known to be true or false, train first."""
        parts = [self.splits.train, self.splits.valid.graph, self.splits.test.graph, self.splits.false]
        return [part for part in parts if part is not None]


def _both(first: Ids | None, second: Ids | None) -> Ids | None:
    """What is in both, where both are given."""
    if first is None or second is None:
        return first if second is None else second
    return np.intersect1d(first, second)
