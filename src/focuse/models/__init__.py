"""Scoring functions, one file each. Names resolve here."""

from __future__ import annotations

from focuse.errors import choose
from focuse.models.base import Context, Form, Model, Side, TripleModel
from focuse.models.complex import ComplEx
from focuse.models.conve import ConvE
from focuse.models.convkb import ConvKB
from focuse.models.cp import CP
from focuse.models.distmult import DistMult
from focuse.models.hole import HolE
from focuse.models.kbgat import KBGAT
from focuse.models.pairre import PairRE
from focuse.models.quate import QuatE
from focuse.models.reciprocal import Reciprocal
from focuse.models.rescal import Rescal
from focuse.models.rotate import RotatE
from focuse.models.simple import SimplE
from focuse.models.transe import TransE, TransEL2
from focuse.models.tucker import TuckER
from focuse.models.ukge import UkgeLogi, UkgeRect

KINDS: tuple[type[Model], ...] = (
    *(TransE, TransEL2, RotatE, PairRE),
    *(DistMult, ComplEx, QuatE, HolE, SimplE, CP, Rescal, TuckER),
    *(ConvE, ConvKB, KBGAT),
    *(UkgeRect, UkgeLogi),
)
MODELS: dict[str, type[Model]] = {kind.name: kind for kind in KINDS}


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
    "CP",
    "KBGAT",
    "MODELS",
    "ComplEx",
    "Context",
    "ConvE",
    "ConvKB",
    "DistMult",
    "Form",
    "HolE",
    "Model",
    "PairRE",
    "QuatE",
    "Reciprocal",
    "Rescal",
    "RotatE",
    "Side",
    "SimplE",
    "TransE",
    "TransEL2",
    "TripleModel",
    "TuckER",
    "UkgeLogi",
    "UkgeRect",
    "kind_of",
    "make_model",
]
