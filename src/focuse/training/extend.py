"""A run that goes on with more edges: its checkpoint over the grown graph, and a record of where it came from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from focuse import __version__
from focuse.config import Config
from focuse.data.splits import Splits
from focuse.data.weights import Normalizer
from focuse.errors import FocuseError, counted
from focuse.models.base import join_inverse_relations, split_inverse_relations
from focuse.storage.run_folder import RunFolder
from focuse.storage.tables import Checkpoint, Progress
from focuse.storage.tensors import Tables, read_records, write_records
from focuse.training.callbacks import Reporter
from focuse.training.cold_start import EPOCHS, train_new_rows
from focuse.training.graph_update import GraphUpdate, RequestedChange, grow

FILE = "extended.json"
FEW = 3  # edges below which a new name's row is little more than a guess
FRACTION = 5  # all rows train on for the run's epochs divided by this


@dataclass(frozen=True)
class BaseRun:
    """What is extended: settings, splits, normalizer, the tables to predict with, and how far training came."""

    settings: Config
    splits: Splits
    normalizer: Normalizer
    tables: Tables
    checkpoint: Checkpoint | None
    history: list[dict[str, Any]]
    extended: list[dict[str, Any]]
    name: str

    @property
    def epochs(self) -> int:
        """Epochs that all rows have been trained for."""
        found = [row["epoch"] for row in self.history]
        return max(found) if found else self.settings.epochs

    @property
    def reached(self) -> int:
        """The epoch that the tables are of: the best one, if validation chose."""
        at = self.checkpoint.progress if self.checkpoint is not None else None
        return at.best_epoch if at is not None and at.best_epoch else self.epochs


@dataclass(frozen=True)
class Extension:
    """All that the extended run is made of; `checkpoint` is finished where only new rows were to learn."""

    settings: Config
    splits: Splits
    normalizer: Normalizer
    checkpoint: Checkpoint
    extended: list[dict[str, Any]]


def extension(
    origin: BaseRun, change: RequestedChange, frozen: bool, epochs: int | None, reporter: Reporter
) -> Extension:
    """Grow the graph, give new names rows, and make ready what follows; with `frozen`, nothing does."""
    if epochs is not None and (not isinstance(epochs, int) or epochs < (0 if frozen else 1)):
        raise FocuseError(f"epochs {epochs}: give a whole number of at least {0 if frozen else 1}")
    grown = grow(origin.settings, origin.splits, origin.normalizer, change, reporter.note)
    _notes(grown, frozen, reporter)
    tables = train_new_rows(origin.settings, grown, origin.tables, epochs if frozen else None, origin.reached, reporter)
    if frozen:
        more = 0
    else:
        # What a later look at validation ended early was never trained, so the epochs asked for cannot be counted.
        warmed = [row for row in origin.extended if not row["frozen"]]
        original = (
            warmed[0].get("before", origin.epochs - sum(row["epochs"] for row in warmed)) if warmed else origin.epochs
        )
        more = math.ceil(max(original, 1) / FRACTION) if epochs is None else epochs
    record = {
        "from": origin.name, "frozen": frozen, "epochs": (EPOCHS if epochs is None else epochs) if frozen else more,
        "before": origin.epochs, **grown.counts, "focuse": __version__,
    }  # fmt: skip
    settings = _settings(origin, origin.epochs + more, frozen)
    at = Progress(epoch=origin.epochs, finished="all epochs" if frozen else "")
    state = {} if origin.checkpoint is None else _with_state(origin.checkpoint.optimizer, tables, settings.reciprocal)
    checkpoint = Checkpoint(at, tables, state, None, list(origin.history))
    return Extension(settings, grown.splits, grown.normalizer, checkpoint, [*origin.extended, record])


def _settings(origin: BaseRun, epochs: int, frozen: bool) -> Config:
    """The run's own, with β where it has come to: what has decayed does not begin anew."""
    settings = replace(origin.settings, epochs=max(epochs, 1))
    focus = settings.make_focus()
    if focus is None or settings.decays is not None or settings.beta is not None or frozen:
        return settings
    return replace(settings, beta=focus.beta(max(origin.reached - 1, 0)))


def _with_state(state: Mapping[str, Tensor], tables: Tables, inverse_relations: bool) -> Tables:
    """An optimizer's state with rows for the new names: squares of gradients as large as usual, means of 0.

    From squares of 0 the first steps would throw the new rows far from where they have settled.
    """
    made = {}
    for key, value in state.items():
        name, _, part = key.partition(".")
        lacking = len(tables[name]) - len(value) if name in tables and value.dim() else 0
        joined = inverse_relations and name == "relation" and lacking > 0
        if joined:  # new rows belong behind the relations and behind their inverses
            value, lacking = join_inverse_relations(value), lacking // 2
        if lacking > 0:
            usual = value.mean(0, keepdim=True) if part in ("sum", "square", "exp_avg_sq") else value.new_zeros(1)
            value = torch.cat([value, usual.expand(lacking, *value.shape[1:])])
        made[key] = split_inverse_relations(value) if joined else value.clone()
    return made


def _notes(grown: GraphUpdate, frozen: bool, reporter: Reporter) -> None:
    """What the user should know of how far this goes."""
    counts, train = grown.counts, grown.splits.train
    gone = counted(counts["removed"], "facts", "are")
    if frozen:
        still = counts["added"] + counts["updated"] - int(grown.touching(train).sum())
        if still > 0:
            reporter.note(
                f"{counted(still, 'edges', 'are')} between known names: told as facts from now on, but no row moves "
                "for that (--warm learns from it)"
            )
        if counts["removed"]:
            reporter.note(f"{gone} gone from the graph, but rows still remember (--warm forgets)")
    elif counts["removed"]:
        reporter.note(f"{gone} gone; what tables have of that fades as training goes on")
    for relation in range(grown.relations, len(train.relations)):
        edges = int((train.relation == relation).sum())
        if edges < FEW:
            name = train.relations[relation]
            reporter.note(f"relation {name!r} has {counted(edges, 'edges')}: its row is little more than a guess")
    if grown.splits.inferred is not None and counts["added"]:
        reporter.note("what rules infer is as it was; new edges infer nothing (train anew to ground rules over them)")


def write_extended(folder: RunFolder, records: list[dict[str, Any]]) -> None:
    """Write how a run was extended, oldest first, to its folder."""
    write_records(folder.file_path(FILE), records)


def read_extended(folder: RunFolder) -> list[dict[str, Any]]:
    """How the run in a folder was extended, oldest first."""
    return read_records(folder.file_path(FILE), _check_record)


def _check_record(record: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(record["frozen"], bool) or not isinstance(record["epochs"], int):
        raise ValueError("a record without its epochs")
    return record
