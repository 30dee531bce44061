"""Choose the exponent of soft labels on validation triples.

Short trainings with increasing exponents, all from the same initialization, are compared with a short training without
weights. The exponent with the largest ΔMRR is chosen among those whose top decile by weight has an MRR within 0.01 of
the training without weights. Labels with a high exponent are learned later, so trainings that are too short select an
exponent that is too low (docs/focus.md).
"""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from focuse.config import Config
from focuse.data.graph import AlignedGraph, Graph
from focuse.data.splits import Splits, split_validation
from focuse.data.triple_index import relevant_triple_index
from focuse.data.weights import Normalizer
from focuse.evaluation.evaluate import evaluate
from focuse.storage.old_names import upgrade_settings
from focuse.storage.run_folder import RunFolder
from focuse.storage.tensors import read_records, write_records
from focuse.training.callbacks import ProgressOnly, Reporter
from focuse.training.trainer import make_trainer
from focuse.training.validation import MAX_TRIPLES

UNWEIGHTED = 0.0
CANDIDATE_EXPONENTS = (1.0, 2.0, 4.0, 8.0, 16.0)
TOLERANCE = 0.01  # two models with a smaller difference of top-decile MRR or ΔMRR count as equally good
DEFAULT_EXPONENT = 2.0  # the exponent that is used if there are too few validation triples to choose one
MIN_VALIDATION_TRIPLES = 200  # with fewer, the MRR of a tenth of them is too noisy for a difference of 0.01
# A short training has the epochs divided by TRIAL_EPOCHS_DIVISOR, but at least MIN_TRIAL_EPOCHS epochs.
TRIAL_EPOCHS_DIVISOR, MIN_TRIAL_EPOCHS = 4, 10
FILE = "label_exponent.json"


@dataclass(frozen=True)
class LabelExponentTrial:
    """The validation results of a short training with one label exponent."""

    label_exponent: float
    top_mrr: float
    delta_mrr: float

    def __str__(self) -> str:
        name = "without weights" if self.label_exponent == UNWEIGHTED else f"label exponent {self.label_exponent:g}"
        return f"{name}: top 10 % MRR {self.top_mrr:.3f}, ΔMRR {self.delta_mrr:.3f}"


def choose_label_exponent(
    settings: Config,
    splits: Splits,
    normalizer: Normalizer,
    reporter: Reporter,
    folder: RunFolder | None = None,
    deadline: float = math.inf,
) -> tuple[Config, list[LabelExponentTrial]]:
    """Return the settings with a label exponent and the trials that selected it; unchanged if it is chosen already.

    The choice and each finished trial are written to the folder of the run; trials that it has are not repeated. At the
    `deadline` (in terms of time.monotonic), KeyboardInterrupt is raised.
    """
    trials = [] if folder is None else read_trials(folder)
    if settings.weight_mode != "soft-labels" or settings.label_exponent is not None:
        return settings, trials
    stopping = split_validation(splits.valid, settings.stop_fraction, settings.seed).stopping
    if len(stopping) < MIN_VALIDATION_TRIPLES:
        reporter.note(
            f"{len(stopping):,} validation triples are too few to choose a label exponent "
            f"({MIN_VALIDATION_TRIPLES} are needed); {DEFAULT_EXPONENT:g} is used; label_exponent sets another"
        )
        chosen, trials = DEFAULT_EXPONENT, []
    else:
        more = _trials(settings, splits, normalizer, stopping, reporter, deadline, len(trials))
        while not _is_decided(trials):
            trial = next(more)
            reporter.note(str(trial))
            trials.append(trial)
            if folder is not None:
                folder.group.run_on_main(partial(write_trials, folder, trials))
        chosen = select_label_exponent(trials)
        reporter.note(f"Label exponent {chosen:g} selected on {len(stopping):,} validation triples")
    settings = settings.derive(label_exponent=chosen)
    if folder is not None:
        folder.write_settings(settings)
    return settings, trials


def _is_decided(trials: list[LabelExponentTrial]) -> bool:
    """Return whether all exponents were tried, or a higher one would lower the top-decile MRR further."""
    lower = bool(trials) and trials[-1].top_mrr < trials[0].top_mrr - TOLERANCE
    return lower or len(trials) > len(CANDIDATE_EXPONENTS)


def select_label_exponent(trials: list[LabelExponentTrial]) -> float:
    """Return the label exponent with the largest ΔMRR among trials that keep the top-decile MRR of the first trial.

    The first trial is the one without weights; the top-decile MRR may be lower by the tolerance. If several trials have
    the largest ΔMRR within the tolerance, the one with the highest top-decile MRR is chosen.

    >>> rows = [(0, 0.97, 0.01), (1, 0.98, 0.4), (2, 0.965, 0.9), (4, 0.95, 0.95)]
    >>> select_label_exponent([LabelExponentTrial(*row) for row in rows])
    2
    """
    plain = trials[0]
    good = [trial for trial in trials if trial.top_mrr >= plain.top_mrr - TOLERANCE]
    widest = max(trial.delta_mrr for trial in good)
    return max(
        (trial for trial in good if trial.delta_mrr >= widest - TOLERANCE), key=lambda trial: trial.top_mrr
    ).label_exponent


def _trials(
    settings: Config,
    splits: Splits,
    normalizer: Normalizer,
    stopping: Graph,
    reporter: Reporter,
    deadline: float,
    done: int,
) -> Iterator[LabelExponentTrial]:
    """Yield one trial per label exponent after those that are done, beginning with the training without weights."""
    some = np.random.default_rng(settings.seed).permutation(len(stopping))[:MAX_TRIPLES]
    judged = AlignedGraph(stopping.select(np.sort(some)))
    known = relevant_triple_index([splits.train, splits.valid, splits.test], judged.graph, settings.device)
    unjudged = replace(splits, valid=stopping.select(np.empty(0, np.int64)))
    epochs = min(settings.epochs, max(settings.epochs // TRIAL_EPOCHS_DIVISOR, MIN_TRIAL_EPOCHS))
    for label_exponent in (UNWEIGHTED, *CANDIDATE_EXPONENTS)[done:]:
        short = replace(settings, label_exponent=label_exponent, epochs=epochs)
        trainer = make_trainer(short, unjudged, normalizer, ProgressOnly(reporter), deadline=deadline)
        trainer.run()
        found = evaluate(trainer.engine.scorer, judged, splits.train, known)
        del trainer
        gc.collect()  # a trainer is part of reference cycles, which would keep the tables of every trial
        yield LabelExponentTrial(label_exponent, found.top.mrr, found.delta_mrr)


def write_trials(folder: RunFolder, trials: list[LabelExponentTrial]) -> None:
    """Write the trials to the folder of a run."""
    write_records(folder.file_path(FILE), [asdict(trial) for trial in trials])


def read_trials(folder: RunFolder) -> list[LabelExponentTrial]:
    """Return the trials in the folder of a run, an empty list if there were none."""
    return read_records(folder.file_path(FILE), _parse_trial)


def _parse_trial(record: dict[str, Any]) -> LabelExponentTrial:
    trial = LabelExponentTrial(**upgrade_settings(record))
    if not all(isinstance(value, float) and math.isfinite(value) for value in astuple(trial)):
        raise ValueError("a trial has a value that is not a finite number")
    return trial
