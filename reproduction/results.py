"""The result of a trained cell: the ranks of its test triples, its settings, and the errors of its predicted weights.

Metrics are computed from the stored ranks, so that every table and interval of a report can be made without training.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from focuse.api import Run
from focuse.data.datasets import Dataset
from focuse.data.statistics import leaked
from focuse.data.triple_index import build_triple_index
from focuse.data.weights import unit_strength
from focuse.errors import FocuseError
from focuse.evaluation.metrics import RankMetrics, decile_size, deciles, rank_metrics, weighted_median
from focuse.evaluation.ranking import CompetitorCounts, rank_graph
from focuse.evaluation.weight_evaluation import THRESHOLDS
from focuse.storage.atomic import replace_file
from reproduction.grid import Cell

Floats = npt.NDArray[np.float64]
Name = TypeVar("Name", bound=Hashable)
ARRAYS = ("higher", "equal", "score", "weight", "clean")
REQUIRED_INFO = {"settings", "departures", "epochs", "seconds", "device", "torch"}
RESAMPLES, LEVEL, BOOTSTRAP_SEED = 2_000, 0.95, 0
COUNTS_AT_ONCE = 1 << 22  # 32 MB of counts, whatever the number of resamples


@dataclass(frozen=True)
class RankedTest:
    """Ranked test triples, filtered: the numbers of higher and equal competitors [n, 2], scores [n], weights [n].

    `clean` [n] marks triples of which neither a duplicate nor the inverse is in the training split.
    """

    higher: npt.NDArray[np.int64]
    equal: npt.NDArray[np.int64]
    score: npt.NDArray[np.float32]
    weight: Floats
    clean: npt.NDArray[np.bool_]

    @classmethod
    def rank(cls, run: Run) -> RankedTest:
        """Rank the test triples of a run, filtered by all of its splits."""
        train, valid, test = run.splits.train, run.splits.valid, run.splits.test
        ranking = rank_graph(run.scorer, test, build_triple_index([train, valid, test], run.scorer.device))
        counts = ranking.filtered
        # As in the paper, deciles compare the weights of all relations, whatever their units.
        return cls(counts.higher, counts.equal, ranking.score, unit_strength(test, train), ~leaked(train, test))

    def of(self, clean: bool) -> RankedTest:
        """Return all triples, or the clean ones only."""
        rows = self.clean if clean else slice(None)
        return RankedTest(*(getattr(self, name)[rows] for name in ARRAYS))

    def __len__(self) -> int:
        return len(self.score)

    @cached_property
    def shares(self) -> dict[str, Floats]:
        """How much each triple counts in 'all', 'top' and 'bottom', [n] each; a fraction if weights are equal."""
        bottom, top = deciles(self.weight)
        return {"all": np.ones(len(self)), "top": top, "bottom": bottom}

    # The names by which `focuse.report` draws the scores of an evaluation.
    scores = property(lambda self: self.score)
    top_share = property(lambda self: self.shares["top"])
    bottom_share = property(lambda self: self.shares["bottom"])

    def ranks(self, protocol: str = "per-side") -> Floats:
        """Return the ranks, [n, 2], or [n, 1] if both sides are ranked as one list ('combined')."""
        return CompetitorCounts(self.higher, self.equal).ranks(protocol=protocol)

    def metrics(self, part: str, protocol: str = "per-side") -> RankMetrics:
        """Return MR, MRR and Hits@k of one part; ties get the worst rank."""
        size = len(self) if part == "all" else decile_size(len(self))
        return rank_metrics(self.ranks(protocol), self.shares[part], size)

    def delta_mrr(self, protocol: str = "per-side") -> float:
        """Return the MRR of the top decile by weight minus that of the bottom decile."""
        return self.metrics("top", protocol).mrr - self.metrics("bottom", protocol).mrr

    @cached_property
    def delta_median(self) -> float:
        """ΔM, the distance of the median scores of the top and the bottom decile."""
        medians = [weighted_median(self.score.astype(np.float64), self.shares[part]) for part in ("top", "bottom")]
        return abs(medians[0] - medians[1])


METRICS: dict[str, Callable[[RankedTest], float]] = {
    "top_mr": lambda test: test.metrics("top").mr,
    "top_mrr": lambda test: test.metrics("top").mrr,
    "top_hits@1": lambda test: test.metrics("top").hits[1],
    "top_hits@10": lambda test: test.metrics("top").hits[10],
    "bottom_mrr": lambda test: test.metrics("bottom").mrr,
    "delta_mrr": lambda test: test.delta_mrr(),
    "delta_median": lambda test: test.delta_median,
    "top_mrr_joint": lambda test: test.metrics("top", "combined").mrr,
    "bottom_mrr_joint": lambda test: test.metrics("bottom", "combined").mrr,
    "delta_mrr_joint": lambda test: test.delta_mrr("combined"),
}


@dataclass(frozen=True)
class Result:
    """One finished cell.

    `info` describes the training: settings, epochs, best_epoch, valid_mrr, seconds, device, versions, departures.
    `weights` are the metrics of predicted weights, or None if the data set has no files for them.
    """

    cell: Cell
    info: dict[str, Any]
    test: RankedTest = field(repr=False)
    weights: dict[str, Any] | None = field(default=None, repr=False)

    def save(self, folder: Path) -> None:
        """Write the ranks, then the rest to NAME.json: the cell is finished once that file exists."""
        path = folder / f"{self.cell.name}.json"
        arrays = {name: np.ascontiguousarray(getattr(self.test, name)) for name in ARRAYS}
        try:
            with replace_file(path.with_suffix(".safetensors")) as temporary:
                save_file(arrays, temporary)
            with replace_file(path) as temporary:
                temporary.write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        except (OSError, SafetensorError) as error:
            raise FocuseError(f"{path}: cannot be written ({error}); free some space, then continue") from None

    def to_dict(self) -> dict[str, Any]:
        """Return cell, training and metrics, on all test triples ('full') and on the clean ones, without the ranks."""
        tests = {"full": self.test, "clean": self.test.of(clean=True)}
        metrics = {
            form: {
                name: None if np.isnan(value := compute(test)) else float(value) for name, compute in METRICS.items()
            }
            for form, test in tests.items()
        }
        return {"cell": self.cell.to_dict(), "info": self.info, "metrics": metrics, "weights": self.weights}

    @classmethod
    def load(cls, path: Path) -> Result:
        """Read NAME.json and its ranks; a damaged file is reported by its name."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            test = RankedTest(**load_file(path.with_suffix(".safetensors")))
            if missing := REQUIRED_INFO - set(data["info"]):
                raise ValueError(f"no {min(missing)}")
            cell = Cell(**data["cell"])
            cell.settings(1000)  # raises an error if a name does not exist
            return cls(cell, dict(data["info"]), test, data["weights"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError, FocuseError) as error:
            raise FocuseError(f"{path}: damaged result ({error}); delete it, and the cell is trained again") from None


# ---- files that belong to a data set --------------------------------------------------------------------------------


def data_file(folder: Path, name: str) -> Path | None:
    """Return a file in the folder of a data set, such as softlogic, test_with_neg or ndcg, or None."""
    return next((path for suffix in (".tsv.gz", ".tsv") if (path := folder / f"{name}{suffix}").is_file()), None)


def lacks_inferred_triples(result: Result) -> bool:
    """Return whether UKGE should have been trained with inferred triples, but there was no file of them."""
    expected = float(result.info["settings"].get("rule_loss_weight", 0.0)) > 0
    return result.cell.kind == "ukge" and expected and not result.info.get("inferred")


def evaluate_weights(run: Run, data: Dataset) -> dict[str, Any] | None:
    """Return the metrics of a run's predicted weights on UKGE's files, or None for a data set without them."""
    negatives, queries = (data_file(data.folder, name) for name in ("test_with_neg", "ndcg"))
    if negatives is None or queries is None:
        return None
    threshold = THRESHOLDS.get(data.name, max(THRESHOLDS.values()))
    return run.evaluate_weights(
        negatives=negatives, ndcg_queries=queries, strong_above=threshold, estimator=False
    ).to_dict()


# ---- intervals ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """A percentile interval of a bootstrap."""

    low: float
    high: float


Intervals = dict[str, Interval | None]  # of the MRR of top and bottom, and of ΔMRR


def bootstrap(
    tests: Mapping[Name, Sequence[RankedTest]],
    pairs: Sequence[tuple[Name, Name]] = (),
    resamples: int = RESAMPLES,
    seed: int = BOOTSTRAP_SEED,
) -> tuple[dict[Name, Intervals], dict[tuple[Name, Name], Intervals]]:
    """Return intervals of top_mrr, bottom_mrr and delta_mrr per model, and of second − first per pair of models.

    The bootstrap is paired: every model gets the same resampled triples, so that triples that are easy or hard for
    both do not blur a difference. A model has one ranked test per seed; the reciprocal rank of a triple is its mean.
    """
    every = [test for group in tests.values() for test in group]
    if not every:
        return {}, {}
    if any(not np.array_equal(test.weight, every[0].weight) for test in every):
        raise FocuseError("cells were ranked on different test triples; delete the older ones and run them again")
    own = {name: np.mean([(1 / test.ranks()).mean(1) for test in group], axis=0) for name, group in tests.items()}
    # A difference of means is the mean of differences: equal models have a difference of exactly 0.
    values = np.stack([*own.values(), *(own[second] - own[first] for first, second in pairs)])
    draws = resampled(values, every[0].shares["top"], every[0].shares["bottom"], resamples, seed)
    names = ("top_mrr", "bottom_mrr", "delta_mrr")
    found = [{name: _interval(row) for name, row in zip(names, rows, strict=True)} for rows in draws]
    return dict(zip(tests, found, strict=False)), dict(zip(pairs, found[len(tests) :], strict=True))


def resampled(values: Floats, top: Floats, bottom: Floats, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """Return means over top and bottom, and their difference, of values [rows, n] per resample: [rows, 3, resamples].

    NaN marks a resample without triples of a part.

    >>> resampled(np.ones((1, 20)), np.repeat([0.0, 1.0], 10), np.repeat([1.0, 0.0], 10), resamples=2)[0].tolist()
    [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    """
    n = values.shape[1]
    inside = np.flatnonzero((top > 0) | (bottom > 0))
    draws = np.full((len(values), 3, resamples), np.nan)
    if not len(inside):
        return draws
    shares = np.stack([top[inside], bottom[inside]])
    weighted = (shares[:, None] * values[:, inside]).reshape(-1, len(inside))
    # Triples outside of both parts are one outcome, because it does not matter how often each of them is drawn.
    probabilities = np.append(np.full(len(inside), 1 / n), max(0.0, 1 - len(inside) / n))
    generator = np.random.default_rng(seed)
    step = max(1, COUNTS_AT_ONCE // len(probabilities))
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        counts = generator.multinomial(n, probabilities, size=stop - start)[:, :-1].astype(np.float64)
        sums = (counts @ weighted.T).reshape(-1, 2, len(values))
        totals = (counts @ shares.T)[:, :, None]
        means = np.divide(sums, totals, out=np.full_like(sums, np.nan), where=totals > 0)
        draws[:, :2, start:stop] = means.transpose(2, 1, 0)
    draws[:, 2] = draws[:, 0] - draws[:, 1]
    return draws


def _interval(draws: Floats) -> Interval | None:
    known = draws[~np.isnan(draws)]
    return Interval(*np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()) if len(known) else None
