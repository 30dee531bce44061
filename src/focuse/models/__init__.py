"""Scoring functions, one file each. Names resolve here."""

from __future__ import annotations

from focuse.errors import choose
from focuse.models.base import Form, Model, Side
from focuse.models.complex import ComplEx
from focuse.models.distmult import DistMult
from focuse.models.transe import TransE, TransEL2
from focuse.models.ukge import UkgeLogi, UkgeRect

MODELS: dict[str, type[Model]] = {kind.name: kind for kind in (TransE, TransEL2, DistMult, ComplEx, UkgeRect, UkgeLogi)}


def make_model(name: str) -> Model:
    """The model called `name`.

    >>> make_model("complex").entity_width(100)
    200
    """
    return MODELS[choose("model", name, MODELS)]()


__all__ = [
    "MODELS",
    "ComplEx",
    "DistMult",
    "Form",
    "Model",
    "Side",
    "TransE",
    "TransEL2",
    "UkgeLogi",
    "UkgeRect",
    "make_model",
]
