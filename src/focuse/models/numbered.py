"""What models that look at numbers of entities share: rows that end in values and in which of them are known."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from focuse.models.base import Model


class Numbered(Model):
    """A model over rows [..., d + 2A]: an embedding, A standardised values (0 if missing) and A marks, 1 if known."""

    wants: ClassVar[frozenset[str]] = frozenset({"numbers"})

    @property
    def attributes(self) -> int:
        """A, how many numbers an entity can have; 0 outside of a graph."""
        return 0 if self.context.numbers is None else self.context.numbers.shape[1]

    def apart(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Embeddings, values and marks: [..., d + 2A] -> [..., d], [..., A], [..., A]."""
        size = self.attributes
        embedding, values, known = rows.split_with_sizes([rows.shape[-1] - 2 * size, size, size], dim=-1)
        return embedding, values, known
