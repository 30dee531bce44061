"""Trackers: callbacks that write a training to TensorBoard, MLflow or Weights & Biases.

A run's folder remembers in tracking.toml where it is tracked, so that a resumed training goes on there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from focuse.errors import FocuseError, choose
from focuse.training.callbacks import Callback
from focuse.training.tracking.base import FILE, Tracker, read_places
from focuse.training.tracking.mlflow import MLflow
from focuse.training.tracking.tensorboard import TensorBoard
from focuse.training.tracking.wandb import WeightsAndBiases

__all__ = ["TRACKERS", "MLflow", "TensorBoard", "Tracker", "WeightsAndBiases", "make_trackers", "stored_trackers"]

TRACKERS: dict[str, type[Tracker]] = {kind.kind: kind for kind in (TensorBoard, MLflow, WeightsAndBiases)}
SECRETS = ("MLFLOW_TRACKING_TOKEN", "MLFLOW_TRACKING_PASSWORD")  # MLflow sends them to whatever server it is given
NONE = "none"  # a resumed training with no tracker at all


def make_trackers(specs: Sequence[str] | str) -> list[Callback]:
    """Trackers from 'tensorboard:FOLDER', 'mlflow[:URI]' and 'wandb[:PROJECT]', each kind once.

    >>> make_trackers("none")
    []
    """
    made: dict[str, Callback] = {}
    for spec in [specs] if isinstance(specs, str) else specs:
        kind, _, place = str(spec).partition(":")
        if kind == NONE:
            continue
        if choose("tracker", kind, [*TRACKERS, NONE]) in made:
            raise FocuseError(f"track {spec!r}: {kind} is there already; give each tracker once")
        made[kind] = TRACKERS[kind](place or None)
    return list(made.values())


def stored_trackers(folder: Path, given: Sequence[Callback], note: Callable[[str], None]) -> list[Callback]:
    """The trackers of a run that goes on, but for kinds that are `given`; one that cannot be had is only noted."""
    found: list[Callback] = []
    taken = {each.kind for each in given if isinstance(each, Tracker)}
    for kind, about in read_places(folder).items():
        if kind not in TRACKERS or kind in taken:
            continue
        place = about.get("place") or None
        secret = _secret_for(kind, place)
        if secret:
            note(
                f"{kind}: {place} stands only in the run's {FILE} and would be sent your {secret}; training goes on "
                f"without it (to go on there: --track {kind}:{place})"
            )
            continue
        try:
            tracker = TRACKERS[kind](place)
        except FocuseError as error:
            note(f"{kind}: {error}; training goes on without it")
            continue
        tracker.asked = False
        found.append(tracker)
    return found


def _secret_for(kind: str, place: str | None) -> str:
    """The secret in the environment that a server would be sent which the user has not named; '' if there is none."""
    named = place is None or place == os.environ.get("MLFLOW_TRACKING_URI")
    if kind != MLflow.kind or named or urlsplit(str(place)).scheme.lower() not in ("http", "https"):
        return ""
    return next((name for name in SECRETS if os.environ.get(name)), "")
