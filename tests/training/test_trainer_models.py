"""Every model trains with every kind of negatives and weight mode, and predicts the same after loading."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import focuse
from focuse.api import Run
from focuse.config import Config
from focuse.models.registry import MODELS, model_class

# Each kind of negatives and each weight mode once: nine trainings a model would tell no more than three.
PAIRS = [("per-triple", "focuse"), ("shared", "soft-labels"), ("all", "none")]
QUICK: dict[str, Any] = {"dim": 8, "epochs": 3, "batch_size": 64, "eval_every": 3, "engine": "torch", "seed": 4}
# A graph without numbers of entities cannot train a model that is about them.
NAMES = [name for name, kind in MODELS.items() if "attributes" not in kind.requires]


def focused(name: str) -> bool:
    """Whether weights reach it by a weight mode; another model learns them by a loss of its own."""
    return bool(model_class(name).defaults.get("weight_mode") != "none")


def samples(name: str) -> bool:
    """Whether it is trained with negatives."""
    return bool(model_class(name).defaults.get("negative_sampling") != "none")


def train(graph: focuse.Graph, name: str, sampling: str, weight_mode: str, **more: Any) -> Run:
    given = {**QUICK, "model": name, **more}
    if samples(name):
        given["negative_sampling"] = sampling
    if focused(name):
        # A slow decay: the objective stays nearly the same, so that losses compare.
        own: dict[str, dict[str, Any]] = {
            "none": {},
            "soft-labels": {"label_exponent": 1.0},
            "focuse": {"beta_decay_epochs": 1000},
        }
        given |= {"weight_mode": weight_mode, **({} if "beta" in more else own[weight_mode]), **more}
    if "adam" in Config.from_kwargs(model=name).optimizer:
        given["lr"] = 1e-2  # the usual rate is for thousands of steps, here are two dozen
    return focuse.train(graph, progress=False, **given)


def same(one: Run, other: Run) -> bool:
    tables, others = one.scorer.tables, other.scorer.tables
    return set(tables) == set(others) and all(torch.equal(tables[name], others[name]) for name in tables)


@pytest.mark.parametrize(("sampling", "weight_mode"), PAIRS)
@pytest.mark.parametrize("name", NAMES)
def test_loss_of_every_model_falls(small: focuse.Graph, name: str, sampling: str, weight_mode: str) -> None:
    run = train(small, name, sampling, weight_mode)
    losses = [row["loss"] for row in run.history]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    assert run.settings.negative_sampling == (sampling if samples(name) else "none")


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_gives_identical_tables_and_a_stored_run_predicts_alike(
    small: focuse.Graph, name: str, tmp_path: Path
) -> None:
    run, again, other = (train(small, name, "shared", "none", seed=seed, epochs=1) for seed in (1, 1, 2))
    assert same(run, again)
    assert not same(run, other)
    run.save(tmp_path / "run")
    stored = focuse.load(tmp_path / "run")
    assert same(stored, run)
    for asked in ({"head": "e1"}, {"tail": "e1"}):
        found = run.predict(relation="r1", top=5, **asked)
        assert str(stored.predict(relation="r1", top=5, **asked)) == str(found)
    assert stored.evaluate().to_dict() == run.evaluate().to_dict()


@pytest.mark.parametrize("name", [name for name in NAMES if focused(name)])
def test_weights_change_the_result_of_every_model(small: focuse.Graph, name: str) -> None:
    """The same training, but for the weight mode, ends elsewhere."""
    given = {"none": {}, "soft-labels": {}, "focuse": {"beta": 0.5}}
    runs = [train(small, name, "shared", weight_mode, epochs=1, **more) for weight_mode, more in given.items()]
    assert not any(same(one, other) for one, other in zip(runs, runs[1:] + runs[:1], strict=True))


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("FOCUSE_DATA"), reason="FOCUSE_DATA names no folder with the data sets")
@pytest.mark.parametrize("name", ["rotate", "pairre", "quate", "hole", "simple", "cp", "rescal", "tucker"])
def test_part_of_ppi5k_is_learned_and_weights_matter(name: str) -> None:
    """Among 5,000 proteins a guess has an MRR of 0.002."""
    data, random = focuse.datasets.load("ppi5k"), np.random.default_rng(0)

    def some(graph: focuse.Graph, count: int) -> focuse.Graph:
        return graph.select(np.sort(random.choice(len(graph), count, replace=False)))

    parts = some(data.train, 40_000), some(data.valid, 1000), some(data.test, 2000)
    given = {"model": name, "dim": 32, "epochs": 8, "eval_every": 4, "valid": parts[1], "test": parts[2]}
    plain, label = (
        focuse.train(parts[0], progress=False, **given, **weight_mode).evaluate().to_dict()
        for weight_mode in ({"weight_mode": "none"}, {"weight_mode": "soft-labels", "label_exponent": 2.0})
    )
    assert plain["all"]["mrr"] > 0.03
    assert label["delta_mrr"] > plain["delta_mrr"] + 0.02
