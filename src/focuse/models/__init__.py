"""Models: scoring functions over embeddings. Import `Model` from here to write your own model."""

from focuse.models.base import (
    AuxiliaryLoss,
    ConfidenceHead,
    Context,
    Encoder,
    FusedForm,
    Model,
    Side,
    TripleModel,
    score_triples,
)
from focuse.models.checks import check_model
from focuse.models.registry import make_model

__all__ = [
    "AuxiliaryLoss",
    "ConfidenceHead",
    "Context",
    "Encoder",
    "FusedForm",
    "Model",
    "Side",
    "TripleModel",
    "check_model",
    "make_model",
    "score_triples",
]
