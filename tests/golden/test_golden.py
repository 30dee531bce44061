"""Today's numbers, pinned before the core is refactored: losses of five steps, metrics of whole pipelines.

Everything is driven through the public API by the words of `vocabulary`. `python tests/golden/record.py` records the
values anew. A case that fails here says that a change of the code has changed what is computed.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.golden import cases, scenarios, vocabulary

import focuse

# Engines repeat their bits on one machine and one thread, but another processor has other vector instructions and so
# sums in another order. Between AVX2, plain SSE (ATEN_CPU_CAPABILITY=default) and AVX-512 losses differ by some 1e-7.
SAME = 1e-5
# Further from the loss a rounding error is larger: a sum of embeddings, which all but cancel, has lost two digits.
NEAR_ZERO = 2e-5
# An explanation trains anew around a triple, with and without each fact, and tells the small difference of two scores.
LOOSE = {"explanation": 1e-4}
ENGINES_AGREE = 1e-4
GPU_AGREES = 2e-4

GOLDEN: dict[str, Any] = json.loads(cases.LOSSES.read_text(encoding="utf-8"))
PINNED: dict[str, Any] = json.loads(cases.METRICS.read_text(encoding="utf-8"))
NATIVE = any(Path(focuse.__file__).parent.rglob("*.so")) or any(Path(focuse.__file__).parent.rglob("*.pyd"))
LISTED = [*cases.TRAINED, *cases.TWO_PROCESSES]
BATCHES = {"batch_size": 80, "epochs": 4, "validation_every": 2}  # three steps an epoch


def needs_loops(name: str) -> None:
    """Skip a case of the fused engine where its loops were never compiled."""
    if name.startswith("fused/") and not NATIVE:
        pytest.skip("the fused engine's loops were not built here")


def assert_like(found: Any, expected: Any, rel: float, least: float, where: str = "") -> None:
    """Compare nested values: names and counts exactly, numbers within `rel` of themselves or `least`."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected:
            assert_like(found[key], expected[key], rel, least, f"{where}/{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for place, value in enumerate(expected):
            assert_like(found[place], value, rel, least, f"{where}/{place}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=rel, abs=least), where
    else:
        assert found == expected, where


# ---- five steps -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cases.TRAINED)
def test_five_losses_are_as_recorded(name: str, tmp_path: Path) -> None:
    needs_loops(name)
    run = cases.CASES[name].run(tmp_path)
    assert vocabulary.losses(run) == pytest.approx(GOLDEN[name]["losses"], rel=SAME)
    if "embeddings" in GOLDEN[name]:
        assert_like(scenarios.summary(run, tmp_path), GOLDEN[name]["embeddings"], SAME, NEAR_ZERO)


@pytest.mark.parametrize("name", cases.REFUSED)
def test_unsupported_cases_of_an_engine_are_refused(name: str, tmp_path: Path) -> None:
    needs_loops(name)
    with pytest.raises(vocabulary.Error, match="engine"):
        cases.CASES[name].run(tmp_path)
    assert not (tmp_path / "run").exists()


def test_every_case_is_recorded_and_no_other() -> None:
    assert GOLDEN.keys() - {"about"} == set(LISTED)
    assert PINNED.keys() - {"about"} == {*scenarios.SCENARIOS, "two processes, sharded"}
    assert set(cases.EMBEDDED) == {name for name in cases.TRAINED if "embeddings" in GOLDEN[name]}
    assert all(len(GOLDEN[name]["losses"]) == cases.STEPS for name in LISTED)


@pytest.mark.parametrize("engine", [*cases.ENGINES, "sharded"])
def test_recorded_losses_of_an_engine_agree_with_autograd(engine: str) -> None:
    """The recorded values are compared; the tests above hold every engine to its own."""
    for name, case in {**cases.CASES, **cases.TWO_PROCESSES}.items():
        if case.engine == engine and not case.refused:
            twin = GOLDEN[case.twin]["losses"]
            assert GOLDEN[name]["losses"] == pytest.approx(twin, rel=ENGINES_AGREE), name


@pytest.mark.parametrize("name", cases.REPEATED)
def test_same_seed_gives_identical_losses(name: str, tmp_path: Path) -> None:
    needs_loops(name)
    found = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        run = cases.CASES[name].run(folder)
        found.append((vocabulary.losses(run), vocabulary.embeddings(run, folder)))
    assert found[0][0] == found[1][0]
    assert_same_bits(found[0][1], found[1][1])


@pytest.mark.parametrize("name", ["autograd/soft-labels/shared/complex", "fused/focuse/per-triple/transe"])
def test_different_seed_gives_different_losses(name: str, tmp_path: Path) -> None:
    needs_loops(name)
    other = vocabulary.losses(cases.CASES[name].run(tmp_path, seed=9))
    assert other != pytest.approx(GOLDEN[name]["losses"], rel=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("name", cases.GPU)
def test_gpu_takes_the_same_five_steps(name: str, tmp_path: Path) -> None:
    case = cases.CASES[name]
    run = case.run(tmp_path, device="cuda")
    assert vocabulary.losses(run) == pytest.approx(GOLDEN[case.twin]["losses"], rel=GPU_AGREES)


# ---- whole pipelines ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", scenarios.SCENARIOS)
def test_metrics_are_as_recorded(name: str, tmp_path: Path) -> None:
    if name == "validation, fused" and not NATIVE:
        pytest.skip("the fused engine's loops were not built here")
    assert_like(scenarios.SCENARIOS[name](tmp_path), PINNED[name], SAME, LOOSE.get(name, NEAR_ZERO))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_two_processes_train_as_recorded(tmp_path: Path) -> None:
    losses, validated = scenarios.two_processes(tmp_path)
    for name, values in losses.items():
        assert values == pytest.approx(GOLDEN[name]["losses"], rel=SAME), name
    for name, told in validated.items():
        assert_like(told, PINNED[name], SAME, NEAR_ZERO, name)


def assert_same_bits(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare exported embeddings bit by bit."""
    assert found.keys() == expected.keys()
    for name, table in expected.items():
        assert np.array_equal(found[name], table), name


RESUMED: dict[str, dict[str, Any]] = {
    "autograd": {},
    "fused": {"engine": "fused", **cases.FOCUSE, "label_sharpness": None},
    "row-Adam": {"optimizer": "row-adam", "regularizer": "n3"},
    "Adam": {"optimizer": "adam", "engine": "automatic"},
    "semi-supervised pool": {
        **cases.UKGE,
        "label_sharpness": None,
        "model": "passleaf-complex",
        "semi_supervised_pool": "early",
    },
    "partitioned": {"engine": "partitioned", "partitions": "three-of-four"},
}


@pytest.fixture(params=RESUMED)
def words(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Settings of a run that is stopped and resumed."""
    needs_loops(f"{request.param}/")
    return {**scenarios.VALIDATED, **BATCHES, **RESUMED[request.param]}


def test_run_stopped_after_every_step_has_identical_tables(words: dict[str, Any], tmp_path: Path) -> None:
    """A deadline that has passed stops a training after its next step, in the middle of epochs and at their ends."""
    whole = vocabulary.train(cases.graph(), {**words, "folder": tmp_path / "whole"})
    stops = 0
    with pytest.raises(vocabulary.Error, match="saved"):
        vocabulary.train(cases.graph(), {**words, "folder": tmp_path / "run", "deadline": time.monotonic()})
    while True:
        try:
            run = vocabulary.resume(tmp_path / "run", deadline=time.monotonic())
            break
        except vocabulary.Error as error:
            assert "saved" in str(error)  # noqa: PT017 - any other error is one
            stops += 1
    assert stops >= 5
    assert vocabulary.losses(run) == vocabulary.losses(whole)
    assert vocabulary.validation(run) == vocabulary.validation(whole)
    assert_same_bits(vocabulary.embeddings(run, tmp_path), vocabulary.embeddings(whole, tmp_path))


def test_run_resumed_for_more_epochs_has_identical_tables(words: dict[str, Any], tmp_path: Path) -> None:
    """Soft labels and fixed weights know no number of epochs, so half of a training and its other half are one."""
    words = {**words, "validation_patience": 9}
    words |= {"weight_decay_epochs": 4} if words["weight_mode"] == "focuse" else {}
    whole = vocabulary.train(cases.graph(), {**words, "folder": tmp_path / "whole"})
    half = vocabulary.train(cases.graph(), {**words, "epochs": 2, "folder": tmp_path / "run"})
    assert vocabulary.losses(half) == vocabulary.losses(whole)[:2]
    run = vocabulary.resume(tmp_path / "run", epochs=4)
    assert vocabulary.losses(run) == vocabulary.losses(whole)
    assert_same_bits(vocabulary.embeddings(run, tmp_path), vocabulary.embeddings(whole, tmp_path))


def test_loaded_run_equals_the_trained_one(tmp_path: Path) -> None:
    run = vocabulary.train(cases.graph(), {**scenarios.VALIDATED, "folder": tmp_path / "run"})
    loaded = vocabulary.load(tmp_path / "run")
    assert vocabulary.losses(loaded) == vocabulary.losses(run)
    assert vocabulary.metrics(loaded) == vocabulary.metrics(run)
    assert_same_bits(vocabulary.embeddings(loaded, tmp_path), vocabulary.embeddings(run, tmp_path))
    assert_like(vocabulary.metrics(loaded), PINNED["validation, autograd"]["metrics"], SAME, NEAR_ZERO)


def test_command_line_trains_the_same_run(command: Any, tmp_path: Path) -> None:
    cases.graph().write(tmp_path / "graph.tsv")
    command(
        "train", tmp_path / "graph.tsv", "--out", tmp_path / "run", *vocabulary.flags(scenarios.VALIDATED), check=True
    )
    run = vocabulary.load(tmp_path / "run")
    assert_like(vocabulary.losses(run), PINNED["validation, autograd"]["losses"], SAME, NEAR_ZERO)
    told = json.loads(command("evaluate", tmp_path / "run", "--json", check=True).stdout)
    expected = PINNED["validation, autograd"]["metrics"]
    assert (told["all"]["mrr"], told["delta_mrr"]) == pytest.approx(
        (expected["all MRR"], expected["delta MRR"]), rel=SAME
    )
