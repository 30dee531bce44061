"""Tables as one training step sees them."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


class Place:
    """A table as one step sees it: all of it, or only the rows that the batch needs.

    Gradients are asked of `leaf`; a model takes `values`, which are the same unless something was made of them.
    """

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.ids: Tensor | None = None
        self.leaf = self.values = table.detach().requires_grad_()

    def restrict(self, ids: Tensor | None) -> None:
        """Keep to these ids (None: every row is needed)."""
        if ids is not None:
            self.ids = torch.unique(ids)
            self.leaf = self.values = F.embedding(self.ids, self.table).requires_grad_()

    def rows(self, ids: Tensor) -> Tensor:
        """Rows of `ids`, [...] -> [..., d]."""
        place = ids if self.ids is None else torch.searchsorted(self.ids, ids)
        return F.embedding(place, self.values)

    def touched(self) -> Tensor:
        """What a penalty of touched rows counts."""
        return self.leaf

    def gradient(self) -> Tensor:
        """That of `leaf`, after the way back."""
        return self.leaf.grad if self.leaf.grad is not None else torch.zeros_like(self.leaf)


class FixedPlace(Place):
    """The same, with room for as many rows as ids could differ: nobody has to wait for how many do.

    What is left of the room repeats the first row and its gradient, so that writing it again changes nothing.
    """

    def restrict(self, ids: Tensor | None) -> None:
        if ids is None:
            return
        ordered = ids.sort().values
        places = torch.cat([ordered.new_zeros(1), (ordered[1:] != ordered[:-1]).long()]).cumsum(0)
        room = min(len(ids), len(self.table))
        # Beyond every id: what is left stands behind, and the search finds nothing there.
        self.distinct = ordered.new_full((room,), len(self.table)).scatter_(0, places, ordered)
        self.there = self.distinct < len(self.table)
        self.ids = torch.where(self.there, self.distinct, self.distinct[0])
        self.leaf = self.values = F.embedding(self.ids, self.table).requires_grad_()

    def rows(self, ids: Tensor) -> Tensor:
        place = ids if self.ids is None else torch.searchsorted(self.distinct, ids)
        return F.embedding(place, self.values)

    def touched(self) -> Tensor:
        return self.leaf if self.ids is None else torch.where(self.there[:, None], self.leaf, 0.0)

    def gradient(self) -> Tensor:
        found = super().gradient()
        return found if self.ids is None else torch.where(self.there[:, None], found, found[0])
