"""Facts to look up while ranking: two sorted arrays instead of a dict of lists."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from focuse.engines.ranking import spread
from focuse.errors import FocuseError
from focuse.models import Side


class Known:
    """Known triples, sorted by (head, relation, tail) and by (tail, relation, head).

    Ids int64 [n], any order, repeats allowed. Look-ups are binary searches, whole batches at a time.
    """

    def __init__(self, head: Tensor, relation: Tensor, tail: Tensor, entities: int, relations: int) -> None:
        if entities * entities * relations >= 2**63:
            raise FocuseError(f"{entities:,} entities × {relations:,} relations exceed 64-bit keys")
        self.entities, self.relations = entities, relations
        self.by_side = {
            "tail": _distinct(self.query(head, relation) * entities + tail),
            "head": _distinct(self.query(tail, relation) * entities + head),
        }

    def query(self, given: Tensor, relation: Tensor) -> Tensor:
        """One number for each (given, relation): [...] -> [...]."""
        return given * self.relations + relation

    def contains(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Which triples are known: [...] -> bool [...]."""
        facts = self.by_side["tail"]
        keys = self.query(head, relation) * self.entities + tail
        if not len(facts):
            return torch.zeros_like(keys, dtype=torch.bool)
        asked = keys.to(facts.device)  # facts in a file are asked from there
        place = torch.searchsorted(facts, asked).clamp_(max=len(facts) - 1)
        return torch.eq(facts[place], asked).to(keys.device)

    def answers(self, query: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """Where the known answers to queries stand in `by_side[side]`: [B] -> first [B], behind the last [B]."""
        facts = self.by_side[side]
        return torch.searchsorted(facts, query * self.entities), torch.searchsorted(facts, (query + 1) * self.entities)

    def others(self, given: Tensor, relation: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """Every known answer to the queries (given, relation, ?): [B] -> their rows [m] and entities [m]."""
        rows, places = spread(*self.answers(self.query(given, relation), side))
        return rows, self.by_side[side][places] % self.entities


def _distinct(keys: Tensor) -> Tensor:
    """Each key once, ascending."""
    if keys.device.type != "cpu":
        distinct: Tensor = torch.unique(keys)
        return distinct
    ordered = np.sort(keys.numpy())  # by vector instructions: ten times as fast as torch's and np.unique
    return torch.from_numpy(ordered[np.diff(ordered, prepend=-1) != 0])
