"""γ Σ|x|ᵖ over embeddings, every batch. For n3, |x| is the size of a complex number (Lacroix et al., 2018).

Over whole `tables` (the paper's); over the rows that the batch has `touched`, corruptions included, once each, which
is the same where a batch touches every row and costs nothing where it does not; or over the `rows` of the batch's
triples, as often as they occur.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from focuse.errors import FocuseError, choose
from focuse.training.specs import parse_spec

POWERS = {"l1": 1, "l2": 2, "l3": 3, "n3": 3}
SCOPES = ("tables", "touched", "rows")


@dataclass(frozen=True)
class Regulariser:
    """γ Σ|x|ᵖ with p = `power` and γ = `strength`, over what `scope` says.

    `moduli`: a model with complex numbers is asked for their sizes first.
    """

    power: int
    strength: float
    scope: str = "tables"
    moduli: bool = False

    def __call__(self, parts: Iterable[Tensor]) -> Tensor | float:
        """The penalty of the given tables or rows, a sum over all their numbers."""
        return self.strength * sum(_power(part, self.power).sum() for part in parts)


def _power(x: Tensor, power: int) -> Tensor:
    if power == 1:
        return x.abs()
    return x * x if power == 2 else x * x * x.abs()


def make_regulariser(text: str, scope: str = "tables") -> Regulariser | None:
    """The regulariser written as 'l3:1e-3' or 'n3:1e-3' (or 'none'), over 'tables', 'touched' or 'rows'."""
    name, plain, named = parse_spec(text, "regularizer")
    choose("regularizer", name, ["none", *POWERS])
    choose("scope of the regularizer", scope, SCOPES)
    if name == "none":
        return None
    if len(plain) != 1 or named or plain[0] < 0:
        raise FocuseError(f"regularizer {text!r}: write its strength behind a colon, for example 'l3:1e-3'")
    return Regulariser(POWERS[name], plain[0], scope, name == "n3") if plain[0] else None
