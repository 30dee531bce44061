"""Weights of named triples: values, files and errors."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import focuse
from focuse.data.graph import Graph, from_columns
from focuse.data.readers import read
from focuse.errors import FocuseError
from focuse.evaluation.metrics import spearman
from focuse.inference import fitted, weight_estimator, weight_predictor
from focuse.inference.fitted import ESTIMATOR_FILE, PROBABILITY_FILE
from focuse.inference.weight_predictor import column_predictor, validation_parts

NUMBERS = ("weight_mean", "weight_median", "weight_low", "weight_high", "probability")
TRIPLES = [("e1", "r0", "e2"), ("e3", "r1", "e4"), ("e5", "r2", "e5")]


def rated(rows: int = 4000) -> Graph:
    """Ratings from 1 to 5 that heads and tails decide."""
    random = np.random.default_rng(0)
    head, tail = random.integers(0, 80, (2, rows))
    worth = random.random((2, 80))
    weight = np.clip(1 + 2 * (worth[0][head] + worth[1][tail]) + random.normal(0, 0.1, rows), 1, 5)
    kinds = [f"r{i % 3}" for i in range(rows)]
    return from_columns([f"e{i}" for i in head], kinds, [f"e{i}" for i in tail], weight, "rated")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("asking") / "run"
    run = focuse.train(rated(), dim=8, epochs=3, eval_every=3, valid_fraction=0.2, out=out, progress=False)
    run.predict_weight(*TRIPLES[0])
    return out


@pytest.fixture
def run(folder: Path) -> focuse.Run:
    return focuse.load(folder)


class TestParts:
    def test_validation_parts_are_disjoint_and_complete(self) -> None:
        graph = rated(400).merge_repeated("mean")
        held, notes = validation_parts(graph, 0.5, 3)
        parts = [set(part.keys) for part in (held.stopping, held.calibration, held.conformal)]
        assert sum(map(len, parts)) == len(graph) == len(set.union(*parts))
        assert notes == ()

    def test_validation_used_entirely_for_stopping_is_reused_with_a_note(self) -> None:
        held, notes = validation_parts(rated(400), 1.0, 3)
        assert len(held.stopping) == 0
        assert abs(len(held.calibration) - len(held.conformal)) <= 2
        assert "also stopped the training" in notes[0]

    def test_empty_validation_gives_no_notes(self) -> None:
        nothing = rated(400).select(np.empty(0, np.int64))
        assert validation_parts(nothing, 0.5, 0)[1] == ()


class TestAnswers:
    def test_weights_are_in_the_units_of_the_graph(self, run: focuse.Run) -> None:
        test = run.splits.test
        found = run.predict_weights(test)
        assert len(found) == len(test)
        assert np.mean((found["weight_mean"] - test.weight) ** 2) < 0.2 * test.weight.var()
        inside = (found["weight_low"] <= test.weight) & (test.weight <= found["weight_high"])
        assert inside.mean() == pytest.approx(0.9, abs=0.06)
        assert 1 <= found["weight_low"].min() <= found["weight_high"].max() <= 5
        assert ((found["probability"] >= 0) & (found["probability"] <= 1)).all()

    def test_single_weight_equals_that_of_a_batch(self, run: focuse.Run) -> None:
        one = run.predict_weight(*TRIPLES[1])
        many = run.predict_weights(TRIPLES)
        assert (one.head, one.relation, one.tail) == TRIPLES[1]
        for name in ("weight_mean", "weight_median", "weight_low", "weight_high", "probability"):
            assert getattr(one, name) == pytest.approx(getattr(many[1], name))
        assert run.predict_weights(TRIPLES[1])[0] == many[1]
        assert [(row.head, row.relation, row.tail) for row in many[1:]] == TRIPLES[1:]

    def test_larger_coverage_gives_wider_intervals(self, run: focuse.Run) -> None:
        narrow, wide = (run.predict_weight(*TRIPLES[0], coverage=coverage) for coverage in (0.5, 0.95))
        assert wide.weight_low <= narrow.weight_low <= narrow.weight_high <= wide.weight_high
        assert wide.weight_high - wide.weight_low > narrow.weight_high - narrow.weight_low

    def test_predictions_have_the_same_weights(self, run: focuse.Run) -> None:
        for row in run.predict(head="e1", relation="r0", top=3):
            told = run.predict_weight(row.head, row.relation, row.tail)
            assert row.weight_mean == pytest.approx(told.weight_mean)
            assert (row.weight_low, row.weight_high) == pytest.approx((told.weight_low, told.weight_high))
            assert row.probability == pytest.approx(told.probability)

    def test_unseen_names_are_left_out_with_a_note(self, run: focuse.Run) -> None:
        found = run.predict_weights([*TRIPLES, ("nobody", "r0", "e1")])
        assert len(found) == 3
        assert "nobody" in found.notes[0]
        assert "nobody" in str(found)
        with pytest.raises(FocuseError, match="nobody"):
            run.predict_weights([("nobody", "r0", "e1")])
        with pytest.raises(FocuseError, match="nobody"):
            run.predict_weight("nobody", "r0", "e1")

    @pytest.mark.parametrize("suffix", [".tsv", ".csv", ".parquet"])
    def test_weights_are_written_and_read_back(self, run: focuse.Run, tmp_path: Path, suffix: str) -> None:
        found = run.predict_weights([(*triple, 2.0) for triple in TRIPLES])
        found.write(tmp_path / f"told{suffix}")
        columns = ["head", "relation", "tail", "weight_mean"]
        again = read(tmp_path / f"told{suffix}", columns=columns, header=None if suffix == ".parquet" else True)
        np.testing.assert_allclose(again.weight, found["weight_mean"], rtol=1e-6)
        assert found.to_arrow().column_names[:5] == ["head", "relation", "tail", "in_train", "weight"]
        with pytest.raises(FocuseError, match=r"use \.tsv, \.csv, \.parquet, \.nt"):
            found.write(tmp_path / "told.txt")

    def test_weights_convert_to_json(self, run: focuse.Run) -> None:
        told = json.loads(json.dumps(run.predict_weights(TRIPLES).to_json(), allow_nan=False))
        assert told["coverage"] == 0.9
        assert set(told["rows"][0]) == {
            *("head", "relation", "tail", "in_train", "weight_mean", "weight_median", "weight_low", "weight_high"),
            "probability",
        }


class TestStoring:
    def test_fitted_files_are_read_instead_of_fitting_again(
        self, run: focuse.Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(weight_predictor, "fit_estimator", lambda *_: pytest.fail("fitted again"))
        monkeypatch.setattr(weight_predictor, "fit_link_probability", lambda *_: pytest.fail("fitted again"))
        assert run.predict_weight(*TRIPLES[0]).probability is not None

    def test_stored_estimator_gives_the_same_weights_as_a_new_fit(self, folder: Path, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(folder, tmp_path / "run"))
        stored = focuse.load(copy).predict_weights(TRIPLES)
        for name in (ESTIMATOR_FILE, PROBABILITY_FILE):
            (copy / name).unlink()
        fresh = focuse.load(copy).predict_weights(TRIPLES)
        for name in NUMBERS:
            np.testing.assert_allclose(fresh[name], stored[name], rtol=1e-9)
        assert (copy / ESTIMATOR_FILE).exists()

    @pytest.mark.parametrize("name", [ESTIMATOR_FILE, PROBABILITY_FILE])
    def test_damaged_file_is_reported(self, folder: Path, tmp_path: Path, name: str) -> None:
        copy = Path(shutil.copytree(folder, tmp_path / "run"))
        (copy / name).write_bytes(b"no tensors here")
        with pytest.raises(FocuseError, match=f"{name}: damaged file"):
            focuse.load(copy).predict_weight(*TRIPLES[0])

    def test_files_of_other_tables_are_ignored(self, folder: Path, run: focuse.Run) -> None:
        parts = run.weight_predictor().estimator_parts()
        assert fitted.load_estimator(folder, "other", "", *parts) is None
        assert fitted.load_probability(folder, "other", run.weight_predictor(full=True).probability.evidence) is None  # type: ignore[union-attr]


class TestWeightEvaluation:
    def test_evaluation_reports_rows_and_interval_coverage(self, run: focuse.Run) -> None:
        judged = run.evaluate_weights(coverage=0.8)
        rows = judged.rows
        assert list(rows)[:3] == ["complex, mean", "complex, median", "complex, isotonic"]
        assert rows["complex, mean"]["positives"].errors.mse < 0.3 * rows["relation mean"]["positives"].errors.mse
        assert judged.intervals is not None
        ours = next(iter(judged.intervals.rows.values()))
        assert ours.coverage == pytest.approx(0.8, abs=0.08)
        assert ours.width < judged.intervals.rows["relation mean ± constant"].width
        assert {row.relation for row in judged.intervals.relations} == {"r0", "r1", "r2"}

    def test_probabilities_can_use_given_negatives(self, run: focuse.Run) -> None:
        known = {*zip(*(run.graph.to_arrow()[name].to_pylist() for name in ("head", "relation", "tail")), strict=True)}
        every: Any = ((f"e{i}", "r0", f"e{j}") for i in range(80) for j in range(80))
        false = [(*triple, 0.0) for triple in every if triple not in known][:50]
        table = run.evaluate_probabilities(negatives=false)
        assert table.negatives == 50
        assert table.base_rate == pytest.approx(table.positives / (table.positives + 50))
        assert "given" in " ".join(table.notes)
        made = run.calibrate("platt", base_rate=0.2)
        assert made.method == "platt"
        assert run.weight_predictor(full=True).probability.base_rate == 0.2  # type: ignore[union-attr]
        run.folder = None  # what other tests read stays as it was

    def test_invalid_coverage_and_negatives_are_refused(self, run: focuse.Run) -> None:
        for ask in (run.evaluate_weights, lambda **options: run.predict_weights(TRIPLES, **options)):
            with pytest.raises(FocuseError, match="coverage 2"):
                ask(coverage=2)
        with pytest.raises(FocuseError, match="no triple of weight 0"):
            run.evaluate_probabilities(negatives=[("e1", "r0", "e2", 0.5)])
        with pytest.raises(FocuseError, match="seed -1: give a whole number, at least 0"):
            run.evaluate_probabilities(seed=-1)

    def test_negatives_are_rows_of_weight_0_or_rows_without_weights(self, run: focuse.Run) -> None:
        rows = [(f"e{i}", f"r{i % 3}", f"e{(i * 7 + 3) % 40}") for i in range(30)]
        weighted = [(*row, 0.5 if i < 5 else 0.0) for i, row in enumerate(rows)]
        for given, count in ((rows, 30), (weighted, 25)):
            assert run.evaluate_probabilities(negatives=given).negatives == count

    def test_a_graph_without_candidates_has_no_probabilities(self) -> None:
        names = [f"e{i}" for i in range(6)]
        rows = [(h, "r", t, 1.0) for h in names for t in names]
        run = focuse.train(rows[5:], dim=4, epochs=1, valid=rows[5:25], test=rows[:5], progress=False)
        with pytest.raises(FocuseError, match="train and validation have all links"):
            run.evaluate_probabilities()


def test_intervals_are_measured_again_after_recalibration(
    small: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the curves alone predict weights, intervals are measured again with them."""
    monkeypatch.setattr(weight_estimator, "_fit_mix", lambda made, rows: np.array([0.0, 1.0, 0.0]))
    run = focuse.train(small, dim=8, epochs=3, eval_every=3, valid_fraction=0.3, out=tmp_path / "run", progress=False)
    run.predict_weights(TRIPLES)
    run.calibrate("platt")
    told = run.predict_weights(TRIPLES)
    again = focuse.load(tmp_path / "run").predict_weights(TRIPLES)
    rows = run.weight_predictor().parts.conformal
    curves = run.weight_predictor().given_true(rows.head, rows.relation, rows.tail)
    off = run.weight_predictor(full=True).estimator.conformal.errors  # type: ignore[union-attr]
    np.testing.assert_allclose(off, np.abs(curves - rows.weight) / 0.005, rtol=1e-6)
    for name in NUMBERS:
        np.testing.assert_allclose(again[name], told[name], rtol=1e-9)
    (tmp_path / "run" / "calibration.safetensors").unlink()  # fitted again, with other curves: so are the intervals
    anew = focuse.load(tmp_path / "run")
    found = anew.weight_predictor(full=True).estimator.conformal.errors  # type: ignore[union-attr]
    curves = anew.weight_predictor().given_true(rows.head, rows.relation, rows.tail)
    np.testing.assert_allclose(found, np.abs(curves - rows.weight) / 0.005, rtol=1e-6)
    assert not np.allclose(found, off)


def test_intervals_reach_beyond_the_weights_of_train() -> None:
    graph = rated()
    train, more = graph.select(np.arange(2500)), graph.select(np.arange(2500, 4000))
    wider = replace(more, weight=3 + 2 * (more.weight - 3))  # −1 to 7 where train has 1 to 5
    valid, test = wider.select(np.arange(900)), wider.select(np.arange(900, 1500))
    run = focuse.train(train, valid=valid, test=test, dim=8, epochs=2, eval_every=2, progress=False)
    table = run.evaluate_weights().intervals
    assert table is not None
    for name, figures in table.rows.items():
        assert figures.coverage == pytest.approx(0.9, abs=0.04), name


def test_recalibration_depends_only_on_the_last_method(run: focuse.Run, folder: Path, tmp_path: Path) -> None:
    """Weights depend on the last curves only, whatever was fitted before, in memory or stored."""
    told = {}
    for name, methods in {"at once": ["isotonic"], "after others": ["platt", "isotonic"]}.items():
        copy = Path(shutil.copytree(folder, tmp_path / name))
        one = focuse.load(copy)
        for method in methods:
            one.calibrate(method)
        told[name] = one.predict_weights(run.splits.test)
        told[f"{name}, loaded"] = focuse.load(copy).predict_weights(run.splits.test)
    for table in told.values():
        for name in NUMBERS:
            np.testing.assert_allclose(table[name], told["at once"][name], rtol=1e-9)


@pytest.mark.parametrize("others", [True, False])
def test_constant_train_weight_takes_intervals_from_validation(small: Graph, others: bool) -> None:
    train, rest = small.select(np.arange(400)), small.select(np.arange(400, 600))
    constant = replace(train, weight=np.full(400, 5.0))
    held = replace(rest, weight=3 + np.arange(200) / 30 if others else np.full(200, 5.0))
    run = focuse.train(constant, valid=held, test=held, dim=4, epochs=1, progress=False)
    found, new = run.predict_weights(held), run.predict_weights(TRIPLES[1:])
    assert new["weight_mean"].tolist() == [5.0, 5.0]
    if others:
        covered = np.mean((found["weight_low"] <= held.weight) & (held.weight <= found["weight_high"]))
        assert covered >= 0.8  # 0.9 within 2.4 standard errors of the 50 rows that say how wide intervals are
        assert ((new["weight_low"] < 5) & (new["weight_high"] > 8)).all()
    else:
        assert new["weight_low"].tolist() == new["weight_high"].tolist() == [5.0, 5.0]


def test_known_triple_keeps_its_weight(run: focuse.Run) -> None:
    train = run.splits.train
    found = run.predict_weights(train)
    assert all(row.in_train for row in found[:20])
    np.testing.assert_array_equal(found["in_train"], np.ones(len(train), bool))
    assert ((found["weight_low"] <= train.weight) & (train.weight <= found["weight_high"])).all()
    alone = (
        np.bincount(np.unique(train.keys, return_inverse=True)[1])[np.unique(train.keys, return_inverse=True)[1]] == 1
    )
    for name in ("weight_mean", "weight_median", "weight_low", "weight_high"):
        np.testing.assert_allclose(found[name][alone], train.weight[alone])
    new = run.predict_weights(run.splits.test)
    assert new["in_train"].sum() == np.isin(run.splits.test.keys, train.keys).sum()


def test_weights_without_validation_are_refused(small: Graph) -> None:
    bare = focuse.train(small, valid_fraction=0.0, dim=4, epochs=1, progress=False)
    with pytest.raises(FocuseError, match="no validation triples to calibrate on"):
        bare.predict_weight("e1", "r0", "e2")


@pytest.fixture(scope="module")
def both() -> focuse.Run:
    graph = rated()
    table = graph.to_pandas().rename(columns={"weight": "stars"})
    table["distance"] = 100 - 15 * table["stars"]  # the fewer, the better
    table.loc[::3, "distance"] = np.nan
    many = read(table, columns=["head", "relation", "tail", "stars", "distance"])
    return focuse.train(
        many, dim=8, epochs=3, eval_every=3, valid_fraction=0.2, lower_is_better=["distance"], progress=False
    )


class TestColumns:
    """Several weight columns: each is predicted in its own units, whether high or low is strong."""

    @pytest.mark.slow
    def test_weights_of_each_column_can_be_predicted(self, both: focuse.Run) -> None:
        test = both.splits.test
        for name in ("stars", "distance"):
            rows = test.column(name)
            found = both.predict_weights(replace(rows, columns=None), column=name)
            assert np.corrcoef(found["weight_mean"], rows.weight)[0, 1] > 0.8
            assert (found["weight_low"] <= found["weight_mean"]).all()
            assert (found["weight_mean"] <= found["weight_high"]).all()
            assert 0.8 <= np.mean((found["weight_low"] <= rows.weight) & (rows.weight <= found["weight_high"])) <= 0.99
            assert ((found["probability"] >= 0) & (found["probability"] <= 1)).all()
        judged = both.evaluate_weight_columns()
        for one in judged.values():
            rows = one.rows
            assert rows["complex, mean"]["positives"].errors.mse < rows["relation mean"]["positives"].errors.mse

    def test_validation_parts_of_a_column_are_those_of_the_run(self, both: focuse.Run) -> None:
        whole = validation_parts(both.splits.valid, both.settings.stop_fraction, both.settings.seed)[0]
        apart = column_predictor(both, "distance").parts
        for name in ("stopping", "calibration", "conformal"):
            assert 0 < len(getattr(apart, name)) < len(getattr(whole, name))
            assert set(getattr(apart, name).keys) <= set(getattr(whole, name).keys)

    def test_column_with_few_edges_is_skipped(self) -> None:
        table = rated(600).to_pandas().rename(columns={"weight": "stars"})
        table["rare"] = np.where(np.arange(600) % 50 == 0, table["stars"], np.nan)
        many = read(table, columns=["head", "relation", "tail", "stars", "rare"])
        run = focuse.train(many, dim=4, epochs=1, valid_fraction=0.05, test_fraction=0.3, progress=False)
        assert len(column_predictor(run, "rare").parts.calibration) == 0
        assert set(run.evaluate_weight_columns()) == {"stars"}
        found = run.predict_weights(TRIPLES, column="rare")
        assert np.isfinite(found["weight_mean"]).all()
        assert np.isfinite(found["probability"]).all()
        assert not any("no probabilities" in note for note in found.notes)

    def test_single_weight_of_a_column_equals_that_of_a_batch(self, both: focuse.Run) -> None:
        one, many = (
            both.predict_weight(*TRIPLES[0], column="distance"),
            both.predict_weights(TRIPLES, column="distance"),
        )
        assert one == many[0]
        assert 20 < one.weight_mean < 90

    def test_confidence_of_a_model_is_about_merged_columns(self) -> None:
        table = rated(1500).to_pandas().rename(columns={"weight": "stars"})
        table["hundreds"] = table["stars"] * 100
        many = read(table, columns=["head", "relation", "tail", "stars", "hundreds"])
        run = focuse.train(
            many,
            model="ukge-rect",
            weight_scaling="global",
            dim=8,
            epochs=2,
            eval_every=2,
            valid_fraction=0.2,
            progress=False,
        )
        assert "ukge-rect" in run.evaluate_weights(estimator=False).rows
        assert "ukge-rect" not in run.evaluate_weight_columns()["hundreds"].rows

    def test_merged_weights_lie_in_the_unit_interval(self, both: focuse.Run) -> None:
        found = both.predict_weights(replace(both.splits.test, columns=None))
        assert ((found["weight_mean"] >= 0) & (found["weight_mean"] <= 1)).all()

    def test_run_with_one_weight_has_no_columns(self, run: focuse.Run) -> None:
        with pytest.raises(FocuseError, match="one weight per edge"):
            run.predict_weights(TRIPLES, column="stars")

    def test_unknown_column_is_refused(self, both: focuse.Run) -> None:
        with pytest.raises(FocuseError, match="weight column"):
            both.predict_weights(TRIPLES, column="star")


def test_ndcg_of_baselines_does_not_depend_on_the_direction_of_weights() -> None:
    rows = [(f"e{i % 20}", "r", f"e{(i * 7 + i // 20) % 20}", 1.0 + i % 5) for i in range(300)]
    turned = [(*row[:3], 6 - row[3]) for row in rows]
    near, far = (
        focuse.train(one, dim=4, epochs=1, progress=False, **more).evaluate_weights().ndcg
        for one, more in ((rows, {}), (turned, {"lower_is_better": True}))
    )
    assert "inverse copy, else 0" not in far
    assert far["inverse copy"].linear == pytest.approx(near["inverse copy"].linear)


@pytest.mark.parametrize("lower", [False, True])
def test_heavy_tailed_weights_are_predicted_by_their_logarithms(tmp_path: Path, lower: bool) -> None:
    stars = rated(2000)
    counts = replace(stars, weight=np.exp((-4 if lower else 4) * (stars.weight - 1)))  # over seven orders of magnitude
    short: dict[str, Any] = {"dim": 8, "epochs": 2, "eval_every": 2, "valid_fraction": 0.2, "lower_is_better": lower}
    run = focuse.train(counts, out=tmp_path / "run", progress=False, **short)
    assert run.settings.weight_scaling == "quantile"
    test = run.splits.test
    found = run.predict_weights(test)
    assert spearman(found["weight_mean"], test.weight) > 0.8
    errors = np.abs(np.log(found["weight_mean"]) - np.log(test.weight))
    assert np.median(errors) < 1.5  # factors, of a range of e^16
    inside = (found["weight_low"] <= test.weight) & (test.weight <= found["weight_high"])
    assert inside.mean() > 0.8
    again = focuse.load(tmp_path / "run").predict_weights(test)
    for name in NUMBERS:
        np.testing.assert_array_equal(again[name], found[name])
    assert not any("complex, mean does not beat" in note for note in run.evaluate_weights().notes)  # by logarithms
    plain = focuse.train(counts, weight_scaling="relation", progress=False, **short)
    assert weight_predictor._plain_predictor(plain).units.offset is None


@pytest.mark.slow
def test_lower_is_better_weights_and_bounds_are_in_their_units() -> None:
    graph = rated()
    far = replace(graph, weight=100 - 15 * graph.weight)
    near, other = (
        focuse.train(one, dim=8, epochs=3, eval_every=3, valid_fraction=0.2, progress=False, **more)
        for one, more in ((graph, {}), (far, {"lower_is_better": True}))
    )
    test = near.splits.test
    stars, distances = near.predict_weights(test), other.predict_weights(replace(test, weight=100 - 15 * test.weight))
    np.testing.assert_allclose(distances["weight_mean"], 100 - 15 * stars["weight_mean"], rtol=1e-5)
    np.testing.assert_allclose(distances["weight_low"], 100 - 15 * stars["weight_high"], rtol=1e-5)
    np.testing.assert_allclose(distances["weight_high"], 100 - 15 * stars["weight_low"], rtol=1e-5)
    np.testing.assert_allclose(distances["probability"], stars["probability"], rtol=1e-5)
