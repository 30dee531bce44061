"""What a run has fitted: calibration, weight estimator and probability, in memory and in files of the run folder.

The files hold arrays (safetensors) and a fingerprint of the tables that they were fitted to; nothing is unpickled, and
everything that is read is checked.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError

from focuse.data.graph import Graph
from focuse.data.triple_index import TripleIndex
from focuse.errors import FocuseError
from focuse.evaluation.baselines import Predictor
from focuse.inference.calibration import CURVE_ARRAYS, Calibration, Conformal, Curves, check_base_rate
from focuse.inference.link_probability import EVIDENCE, LinkEvidence, LinkProbability
from focuse.inference.weight_estimator import STAGE_ONE, TREE_FEATURES, BoostedTrees, Estimator
from focuse.storage.atomic import replace_file
from focuse.storage.run_folder import WEIGHT_MODEL
from focuse.storage.tensors import read_tensors, reading, write_arrays

if TYPE_CHECKING:  # which import this module
    from focuse.inference.explain import RuleBase
    from focuse.inference.influence import TrainedObjective
    from focuse.inference.weight_predictor import WeightPredictor

CALIBRATION_FILE, ESTIMATOR_FILE = "calibration.safetensors", "weights.safetensors"
PROBABILITY_FILE = "probability.safetensors"
LAYOUT = 2  # of the files; those of another layout are fitted again
PROBABILITY_LAYOUT = 3  # the files before 3 held probabilities among random corruptions
FIT_AGAIN = "remove it, it will be fitted again"
FINGERPRINT_BYTES = 1 << 20  # all rows of a table change in training, so parts of the file are enough
# Names of the parts in files.
STORED_CURVES = {"given_true": "facts", "with_negatives": "doubting"}
STORED_TREES = {
    "given_true": "facts",
    "link": "link",
    "given_true_correction": "facts_second",
    "with_negatives_correction": "doubting_second",
    "with_negatives_median": "doubting_middle",
    "median": "middle",
    "scale": "spread",
}
Arrays = dict[str, npt.NDArray[Any]]


@dataclass
class FittedCache:
    """What a run has fitted so far; each part is fitted when it is first needed."""

    calibration: Calibration | None = None
    calibration_stored: bool = False
    estimator: Estimator | None = None
    evidence: LinkEvidence | None = None
    probability: LinkProbability | None = None
    column_predictors: dict[str, WeightPredictor] = field(default_factory=dict)
    before_fitting: Callable[[], None] | None = None  # called before a fit that may take minutes
    # Parts of discovery, similarity and explanations.
    known_triples: TripleIndex | None = None
    entities_by_relation: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    trained_objective: TrainedObjective | None = None
    rule_base: RuleBase | None = None

    def store(self, folder: Path | None, tables: str) -> None:
        """Write what was fitted to the run folder; if that is not possible, it is fitted in each process.

        The scores of an unfinished run still change, and another process may have trained the run further.
        """
        self.calibration_stored = False
        if folder is None or not tables or fingerprint(folder) != tables:
            return
        with suppress(OSError, FocuseError, SafetensorError):
            if self.calibration is not None:
                save_calibration(self.calibration, folder, tables)
                self.calibration_stored = True
            if self.estimator is not None:
                curves = "" if self.calibration is None else self.calibration.digest()
                save_estimator(self.estimator, folder, tables, curves)
            self.store_probability(folder, tables)

    def store_probability(self, folder: Path | None, tables: str) -> None:
        """Write the probability of links alone to the run folder, if that is possible."""
        if self.probability is None or folder is None or not tables or fingerprint(folder) != tables:
            return
        with suppress(OSError, FocuseError, SafetensorError):
            save_probability(self.probability, folder, tables)


def fingerprint(folder: Path) -> str:
    """Return a fingerprint of the final tables in a run folder, of the size and both ends of their files, or ''."""
    model, weight_model = folder / "model.safetensors", folder / WEIGHT_MODEL / "model.safetensors"
    digest = hashlib.blake2b(digest_size=16)
    try:
        for path in (model, weight_model) if weight_model.is_file() else (model,):
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                digest.update(str(size).encode())
                for start in (0, max(0, size - FINGERPRINT_BYTES)):
                    file.seek(start)
                    digest.update(file.read(FINGERPRINT_BYTES))
    except OSError:
        return ""
    return digest.hexdigest()


def _write(path: Path, arrays: Arrays, about: Mapping[str, Any], key: str = "about") -> None:
    with replace_file(path) as temporary:
        write_arrays(temporary, arrays, {key: json.dumps(about)})


@contextmanager
def _reading(folder: Path | None, name: str, tables: str, key: str = "about") -> Iterator[tuple[Arrays, Any] | None]:
    """Yield the arrays and the metadata of a file; None if there is no file, or if it was fitted to other tables."""
    path = (folder or Path()) / name
    if folder is None or not tables or not os.access(path, os.R_OK):
        yield None
        return
    with reading(path, FIT_AGAIN):
        tensors, metadata = read_tensors(path, "cpu", FIT_AGAIN)
        about = json.loads(metadata[key])
        yield ({name: tensor.numpy() for name, tensor in tensors.items()}, about) if about["tables"] == tables else None


def _require(condition: Any, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def _numbers(array: npt.NDArray[Any], shape: tuple[int, ...] | None = None) -> npt.NDArray[np.float64]:
    """Return an array of finite numbers of a shape, by default of one dimension."""
    fits = array.ndim == 1 if shape is None else array.shape == shape
    _require(array.dtype == np.float64 and fits and np.isfinite(array).all(), "invalid numbers")
    return array


# ---- calibration and probability ----------------------------------------------------------------------------------


def _read_curves(method: str, arrays: Arrays, name: str, relations: int) -> Curves:
    _require(method in CURVE_ARRAYS, "unknown method")
    found = {key: _numbers(arrays[f"{name}/{key}"]) for key in CURVE_ARRAYS[method]}
    sizes = {"trust": relations, "ratio": relations, "slope": relations + 1, "shift": relations + 1}
    if method == "isotonic":
        offsets, knots = found["offsets"], len(found["score"])
        sizes |= {"offsets": len(offsets), "score": knots, "share": knots}
        fits = len(offsets) == relations + 2 and offsets[0] == 0 and offsets[-1] == knots
        _require(fits and (np.diff(offsets) >= 0).all(), "offsets do not fit")
    for key, array in found.items():
        bounded = key not in ("trust", "share") or (array.min(initial=0) >= 0 and array.max(initial=0) <= 1)
        _require(len(array) == sizes[key] and bounded, f"{key} does not fit")
    return Curves(method, found)


def save_calibration(made: Calibration, folder: Path, tables: str) -> None:
    """Write a calibration to a run folder; `tables` is the fingerprint of the tables that it was fitted to."""
    arrays = {
        f"{stored}/{key}": array
        for name, stored in STORED_CURVES.items()
        for key, array in getattr(made, name).arrays.items()
    }
    about = {"method": made.method, "tables": tables, "layout": LAYOUT}
    _write(folder / CALIBRATION_FILE, arrays, about, "calibration")


def load_calibration(folder: Path | None, tables: str, relations: int) -> Calibration | None:
    """Return the calibration in a run folder; None if there is none, or one that was fitted to other tables."""
    with _reading(folder, CALIBRATION_FILE, tables, "calibration") as found:
        if found is None:
            return None
        arrays, about = found
        method = about["method"]
        curves = {name: _read_curves(method, arrays, stored, relations) for name, stored in STORED_CURVES.items()}
        return Calibration(method, **curves) if about.get("layout") == LAYOUT else None


def save_probability(made: LinkProbability, folder: Path, tables: str) -> None:
    """Write the probability of links; `tables` is the fingerprint of the tables that it was fitted to."""
    about = {"tables": tables, "layout": PROBABILITY_LAYOUT, "evidence": list(EVIDENCE)}
    about |= {name: getattr(made, name) for name in ("implausible", "estimated_rate", "base_rate", "positives")}
    arrays: Arrays = {name: getattr(made, name) for name in ("line", "bounds", "offsets", "points", "logits")}
    _write(folder / PROBABILITY_FILE, arrays, about)


def load_probability(folder: Path | None, tables: str, evidence: LinkEvidence) -> LinkProbability | None:
    """Return the probability in a run folder; None without one, or with one of other tables or another layout."""
    with _reading(folder, PROBABILITY_FILE, tables) as found:
        if found is None:
            return None
        arrays, about = found
        if about.get("layout") != PROBABILITY_LAYOUT or about.get("evidence") != list(EVIDENCE):
            return None
        size = len(EVIDENCE)
        line, bounds = _numbers(arrays["line"], (size + 1,)), _numbers(arrays["bounds"], (2, size))
        offsets, points = _numbers(arrays["offsets"], (evidence.relations,)), _numbers(arrays["points"])
        logits = _numbers(arrays["logits"], points.shape)
        rises = (np.diff(points) > 0).all() and (np.diff(logits) >= 0).all() and (bounds[0] <= bounds[1]).all()
        _require(rises, "a curve that falls")
        implausible, positives = float(about["implausible"]), int(about["positives"])
        _require(-1e3 < implausible <= 0 < positives, "invalid numbers")
        rate = check_base_rate(about["estimated_rate"])
        base_rate = None if about["base_rate"] is None else check_base_rate(about["base_rate"])
        return LinkProbability(evidence, line, bounds, offsets, points, logits, implausible, rate, base_rate, positives)


# ---- estimator ----------------------------------------------------------------------------------------------------


def save_estimator(made: Estimator, folder: Path, tables: str, curves: str) -> None:
    """Write an estimator; `tables` and `curves` are fingerprints of what it was fitted to."""
    arrays: Arrays = {
        f"{STORED_TREES[name]}/{part.name}": getattr(trees, part.name)
        for name, trees in made.trees.items()
        for part in fields(BoostedTrees)
    }
    errors = made.conformal
    arrays |= {"conformal/off": errors.errors, "conformal/relation": errors.relation, "conformal/truth": errors.truth}
    stored = [STORED_TREES[name] for name in made.trees]
    about = {"layout": LAYOUT, "tables": tables, "curves": curves, "forests": stored, "notes": list(made.notes)}
    _write(folder / ESTIMATOR_FILE, arrays | {"mix": made.mix}, about)


def load_estimator(
    folder: Path | None, tables: str, curves: str | None, train: Graph, score: Predictor, curve: Predictor
) -> Estimator | None:
    """Return the estimator in a run folder; None without one, or with one of other tables or curves (None: any).

    The weights of `train` are in [0, 1].
    """
    with _reading(folder, ESTIMATOR_FILE, tables) as found:
        if found is None:
            return None
        arrays, about = found
        if about.get("layout") != LAYOUT or (curves is not None and about.get("curves") != curves):
            return None
        mix = _numbers(arrays["mix"], (3,))
        _require((mix >= 0).all() and abs(mix.sum() - 1) < 1e-6, "shares do not add up to 1")
        stored = {name: key for name, key in STORED_TREES.items() if key in about["forests"]}
        complete = len(stored) == len(about["forests"]) and (not stored or {*STAGE_ONE} <= {*stored})
        _require(complete, "trees do not belong together")
        trees = {name: _read_trees(arrays, key, TREE_FEATURES[name]) for name, key in stored.items()}
        errors, relation = _numbers(arrays["conformal/off"]), arrays["conformal/relation"]
        truth, relations = _numbers(arrays["conformal/truth"], errors.shape), len(train.relations)
        known = (relation >= 0) & (relation < relations)
        fits = relation.dtype == np.int64 and relation.shape == errors.shape and (errors >= 0).all() and known.all()
        _require(fits, "conformal rows do not fit")
        conformal = Conformal(errors, relation, relations, truth)
        return Estimator(train, score, curve, trees, mix, conformal, tuple(map(str, about["notes"])))


def _read_trees(arrays: Arrays, name: str, features: int) -> BoostedTrees:
    """Return trees over `features` features, each of whose paths ends."""
    made = BoostedTrees(**{part.name: arrays[f"{name}/{part.name}"] for part in fields(BoostedTrees)})
    nodes, here = len(made.feature), np.arange(len(made.feature))
    _numbers(made.base, (1,))
    _numbers(made.value, (nodes,))
    for part in (made.roots, made.feature, made.left, made.right):
        _require(part.dtype == np.int32 and part.ndim == 1, "trees with other types of numbers")
    same_length = all(len(part) == nodes for part in (made.left, made.right, made.threshold))
    thresholds = made.threshold.dtype == np.float64 and made.threshold.ndim == 1 and not np.isnan(made.threshold).any()
    _require(nodes and same_length and thresholds, "trees with other shapes")
    leaf = (made.left == here) & (made.right == here)
    onward = (np.minimum(made.left, made.right) > here) & (np.maximum(made.left, made.right) < nodes)
    _require((leaf | onward).all(), "trees that do not end")
    for part, limit in ((made.roots, nodes), (made.feature, features)):
        _require(part.min(initial=0) >= 0 and part.max(initial=0) < limit, "nodes out of range")
    return made
