"""An estimator and a probability in a run's folder: arrays in safetensors, beside the tables they were fitted to."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from focuse.data.graph import Graph
from focuse.errors import FocuseError
from focuse.evaluation.baselines import Predictor
from focuse.inference.calibration import PARTS, Conformal, Curves, Probability, check_base_rate
from focuse.inference.trees import Forest
from focuse.inference.weight_estimator import BOUNDS, FEATURES, MORE, STAGE_ONE, STAGE_TWO, Estimator
from focuse.storage.atomic import replace_file
from focuse.storage.tensors import check_tensors, write_arrays

ESTIMATOR_FILE, PROBABILITY_FILE = "weights.safetensors", "probability.safetensors"
LAYOUT = 2  # of the estimator's file; one of another layout is made anew, or read where it says the same
Arrays = dict[str, npt.NDArray[Any]]


def save_estimator(made: Estimator, folder: Path, tables: str, curves: str) -> None:
    """Write it whole or not at all; `tables` and `curves` are fingerprints of what it was fitted to."""
    arrays: Arrays = {
        f"{name}/{key}": part for name, forest in made.forests.items() for key, part in forest.to_arrays().items()
    }
    arrays |= {f"conformal/{name}": getattr(made.conformal, name) for name in ("off", "relation", "truth")}
    arrays["mix"] = made.mix
    about = {"layout": LAYOUT, "tables": tables, "curves": curves, "forests": list(made.forests)}
    about["notes"] = list(made.notes)
    _write(folder / ESTIMATOR_FILE, arrays, about)


def load_estimator(
    folder: Path,
    tables: str,
    curves: str | None,
    train: Graph,
    score: Predictor,
    curve: Predictor,
    common: bool = False,
) -> Estimator | None:
    """What the folder holds; None if there is none, or one of other tables or curves (any with None).

    `train` is in shares. Where one range is `common` to all relations, shares are what they were in the first layout.
    """
    path = folder / ESTIMATOR_FILE
    found = _read(path, tables)
    if found is None:
        return None
    arrays, about = found
    if about.get("layout") == 1 and common and about.get("range") == [0.0, 1.0]:
        about["layout"] = LAYOUT
        arrays["conformal/truth"] = np.zeros(len(arrays["conformal/off"]))  # all of them lay within
    if about.get("layout") != LAYOUT or (curves is not None and about.get("curves") != curves):
        return None
    try:
        mix = _numbers(arrays["mix"])
        if mix.shape != (3,) or not abs(mix.sum() - 1) < 1e-6:
            raise ValueError("shares that do not make 1")
        forests = _forests(arrays, about["forests"])
        conformal = _conformal(arrays, len(train.relations))
        return Estimator(train, score, curve, forests, mix, conformal, tuple(map(str, about["notes"])))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from None


def _forests(arrays: Arrays, names: Any) -> dict[str, Forest]:
    widths = dict.fromkeys(STAGE_ONE, FEATURES) | dict.fromkeys(STAGE_TWO, FEATURES + MORE)
    widths |= dict.fromkeys(BOUNDS, FEATURES + MORE + 1)
    if names and not {*STAGE_ONE} <= {*names} <= {*widths}:
        raise ValueError("forests that do not belong together")
    forests = {}
    for name in names:
        parts = {key.partition("/")[2]: part for key, part in arrays.items() if key.startswith(f"{name}/")}
        forests[name] = Forest.from_arrays(parts, widths[name])
    return forests


def _conformal(arrays: Arrays, relations: int) -> Conformal:
    off, relation, truth = _numbers(arrays["conformal/off"]), arrays["conformal/relation"], arrays["conformal/truth"]
    if relation.dtype.kind != "i" or relation.shape != off.shape:
        raise ValueError("conformal rows that do not fit")
    if truth.dtype.kind != "f" or truth.shape != off.shape or not np.isfinite(truth).all():
        raise ValueError("conformal rows that do not fit")
    if len(relation) and not 0 <= relation.min() <= relation.max() < relations:
        raise ValueError("conformal rows of unknown relations")
    return Conformal(off, relation.astype(np.int64), relations, truth.astype(np.float64))


def _numbers(array: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """A row of numbers that are finite and not below 0."""
    if array.dtype.kind != "f" or array.ndim != 1 or not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError("numbers that cannot be")
    return array.astype(np.float64)


def save_probability(made: Probability, folder: Path, tables: str) -> None:
    """As `save_estimator`."""
    about = {"tables": tables, "method": made.method, "base_rate": made.base_rate}
    about |= {"fitted_rate": made.fitted_rate, "negatives": made.negatives}
    arrays: Arrays = {"line": made.line, **{f"curves/{key}": part for key, part in made.curves.arrays.items()}}
    _write(folder / PROBABILITY_FILE, arrays, about)


def load_probability(folder: Path, tables: str, relations: int) -> Probability | None:
    """As `load_estimator`."""
    path = folder / PROBABILITY_FILE
    found = _read(path, tables)
    if found is None:
        return None
    arrays, about = found
    try:
        curves = Curves(about["method"], {name: arrays[f"curves/{name}"] for name in PARTS[about["method"]]})
        curves.check(relations)
        if arrays["line"].shape != (3,) or not np.isfinite(arrays["line"]).all():
            raise ValueError("line does not fit")
        rates = check_base_rate(about["base_rate"]), check_base_rate(about["fitted_rate"])
        return Probability(arrays["line"], curves, *rates, str(about["negatives"]))
    except (KeyError, TypeError, ValueError, FocuseError) as error:
        raise _damaged(path, error) from None


def _write(path: Path, arrays: Arrays, about: Mapping[str, Any]) -> None:
    with replace_file(path) as temporary:
        write_arrays(temporary, arrays, {"about": json.dumps(about)})


def _read(path: Path, tables: str) -> tuple[Arrays, dict[str, Any]] | None:
    if not path.exists() or not os.access(path, os.R_OK):
        return None
    try:
        check_tensors(path)
        with safe_open(path, framework="np") as file:
            about = json.loads(file.metadata()["about"])
            if about["tables"] != tables:
                return None
            return {key: file.get_tensor(key) for key in file.keys()}, about  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> FocuseError:
    return FocuseError(f"{path}: damaged file ({error}); remove it, it is made anew")
