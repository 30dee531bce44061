"""The weight model of a run: a second, separate model of how strong a link is, if it exists.

The run's own model is trained without weights and says which links are likely. Next to it, `complex-weights` with
embeddings of its own learns the weights of the training triples. The two share no parameters, so they are trained one
after the other, by the same engine, and how much strength counts is chosen when a question is asked
(`focuse.evaluation.preference`). The weight model has a folder in the folder of the run, without the splits, which are
those of the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from focuse.config import Config
from focuse.data.splits import Splits, split_validation
from focuse.data.weights import Normalizer, fit_normalizer, in_unit_range
from focuse.engines.factory import make_group_scorer
from focuse.engines.scorer import TableScorer
from focuse.errors import Stopped
from focuse.evaluation.baselines import relation_means
from focuse.storage.metadata import read_part, write_part
from focuse.storage.run_folder import WEIGHT_MODEL as FOLDER
from focuse.storage.run_folder import RunFolder, resume_command
from focuse.storage.tables import MODEL as MODEL_FILE
from focuse.storage.tables import Checkpoint, check_tables, make_table_storage
from focuse.training.callbacks import ProgressOnly, Reporter
from focuse.training.problem import build_model
from focuse.training.trainer import make_trainer
from focuse.training.validation import best_epoch_row

MODEL = "complex-weights"
LARGEST_DIM = 100  # a larger dimension takes longer and predicts weights no better
SAME_SETTINGS = ("seed", "device", "memory_limit", "partitions", "checkpoint_every", "stop_fraction")


@dataclass(eq=False)
class WeightModel:
    """A trained weight model; the logistic function of the scores of `scorer` are weights in [0, 1]."""

    settings: Config
    normalizer: Normalizer
    scorer: TableScorer
    history: list[dict[str, Any]]
    last: Checkpoint | None = None
    better_than_mean: bool = True  # whether it predicts validation weights better than the mean of each relation

    def write(self, folder: Path) -> None:
        """Write the model to the folder of a run that is being created."""
        if self.last is None:
            return
        store = RunFolder(folder / FOLDER)
        store.path.mkdir()
        write_part(store.path, self.settings, self.normalizer)
        store.truncate_history(self.history)
        store.finish(self.last)


def weight_model_settings(settings: Config, splits: Splits) -> tuple[Config, Normalizer]:
    """Return the settings of the weight model of a run, and the scaling of weights, none if they are in [0, 1]."""
    train = splits.train
    literal = splits.merger is not None or (in_unit_range(train.weight) and not train.lower_is_better)
    scaling = "none" if literal else settings.weight_scaling or "relation"
    same = {name: getattr(settings, name) for name in SAME_SETTINGS}
    engine = settings.engine if settings.engine in ("torch", "partitioned", "sharded") else "auto"
    dim = min(settings.dim, LARGEST_DIM)
    chosen = Config.from_kwargs(model=MODEL, dim=dim, weight_scaling=scaling, engine=engine, **same)
    return chosen.resolve(train, settings.device), fit_normalizer(scaling, train)


def train_weight_model(
    run: Config, splits: Splits, reporter: Reporter, folder: RunFolder | None, deadline: float = math.inf
) -> WeightModel:
    """Train the weight model of a run, or the rest of it if `folder`, that of the run, has a checkpoint."""
    splits = replace(splits, known_negatives=None)  # a link that does not exist has no weight
    store, checkpoint = None, None
    if folder is not None:
        store = RunFolder(folder.path / FOLDER, make_table_storage(run.engine, folder.group))
        store.resume_with = resume_command(folder.path, run.model, folder.group)
    if store is not None and store.has_metadata:
        store.exists = True
        settings, normalizer = read_part(store.path, splits)
        settings = replace(settings, device=run.device)
        checkpoint = store.load_checkpoint()
        store.truncate_history(checkpoint.history if checkpoint else [])
    else:
        settings, normalizer = weight_model_settings(run, splits)
        if store is not None:
            store.group.run_on_main(lambda: _create(store.path, settings, normalizer))
            store.exists = True
    trainer = make_trainer(settings, splits, normalizer, ProgressOnly(reporter), store, checkpoint, deadline)
    try:
        last = trainer.run()
    except Stopped as stopped:
        raise Stopped(f"in the training of the weight model: {stopped}") from None
    scorer = trainer.engine.make_scorer(build_model(settings, splits), last.final())
    row, better = best_epoch_row(last.history), True
    if row is not None:
        usual = _relation_mean_error(splits, settings, normalizer)
        better = bool(row["valid_mse"] < usual)
        little = "" if better else ": these weights are hardly learned, so that the default is 'likely'"
        found = f"validation MSE of weights {row['valid_mse']:.4f} at epoch {row['epoch']}"
        reporter.note(f"weight model: {found}, against {usual:.4f} by the relation mean{little}")
    kept = last if trainer.placement.in_memory else None
    return WeightModel(settings, normalizer, scorer, last.history, kept, better)


def _create(path: Path, settings: Config, normalizer: Normalizer) -> None:
    path.mkdir(exist_ok=True)
    write_part(path, settings, normalizer)


def _relation_mean_error(splits: Splits, settings: Config, normalizer: Normalizer) -> float:
    """Return the validation MSE of the mean weight per relation, on the triples that stop the training."""
    stopping = split_validation(splits.valid, settings.stop_fraction, settings.seed).stopping
    train, valid = (
        replace(part, weight=normalizer.transform(part.weight, part.relation)) for part in (splits.train, stopping)
    )
    mean = relation_means(replace(train, lower_is_better=False))(valid.head, valid.relation, valid.tail)
    return float(np.mean((mean - valid.weight) ** 2))


def is_complete(folder: Path) -> bool:
    """Return whether the folder of a run has a trained weight model."""
    store = RunFolder(folder / FOLDER)
    if not store.has_metadata:
        return False
    if (store.path / MODEL_FILE).is_file():
        return True
    checkpoint = store.load_checkpoint()
    return checkpoint is not None and bool(checkpoint.progress.finished)


def load_weight_model(folder: RunFolder, splits: Splits, device: str) -> WeightModel | None:
    """Return the weight model in the folder of a run; None if it has none, or none that is trained."""
    if not is_complete(folder.path):
        return None
    storage = type(folder.storage)(*((folder.group,) if not folder.group.is_single else ()))
    store = RunFolder(folder.path / FOLDER, storage)
    settings, normalizer = read_part(store.path, splits)
    settings = replace(settings, device=device)
    tables, history = store.model(device)
    model, entities = build_model(settings, splits), len(splits.train.entities)
    check_tables(tables, settings, model, splits.train, store.path, store.storage.rows(entities))
    scorer = make_group_scorer(model, tables, entities, store.group)
    return WeightModel(settings, normalizer, scorer, history)
