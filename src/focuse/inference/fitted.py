"""What a run has fitted: calibration, weight estimator and probability, in memory and in files of the run folder.

The files hold arrays (safetensors) and a fingerprint of the tables that they were fitted to; nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from focuse.data.graph import Graph
from focuse.data.triple_index import TripleIndex
from focuse.errors import FocuseError
from focuse.evaluation.baselines import Predictor
from focuse.inference.calibration import (
    CURVE_ARRAYS,
    LAYOUT,
    METHODS,
    Calibration,
    Conformal,
    Curves,
    Probability,
    check_base_rate,
)
from focuse.inference.weight_estimator import STAGE_ONE, TREE_FEATURES, BoostedTrees, Estimator
from focuse.option_strings import choose
from focuse.storage.atomic import replace_file
from focuse.storage.tensors import check_tensors, write_arrays

if TYPE_CHECKING:  # which import this module
    from focuse.inference.explain import RuleBase
    from focuse.inference.influence import TrainedObjective
    from focuse.inference.weight_predictor import WeightPredictor

CALIBRATION_FILE, ESTIMATOR_FILE = "calibration.safetensors", "weights.safetensors"
PROBABILITY_FILE = "probability.safetensors"
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
    probability: Probability | None = None
    column_predictors: dict[str, WeightPredictor] = field(default_factory=dict)
    before_fitting: Callable[[], None] | None = None  # called before a fit that may take minutes
    # Parts of discovery, similarity and explanations.
    known_triples: TripleIndex | None = None
    link_probability: dict[bool, Probability | None] = field(default_factory=dict)  # by `any_type`
    entities_by_relation: dict[str, npt.NDArray[np.int64]] = field(default_factory=dict)
    trained_objective: TrainedObjective | None = None
    mined_rules: RuleBase | None = None


def fingerprint(folder: Path) -> str:
    """Return a fingerprint of the final tables in a run folder, of the size and both ends of their file, or ''."""
    try:
        with (folder / "model.safetensors").open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            digest = hashlib.blake2b(str(size).encode(), digest_size=16)
            for start in (0, max(0, size - FINGERPRINT_BYTES)):
                file.seek(start)
                digest.update(file.read(FINGERPRINT_BYTES))
    except OSError:
        return ""
    return digest.hexdigest()


def _write(path: Path, arrays: Arrays, about: Mapping[str, Any], key: str = "about") -> None:
    with replace_file(path) as temporary:
        write_arrays(temporary, arrays, {key: json.dumps(about)})


def _read(path: Path, tables: str, parse: Callable[[Arrays, dict[str, Any]], Any], key: str = "about") -> Any:
    """Return what `parse` makes of a file; None if there is no file, or if it was fitted to other tables."""
    if not path.exists() or not os.access(path, os.R_OK):
        return None
    try:
        check_tensors(path)
        with safe_open(path, framework="np") as file:
            about = json.loads(file.metadata()[key])
            if about["tables"] != tables:
                return None
            return parse({name: file.get_tensor(name) for name in file.keys()}, about)  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError, FocuseError) as error:
        raise FocuseError(f"{path}: damaged file ({error}); remove it, it will be fitted again") from None


def _named(arrays: Arrays, name: str) -> Arrays:
    return {key.partition("/")[2]: array for key, array in arrays.items() if key.startswith(f"{name}/")}


def _curves(method: str, arrays: Arrays, name: str, relations: int) -> Curves:
    curves = Curves(method, {key: arrays[f"{name}/{key}"] for key in CURVE_ARRAYS[method]})
    curves.check(relations)
    return curves


# ---- calibration --------------------------------------------------------------------------------------------------


def save_calibration(made: Calibration, folder: Path, tables: str) -> None:
    """Write a calibration to a run folder; `tables` is the fingerprint of the tables that it was fitted to."""
    arrays = {
        f"{stored}/{key}": array
        for name, stored in STORED_CURVES.items()
        for key, array in getattr(made, name).arrays.items()
    }
    about = {"method": made.method, "tables": tables, "layout": made.layout}
    _write(folder / CALIBRATION_FILE, arrays, about, "calibration")


def load_calibration(folder: Path, tables: str, relations: int) -> Calibration | None:
    """Return the calibration in a run folder; None if there is none, or one that was fitted to other tables."""

    def parse(arrays: Arrays, about: dict[str, Any]) -> Calibration:
        method = choose("calibration", about["method"], METHODS)
        curves = {name: _curves(method, arrays, stored, relations) for name, stored in STORED_CURVES.items()}
        return Calibration(method, **curves, layout=int(about.get("layout", 1)))

    found: Calibration | None = _read(folder / CALIBRATION_FILE, tables, parse, "calibration")
    return found


# ---- estimator ----------------------------------------------------------------------------------------------------


def save_estimator(made: Estimator, folder: Path, tables: str, curves: str) -> None:
    """Write an estimator; `tables` and `curves` are fingerprints of what it was fitted to."""
    arrays: Arrays = {
        f"{STORED_TREES[name]}/{key}": array
        for name, trees in made.trees.items()
        for key, array in trees.to_arrays().items()
    }
    errors = made.conformal
    arrays |= {"conformal/off": errors.errors, "conformal/relation": errors.relation, "conformal/truth": errors.truth}
    about = {
        "layout": LAYOUT,
        "tables": tables,
        "curves": curves,
        "forests": [STORED_TREES[name] for name in made.trees],
    }
    _write(folder / ESTIMATOR_FILE, arrays | {"mix": made.mix}, {**about, "notes": list(made.notes)})


def load_estimator(
    folder: Path,
    tables: str,
    curves: str | None,
    train: Graph,
    score: Predictor,
    curve: Predictor,
    common_range: bool = False,
) -> Estimator | None:
    """Return the estimator in a run folder; None without one, or with one of other tables or curves (None: any).

    The weights of `train` are in [0, 1]. In the first layout, all relations had a `common_range`.
    """

    def parse(arrays: Arrays, about: dict[str, Any]) -> Estimator | None:
        layout = about.get("layout")
        if layout == 1 and common_range and about.get("range") == [0.0, 1.0]:
            layout = LAYOUT
            arrays["conformal/truth"] = np.zeros(len(arrays["conformal/off"]))  # no weight lay beyond the range
        if layout != LAYOUT or (curves is not None and about.get("curves") != curves):
            return None
        mix = _non_negative(arrays["mix"])
        if mix.shape != (3,) or not abs(mix.sum() - 1) < 1e-6:
            raise ValueError("shares do not add up to 1")
        stored = {name: key for name, key in STORED_TREES.items() if key in about["forests"]}
        if len(stored) != len(about["forests"]) or (stored and not {*STAGE_ONE} <= {*stored}):
            raise ValueError("trees do not belong together")
        trees = {
            name: BoostedTrees.from_arrays(_named(arrays, key), TREE_FEATURES[name]) for name, key in stored.items()
        }
        conformal = _conformal(arrays, len(train.relations))
        return Estimator(train, score, curve, trees, mix, conformal, tuple(map(str, about["notes"])))

    found: Estimator | None = _read(folder / ESTIMATOR_FILE, tables, parse)
    return found


def _conformal(arrays: Arrays, relations: int) -> Conformal:
    errors, relation = _non_negative(arrays["conformal/off"]), arrays["conformal/relation"]
    truth = arrays["conformal/truth"]
    fits = relation.dtype.kind == "i" and truth.dtype.kind == "f" and relation.shape == errors.shape == truth.shape
    if not fits or not np.isfinite(truth).all():
        raise ValueError("conformal rows do not fit")
    if len(relation) and not 0 <= relation.min() <= relation.max() < relations:
        raise ValueError("conformal rows of unknown relations")
    return Conformal(errors, relation.astype(np.int64), relations, truth.astype(np.float64))


def _non_negative(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return an array of finite numbers that are not below 0."""
    if array.dtype.kind != "f" or array.ndim != 1 or not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError("invalid numbers")
    return array.astype(np.float64)


# ---- probability --------------------------------------------------------------------------------------------------


def save_probability(made: Probability, folder: Path, tables: str) -> None:
    """Write the curves of probabilities; `tables` is the fingerprint of the tables that they were fitted to."""
    about = {"tables": tables, "method": made.method, "base_rate": made.base_rate}
    about |= {"fitted_rate": made.fitted_rate, "negatives": made.negatives}
    arrays: Arrays = {"line": made.line, **{f"curves/{key}": part for key, part in made.curves.arrays.items()}}
    _write(folder / PROBABILITY_FILE, arrays, about)


def load_probability(folder: Path, tables: str, relations: int) -> Probability | None:
    """Return the probability in a run folder; None if there is none, or one that was fitted to other tables."""

    def parse(arrays: Arrays, about: dict[str, Any]) -> Probability:
        curves = _curves(about["method"], arrays, "curves", relations)
        if arrays["line"].shape != (3,) or not np.isfinite(arrays["line"]).all():
            raise ValueError("line does not fit")
        rates = check_base_rate(about["base_rate"]), check_base_rate(about["fitted_rate"])
        return Probability(arrays["line"], curves, *rates, str(about["negatives"]))

    found: Probability | None = _read(folder / PROBABILITY_FILE, tables, parse)
    return found
