"""Calibration curves, compared with scikit-learn and formulas, and their file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from sklearn.isotonic import IsotonicRegression

from focuse.errors import FocuseError
from focuse.inference.calibration import METHODS, Calibration, Curves, fit_curves
from focuse.inference.fitted import CALIBRATION_FILE, LAYOUT, fingerprint, load_calibration, save_calibration

COUNTS = (60, 12, 5, 4, 0)  # rows of each relation; the last two have no curve of their own
MEANS = np.array([0.5, 0.7, 0.3, 0.9, 0.6])


def rows(seed: int = 0, way: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, relations and shares [81]: shares follow scores, upward or downward, with noise."""
    random = np.random.default_rng(seed)
    relation = random.permutation(np.repeat(np.arange(len(COUNTS)), COUNTS)).astype(np.int32)
    score = random.normal(2.0, 3.0, len(relation))
    share = 1 / (1 + np.exp(-way * (score - 2) / 2)) + random.normal(0, 0.15, len(relation))
    return score, relation, np.clip(share, 0, 1)


def least_squares(score: np.ndarray, share: np.ndarray) -> np.ndarray:
    """The rising curve at its own rows, by its min-max formula: max over a ≤ i of min over b ≥ i of mean(a … b)."""
    order = np.argsort(score)
    sums = np.concatenate([[0], np.cumsum(share[order])])
    n = len(score)
    best = [
        max(min((sums[b + 1] - sums[a]) / (b + 1 - a) for b in range(i, n)) for a in range(i + 1)) for i in range(n)
    ]
    found = np.empty(n)
    found[order] = best
    return found


def newton(score: np.ndarray, share: np.ndarray) -> tuple[float, float]:
    """Slope and shift of least Σ −w log p − (1 − w) log(1 − p) + ½ slope², of standardized scores."""
    middle, spread = score.mean(), score.std()
    design = np.stack([(score - middle) / spread, np.ones(len(score))], 1)
    at, ridge = np.zeros(2), np.diag([1.0, 0.0])
    for _ in range(50):
        p = 1 / (1 + np.exp(-design @ at))
        at -= np.linalg.solve((design * (p * (1 - p))[:, None]).T @ design + ridge, design.T @ (p - share) + ridge @ at)
    return at[0] / spread, at[1] - at[0] / spread * middle


def curve(method: str, score: np.ndarray, share: np.ndarray, at: np.ndarray, rising: bool) -> np.ndarray:
    """One curve at other scores, without the library's code."""
    if method == "platt":
        slope, shift = newton(score, share)
        return 1 / (1 + np.exp(-(slope * at + shift)))
    fitted = IsotonicRegression(y_min=0, y_max=1, increasing=rising, out_of_bounds="clip")
    return fitted.fit(score, share).predict(at)


class TestCurves:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize(("way", "increasing"), [(1, True), (1, False), (-1, False)])
    def test_curve_of_a_relation_blends_its_own_and_the_pooled_fit(
        self, method: str, way: int, increasing: bool
    ) -> None:
        score, relation, share = rows(way=way)
        fitted = fit_curves(method, score, relation, share, MEANS, increasing)
        at = np.linspace(-12, 16, 101)  # beyond the fitted scores, too
        typical = np.mean(MEANS[relation])
        for kind, count in enumerate(COUNTS):
            own = relation == kind
            trust = count / (count + 50) if count >= 5 else 0.0
            expected = np.clip(curve(method, score, share, at, way > 0) * MEANS[kind] / typical, 0, 1) * (1 - trust)
            if trust:
                # The direction of a few rows is theirs.
                rising = increasing or np.corrcoef(np.argsort(np.argsort(score[own])), share[own])[0, 1] > 0
                expected += trust * curve(method, score[own], share[own], at, rising)
            found = fitted(at, np.full(len(at), kind, np.int32))
            np.testing.assert_allclose(found, expected, atol=1e-12 if method == "isotonic" else 2e-3)
            assert fitted.arrays["trust"][kind] == trust

    def test_isotonic_has_the_least_squared_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With full trust in one relation, at its own rows: the curve by its min-max formula."""
        monkeypatch.setattr("focuse.inference.calibration.HALF_TRUST_ROWS", 0)
        score, relation, share = rows()
        score, share = score[relation == 0], share[relation == 0]
        kinds = np.zeros(len(score), np.int32)
        for way in (1, -1):
            fitted = fit_curves("isotonic", way * score, kinds, share, MEANS[:1], increasing=False)
            np.testing.assert_allclose(fitted(way * score, kinds), least_squares(score, share), atol=1e-12)

    def test_mixed_relations_give_the_values_of_each_relation(self) -> None:
        score, relation, share = rows()
        for method in METHODS:
            fitted = fit_curves(method, score, relation, share, MEANS, increasing=True)
            whole = fitted(score, relation)
            for i in range(len(score)):
                assert fitted(score[i : i + 1], relation[i : i + 1])[0] == whole[i]
            assert fitted(score[:0], relation[:0]).shape == (0,)

    @pytest.mark.parametrize("method", METHODS)
    def test_curves_with_negatives_never_fall_and_others_may(self, method: str) -> None:
        score, _, share = rows(way=-1)
        kinds, at = np.zeros(len(score), np.int32), np.linspace(-9, 13, 200)
        kinds_at = np.zeros(len(at), np.int32)
        given_true = fit_curves(method, score, kinds, share, np.array([0.5]), increasing=False)(at, kinds_at)
        with_negatives = fit_curves(method, score, kinds, share, np.array([0.5]), increasing=True)(at, kinds_at)
        assert (np.diff(given_true) <= 1e-12).all()
        assert given_true[0] - given_true[-1] > 0.5
        # A rising curve of falling rows is flat: their mean.
        np.testing.assert_allclose(with_negatives, share.mean(), atol=1e-9)

    @settings(max_examples=25)
    @given(st.integers(0, 10_000), st.sampled_from(METHODS))
    def test_curves_stay_in_the_unit_range_and_rise_with_negatives(self, seed: int, method: str) -> None:
        random = np.random.default_rng(seed)
        n, kinds = int(random.integers(1, 60)), int(random.integers(1, 4))
        score = np.round(random.normal(0, 10.0 ** random.integers(-3, 4), n), 2)  # some are equal
        relation, share = random.integers(0, kinds, n), random.choice([0.0, 0.2, 0.9, 1.0], n)
        means = random.random(kinds)  # far from validation's
        at = np.sort(np.concatenate([score, random.normal(0, 1e4, 50)]))
        for increasing in (False, True):
            fitted = fit_curves(method, score, relation, share, means, increasing)
            for kind in range(kinds):
                found = fitted(at, np.full(len(at), kind))
                assert (found >= 0).all()
                assert (found <= 1).all()
                assert not increasing or (np.diff(found) >= -1e-12).all()

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("share", [0.0, 1.0])
    def test_constant_weights_give_a_constant_curve(self, method: str, share: float) -> None:
        score, relation, _ = rows()
        shares = np.full(len(score), share)
        fitted = fit_curves(method, score, relation, shares, np.full(5, share), increasing=False)
        np.testing.assert_allclose(fitted(score, relation), share, atol=1e-3)

    @pytest.mark.parametrize("method", METHODS)
    def test_constant_scores_give_the_mean_weight(self, method: str) -> None:
        _, relation, share = rows()
        score = np.full(len(share), 3.0)
        fitted = fit_curves(method, score, np.zeros_like(relation), share, np.array([0.5]), increasing=True)
        np.testing.assert_allclose(fitted(np.array([-1.0, 3.0, 9.0]), np.zeros(3, int)), share.mean(), atol=1e-3)

    def test_unknown_method_suggests_the_nearest(self) -> None:
        score, relation, share = rows()
        with pytest.raises(FocuseError, match=r"unknown calibration 'plat' \(did you mean platt"):
            fit_curves("plat", score, relation, share, MEANS, increasing=True)


def made(method: str = "isotonic") -> Calibration:
    score, relation, share = rows()
    given_true: Curves = fit_curves(method, score, relation, share, MEANS, increasing=False)
    return Calibration(method, given_true, fit_curves(method, score, relation, share / 2, MEANS, increasing=True))


TABLES = "t"


class TestFile:
    @pytest.mark.parametrize("method", METHODS)
    def test_saved_calibration_is_loaded_bit_by_bit(self, method: str, tmp_path: Path) -> None:
        one = made(method)
        save_calibration(one, tmp_path, TABLES)
        two = load_calibration(tmp_path, TABLES, len(MEANS))
        assert two is not None
        assert two.method == two.given_true.method == two.with_negatives.method == method
        for part in ("given_true", "with_negatives"):
            before, after = getattr(one, part).arrays, getattr(two, part).arrays
            assert before.keys() == after.keys()
            assert all(before[key].tobytes() == after[key].tobytes() for key in before)
        score, relation, _ = rows(seed=1)
        assert two.given_true(score, relation).tobytes() == one.given_true(score, relation).tobytes()
        assert two.with_negatives(score, relation).tobytes() == one.with_negatives(score, relation).tobytes()
        assert two.given_true(score, relation).tobytes() != two.with_negatives(score, relation).tobytes()

    def test_file_contains_only_numbers_and_metadata(self, tmp_path: Path) -> None:
        save_calibration(made(), tmp_path, TABLES)
        assert [path.name for path in tmp_path.iterdir()] == [CALIBRATION_FILE]
        with safe_open(tmp_path / CALIBRATION_FILE, framework="np") as file:
            about = {"method": "isotonic", "tables": TABLES, "layout": LAYOUT}
            assert file.metadata() == {"calibration": json.dumps(about), "crc32": file.metadata()["crc32"]}
        assert {values.dtype for values in load_file(tmp_path / CALIBRATION_FILE).values()} == {np.dtype(np.float64)}

    def test_missing_file_gives_none(self, tmp_path: Path) -> None:
        assert load_calibration(tmp_path, TABLES, len(MEANS)) is None

    def test_damaged_file_is_reported(self, tmp_path: Path) -> None:
        save_calibration(made(), tmp_path, TABLES)
        path = tmp_path / CALIBRATION_FILE
        whole, arrays = path.read_bytes(), load_file(path)
        for damaged in (b"", b"junk", whole[:100], whole[:-8], b"\xff" * len(whole)):
            path.write_bytes(damaged)
            self.refused(path)
        other = '{"method": "pickle", "tables": "t"}'
        for metadata in (None, {"other": "{}"}, {"calibration": "{"}, {"calibration": other}):
            save_file(arrays, path, metadata)
            self.refused(path)

    @pytest.mark.parametrize("left_out", ["facts/trust", "doubting/ratio", "facts/offsets", "doubting/share"])
    def test_missing_array_is_reported(self, left_out: str, tmp_path: Path) -> None:
        save_calibration(made(), tmp_path, TABLES)
        arrays = load_file(tmp_path / CALIBRATION_FILE)
        del arrays[left_out]
        save_file(
            arrays, tmp_path / CALIBRATION_FILE, {"calibration": json.dumps({"method": "isotonic", "tables": TABLES})}
        )
        self.refused(tmp_path / CALIBRATION_FILE)

    @pytest.mark.parametrize(
        ("method", "change"),
        [
            ("isotonic", {"facts/trust": np.full(len(MEANS) - 1, 0.5)}),
            ("isotonic", {"doubting/ratio": np.full(len(MEANS), np.nan)}),
            ("isotonic", {"facts/share": "scaled"}),
            ("isotonic", {"facts/score": "shorter"}),
            ("isotonic", {"facts/offsets": "shorter"}),
            ("isotonic", {"facts/offsets": "turned"}),
            ("platt", {"doubting/slope": "shorter"}),
            ("platt", {"facts/shift": "infinite"}),
        ],
    )
    def test_inconsistent_arrays_are_reported(self, method: str, change: dict, tmp_path: Path) -> None:
        save_calibration(made(method), tmp_path, TABLES)
        arrays = load_file(tmp_path / CALIBRATION_FILE)
        ways = {
            "scaled": lambda array: array * 50,
            "shorter": lambda array: array[:-1].copy(),
            "turned": lambda array: array[::-1].copy(),
            "infinite": lambda array: np.where(np.arange(len(array)) == 1, np.inf, array),
        }
        for name, how in change.items():
            arrays[name] = ways[how](arrays[name]) if isinstance(how, str) else how
        save_file(
            arrays, tmp_path / CALIBRATION_FILE, {"calibration": json.dumps({"method": method, "tables": TABLES})}
        )
        self.refused(tmp_path / CALIBRATION_FILE)

    def test_calibration_of_other_tables_is_ignored(self, tmp_path: Path) -> None:
        save_calibration(made(), tmp_path, "others")
        assert load_calibration(tmp_path, TABLES, len(MEANS)) is None

    def test_fingerprint_distinguishes_tables(self, tmp_path: Path) -> None:
        assert fingerprint(tmp_path) == ""
        found = set()
        for content in (b"a" * 3_000_000, b"a" * 2_999_999 + b"b", b"b" + b"a" * 2_999_999, b"a" * 2_999_999, b""):
            (tmp_path / "model.safetensors").write_bytes(content)
            found.add(fingerprint(tmp_path))
            assert fingerprint(tmp_path) in found
        assert len(found) == 5

    @staticmethod
    def refused(path: Path) -> None:
        with pytest.raises(FocuseError) as error:
            load_calibration(path.parent, TABLES, len(MEANS))
        assert str(path) in str(error.value)
        assert "damaged" in str(error.value)
        assert "remove it" in str(error.value)
        assert "\n" not in str(error.value)
