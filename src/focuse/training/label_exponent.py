"""Choose the exponent of soft labels on validation triples.

Short trainings from the same start, one per exponent and each with a higher one, are compared with a short plain one.
The exponent with the widest ΔMRR is chosen among those whose tenth of highest weight ranks within 0.01 MRR of the
plain one's. Labels with a high exponent are learned later, so trainings that are too short choose an exponent that is
too low (docs/focus.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import numpy as np

from focuse.config import Config
from focuse.data.graph import AlignedGraph, Graph
from focuse.data.splits import Splits, split_validation
from focuse.data.triple_index import relevant_triple_index
from focuse.data.weights import Normalizer
from focuse.evaluation.evaluate import evaluate
from focuse.storage.metadata import OLD_SETTING_NAMES
from focuse.storage.run_folder import RunFolder
from focuse.storage.tensors import read_records, write_records
from focuse.training.callbacks import Reporter
from focuse.training.trainer import make_trainer
from focuse.training.validation import MAX_TRIPLES

PLAIN = 0.0
LADDER = (1.0, 2.0, 4.0, 8.0, 16.0)
TOLERANCE = 0.01  # of top-10 % MRR and of ΔMRR, below which two models count as equally good
USUAL = 2.0  # where validation is too small to choose by
MIN_VALIDATION_TRIPLES = 200  # validation triples: with fewer, a tenth of them says nothing of a difference of 0.01
SHORT, LEAST = 4, 10  # a short training has this part of the epochs, and at least so many
FILE = "label_exponent.json"


@dataclass(frozen=True)
class LabelExponentTrial:
    """What a short training with one label exponent showed on validation."""

    label_exponent: float
    top_mrr: float
    delta_mrr: float

    def __str__(self) -> str:
        name = "plain" if self.label_exponent == PLAIN else f"label exponent {self.label_exponent:g}"
        return f"{name}: top 10 % MRR {self.top_mrr:.3f}, ΔMRR {self.delta_mrr:.3f}"


def choose_label_exponent(
    settings: Config, splits: Splits, normalizer: Normalizer, reporter: Reporter, deadline: float = math.inf
) -> tuple[Config, list[LabelExponentTrial]]:
    """The settings with a label exponent, and the trials that it was chosen by; unchanged if there is none to choose.

    At the `deadline` (of time.monotonic) it is chosen by the trials so far, or the default is used.
    """
    if settings.focus != "label" or settings.label_exponent is not None:
        return settings, []
    stopping = split_validation(splits.valid.graph, settings.stopping_share, settings.seed).stopping
    if len(stopping) < MIN_VALIDATION_TRIPLES:
        reporter.note(
            f"{len(stopping):,} validation triples are too few to choose a label exponent "
            f"({MIN_VALIDATION_TRIPLES} are needed); {USUAL:g} is used, give another one with --label-exponent"
        )
        return replace(settings, label_exponent=USUAL), []
    trials = []
    for trial in _trials(settings, splits, normalizer, stopping, reporter, deadline):
        reporter.note(str(trial))
        trials.append(trial)
        if trial.top_mrr < trials[0].top_mrr - TOLERANCE:  # a higher one would cost more
            break
    if len(trials) < 2:  # time is up before there was another one to compare with
        return replace(settings, label_exponent=USUAL), []
    chosen = best_of(trials)
    reporter.note(f"label exponent {chosen:g} chosen on {len(stopping):,} validation triples")
    return replace(settings, label_exponent=chosen), trials


def best_of(trials: list[LabelExponentTrial]) -> float:
    """The label exponent of the widest ΔMRR whose top is within tolerance of the plain one's, which comes first.

    Of several that are as wide within tolerance, the one of the highest top.

    >>> rows = [(0, 0.97, 0.01), (1, 0.98, 0.4), (2, 0.965, 0.9), (4, 0.95, 0.95)]
    >>> best_of([LabelExponentTrial(*row) for row in rows])
    2
    """
    plain = trials[0]
    good = [trial for trial in trials if trial.top_mrr >= plain.top_mrr - TOLERANCE]
    widest = max(trial.delta_mrr for trial in good)
    return max(
        (trial for trial in good if trial.delta_mrr >= widest - TOLERANCE), key=lambda trial: trial.top_mrr
    ).label_exponent


def _trials(
    settings: Config, splits: Splits, normalizer: Normalizer, stopping: Graph, reporter: Reporter, deadline: float
) -> Iterator[LabelExponentTrial]:
    """One trial per label exponent, the model without weights first."""
    some = np.random.default_rng(settings.seed).permutation(len(stopping))[:MAX_TRIPLES]
    judged = AlignedGraph(stopping.select(np.sort(some)))
    known = relevant_triple_index([splits.train, splits.valid.graph, splits.test.graph], judged.graph, settings.device)
    unjudged = replace(splits, valid=AlignedGraph(stopping.select(np.empty(0, np.int64))))
    epochs = min(settings.epochs, max(settings.epochs // SHORT, LEAST))
    for label_exponent in (PLAIN, *LADDER):
        short = replace(settings, label_exponent=label_exponent, epochs=epochs)
        trainer = make_trainer(short, unjudged, normalizer, reporter, deadline=deadline)
        try:
            trainer.run()
        except KeyboardInterrupt:
            if time.monotonic() < deadline:
                raise
            return
        found = evaluate(trainer.engine.scorer, judged, splits.train, known)
        yield LabelExponentTrial(label_exponent, found.top.mrr, found.delta_mrr)


def write_choice(folder: RunFolder, trials: list[LabelExponentTrial]) -> None:
    """Write the trials to the folder of a run."""
    write_records(folder.file_path(FILE), [asdict(trial) for trial in trials])


def read_choice(folder: RunFolder) -> list[LabelExponentTrial]:
    """The trials in the folder of a run, if there were any."""
    return read_records(folder.file_path(FILE), _parse_trial)


def _parse_trial(record: dict[str, Any]) -> LabelExponentTrial:
    trial = LabelExponentTrial(**{OLD_SETTING_NAMES.get(key, key): value for key, value in record.items()})
    if not all(isinstance(value, float) and math.isfinite(value) for value in astuple(trial)):
        raise ValueError("a trial with a value that is not a finite number")
    return trial
