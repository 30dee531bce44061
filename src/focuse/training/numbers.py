"""Numbers of entities in a training: who wants them, and where they go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from focuse.errors import FocuseError
from focuse.evaluation.evaluate import ids_of
from focuse.graph.numbers import align, read_numbers
from focuse.graph.splits import Splits
from focuse.models import MODELS, Context, Model, kind_of
from focuse.training.progress import Reporter
from focuse.training.settings import Settings


def check_numbers(settings: Settings, given: bool) -> None:
    """Raise if numbers are given to a model that has no use for them, or are not to one that needs some."""
    wanted = "numbers" in kind_of(settings.model).wants
    if wanted and not given:
        raise FocuseError(
            f"model {settings.model!r} needs numbers of entities: give a file of entity, attribute, value with numbers "
            "(--numbers)"
        )
    if given and not wanted:
        names = ", ".join(name for name, kind in MODELS.items() if "numbers" in kind.wants)
        raise FocuseError(f"model {settings.model!r} has no use for numbers of entities; train one of {names}")


def with_numbers(splits: Splits, source: Any, reporter: Reporter) -> Splits:
    """The splits with their entities' numbers, of whatever `read_numbers` takes; None leaves them as they are."""
    if source is None:
        return splits
    numbers, notes = align(read_numbers(source), splits.train.entities)
    for note in (*notes, str(numbers)):
        reporter.note(note)
    return replace(splits, numbers=numbers)


def context_of(model: Model, splits: Splits, device: str) -> Context:
    """What the model wants to know of the graph that it is trained on."""
    edges = numbers = present = None
    if "edges" in model.wants:
        head, relation, tail = (ids.to(device) for ids in ids_of(splits.train))
        edges = head, relation, tail
    if "numbers" in model.wants and splits.numbers is not None:
        numbers = torch.from_numpy(splits.numbers.values).to(device)
        present = torch.from_numpy(splits.numbers.present).to(device)
    return Context(edges, numbers, present)
