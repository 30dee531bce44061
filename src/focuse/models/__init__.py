"""Scoring functions, one file each. Names resolve here."""

from __future__ import annotations

from focuse.models import pykeen
from focuse.models.base import Context, Form, KeyWithheldError, Model, Side, TripleModel
from focuse.models.beurre import Beurre
from focuse.models.checking import check_model
from focuse.models.complex import ComplEx
from focuse.models.conve import ConvE
from focuse.models.convkb import ConvKB
from focuse.models.cp import CP
from focuse.models.distmult import DistMult
from focuse.models.gtranse import GTransE
from focuse.models.hole import HolE
from focuse.models.kbgat import KBGAT
from focuse.models.kblrn import KBLRN
from focuse.models.literale import LiteralEComplEx, LiteralEDistMult
from focuse.models.pairre import PairRE
from focuse.models.passleaf import PassleafComplEx, PassleafRotatE
from focuse.models.quate import QuatE
from focuse.models.reciprocal import Reciprocal
from focuse.models.registry import find, remember
from focuse.models.rescal import Rescal
from focuse.models.rotate import RotatE
from focuse.models.simple import SimplE
from focuse.models.suke import Suke
from focuse.models.transe import TransE, TransEL2
from focuse.models.transea import TransEA
from focuse.models.tucker import TuckER
from focuse.models.ukge import UkgeLogi, UkgeRect

KINDS: tuple[type[Model], ...] = (
    *(TransE, TransEL2, GTransE, RotatE, PairRE),
    *(DistMult, ComplEx, QuatE, HolE, SimplE, CP, Rescal, TuckER),
    *(ConvE, ConvKB, KBGAT),
    *(LiteralEDistMult, LiteralEComplEx, TransEA, KBLRN),
    *(UkgeRect, UkgeLogi, PassleafComplEx, PassleafRotatE, Suke, Beurre),
)
MODELS: dict[str, type[Model]] = {kind.name: kind for kind in KINDS}


def kind_of(name: str) -> type[Model]:
    """The class of the model called `name`: built in, PyKEEN's ('pykeen:NAME'), a plug-in's, or 'package.module:Class'.

    >>> kind_of("complex").form
    'dot'
    """
    if name in MODELS:
        return MODELS[name]
    if name.startswith(pykeen.PREFIX):
        return pykeen.kind_of(name)
    return find(name, MODELS)


def name_of(model: object) -> str:
    """The word for a model in settings and runs: itself, or of a class the name that `kind_of` finds it by.

    >>> name_of("transe"), name_of(ComplEx), name_of("RotatE")
    ('transe', 'complex', 'rotate')
    """
    if isinstance(model, str) and model.lower() in MODELS:
        return model.lower()
    if isinstance(model, type) and issubclass(model, pykeen.PykeenModel):
        return model.name
    return model if isinstance(model, str) else remember(model, MODELS)


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
    "KBLRN",
    "MODELS",
    "Beurre",
    "ComplEx",
    "Context",
    "ConvE",
    "ConvKB",
    "DistMult",
    "Form",
    "GTransE",
    "HolE",
    "KeyWithheldError",
    "LiteralEComplEx",
    "LiteralEDistMult",
    "Model",
    "PairRE",
    "PassleafComplEx",
    "PassleafRotatE",
    "QuatE",
    "Reciprocal",
    "Rescal",
    "RotatE",
    "Side",
    "SimplE",
    "Suke",
    "TransE",
    "TransEA",
    "TransEL2",
    "TripleModel",
    "TuckER",
    "UkgeLogi",
    "UkgeRect",
    "check_model",
    "kind_of",
    "make_model",
    "name_of",
]
