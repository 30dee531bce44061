"""HolE (Nickel et al., 2016): a relation looks at the circular correlation of head and tail.

    f(h, r, t) = Σₖ rₖ [h ⋆ t]ₖ      [h ⋆ t]ₖ = Σᵢ hᵢ t₍ₖ₊ᵢ₎      indices go round

Solved for the tail, h meets r in a circular convolution; solved for the head, r meets t in a correlation. Fourier
transforms make products of both.
"""

from __future__ import annotations

import torch
from torch import Tensor

from focuse.models.base import Model, Side


class HolE(Model):
    """f = r · (h ⋆ t), without the paper's logistic curve, which changes no rank."""

    name = "hole"
    form = "dot"

    def query(self, known: Tensor, relation: Tensor, side: Side) -> Tensor:
        waves, kinds = torch.fft.rfft(known), torch.fft.rfft(relation)
        query: Tensor = torch.fft.irfft(waves * (kinds if side == "tail" else kinds.conj()), n=known.shape[-1])
        return query
