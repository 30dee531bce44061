"""Extend a run with new edges: its checkpoint over the extended graph, and a record of each extension."""

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
from focuse.training.cold_start import DEFAULT_EPOCHS, train_new_rows
from focuse.training.graph_update import GraphUpdate, RequestedChange, grow

FILE = "extended.json"
MIN_EDGES_PER_RELATION = 3  # a new relation with fewer edges has an unreliable embedding
EPOCHS_DIVISOR = 5  # by default, all rows are trained for the epochs of the run divided by this number


@dataclass(frozen=True)
class BaseRun:
    """The run to extend: its settings, splits, normalizer, final tables, checkpoint and history."""

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
        """Number of epochs for which all rows have been trained."""
        found = [row["epoch"] for row in self.history]
        return max(found) if found else self.settings.epochs

    @property
    def reached(self) -> int:
        """The epoch of the tables: the best epoch if validation selected one, otherwise the last."""
        at = self.checkpoint.progress if self.checkpoint is not None else None
        return at.best_epoch if at is not None and at.best_epoch else self.epochs


@dataclass(frozen=True)
class Extension:
    """The parts of the extended run; `checkpoint` is finished if only new rows were trained."""

    settings: Config
    splits: Splits
    normalizer: Normalizer
    checkpoint: Checkpoint
    extended: list[dict[str, Any]]


def build_extension(
    origin: BaseRun, change: RequestedChange, frozen: bool, epochs: int | None, reporter: Reporter
) -> Extension:
    """Update the graph, train rows for the new names, and return the extended run.

    If `frozen` is False, its checkpoint is the start of further training of all rows.
    """
    if epochs is not None and (not isinstance(epochs, int) or epochs < (0 if frozen else 1)):
        raise FocuseError(f"epochs {epochs}: give a whole number of at least {0 if frozen else 1}")
    grown = grow(origin.settings, origin.splits, origin.normalizer, change, reporter.note)
    _report_limits(grown, frozen, reporter)
    tables = train_new_rows(origin.settings, grown, origin.tables, epochs if frozen else None, origin.reached, reporter)
    if frozen:
        more = 0
    else:
        # Early stopping may have ended an extension before the requested epochs, so these cannot simply be summed.
        warmed = [row for row in origin.extended if not row["frozen"]]
        original = (
            warmed[0].get("before", origin.epochs - sum(row["epochs"] for row in warmed)) if warmed else origin.epochs
        )
        more = math.ceil(max(original, 1) / EPOCHS_DIVISOR) if epochs is None else epochs
    record = {
        "from": origin.name, "frozen": frozen,
        "epochs": (DEFAULT_EPOCHS if epochs is None else epochs) if frozen else more,
        "before": origin.epochs, **grown.counts, "focuse": __version__,
    }  # fmt: skip
    settings = _settings(origin, origin.epochs + more, frozen)
    at = Progress(epoch=origin.epochs, finished="all epochs" if frozen else "")
    state = (
        {}
        if origin.checkpoint is None
        else _extend_optimizer_state(origin.checkpoint.optimizer, tables, settings.reciprocal)
    )
    checkpoint = Checkpoint(at, tables, state, None, list(origin.history))
    return Extension(settings, grown.splits, grown.normalizer, checkpoint, [*origin.extended, record])


def _settings(origin: BaseRun, epochs: int, frozen: bool) -> Config:
    """Return the settings of the run with β fixed at its current value, so that its decay does not restart."""
    settings = replace(origin.settings, epochs=max(epochs, 1))
    layer = settings.make_focuse_layer()
    if layer is None or settings.beta is not None or frozen:
        return settings
    return replace(settings, beta=layer.beta(max(origin.reached - 1, 0)))


def _extend_optimizer_state(state: Mapping[str, Tensor], tables: Tables, inverse_relations: bool) -> Tables:
    """Return the optimizer state with rows for the new names: mean values for squared gradients, 0 for other moments.

    With squared gradients of 0, the first steps would move the new rows far away from their trained values.
    """
    made = {}
    for key, value in state.items():
        name, _, part = key.partition(".")
        lacking = len(tables[name]) - len(value) if name in tables and value.dim() else 0
        joined = inverse_relations and name == "relation" and lacking > 0
        if joined:  # new rows are appended to the relations and to their inverses
            value, lacking = join_inverse_relations(value), lacking // 2
        if lacking > 0:
            usual = value.mean(0, keepdim=True) if part in ("sum", "square", "exp_avg_sq") else value.new_zeros(1)
            value = torch.cat([value, usual.expand(lacking, *value.shape[1:])])
        made[key] = split_inverse_relations(value) if joined else value.clone()
    return made


def _report_limits(grown: GraphUpdate, frozen: bool, reporter: Reporter) -> None:
    """Report the limits of the extension to the user."""
    counts, train = grown.counts, grown.splits.train
    gone = counted(counts["removed"], "facts", "are")
    if frozen:
        still = counts["added"] + counts["updated"] - int(grown.involves_new(train).sum())
        if still > 0:
            reporter.note(
                f"{counted(still, 'edges', 'are')} between known names: stored as known facts, but not trained on "
                "because known rows are frozen (use --warm to train them)"
            )
        if counts["removed"]:
            reporter.note(f"{gone} removed from the graph, but frozen rows still reflect them (use --warm to retrain)")
    elif counts["removed"]:
        reporter.note(f"{gone} removed; their influence on the embeddings fades as training continues")
    for relation in range(grown.relations, len(train.relations)):
        edges = int((train.relation == relation).sum())
        if edges < MIN_EDGES_PER_RELATION:
            name = train.relations[relation]
            reporter.note(f"relation {name!r} has only {counted(edges, 'edges')}: its embedding is unreliable")
    if grown.splits.inferred is not None and counts["added"]:
        reporter.note("the inferred triples are unchanged: rules are not grounded over new edges (train a new run)")


def write_extended(folder: RunFolder, records: list[dict[str, Any]]) -> None:
    """Write the records of a run's extensions to its folder, oldest first."""
    write_records(folder.file_path(FILE), records)


def read_extended(folder: RunFolder) -> list[dict[str, Any]]:
    """Return the records of the extensions of the run in a folder, oldest first."""
    return read_records(folder.file_path(FILE), _check_record)


def _check_record(record: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(record["frozen"], bool) or not isinstance(record["epochs"], int):
        raise ValueError("a record of an extension lacks its epochs or whether it was frozen")
    return record
