"""Facts to look up while ranking: three sorted arrays instead of a dict of lists."""

from __future__ import annotations

import torch
from torch import Tensor

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
            "tail": torch.unique(self._query(head, relation) * entities + tail),
            "head": torch.unique(self._query(tail, relation) * entities + head),
        }

    def _query(self, given: Tensor, relation: Tensor) -> Tensor:
        return given * self.relations + relation

    def contains(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """Which triples are known: [...] -> bool [...]."""
        facts = self.by_side["tail"]
        keys = self._query(head, relation) * self.entities + tail
        if not len(facts):
            return torch.zeros_like(keys, dtype=torch.bool)
        place = torch.searchsorted(facts, keys).clamp_(max=len(facts) - 1)
        return torch.eq(facts[place], keys)

    def others(self, given: Tensor, relation: Tensor, side: Side) -> tuple[Tensor, Tensor]:
        """Every known answer to the queries (given, relation, ?): [B] -> their rows [m] and entities [m]."""
        facts = self.by_side[side]
        query = self._query(given, relation) * self.entities
        start = torch.searchsorted(facts, query)
        count = torch.searchsorted(facts, query + self.entities) - start
        rows = torch.repeat_interleave(torch.arange(len(given), device=given.device), count)
        first = torch.repeat_interleave(start - (count.cumsum(0) - count), count)
        places = first + torch.arange(len(rows), device=given.device)
        return rows, facts[places] % self.entities
