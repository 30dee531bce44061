"""Weights from calibrated scores: fitting, storing and evaluation."""

from __future__ import annotations

import copy
import gzip
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from older import older
from scoring import make_scorer

import focuse
from focuse.data.graph import Graph, from_columns
from focuse.data.splits import ValidationParts
from focuse.data.weights import fit_normalizer
from focuse.engines.autograd import AutogradEngine
from focuse.errors import FocuseError
from focuse.evaluation.evaluate import ndcg
from focuse.evaluation.weight_evaluation import PROTOCOLS
from focuse.inference import weight_predictor
from focuse.inference.calibration import Calibration, fit_curves
from focuse.inference.fitted import CALIBRATION_FILE, FittedCache, fingerprint, load_calibration
from focuse.inference.weight_predictor import WeightPredictor, validation_parts
from focuse.models.registry import MODELS
from focuse.objective.negatives import corrupt_graph

QUICK = {
    "dim": 8,
    "epochs": 4,
    "weight_mode": "focuse",
    "beta_decay_epochs": 3,
    "lr": 1e-2,
    "num_negatives": 5,
    "eval_every": 2,
    "progress": False,
}
QUICK["stop_fraction"] = 1.0  # few rows: fewer still would stop before anything is learned
TRIVIAL = ["global mean", "relation mean", "inverse copy", "inverse copy, else 0"]


# ---- a model that is given, not trained ----------------------------------------------------------------------


def known_model(scale: float = 1.0, shift: float = 0.0, name: str = "distmult") -> tuple[AutogradEngine, Graph]:
    """DistMult's tables and 2,000 of its likely triples, whose weights follow their scores, from `shift` on."""
    random = np.random.default_rng(0)
    entity, kind = random.normal(size=(60, 4)), random.normal(size=(3, 4))
    score = np.einsum("hk,rk,tk->hrt", entity, kind, entity).ravel()
    chosen = random.permutation(np.argsort(-score)[:4000])[:2000]
    share = 1 / (1 + np.exp(-(score[chosen] - np.median(score[chosen])))) + random.normal(0, 0.03, 2000)
    share = (share - share.min()) / np.ptp(share)
    head, relation, tail = np.unravel_index(chosen, (60, 3, 60))
    columns = ([f"e{i}" for i in head], [f"r{i}" for i in relation], [f"e{i}" for i in tail])
    graph = from_columns(*columns, shift + scale * share, "planted")
    rows = [[int(name[1:]) for name in names] for names in (graph.entities, graph.relations)]
    tables = (torch.tensor(values[order]).float() for values, order in zip((entity, kind), rows, strict=True))
    model = MODELS[name]()
    return make_scorer(model, *tables, parameters=model.init_parameters(1, torch.Generator())), graph


def predictor_of(
    scale: float = 1.0, shift: float = 0.0, name: str = "distmult", valid: float = 0.1, seed: int = 1
) -> WeightPredictor:
    engine, graph = known_model(scale, shift, name)
    splits = focuse.split(graph, valid_fraction=valid, test_fraction=0.1, seed=seed)
    nothing = splits.valid.select(np.empty(0, np.int64))
    parts = ValidationParts(nothing, splits.valid, nothing)
    bare = WeightPredictor(name, engine, splits, fit_normalizer("relation", splits.train), parts)
    return replace(bare, calibration=bare.fit_calibration("isotonic"))


def scores_by_hand(predictor: WeightPredictor, graph: Graph) -> np.ndarray:
    entity, kind = (predictor.scorer.tables[name].double().numpy() for name in ("entity", "relation"))
    return (entity[graph.head] * kind[graph.relation] * entity[graph.tail]).sum(1)


class TestWeightPredictor:
    def test_chunk_size_does_not_change_scores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        predictor = predictor_of()
        train = predictor.splits.train
        expected = scores_by_hand(predictor, train)
        for size in (7, len(train), 1 << 18):
            monkeypatch.setattr(weight_predictor, "TRIPLES_AT_ONCE", size)
            np.testing.assert_allclose(predictor.score(train.head, train.relation, train.tail), expected, atol=1e-5)
        nothing = train.head[:0]
        assert predictor.score(nothing, nothing, nothing).shape == (0,)

    @pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (4.0, 1.0)])
    @pytest.mark.parametrize("method", ["isotonic", "platt"])
    def test_calibration_is_fitted_on_validation_and_as_many_negatives(
        self, method: str, scale: float, shift: float
    ) -> None:
        predictor = predictor_of(scale, shift)
        train, valid = predictor.splits.train, predictor.splits.valid
        low, high = (0.0, 1.0) if scale == 1 else (train.weight.min(), train.weight.max())
        means = np.array([(train.weight[train.relation == kind].mean() - low) / (high - low) for kind in range(3)])
        share = (np.clip(valid.weight, low, high) - low) / (high - low)
        false = corrupt_graph(valid, np.concatenate([train.keys, valid.keys]), seed=5)
        assert len(false) == len(valid) == 200
        score, wrong = (predictor.score(graph.head, graph.relation, graph.tail) for graph in (valid, false))
        given_true = fit_curves(method, score, valid.relation, share, means, increasing=False)
        both = np.concatenate([score, wrong]), np.concatenate([valid.relation, false.relation])
        with_negatives = fit_curves(method, *both, np.concatenate([share, np.zeros(200)]), means, increasing=True)
        made = predictor.fit_calibration(method, seed=5)
        assert made is not None
        assert made.method == method
        for one, two in ((made.given_true, given_true), (made.with_negatives, with_negatives)):
            assert one.arrays.keys() == two.arrays.keys()
            for key in one.arrays:
                np.testing.assert_allclose(one.arrays[key], two.arrays[key], rtol=1e-9, atol=1e-12)

    def test_calibrated_weights_beat_the_mean_if_scores_are_informative(self) -> None:
        predictor = predictor_of()
        test, known = predictor.splits.test, predictor.known_keys()
        ids = test.head, test.relation, test.tail
        trivial = np.mean((predictor.splits.train.weight.mean() - test.weight) ** 2)
        error = np.mean((predictor.given_true(*ids) - test.weight) ** 2)
        assert error < 0.1 * trivial
        # The map that allows for false triples predicts lower weights, also for true ones.
        false = corrupt_graph(test, known, seed=3)
        wrong = false.head, false.relation, false.tail
        assert np.mean(predictor.with_negatives(*wrong) ** 2) < 0.8 * np.mean(predictor.given_true(*wrong) ** 2)
        assert error < np.mean((predictor.with_negatives(*ids) - test.weight) ** 2)

    @pytest.mark.parametrize(("scale", "shift"), [(4.0, 1.0), (-3.0, 2.0), (2e6, -1e6)])
    def test_expected_weights_are_in_any_unit(self, scale: float, shift: float) -> None:
        """Ratings, or weights that are negative: expected weights are in their unit, confidence in [0, 1]."""
        graph = known_model()[1]  # a split whose train has the lowest and the highest weight: both have the same range
        trains = (
            (seed, focuse.split(graph, valid_fraction=0.1, test_fraction=0.1, seed=seed).train.weight)
            for seed in range(100)
        )
        seed = next(seed for seed, weight in trains if (weight.min(), weight.max()) == (0, 1))
        plain, other = predictor_of(seed=seed), predictor_of(scale, shift, seed=seed)
        train, test = other.splits.train, other.splits.test
        score = other.score(test.head, test.relation, test.tail)
        ids = test.head, test.relation, test.tail
        expected, confidence = other.given_true(*ids), other.confidence(score, test.relation)
        assert (expected >= train.weight.min()).all()
        assert (expected <= train.weight.max()).all()
        assert np.mean((expected - test.weight) ** 2) < 0.1 * test.weight.var()
        assert ((confidence >= 0) & (confidence <= 1)).all()
        if scale > 0:
            np.testing.assert_allclose(expected, shift + scale * plain.given_true(*ids), rtol=1e-6)

    @pytest.mark.parametrize("name", ["ukge-logi", "ukge-rect"])
    @pytest.mark.parametrize("valid", [0.0, 0.1])
    def test_confidence_model_uses_its_own_confidence(self, name: str, valid: float) -> None:
        predictor = predictor_of(name=name, valid=valid)
        test = predictor.splits.test
        score = predictor.score(test.head, test.relation, test.tail)
        own = 1 / (1 + np.exp(-score)) if name == "ukge-logi" else np.clip(score, 0, 1)
        np.testing.assert_allclose(predictor.confidence(score, test.relation), own, atol=1e-12)
        low, high = (predictor.normalizer.arrays[key][test.relation] for key in ("low", "high"))
        np.testing.assert_allclose(
            predictor.native(test.head, test.relation, test.tail), low + (high - low) * own, atol=1e-12
        )
        if predictor.calibration is not None:  # the weight of a true triple is calibrated nevertheless
            assert not np.allclose(predictor.given_true(test.head, test.relation, test.tail), own, atol=0.05)

    def test_without_validation_there_is_no_calibration(self) -> None:
        predictor = predictor_of(valid=0.0)
        assert predictor.calibration is None
        relation = np.zeros(2, np.int32)
        with pytest.raises(FocuseError, match="no validation triples to calibrate on"):
            predictor.confidence(np.zeros(2), relation)
        with pytest.raises(FocuseError, match="no validation triples to calibrate on"):
            predictor.given_true(relation, relation, relation)

    def test_non_finite_scores_are_refused(self) -> None:
        predictor = predictor_of()
        predictor.scorer.tables["entity"][:, 0] = math.nan
        with pytest.raises(FocuseError, match="not finite: training diverged"):
            predictor.fit_calibration("isotonic")

    def test_validation_weight_beyond_the_unit_range_is_clipped(self) -> None:
        """Train in [.5, 1], one weight of validation above 1: it counts as 1, and no other weight moves."""
        predictor = predictor_of(0.5, 0.5)
        splits = predictor.splits
        valid = splits.valid
        valid.weight.flags.writeable = True
        valid.weight[0] = 1.5
        predictor = replace(predictor, calibration=predictor.fit_calibration("isotonic"))
        found = predictor.given_true(valid.head, valid.relation, valid.tail)
        valid.weight[0] = 1.0
        clipped = replace(predictor, calibration=predictor.fit_calibration("isotonic"))
        np.testing.assert_array_equal(found, clipped.given_true(valid.head, valid.relation, valid.tail))


# ---- relations in different units ----------------------------------------------------------------------------

RANGES = np.array([(0.0, 4.5), (1.0, 10.0), (155.0, 989.0)])


def in_ranges(graph: Graph, ranges: np.ndarray = RANGES) -> Graph:
    """Weights in [0, 1] in a unit for each relation."""
    low, high = ranges[graph.relation].T
    return replace(graph, weight=low + (high - low) * graph.weight)


def predicted(engine: AutogradEngine, graph: Graph, seed: int = 1) -> tuple[WeightPredictor, dict[str, np.ndarray]]:
    """Predict the test triples with a model that is given."""
    splits = focuse.split(graph, valid_fraction=0.3, test_fraction=0.2, seed=seed)
    held, _ = validation_parts(splits.valid, 0.5, 0)
    bare = WeightPredictor("distmult", engine, splits, fit_normalizer("relation", splits.train), held)
    known = replace(bare, calibration=bare.fit_calibration("isotonic"))
    known = replace(known, estimator=known.fit_estimator())
    test = splits.test
    return known, known.predict_unseen(test.head, test.relation, test.tail)


class TestUnits:
    @pytest.mark.parametrize("rows", [400, 2000])  # with too few edges for trees, and with enough
    def test_weights_and_bounds_stay_in_the_range_of_their_relation(self, rows: int) -> None:
        engine, graph = known_model()
        known, told = predicted(engine, in_ranges(graph).select(np.arange(rows)))
        train, test = known.splits.train, known.splits.test
        assert bool(known.estimator and known.estimator.trees) == (rows == 2000)
        errors = np.empty(len(test))  # in units of the standard deviation
        for kind in range(3):
            own, asked = train.weight[train.relation == kind], test.relation == kind
            for column in ("weight_mean", "weight_median", "weight_low", "weight_high"):
                assert (told[column][asked] >= own.min()).all()
                assert (told[column][asked] <= own.max()).all()
            errors[asked] = (told["weight_mean"][asked] - test.weight[asked]) / own.std()
            inside = (told["weight_low"] <= test.weight) & (test.weight <= told["weight_high"])
            assert inside[asked].mean() > 0.7
            assert np.mean((told["weight_high"] - told["weight_low"])[asked]) < 0.8 * np.ptp(own)
        assert np.mean(errors**2) < 0.3

    @pytest.mark.parametrize("rows", [400, 2000])
    @pytest.mark.slow
    def test_unit_of_one_relation_has_no_effect_on_another(self, rows: int) -> None:
        engine, graph = known_model()
        graph, factor = graph.select(np.arange(rows)), np.array([1.0, 1.0, 1000.0])
        test = predicted(engine, in_ranges(graph))[0].splits.test
        plain, other = (predicted(engine, in_ranges(graph, RANGES * size))[1] for size in (1, factor[:, None]))
        for column in ("weight_mean", "weight_median", "weight_low", "weight_high"):
            np.testing.assert_allclose(other[column], plain[column] * factor[test.relation], rtol=1e-6)

    def test_relation_with_small_weights_is_predicted_in_its_own_range(self) -> None:
        engine, graph = known_model()
        known, told = predicted(engine, in_ranges(graph, np.array([(0, 1), (0, 1), (0, 0.001)])))
        test = known.splits.test
        small = test.relation == 2
        assert max(told["weight_mean"][small].max(), told["weight_high"][small].max()) <= 0.001
        assert np.mean((told["weight_mean"] - test.weight)[small] ** 2) < 0.3 * test.weight[small].var()
        with_negatives = known.with_negatives(test.head, test.relation, test.tail)
        assert with_negatives[small].max() <= 0.001

    def test_lower_is_better_mirrors_weights_and_bounds(self) -> None:
        engine, graph = known_model()
        near, far = (predicted(engine, one)[1] for one in (in_ranges(graph), turned(in_ranges(graph))))
        for column, mirrored in {"mean": "mean", "median": "median", "low": "high", "high": "low"}.items():
            np.testing.assert_allclose(far[f"weight_{column}"], -near[f"weight_{mirrored}"], rtol=1e-6, atol=1e-6)

    def test_intervals_of_constant_width_are_in_units_of_the_relation(self) -> None:
        engine, graph = known_model()
        known, _ = predicted(engine, in_ranges(graph))
        test = known.splits.test
        assert known.estimator is not None
        rows = known.unit_weights(weight_predictor.conformal_rows(known.estimator, known.parts))
        estimates = weight_predictor._precompute(known.estimator, [test, rows])
        table = weight_predictor._intervals(known, estimates, test, rows, 0.9)
        assert table is not None
        for row in table.rows.values():
            assert row.coverage > 0.8
            assert row.width < np.ptp(RANGES, axis=1)[test.relation].mean()
        for one in table.relations:
            assert one.coverage.width < 0.8 * np.ptp(RANGES[test.relations.id(one.relation, "relation")])


def turned(graph: Graph) -> Graph:
    return replace(graph, weight=-graph.weight).with_lower_is_better(True)


# ---- a run ---------------------------------------------------------------------------------------------------


def stored(folder: Path) -> Calibration | None:
    """What the folder holds for its present tables."""
    return load_calibration(folder, fingerprint(folder), len(focuse.load(folder).graph.relations))


@pytest.fixture(scope="module")
def run(small: Graph) -> focuse.Run:
    return focuse.train(small, **QUICK)


@pytest.fixture
def folder(run: focuse.Run, tmp_path: Path) -> Path:
    """A finished run without a calibration."""
    own = copy.copy(run)  # the shared one is asked by other tests, and must not read what is stored in this folder
    own.fitted = FittedCache()
    own.save(tmp_path / "run")
    assert not (tmp_path / "run" / CALIBRATION_FILE).exists()
    return tmp_path / "run"


def bits(calibration: Calibration | None) -> dict[str, bytes]:
    assert calibration is not None
    parts = {"given_true": calibration.given_true, "with_negatives": calibration.with_negatives}
    return {f"{name}/{key}": array.tobytes() for name, part in parts.items() for key, array in part.arrays.items()}


def fresh(run: focuse.Run, method: str = "isotonic") -> dict[str, bytes]:
    held, _ = validation_parts(run.splits.valid, run.settings.stop_fraction, run.settings.seed)
    return bits(
        WeightPredictor(run.settings.model, run.scorer, run.splits, run.normalizer, held).fit_calibration(method)
    )


class Crash(BaseException):
    pass


class TestStoring:
    def test_calibration_is_fitted_once_and_then_read(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        loaded = focuse.load(folder)
        assert not (folder / CALIBRATION_FILE).exists()
        first = loaded.predict(head="e1", relation="r0")
        assert bits(stored(folder)) == fresh(loaded)
        written = (folder / CALIBRATION_FILE).stat().st_mtime_ns
        monkeypatch.setattr(WeightPredictor, "fit_calibration", lambda *_: pytest.fail("fitted again"))
        assert focuse.load(folder).predict(head="e1", relation="r0") == first == loaded.predict("e1", "r0")
        assert (folder / CALIBRATION_FILE).stat().st_mtime_ns == written
        assert all(row.weight_mean is not None and row.confidence is not None for row in first)

    def test_another_method_replaces_the_calibration(self, folder: Path) -> None:
        loaded = focuse.load(folder)
        loaded.predict(head="e1", relation="r0")
        made = loaded.calibrate("platt")
        assert made.method == "platt"
        again = focuse.load(folder).weight_predictor().calibration
        assert again is not None
        assert again.method == "platt"
        assert bits(again) == bits(loaded.weight_predictor().calibration) == fresh(loaded, "platt")
        with pytest.raises(FocuseError, match="unknown calibration 'isotone'"):
            loaded.calibrate("isotone")
        assert bits(stored(folder)) == bits(again)

    def test_unsaved_run_keeps_its_calibration_until_it_is_saved(self, small: Graph, tmp_path: Path) -> None:
        run = focuse.train(small, **QUICK)
        made = bits(run.calibrate("platt"))
        run.save(tmp_path / "run")
        assert bits(focuse.load(tmp_path / "run").weight_predictor().calibration) == made

    def test_more_epochs_make_a_stored_calibration_stale(self, folder: Path) -> None:
        before = bits(focuse.load(folder).weight_predictor().calibration)
        more = focuse.resume(folder, epochs=24, progress=False)
        assert not (folder / CALIBRATION_FILE).exists()
        after = bits(more.weight_predictor().calibration)
        assert after == fresh(more) != before
        assert bits(stored(folder)) == after

    def test_stale_run_does_not_write_calibration_into_a_newer_folder(self, folder: Path) -> None:
        old = focuse.load(folder)
        focuse.resume(folder, epochs=24, progress=False)
        old.weight_predictor()
        assert not old.fitted.calibration_stored
        assert not (folder / CALIBRATION_FILE).exists()
        new = focuse.load(folder)
        assert bits(new.weight_predictor().calibration) == fresh(new)
        assert new.fitted.calibration_stored

    def test_calibration_is_not_used_while_more_epochs_are_trained(
        self, small: Graph, tmp_path: Path, listen: Any
    ) -> None:
        """Killed in the middle of them, the run predicts with its checkpoint and stores nothing."""
        out = tmp_path / "run"
        run = focuse.train(small, out=out, **{**QUICK, "checkpoint_every": "1"})
        before = bits(run.weight_predictor().calibration)
        assert (out / CALIBRATION_FILE).exists()

        def crash(epoch: int, _: int) -> None:
            if epoch == 20:
                raise Crash

        listen(crash)
        with pytest.raises(Crash):
            focuse.resume(out, epochs=24)
        loaded = focuse.load(out)
        assert bits(loaded.weight_predictor().calibration) == fresh(loaded) != before
        assert not (out / CALIBRATION_FILE).exists()

    def test_an_unfinished_run_predicts_but_stores_nothing(self, small: Graph, tmp_path: Path, listen: Any) -> None:
        def crash(epoch: int, _: int) -> None:
            if epoch == 3:
                raise Crash

        listen(crash)
        with pytest.raises(Crash):
            focuse.train(small, out=tmp_path / "run", **{**QUICK, "checkpoint_every": "1"})
        loaded = focuse.load(tmp_path / "run")
        assert loaded.predict(head="e1", relation="r0")[0].confidence is not None
        loaded.calibrate("platt")
        assert not (tmp_path / "run" / CALIBRATION_FILE).exists()

    def test_finished_run_drops_calibration_of_earlier_tables(self, small: Graph, tmp_path: Path) -> None:
        """Killed while it was being extended, a run still has its old tables and their calibration."""
        out = tmp_path / "run"
        run = focuse.train(small, out=out, **QUICK)
        before = bits(run.weight_predictor().calibration)
        settings = (older(out) / "run.toml").read_text(encoding="utf-8")
        assert settings.count("\nepochs = 4\n") == 1
        (out / "run.toml").write_text(settings.replace("\nepochs = 4\n", "\nepochs = 24\n"), encoding="utf-8")
        more = focuse.resume(out, progress=False)
        assert len(more.history) > 4
        assert not (out / CALIBRATION_FILE).exists()
        assert bits(focuse.load(out).weight_predictor().calibration) == fresh(more) != before

    @pytest.mark.parametrize("fault", ["read-only", "full"])
    def test_read_only_folder_still_gives_weights(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, fault: str
    ) -> None:
        from safetensors import SafetensorError

        def no_space(*_: Any) -> None:
            raise SafetensorError("I/O error: No space left on device (os error 28)")

        expected = focuse.load(folder).predict(head="e1", relation="r0")
        (folder / CALIBRATION_FILE).unlink()
        touch = Path.touch
        # Tests may run as root, whom no folder refuses.
        refuse = PermissionError(13, "Permission denied")

        def denied(self: Path, *arguments: Any, **options: Any) -> None:
            if CALIBRATION_FILE in self.name:
                raise refuse
            touch(self, *arguments, **options)

        if fault == "full":
            monkeypatch.setattr("focuse.inference.fitted.write_arrays", no_space)
        else:
            monkeypatch.setattr(Path, "touch", denied)
        names = sorted(path.name for path in folder.iterdir())
        loaded = focuse.load(folder)
        assert loaded.predict(head="e1", relation="r0") == expected
        assert loaded.calibrate("platt").method == "platt"
        assert sorted(path.name for path in folder.iterdir()) == names

    def test_damaged_calibration_is_reported_and_can_be_refitted(self, folder: Path) -> None:
        (folder / CALIBRATION_FILE).write_bytes(b"damaged")
        loaded = focuse.load(folder)
        with pytest.raises(FocuseError) as error:
            loaded.predict(head="e1", relation="r0")
        assert str(folder / CALIBRATION_FILE) in str(error.value)
        loaded.calibrate()
        assert bits(focuse.load(folder).weight_predictor().calibration) == fresh(loaded)


@pytest.fixture(scope="module")
def bare(small: Graph) -> focuse.Run:
    """A run without validation."""
    return focuse.train(small, valid_fraction=0.0, **QUICK)


class TestWithoutValidation:
    def test_predictions_without_calibration_have_no_weights(self, bare: focuse.Run) -> None:
        found = bare.predict(head="e1", relation="r0", top=5)  # a link that is known has its own weight
        assert {(row.weight_mean, row.confidence) for row in found if not row.known} == {(None, None)}
        assert "≈" not in str(found)

    def test_weight_evaluation_without_validation_is_refused(self, bare: focuse.Run, tmp_path: Path) -> None:
        bare.save(tmp_path / "run")
        for ask in (bare.evaluate_weights, bare.calibrate, focuse.load(tmp_path / "run").evaluate_weights):
            with pytest.raises(FocuseError) as error:
                ask()
            assert str(error.value).startswith("the run has no validation triples to calibrate on; train with some")
        assert not (tmp_path / "run" / CALIBRATION_FILE).exists()

    def test_confidence_model_needs_no_validation(self, small: Graph) -> None:
        run = focuse.train(small, valid_fraction=0.0, model="ukge-rect", dim=8, epochs=2, progress=False)
        (row,) = run.predict(head="e1", relation="r0", top=1)
        assert row.weight_mean is None
        assert row.confidence == pytest.approx(min(max(row.score, 0.0), 1.0))
        assert list(run.evaluate_weights().rows) == ["ukge-rect", *TRIVIAL]


def strict(evaluation: Any) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(json.dumps(evaluation.to_dict(), allow_nan=False))
    return told


class TestWeightEvaluation:
    def test_evaluation_prints_a_table_per_protocol_and_ndcg(self, run: focuse.Run) -> None:
        judged = run.evaluate_weights()
        told = strict(judged)
        assert set(told) == {"protocols", "rows", "baselines", "threshold", "notes", "ndcg", "intervals"}
        assert told["protocols"] == PROTOCOLS
        assert list(told["rows"]) == ["complex, isotonic", *TRIVIAL]
        assert told["threshold"] == 0.85
        sizes = {"positives": 60, "clean": None, "with_negatives": 120, "negatives": 60}
        for name, row in told["rows"].items():
            for protocol, size in sizes.items():
                if name == TRIVIAL[-1] and "negatives" not in protocol:
                    assert protocol not in row  # it says 0 of facts that it cannot look up
                    continue
                assert {"n", "mse", "mae", "spearman", "reliability"} <= set(row[protocol])
                assert size is None or row[protocol]["n"] == size
            assert {"at_threshold", "fitted"} <= set(row["with_negatives"])
        assert list(told["ndcg"]) == ["complex", *TRIVIAL]
        assert all(set(gain) == {"queries", "linear", "exponential", "ties"} for gain in told["ndcg"].values())
        shown = str(judged)
        for words in [*PROTOCOLS.values(), "complex, isotonic", "nDCG", "linear", "exponential", "global mean"]:
            assert words in shown
        gain = told["ndcg"]["complex"]
        assert f"({gain['queries']:,} queries" in shown
        assert f"{gain['linear']:.4f}" in shown
        assert f"{gain['exponential']:.4f}" in shown

    def test_positives_and_negatives_use_different_curves(self, run: focuse.Run) -> None:
        test, predictor = run.splits.test, run.weight_predictor()
        known = np.concatenate([run.graph.keys, run.splits.valid.keys, test.keys])
        false = corrupt_graph(test, known, seed=0)
        wrong = predictor.with_negatives(false.head, false.relation, false.tail)
        right = predictor.with_negatives(test.head, test.relation, test.tail)
        off = np.concatenate([right - test.weight, wrong])
        row = strict(run.evaluate_weights())["rows"]["complex, isotonic"]
        assert row["with_negatives"]["mse"] == pytest.approx(np.mean(off**2))
        assert row["negatives"]["mae"] == pytest.approx(np.mean(wrong))
        given_true = predictor.given_true(test.head, test.relation, test.tail)
        assert row["positives"]["mse"] == pytest.approx(np.mean((given_true - test.weight) ** 2))

    def test_drawn_negatives_are_the_same_each_time(self, run: focuse.Run, folder: Path) -> None:
        assert (
            strict(run.evaluate_weights())
            == strict(run.evaluate_weights())
            == strict(focuse.load(folder).evaluate_weights())
        )

    def test_negatives_can_be_read_from_a_ukge_file(self, run: focuse.Run, tmp_path: Path) -> None:
        """`test_with_neg` holds test itself, too; strangers are passed over."""
        false = [("e1", "r0", "e2", 0.0), ("e3", "r1", "e4", 0.0), ("e5", "r2", "e6", 0.0)]
        path = tmp_path / "test_with_neg.tsv.gz"
        with gzip.open(path, "wt") as file:
            for row in [("e7", "r0", "e8", 0.9), *false, ("e9", "r1", "e1", 0.1), ("stranger", "r0", "e1", 0.0)]:
                file.write("\t".join(map(str, row)) + "\n")
        told, plain = strict(run.evaluate_weights(negatives=path)), strict(run.evaluate_weights(negatives=false))
        assert {**told, "notes": None} == {**plain, "notes": None}
        assert [note for note in told["notes"] if note not in plain["notes"]] == [
            f"{path}: 1 of 4 rows name 1 entity ('stranger') not in train; they have no embedding and are left out"
        ]
        ids = run.graph.entities.id, run.graph.relations.id
        h, r, t = (
            np.array([ids[column == 1](row[column], "name") for row in false], dtype=np.int64) for column in range(3)
        )
        row = told["rows"]["complex, isotonic"]["negatives"]
        assert row["n"] == 3
        assert row["mse"] == pytest.approx(np.mean(run.weight_predictor().with_negatives(h, r, t) ** 2))
        assert any(note.startswith("3 negatives and 60 positives; the protocol") for note in told["notes"])

    def test_ndcg_can_be_computed_from_a_file_of_queries(self, run: focuse.Run, small: Graph, tmp_path: Path) -> None:
        small.select(small.relation == 1).write(tmp_path / "queries.tsv")
        judged = run.evaluate_weights(ndcg_queries=tmp_path / "queries.tsv")
        expected = ndcg(run.scorer, focuse.read(tmp_path / "queries.tsv").align(run.graph).graph)
        assert judged.ndcg["complex"] == expected
        assert judged.ndcg["complex"].queries != run.evaluate_weights().ndcg["complex"].queries

    def test_another_test_graph_and_threshold_can_be_given(self, run: focuse.Run, small: Graph) -> None:
        part = small.select(np.arange(40))
        told = strict(run.evaluate_weights(part, strong_above=0.5))
        figures = told["rows"]["complex, isotonic"]["with_negatives"]
        assert figures["n"] == 80
        assert figures["at_threshold"]["strong"] == int((part.weight > 0.5).sum())
        assert told["threshold"] == 0.5

    @pytest.mark.parametrize("threshold", [-0.1, 1.01, math.nan, math.inf])
    def test_threshold_outside_the_unit_interval_is_refused(self, run: focuse.Run, threshold: float) -> None:
        with pytest.raises(FocuseError, match=r"strong_above .*: give a weight in \[0, 1\]"):
            run.evaluate_weights(strong_above=threshold)

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"negatives": [("e1", "r0", "e2", 0.5)]}, "no triple of weight 0 with names that train has"),
            ({"negatives": [("e1", "r0", "stranger", 0.0)]}, "no triple of weight 0 with names that train has"),
            ({"ndcg_queries": [("stranger", "r0", "e2", 0.5)]}, "no query with names that train has"),
            ({"test": [("stranger", "r0", "e2", 0.5)]}, "'stranger') not in train"),
        ],
    )
    def test_invalid_evaluation_options_are_refused(self, run: focuse.Run, given: dict[str, Any], says: str) -> None:
        with pytest.raises(FocuseError) as error:
            run.evaluate_weights(**given)
        assert says in str(error.value)

    def test_evaluation_without_a_test_split_is_refused(self, small: Graph) -> None:
        run = focuse.train(small, test_fraction=0.0, **QUICK)
        with pytest.raises(FocuseError, match="the run has no test split; give a test graph"):
            run.evaluate_weights()
        assert strict(run.evaluate_weights(small.select(np.arange(30))))["rows"]["global mean"]["positives"]["n"] == 30

    def test_unseen_names_in_test_are_reported(self, run: focuse.Run) -> None:
        judged = run.evaluate_weights([("e1", "r0", "e2", 0.5), ("e1", "r0", "stranger", 0.5)])
        assert any("stranger" in note for note in strict(judged)["notes"])

    def test_weights_beyond_the_unit_interval_have_errors_only(self, small: Graph) -> None:
        """From 1 to 5: errors in that unit, no negatives and no thresholds."""
        rated = Graph(
            *(getattr(small, name) for name in ("head", "relation", "tail")),
            1 + np.round(4 * small.weight),
            small.entities,
            small.relations,
            "rated",
        )
        run = focuse.train(rated, **QUICK)
        told = strict(run.evaluate_weights())
        assert set(told["protocols"]) == {"positives", "clean"}
        assert told["threshold"] is None
        assert any("weights outside [0, 1]" in note for note in told["notes"])
        test = run.splits.test
        expected = run.weight_predictor().given_true(test.head, test.relation, test.tail)
        assert told["rows"]["complex, isotonic"]["positives"]["mae"] == pytest.approx(
            np.mean(np.abs(expected - test.weight))
        )
        for row in run.predict(head="e1", relation="r0", top=40):
            assert row.weight_mean is not None
            assert row.confidence is not None
            assert 1 <= row.weight_mean <= 5
            assert 0 <= row.confidence <= 1

    def test_confidence_model_is_evaluated_with_and_without_calibration(self, small: Graph) -> None:
        run = focuse.train(small, model="ukge-logi", dim=8, epochs=3, lr=0.01, progress=False)
        told = strict(run.evaluate_weights())
        assert list(told["rows"]) == ["ukge-logi", "ukge-logi, isotonic", *TRIVIAL]
        test = run.splits.test
        score = run.weight_predictor().score(test.head, test.relation, test.tail)
        own = 1 / (1 + np.exp(-score))
        assert told["rows"]["ukge-logi"]["positives"]["mse"] == pytest.approx(np.mean((own - test.weight) ** 2))
        for row in run.predict(head="e1", relation="r0", top=5):
            assert row.confidence == pytest.approx(1 / (1 + math.exp(-row.score)), abs=1e-6)

    def test_files_without_weights_or_with_unseen_names_give_notes(self, run: focuse.Run) -> None:
        facts = [("e1", "r0", "e2", 0.5), ("e3", "r1", "e4", 0.0), ("e5", "r2", "e6", 0.0)]
        bare = strict(run.evaluate_weights([row[:3] for row in facts]))
        assert any("it has no weights, every weight is taken as 1" in note for note in bare["notes"])
        queries = strict(run.evaluate_weights(ndcg_queries=[facts[0], ("stranger", "r0", "e1", 0.5)]))
        assert any("stranger" in note for note in queries["notes"])
