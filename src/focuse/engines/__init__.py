"""How one training step is computed."""

from focuse.engines.base import Batch, Corruptions
from focuse.engines.reference import ReferenceEngine

__all__ = ["Batch", "Corruptions", "ReferenceEngine"]
