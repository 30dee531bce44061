"""GTransE (Kertkeidkachorn, Liu and Ichise, 2019): TransE, whose facts must win by the more the surer they are.

f(h, r, t) = −‖h + r − t‖₁, trained by Σ max(0, s^α M + f⁻ − f⁺) with the weight s: the loss 'confidence-margin'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from focuse.models.transe import TransE


class GTransE(TransE):
    """TransE with a margin that weights scale."""

    name = "gtranse"
    defaults: ClassVar[Mapping[str, Any]] = {
        "sampling": "independent", "negatives": 10, "focus": "off", "loss": "confidence-margin",
        "optimizer": "row-adam", "lr": 3e-3, "regularizer": "none", "normalize": "none",
    }  # fmt: skip
