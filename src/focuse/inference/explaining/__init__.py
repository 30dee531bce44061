"""Why a run predicts what it predicts: `run.explain`."""

from focuse.inference.explaining.asking import ExplanationMethods
from focuse.inference.explaining.explanation import Explanation

__all__ = ["Explanation", "ExplanationMethods"]
