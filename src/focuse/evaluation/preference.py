"""The trade-off between likely and strong links, which is made when a question is asked and not in training.

A run has two models. The score f of the first says how likely a link is; the logistic function of the second one's
score is the weight ŵ that the link would have on average. Links are ranked by

    s = f + c · ln ŵ

Scores are logarithms of probabilities up to a constant, so this is the order of P(link) · ŵᶜ. The exponent c is 0 for
'likely', where weights do not matter, and 1 for the expected strength of a link. Larger exponents move weak links
further down. `fit_preference` chooses on validation triples the exponent of 'strong' and the default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from focuse.data.graph import AlignedGraph, Graph
from focuse.data.triple_index import TripleIndex, id_tensors, relevant_triple_index
from focuse.engines.scorer import StrengthScorer, TableScorer
from focuse.engines.sharded import ShardedScorer, ShardedStrengthScorer
from focuse.errors import FocuseError
from focuse.evaluation.baselines import FREQUENCY, FrequencyScorer
from focuse.evaluation.evaluate import Evaluation, evaluate
from focuse.evaluation.ranking import rank_many, sample_size
from focuse.storage.tensors import read_records, write_records

if TYPE_CHECKING:
    from focuse.storage.run_folder import RunFolder

LIKELY, STRONG = "likely", "strong"
EXPONENTS = (0.0, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
TOLERANCE = 0.005  # by which the MRR of strong triples may be lower at 'strong' than at 'likely'
NO_WEIGHT_MODEL = (
    "prefer: the run has no weight model; it needs weights that differ, and weight_mode 'separate', the default"
)
MIN_TRIPLES = 200  # with fewer validation triples, the MRR of a tenth of them is mostly noise
MAX_TRIPLES = 4_000  # ranking more triples takes longer than the higher precision is worth
FILE = "preference.json"
Prefer = str | float | None


def strength_scorer(likely: TableScorer, weights: TableScorer | None, exponent: float) -> Any:
    """Return a scorer that ranks by f + `exponent` · ln ŵ; `likely` itself if the exponent is 0."""
    if weights is None or exponent == 0:
        return likely
    if isinstance(likely, ShardedScorer) and isinstance(weights, ShardedScorer):
        return ShardedStrengthScorer(likely, weights, exponent)
    return StrengthScorer(likely, weights, exponent)


def evaluate_preferences(
    likely: TableScorer,
    weights: TableScorer | None,
    preference: Preference,
    prefer: Prefer,
    test: AlignedGraph,
    train: Graph,
    known: TripleIndex,
    **options: Any,
) -> Evaluation:
    """Evaluate the ranking that `prefer` asks for; `compared` has likely, default, strong and the frequency baseline.

    The other arguments are those of `evaluate`.
    """
    wanted = {LIKELY: 0.0, "default": preference.exponent(), STRONG: preference.strong}
    chosen = "default" if prefer is None else str(prefer)
    wanted.setdefault(chosen, preference.exponent(prefer))
    if weights is None:
        if prefer is not None and preference.share(prefer):
            raise FocuseError(NO_WEIGHT_MODEL)
        wanted, chosen = {"model": 0.0}, "model"
    scorers = [strength_scorer(likely, weights, exponent) for exponent in wanted.values()]
    candidates = sample_size(likely, options.get("sample_candidates"), known.entities)
    rankings = rank_many(scorers, *id_tensors(test.graph), known, candidates=candidates)
    each = zip(wanted, scorers, rankings, strict=True)
    found = {name: evaluate(one, test, train, known, **options, ranking=ranking) for name, one, ranking in each}
    compared = dict(found)
    if not isinstance(likely, ShardedScorer):
        sample = {**options, "sample_candidates": candidates}
        compared[FREQUENCY] = evaluate(FrequencyScorer(train, likely.device), test, train, known, **sample)
    settings = dict(found[chosen].settings)
    if weights is not None:
        settings["weights"] = ", ".join(f"{name} ^{exponent:g}" for name, exponent in wanted.items() if exponent)
    return replace(found[chosen], compared=compared, settings=settings)


@dataclass(frozen=True)
class PreferenceTrial:
    """The validation results of ranking by one exponent: MRR of all triples, of the top and of the bottom decile."""

    exponent: float
    mrr: float
    top_mrr: float
    bottom_mrr: float
    weighted_precision: float  # of the first 1, 3 and 10 suggestions, averaged


@dataclass(frozen=True)
class Preference:
    """What `prefer` means in a run: the exponent of 'strong', and the default as a number from 0 to 1."""

    strong: float = 4.0
    default: float = 0.25
    trials: tuple[PreferenceTrial, ...] = ()

    def exponent(self, prefer: Prefer = None) -> float:
        """Return the exponent c for 'likely', 'strong', a number from 0 to 1 between them, or None for the default.

        >>> Preference(strong=8, default=0.125).exponent(), Preference(strong=8).exponent("strong")
        (1.0, 8.0)
        """
        return self.share(prefer) * self.strong

    def share(self, prefer: Prefer = None) -> float:
        """Return a preference as a number from 0, 'likely', to 1, 'strong'."""
        if prefer in (None, "default"):
            return self.default
        if prefer in (LIKELY, STRONG):
            return float(prefer == STRONG)
        try:
            share = float(prefer)
        except (TypeError, ValueError):
            share = math.nan
        if isinstance(prefer, bool) or not 0 <= share <= 1:
            raise FocuseError(
                f"prefer {prefer!r}: give 'likely', 'strong', 'default', or a number from 0 (likely) to 1 (strong)"
            )
        return share

    def to_dict(self) -> dict[str, Any]:
        """Return the preference as JSON can hold it."""
        return {"strong": self.strong, "default": self.default, "trials": [asdict(trial) for trial in self.trials]}


NOT_LEARNED = Preference(1.0, 0.0)  # if the weight model does not help, the default is 'likely'


def fit_preference(
    likely: TableScorer, weights: TableScorer, train: Graph, stopping: Graph, graphs: Sequence[Graph], seed: int
) -> Preference:
    """Choose the exponents on the validation triples that also decide when to stop; `graphs` hold the known triples."""
    if len(stopping) < MIN_TRIPLES:
        return Preference()
    some = np.sort(np.random.default_rng(seed).permutation(len(stopping))[:MAX_TRIPLES])
    judged = AlignedGraph(stopping.select(some))
    known = relevant_triple_index(list(graphs), judged.graph, likely.device)
    scorers = [strength_scorer(likely, weights, exponent) for exponent in EXPONENTS]
    candidates = sample_size(likely, None, known.entities)
    rankings = rank_many(scorers, *id_tensors(judged.graph), known, candidates=candidates)
    pairs = zip(scorers, rankings, strict=True)
    found = [evaluate(scorer, judged, train, known, ranking=ranking) for scorer, ranking in pairs]
    return choose_preference([_trial(*pair) for pair in zip(EXPONENTS, found, strict=True)])


def _trial(exponent: float, found: Evaluation) -> PreferenceTrial:
    first = [row.weight for row in found.suggestions.first] if found.suggestions is not None else []
    mean = float(np.mean(first)) if first else math.nan
    return PreferenceTrial(exponent, found.all.mrr, found.top.mrr, found.bottom.mrr, mean)


def choose_preference(trials: Sequence[PreferenceTrial]) -> Preference:
    """Choose the exponents among trials, of which the first has the exponent 0.

    'strong' is the exponent with the largest ΔMRR among those that keep the MRR of the top decile. The default is the
    exponent with the highest weighted precision, at most that of 'strong', or 0 if candidates were sampled, which gives
    no precision. If no exponent keeps the top decile and widens ΔMRR, 'strong' is 1 and the default 0.

    >>> rows = [(0, 0.98, 0.97, 0.96, 0.30), (1, 0.95, 0.98, 0.80, 0.32), (4, 0.70, 0.97, 0.02, 0.27)]
    >>> chosen = choose_preference([PreferenceTrial(*row) for row in rows])
    >>> chosen.strong, chosen.default
    (4, 0.25)
    """
    good = [trial for trial in trials if trial.top_mrr >= trials[0].top_mrr - TOLERANCE]
    strong = max(good, key=lambda trial: trial.top_mrr - trial.bottom_mrr).exponent
    if not strong:  # weights are not learned well enough to help
        return replace(NOT_LEARNED, trials=tuple(trials))
    usable = [trial for trial in trials if trial.exponent <= strong and not math.isnan(trial.weighted_precision)]
    default = max(usable, key=lambda trial: trial.weighted_precision).exponent if usable else 0.0
    return Preference(strong, default / strong, tuple(trials))


def write_preference(folder: RunFolder, preference: Preference) -> None:
    """Write a preference to the folder of a run."""
    if folder.group.is_main:
        write_records(folder.file_path(FILE), [preference.to_dict()])


def read_preference(folder: RunFolder) -> Preference:
    """Return the preference in the folder of a run, the default one if there is none."""
    found = read_records(folder.file_path(FILE), _parse)
    return found[0] if found else Preference()


def has_preference(folder: RunFolder) -> bool:
    """Return whether the folder of a run has a preference."""
    return folder.file_path(FILE).is_file()


def remove_preference(folder: RunFolder) -> None:
    """Remove the preference of a run that is trained further, so that a resume chooses it again."""
    folder.group.run_on_main(lambda: folder.file_path(FILE).unlink(missing_ok=True))


def _parse(record: dict[str, Any]) -> Preference:
    trials = tuple(PreferenceTrial(**trial) for trial in record["trials"])
    preference = Preference(float(record["strong"]), float(record["default"]), trials)
    if not (preference.strong > 0 and 0 <= preference.default <= 1):
        raise ValueError("a number is out of its range")
    return preference
