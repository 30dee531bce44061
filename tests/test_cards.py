"""Model cards agree with the code and the committed results."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from focuse.models.registry import MODELS

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def cards() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("cards", ROOT / "docs" / "tools" / "cards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["cards"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["cards"]


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    lines = (ROOT / "docs" / "results" / "cards.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def tables_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(("|", "## "))]


def test_model_cards_show_the_committed_results(
    cards: ModuleType, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model may be built in without a card; of those that have one, the page says what the results say."""
    text = (ROOT / "docs" / "cards.md").read_text(encoding="utf-8")
    shown = {name: kind for name, kind in MODELS.items() if f"## {name}\n" in text}
    assert {row["model"] for row in rows} <= set(shown)
    monkeypatch.setattr(cards, "MODELS", shown)
    assert tables_of(text) == tables_of(cards.page(rows)), "stale: run python docs/tools/cards.py"


def test_every_committed_result_has_the_current_budget(cards: ModuleType, rows: list[dict[str, Any]]) -> None:
    asked = list(cards.cells(MODELS, cards.DATA))
    assert all(cards._cell(row) in asked for row in rows)
    places = [(row["model"], row["data"], row["weight_mode"]) for row in rows]
    assert len(places) == len(set(places))


def test_missing_results_or_those_of_another_budget_print_as_a_dash(
    cards: ModuleType, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "MODELS", {name: MODELS[name] for name in ("complex", "ukge-rect")})
    empty = cards.page([])
    assert "| PPI5K | – | – | – | – | – | – | – | – | – | – |" in empty
    assert "| PPI5K | – | – | – | – |" in empty.split("## ukge-rect")[1]
    cell = next(cards.cells(["complex"], ["ppi5k"]))
    figures = {"top": 0.5, "all": 0.25, "delta": -0.125, "seconds": 3.0, "cpu_seconds": 2.0}
    assert "| PPI5K | .500 | .250 | -.125 | – |" in cards.page([{**cell, **figures}])
    other = {**cell, "settings": {**cell["settings"], "epochs": 50}, **figures}
    assert cards.page([other]) == empty
    assert "Not trained: too large" in cards.page([{**cell, "failed": "too large"}])


def test_formulas_are_fitted_to_counts_by_dimension(cards: ModuleType) -> None:
    dims = (32, 64, 96)
    for value, words in (
        (lambda k: 2 * k, "2k"),
        (lambda k: k + 1, "k + 1"),
        (lambda k: 3 * k * k - 4, "3k² − 4"),
        (lambda k: k**3, "k³"),
        (lambda k: 7, "7"),
        (lambda k: k * k + k, "1,056 at k = 32"),
    ):
        assert cards.formula_of(value, dims) == words
    assert [cards.growth_of(lambda k, p=p: 3 * k**p + 200, dims) for p in range(4)] == ["1", "k", "k²", "k³"]


def test_operations_are_counted_per_candidate(cards: ModuleType) -> None:
    """A product of q numbers takes q multiplications and no more, however many candidates and whatever the query."""
    assert cards.work_of(MODELS["distmult"], 32) == 32
    assert cards.work_of(MODELS["complex"], 32) == 64
    with cards.Work() as work:
        torch.ones(3, 4) @ torch.ones(4, 5)
    assert work.count == 3 * 4 * 5 + 12 + 20  # and the ones are written


def test_supported_engines_are_asked_of_the_engines(cards: ModuleType) -> None:
    assert cards.facts_of(MODELS["complex"])["fused"] == "CPU, GPU"
    assert cards.facts_of(MODELS["convkb"])["fused"] == "–"
    assert cards.facts_of(MODELS["suke"])["fused"] == cards.facts_of(MODELS["gtranse"])["fused"] == "–"  # their losses
    assert cards.facts_of(MODELS["complex"])["loops"]
    assert "Trouillon" in cards.facts_of(MODELS["complex"])["paper"]
    assert "Re Σ" in cards.facts_of(MODELS["complex"])["equation"]


def test_finished_results_are_not_trained_again(
    cards: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the file has is not trained again; a model of confidences has one cell a data set."""
    path = tmp_path / "cards.jsonl"
    done = [{**cell, "failed": "before"} for cell in cards.cells(["ukge-rect"], ["ppi5k", "nl27k"])]
    assert len(done) == 2
    path.write_text("".join(json.dumps(row) + "\n" for row in done))
    cards.train(path, ["ukge-rect"], ["ppi5k", "nl27k"], workers=1)
    assert cards.read(path) == done
    assert len(list(cards.cells(["complex"], cards.DATA))) == 9


@pytest.mark.slow
@pytest.mark.skipif("FOCUSE_DATA" not in os.environ, reason="needs the data sets")
def test_committed_result_can_be_trained_again(cards: ModuleType, rows: list[dict[str, Any]]) -> None:
    row = next(
        row for row in rows if (row["model"], row["data"], row["weight_mode"]) == ("distmult", "nl27k", "soft-labels")
    )
    again = cards.trained(cards._cell(row))
    assert {name: again[name] for name in cards.FIGURES} == pytest.approx(
        {name: row[name] for name in cards.FIGURES}, abs=0.01
    )
