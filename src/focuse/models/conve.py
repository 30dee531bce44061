"""ConvE (Dettmers et al., 2018): what to look for is read off a picture of head and relation.

f(h, r, t) = relu(W vec(relu([h̄ ; r̄] ∗ ω))) · t + b_t      h̄, r̄ as matrices, one above the other; 32 filters ω of 3 × 3

with batch normalisation before the filters, after them and after W, and dropout of inputs, maps and the hidden layer.
An entity's row holds t and b_t. The paper's biases of filters and of W are left out: normalisation takes them away.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from focuse.models.base import Form, Model, Side
from focuse.models.layers import by_rows, check_rectangle, dropped, height_of, norm_start, normalised


class ConvE(Model):
    """f = relu(W vec(relu([h̄ ; r̄] ∗ ω))) · t + b_t. It knows tails only: reciprocal relations ask for heads."""

    name = "conve"
    form: ClassVar[Form] = "dot"
    one_way, filters = True, 32
    largest_batch = 512
    kept = frozenset({"seen_input", "seen_maps", "seen_hidden"})
    defaults: ClassVar[Mapping[str, Any]] = {
        "reciprocal": True, "negatives": 512, "optimizer": "adam", "lr": 3e-3, "regularizer": "none",
    }  # fmt: skip

    check = check_rectangle

    def entity_width(self, dim: int) -> int:
        return dim + 1

    def table_start(self, table: str, values: Tensor) -> Tensor:
        return F.pad(values[:, :-1], (0, 1)) if table == "entity" else values  # no bias at first

    def dense_start(self, dim: int, random: torch.Generator) -> dict[str, Tensor]:
        cells = self.filters * (2 * height_of(dim) - 2) * (dim // height_of(dim) - 2)
        filters = torch.randn(self.filters, 1, 3, 3, generator=random) / 3
        weights = torch.randn(cells, dim, generator=random) * (2 / (cells + dim)) ** 0.5
        return {"filters": filters, "weights": weights} | norm_start(input=1, maps=self.filters, hidden=dim)

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        if side == "head":
            raise NotImplementedError(f"{self.name} asks for tails only; use reciprocal relations")
        return self._seen(known, relation) if self.key is not None else by_rows(self._seen, known, relation)

    def _seen(self, known: Tensor, relation: Tensor) -> Tensor:
        picture = torch.stack([known[:, :-1], relation], 1).reshape(len(known), 1, 2 * height_of(relation.shape[1]), -1)
        maps = F.conv2d(dropped(normalised(self, "input", picture), 0.2, self.key, 0), self.dense["filters"])
        maps = dropped(F.relu(normalised(self, "maps", maps)), 0.2, self.key, 1, rank=2)  # a filter's whole map
        hidden = dropped(maps.flatten(1) @ self.dense["weights"], 0.3, self.key, 2)
        return F.pad(F.relu(normalised(self, "hidden", hidden)), (0, 1), value=1.0)  # · (t, b_t)
