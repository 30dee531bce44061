"""A scorer over given tables, with the initial values of the model's parameters by default."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from focuse.engines.scorer import TableScorer
from focuse.models.base import Model


def make_scorer(
    model: Model,
    entity: Tensor,
    relation: Tensor,
    parameters: Mapping[str, Tensor] | None = None,
    inverse_relations: bool = False,
) -> TableScorer:
    if parameters is None:
        parameters = model.init_parameters(entity.shape[1], torch.Generator().manual_seed(0))
    return TableScorer(model, {"entity": entity, "relation": relation, **parameters}, inverse_relations)
