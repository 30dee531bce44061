"""Scoring functions, one file each. Names resolve here."""

from __future__ import annotations

from focuse.errors import choose
from focuse.models.base import Context, Form, Model, Side, TripleModel
from focuse.models.complex import ComplEx
from focuse.models.distmult import DistMult
from focuse.models.reciprocal import Reciprocal
from focuse.models.transe import TransE, TransEL2
from focuse.models.ukge import UkgeLogi, UkgeRect

MODELS: dict[str, type[Model]] = {kind.name: kind for kind in (TransE, TransEL2, DistMult, ComplEx, UkgeRect, UkgeLogi)}


def kind_of(name: str) -> type[Model]:
    """The class of the model called `name`.

    >>> kind_of("complex").form
    'dot'
    """
    return MODELS[choose("model", name, MODELS)]


def make_model(name: str, reciprocal: bool = False) -> Model:
    """The model called `name`, on wish with reciprocal relations.

    >>> make_model("complex").entity_width(100), make_model("complex", reciprocal=True).relation_width(100)
    (200, 400)
    """
    model = kind_of(name)()
    return Reciprocal(model) if reciprocal else model


__all__ = [
    "MODELS",
    "ComplEx",
    "Context",
    "DistMult",
    "Form",
    "Model",
    "Reciprocal",
    "Side",
    "TransE",
    "TransEL2",
    "TripleModel",
    "UkgeLogi",
    "UkgeRect",
    "kind_of",
    "make_model",
]
