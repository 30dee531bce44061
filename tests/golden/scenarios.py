"""Whole pipelines whose metrics are pinned: validation, extension, explanation, prediction, partitions, processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tests.golden import cases, vocabulary

import focuse

# Several batches an epoch, a look at validation every other epoch, and patience that is soon at its end.
VALIDATED: dict[str, Any] = {
    **cases.STEP,
    **cases.WEIGHT_MODES["soft-labels"],
    **cases.NEGATIVES["shared"],
    "model": "complex",
    "engine": "autograd",
    "epochs": 10,
    "batch_size": 64,
    "learning_rate": 0.2,
    "valid_fraction": 0.15,
    "test_fraction": 0.15,
    "validation_every": 2,
    "validation_patience": 2,
    "validation_burn_in": 0,
}
IMPATIENT = {"learning_rate": 0.5, "epochs": 60, "validation_every": 1}
CONFIDENCE = {
    "seed": 7,  # no two scores are so close that their order depends on the processor
    "model": "ukge-logi",
    "weight_mode": "unweighted",
    "loss": "squared-error",
    "label_sharpness": None,
}
QUESTION = ("e1", "r0")


@cache
def base() -> focuse.Run:
    """Return the run that is extended, explained and asked."""
    return vocabulary.train(cases.graph(), VALIDATED)


def summary(run: focuse.Run, folder: Path) -> dict[str, Any]:
    """Return shape, sum, sum of squares and first three numbers of the exported embeddings."""
    return {
        name: {
            "shape": list(table.shape),
            "sum": float(table.sum(dtype=np.float64)),
            "sum of squares": float(np.square(table, dtype=np.float64).sum()),
            "first": [float(value) for value in table.ravel()[:3]],
        }
        for name, table in vocabulary.embeddings(run, folder).items()
    }


def _trained(run: focuse.Run, folder: Path) -> dict[str, Any]:
    """Return losses, validation, metrics and embeddings of a run."""
    return {
        "losses": vocabulary.losses(run),
        "validation": vocabulary.validation(run),
        "metrics": vocabulary.metrics(run),
        "embeddings": summary(run, folder),
    }


def _validated(changes: dict[str, Any]) -> Callable[[Path], dict[str, Any]]:
    def scenario(folder: Path) -> dict[str, Any]:
        words = {**VALIDATED, **changes}
        words |= {"folder": folder / "run"} if words["engine"] == "partitioned" else {}
        return _trained(vocabulary.train(cases.graph(), words), folder)

    return scenario


def protocols(folder: Path) -> dict[str, Any]:
    """Return the metrics of raw ranks, of both sides as one list, and against sampled candidates."""
    told = {"raw": vocabulary.RAW, "joint": vocabulary.JOINT, "sampled": vocabulary.SAMPLED}
    return {name: vocabulary.metrics(base(), **options) for name, options in told.items()}


def chosen_sharpness(folder: Path) -> dict[str, Any]:
    """Return the sharpness of the soft labels that short trainings choose, and the run trained with it."""
    run = vocabulary.train(cases.graph(), {**VALIDATED, "label_sharpness": None, "epochs": 4})
    return {"sharpness": vocabulary.chosen_sharpness(run), **_trained(run, folder)}


def _extended(warm: bool) -> Callable[[Path], dict[str, Any]]:
    def scenario(folder: Path) -> dict[str, Any]:
        run = vocabulary.extend(base(), cases.new_edges(), warm, epochs=4)
        asked = vocabulary.predictions(run, "n1", "r0", 3)
        return {**_trained(run, folder), "new entity": [[one["tail"], one["score"]] for one in asked]}

    return scenario


def predictions(folder: Path) -> dict[str, Any]:
    """Return the best tails of a question with predicted weights and probabilities."""
    return {"best": vocabulary.predictions(base(), *QUESTION, 5)}


def explanation(folder: Path) -> dict[str, Any]:
    """Return the explanations of the best prediction, and of a triple that a rule implies."""
    rules = folder / "rules.txt"
    rules.write_text("r1(x, y) & r2(y, z) -> r0(x, z) : 0.9\n", encoding="utf-8")
    best = vocabulary.predictions(base(), *QUESTION, 1)[0]["tail"]
    asked = {"best prediction": (*QUESTION, best), "implied by a rule": ("e3", "r0", "e35")}
    return {name: vocabulary.explanation(base(), *triple, rules) for name, triple in asked.items()}


def discoveries(folder: Path) -> dict[str, Any]:
    """Return the most probable links that the graph lacks."""
    return {"best": vocabulary.discoveries(base(), 5)}


SCENARIOS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "validation, autograd": _validated({}),
    "validation, fused": _validated({"engine": "fused"}),
    "validation, focuse": _validated({"engine": "automatic", **cases.FOCUSE, "label_sharpness": None}),
    "validation, early stopping": _validated(IMPATIENT),
    "validation, confidence": _validated({**CONFIDENCE, **cases.OWN}),
    "validation, chosen sharpness": chosen_sharpness,
    "evaluation protocols": protocols,
    "extension, frozen": _extended(warm=False),
    "extension, warm": _extended(warm=True),
    "predictions": predictions,
    "explanation": explanation,
    "discoveries": discoveries,
    "three of four partitions in memory, soft labels": _validated(
        {"engine": "partitioned", "partitions": "three-of-four"}
    ),
    "three of four partitions in memory, focuse": _validated(
        {"engine": "partitioned", "partitions": "three-of-four", **cases.FOCUSE, "label_sharpness": None}
    ),
}


# ---- two processes --------------------------------------------------------------------------------------------------


def file_name(case: str) -> str:
    """Return the name of a folder for a case."""
    return case.replace("/", "-")


def two_processes(folder: Path) -> tuple[dict[str, list[float]], dict[str, dict[str, Any]]]:
    """Return the losses of all sharded cases, and the metrics of a run with validation."""
    names = list(cases.TWO_PROCESSES)
    command = [sys.executable, str(Path(__file__).with_name("two_processes.py")), str(folder), *names]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=200, env=environment)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    losses = {name: vocabulary.losses(vocabulary.load(folder / file_name(name))) for name in names}
    return losses, {"two processes, sharded": _trained(vocabulary.load(folder / "sharded"), folder)}
