"""The best of very many scores, in memory for a few: what stays is never more than twice what is wanted."""

from __future__ import annotations

import torch
from torch import Tensor

NOTHING = float("-inf")


class Pool:
    """The `size` best of all (score, key) that it is given; equal scores by the smaller key.

    >>> best = Pool(2)
    >>> best.add(torch.tensor([0.5, 0.9, 0.1]), torch.tensor([7, 8, 9]))
    >>> best.add(torch.tensor([0.9]), torch.tensor([3]))
    >>> best.best()[1].tolist()
    [3, 8]
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.bar = NOTHING  # what a score must reach to matter
        self._scores: list[Tensor] = []
        self._keys: list[Tensor] = []
        self._held = 0

    def add(self, scores: Tensor, keys: Tensor) -> None:
        """More candidates: [n] scores, int64 [n] keys that are all different."""
        if len(scores) > 4 * self.size:  # a whole block of the first scores: most of it cannot stay
            least = torch.topk(scores, self.size).values[-1]
            scores, keys = scores[scores >= least], keys[scores >= least]
        if not len(scores):
            return
        self._scores.append(scores)
        self._keys.append(keys)
        self._held += len(scores)
        if self._held >= 2 * self.size:
            self._shrink()

    def best(self) -> tuple[Tensor, Tensor]:
        """Scores and keys, best first; [n] each, n at most `size`."""
        if not self._scores:
            return torch.empty(0), torch.empty(0, dtype=torch.int64)
        self._shrink()
        return self._scores[0], self._keys[0]

    def _shrink(self) -> None:
        scores, keys = torch.cat(self._scores), torch.cat(self._keys)
        by_key = torch.argsort(keys)
        order = by_key[torch.argsort(scores[by_key], descending=True, stable=True)][: self.size]
        self._scores, self._keys, self._held = [scores[order]], [keys[order]], len(order)
        if len(order) == self.size:
            self.bar = float(self._scores[0][-1])
