"""Results of a cell: metrics follow from ranks and survive saving and loading."""

import json

import numpy as np
import pytest

import focuse
from focuse.errors import FocuseError
from reproduction.grid import Cell
from reproduction.results import REQUIRED_INFO, RankedTest, Result


@pytest.fixture(scope="module")
def run(small: focuse.Graph) -> focuse.Run:
    return focuse.train(small, weight_mode="focuse", dim=6, epochs=4, lr=0.05, progress=False)


@pytest.fixture(scope="module")
def result(run: focuse.Run) -> Result:
    return Result(Cell("ppi5k", "complex", "focuse"), dict.fromkeys(REQUIRED_INFO, 4), RankedTest.rank(run))


@pytest.mark.parametrize("protocol", ["per-side", "combined"])
def test_metrics_agree_with_evaluate(run: focuse.Run, result: Result, protocol: str) -> None:
    expected = run.evaluate(protocol=protocol)
    for part in ("all", "top", "bottom"):
        assert result.test.metrics(part, protocol) == getattr(expected, part)
    assert result.test.delta_mrr(protocol) == pytest.approx(expected.delta_mrr)
    assert result.test.delta_median == pytest.approx(expected.delta_median)


def test_clean_triples_have_neither_duplicate_nor_inverse(run: focuse.Run, result: Result) -> None:
    train, test = run.splits.train, run.splits.test
    pairs = set(zip(train.head.tolist(), train.tail.tolist(), strict=True))
    triples = set(zip(train.head.tolist(), train.relation.tolist(), train.tail.tolist(), strict=True))
    expected = [
        (h, r, t) not in triples and ((t, h) not in pairs or h == t)
        for h, r, t in zip(test.head.tolist(), test.relation.tolist(), test.tail.tolist(), strict=True)
    ]
    assert result.test.clean.tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_the_clean_form_has_deciles_of_its_own(result: Result) -> None:
    clean = result.test.of(clean=True)
    assert len(clean) == int(result.test.clean.sum())
    assert clean.shares["top"].sum() == pytest.approx(len(clean) // 10)
    highest = np.sort(clean.weight)[::-1][: len(clean) // 10]
    assert set(clean.weight[clean.shares["top"] > 0]) == set(highest)


def test_reciprocal_ranks_average_to_the_mrr(result: Result) -> None:
    assert (1 / result.test.ranks()).mean() == pytest.approx(result.test.metrics("all").mrr)


def test_result_is_unchanged_after_saving_and_loading(result: Result, tmp_path) -> None:
    result.save(tmp_path)
    again = Result.load(tmp_path / f"{result.cell.name}.json")
    assert again.cell == result.cell
    assert again.to_dict() == result.to_dict()
    json.loads((tmp_path / f"{result.cell.name}.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize("damage", ["cut", "missing", "words"])
def test_a_damaged_result_is_named(result: Result, tmp_path, damage: str) -> None:
    result.save(tmp_path)
    text = tmp_path / f"{result.cell.name}.json"
    arrays = text.with_suffix(".safetensors")
    if damage == "cut":
        arrays.write_bytes(arrays.read_bytes()[:100])
    elif damage == "missing":
        arrays.unlink()
    else:
        text.write_text("[]")
    with pytest.raises(FocuseError, match=r"seed0.json: damaged result .*trained again"):
        Result.load(text)
