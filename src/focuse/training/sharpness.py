"""The dial of `Label`, chosen on validation: the widest ΔMRR that costs the strongest facts nothing.

Short trainings from the same start, one a sharpness and sharper each time, are held against a short plain one. Chosen
is the one of the widest ΔMRR among those whose heaviest tenth ranks within 0.01 MRR of the plain one's. Sharp labels
are learnt later than dull ones, so a training that is too short chooses too dull a one (docs/focus.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path

import numpy as np

from focuse.errors import FocuseError
from focuse.evaluation.asked import facts_about
from focuse.evaluation.evaluate import evaluate
from focuse.graph.graph import Aligned, Graph
from focuse.graph.splits import Splits, hold
from focuse.graph.weights import Normaliser
from focuse.training.files import read_rows, write_rows
from focuse.training.loop import Trainer
from focuse.training.progress import Reporter
from focuse.training.settings import Settings
from focuse.training.stopping import MOST

PLAIN = 0.0
LADDER = (1.0, 2.0, 4.0, 8.0, 16.0)
TOLERANCE = 0.01  # of top-10 % MRR and of ΔMRR, below which two models count as equally good
USUAL = 2.0  # where validation is too small to choose by
FEWEST = 200  # validation triples: with fewer, a tenth of them says nothing of a difference of 0.01
SHORT, LEAST = 4, 10  # a short training has this part of the epochs, and at least so many
FILE = "sharpness.json"


@dataclass(frozen=True)
class Look:
    """What a short training of one sharpness showed on validation."""

    sharpness: float
    top_mrr: float
    delta_mrr: float

    def __str__(self) -> str:
        name = "plain" if self.sharpness == PLAIN else f"sharpness {self.sharpness:g}"
        return f"{name}: top 10 % MRR {self.top_mrr:.3f}, ΔMRR {self.delta_mrr:.3f}"


def choose_sharpness(
    settings: Settings, splits: Splits, normaliser: Normaliser, reporter: Reporter, deadline: float = math.inf
) -> tuple[Settings, list[Look]]:
    """The settings with a sharpness, and the looks that it was chosen by; as they are where there is none to choose.

    At the `deadline` (of time.monotonic) it is chosen by the looks that there are, or the usual one taken.
    """
    if settings.focus != "label" or settings.sharpness is not None:
        return settings, []
    stopping = hold(splits.valid.graph, settings.stopping_share, settings.seed).stopping
    if len(stopping) < FEWEST:
        reporter.note(
            f"{len(stopping):,} validation triples are too few to choose a sharpness by (it takes {FEWEST}); "
            f"{USUAL:g} is taken, give another one with --sharpness"
        )
        return replace(settings, sharpness=USUAL), []
    looks = []
    for look in _looks(settings, splits, normaliser, stopping, reporter, deadline):
        reporter.note(str(look))
        looks.append(look)
        if look.top_mrr < looks[0].top_mrr - TOLERANCE:  # sharper still would cost more
            break
    if len(looks) < 2:  # time is up before the plain one could be held against another
        return replace(settings, sharpness=USUAL), []
    chosen = best_of(looks)
    reporter.note(f"sharpness {chosen:g} chosen on {len(stopping):,} validation triples")
    return replace(settings, sharpness=chosen), looks


def best_of(looks: list[Look]) -> float:
    """The sharpness of the widest ΔMRR whose top is within tolerance of the plain one's, which comes first.

    Of several that are as wide within tolerance, the one of the highest top.

    >>> best_of([Look(0, 0.97, 0.01), Look(1, 0.98, 0.4), Look(2, 0.965, 0.9), Look(4, 0.95, 0.95)])
    2
    """
    plain = looks[0]
    good = [look for look in looks if look.top_mrr >= plain.top_mrr - TOLERANCE]
    widest = max(look.delta_mrr for look in good)
    return max((look for look in good if look.delta_mrr >= widest - TOLERANCE), key=lambda look: look.top_mrr).sharpness


def _looks(
    settings: Settings, splits: Splits, normaliser: Normaliser, stopping: Graph, reporter: Reporter, deadline: float
) -> Iterator[Look]:
    """A look at each sharpness, the plain model first."""
    some = np.random.default_rng(settings.seed).permutation(len(stopping))[:MOST]
    judged = Aligned(stopping.select(np.sort(some)))
    known = facts_about([splits.train, splits.valid.graph, splits.test.graph], judged.graph, settings.device)
    unjudged = replace(splits, valid=Aligned(stopping.select(np.empty(0, np.int64))))
    epochs = min(settings.epochs, max(settings.epochs // SHORT, LEAST))
    for sharpness in (PLAIN, *LADDER):
        short = replace(settings, sharpness=sharpness, epochs=epochs)
        trainer = Trainer(short, unjudged, normaliser, reporter, deadline=deadline)
        try:
            trainer.run()
        except KeyboardInterrupt:
            if time.monotonic() < deadline:
                raise
            return
        found = evaluate(trainer.engine, judged, splits.train, known)
        yield Look(sharpness, found.top.mrr, found.delta_mrr)


def write_choice(folder: Path, looks: list[Look]) -> None:
    """The looks beside a run's other files, if there are any."""
    if looks:
        write_rows(folder / FILE, [asdict(look) for look in looks])


def read_choice(folder: Path) -> list[Look]:
    """The looks of a run's folder; none where it has no such file."""
    path = folder / FILE
    if not path.exists():
        return []
    try:
        looks = [Look(**row) for row in read_rows(path)]
        if not all(isinstance(value, float) and math.isfinite(value) for look in looks for value in astuple(look)):
            raise ValueError("looks that are not of numbers")
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise FocuseError(f"{path}: damaged file ({error}); remove it") from None
    return looks
