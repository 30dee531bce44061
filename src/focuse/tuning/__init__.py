"""Hyper-parameter search with Optuna: `focuse.tuning.tune`."""

from focuse.tuning.search import tune

__all__ = ["tune"]
