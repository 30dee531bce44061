"""The label exponent is chosen on validation: largest ΔMRR without loss of top MRR."""

from __future__ import annotations

import json

import numpy as np
import pytest

import focuse
from focuse.data.graph import from_columns
from focuse.engines.fused_cpu import FusedCpuEngine
from focuse.errors import FocuseError, Stopped
from focuse.storage.run_folder import RunFolder
from focuse.training import label_exponent as module
from focuse.training.callbacks import Reporter
from focuse.training.label_exponent import FILE, LabelExponentTrial, read_trials, select_label_exponent, write_trials

QUICK = {"model": "distmult", "weight_mode": "soft-labels", "dim": 8, "epochs": 10, "progress": False}


@pytest.fixture(scope="module")
def planted() -> focuse.Graph:
    """Entities of the same group are linked, heavily; other links are light and by chance."""
    random = np.random.default_rng(3)
    head, tail = random.integers(0, 200, (2, 20_000))
    near = head % 6 == tail % 6
    kept = near | (random.random(20_000) < 0.15)
    weight = np.where(near, 0.8, 0.1) + random.random(20_000) * 0.15
    names = [np.char.add("e", column[kept].astype(str)) for column in (head, tail)]
    return from_columns(names[0].tolist(), ["r"] * int(kept.sum()), names[1].tolist(), weight[kept])


class Notes(Reporter):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        self.texts.append(text)


class Passing(float):
    """A deadline that passes when a test says so."""

    passed = False

    def __lt__(self, time: float) -> bool:
        return self.passed


class TestBest:
    def test_best_exponent_has_the_largest_delta_mrr_within_tolerance(self):
        looks = [
            LabelExponentTrial(0, 0.9, 0.0),
            LabelExponentTrial(1, 0.895, 0.2),
            LabelExponentTrial(2, 0.891, 0.5),
            LabelExponentTrial(4, 0.889, 0.8),
        ]
        assert select_label_exponent(looks) == 2

    def test_best_exponent_is_zero_if_every_other_lowers_top_mrr(self):
        assert select_label_exponent([LabelExponentTrial(0, 0.9, 0.1), LabelExponentTrial(1, 0.8, 0.5)]) == 0

    def test_exponents_with_similar_delta_mrr_are_decided_by_top_mrr(self):
        assert (
            select_label_exponent(
                [
                    LabelExponentTrial(0, 0.27, 0.1),
                    LabelExponentTrial(2, 0.31, 0.256),
                    LabelExponentTrial(8, 0.272, 0.258),
                ]
            )
            == 2
        )

    def test_smaller_exponent_wins_with_a_larger_delta_mrr(self):
        assert (
            select_label_exponent(
                [LabelExponentTrial(0, 0.5, 0.1), LabelExponentTrial(1, 0.6, 0.4), LabelExponentTrial(2, 0.6, 0.3)]
            )
            == 1
        )


class TestChoosing:
    def test_chosen_exponent_is_the_best_trial_and_trials_are_stored(self, planted, tmp_path):
        notes = Notes()
        run = focuse.train(planted, out=tmp_path / "run", **{**QUICK, "progress": notes})
        assert run.settings.weight_mode == "soft-labels"
        assert [look.label_exponent for look in run.label_exponent_trials[:2]] == [0.0, 1.0]
        assert run.settings.label_exponent == select_label_exponent(run.label_exponent_trials)
        assert len([text for text in notes.texts if text.startswith(("without weights:", "label exponent "))]) == len(
            run.label_exponent_trials
        )
        assert sum(text.startswith("Label exponent ") and "selected on" in text for text in notes.texts) == 1
        again = focuse.load(tmp_path / "run")
        assert (
            again.label_exponent_trials
            == run.label_exponent_trials
            == focuse.resume(tmp_path / "run", epochs=11, progress=False).label_exponent_trials
        )
        assert again.settings.label_exponent == run.settings.label_exponent

    def test_notes_of_a_training_are_not_repeated_by_its_trials(self, planted, monkeypatch):
        notes = Notes()
        monkeypatch.setattr(module, "CANDIDATE_EXPONENTS", (1.0,))
        monkeypatch.setattr(FusedCpuEngine, "unsupported_reason", lambda *_: "a note")
        focuse.train(planted, **{**QUICK, "progress": notes})
        assert sum("a note" in text for text in notes.texts) == 1

    def test_given_exponent_runs_no_trials(self, planted):
        run = focuse.train(planted, label_exponent=3.0, **QUICK)
        assert (run.settings.label_exponent, run.label_exponent_trials) == (3.0, [])

    def test_trials_stop_once_an_exponent_lowers_top_mrr_too_much(self, planted, monkeypatch):
        found = iter([0.9, 0.91, 0.85, 0.99])
        monkeypatch.setattr(
            module,
            "_trials",
            lambda *_: (LabelExponentTrial(sharp, next(found), sharp / 100) for sharp in (0.0, 1.0, 2.0, 4.0)),
        )
        run = focuse.train(planted, **QUICK)
        assert [look.label_exponent for look in run.label_exponent_trials] == [0.0, 1.0, 2.0]
        assert run.settings.label_exponent == 1.0

    def test_deadline_during_trials_stops_and_resuming_continues_after_the_last_trial(
        self, planted, tmp_path, monkeypatch
    ):
        whole = focuse.train(planted, out=tmp_path / "whole", **QUICK)
        trials, made, deadline = module._trials, [], Passing()

        def counted(*arguments):
            for trial in trials(*arguments):
                made.append(trial)
                yield trial
                deadline.passed = True

        monkeypatch.setattr(module, "_trials", counted)
        with pytest.raises(Stopped, match="stopped while choosing the label exponent; continue with: focuse train"):
            focuse.train(planted, deadline=deadline, out=tmp_path / "run", **QUICK)
        assert [trial.label_exponent for trial in made] == [0.0]
        with pytest.raises(FocuseError, match="nothing trained yet; continue with: focuse train --resume"):
            focuse.load(tmp_path / "run")
        again = focuse.resume(tmp_path / "run", progress=False)
        assert made == again.label_exponent_trials == whole.label_exponent_trials
        model = (tmp_path / "run" / "model.safetensors").read_bytes()
        assert model == (tmp_path / "whole" / "model.safetensors").read_bytes()

    def test_small_validation_set_gives_the_default_exponent(self, small):
        notes = Notes()
        run = focuse.train(small, **{**QUICK, "progress": notes})
        assert run.settings.label_exponent == module.DEFAULT_EXPONENT
        assert any("too few to choose a label exponent" in text for text in notes.texts)

    @pytest.mark.slow
    def test_trials_use_only_the_stopping_part_of_validation(self, planted, monkeypatch):
        seen = []
        measure = module.evaluate
        monkeypatch.setattr(
            module, "evaluate", lambda engine, test, *more: seen.append(test.graph) or measure(engine, test, *more)
        )
        run = focuse.train(planted, **QUICK)
        from focuse.data.splits import split_validation

        held = split_validation(run.splits.valid, run.settings.stop_fraction, run.settings.seed)
        assert seen
        for graph in seen:
            assert set(graph.keys) <= set(held.stopping.keys)
            assert not set(graph.keys) & (set(held.calibration.keys) | set(held.conformal.keys))

    @pytest.mark.slow
    def test_same_seed_gives_the_same_choice_and_identical_tables(self, planted):
        one, other = (focuse.train(planted, seed=4, **QUICK) for _ in range(2))
        assert one.label_exponent_trials == other.label_exponent_trials
        assert (one.scorer.tables["entity"] == other.scorer.tables["entity"]).all()


class TestFile:
    def test_written_trials_are_read_back(self, tmp_path):
        looks = [LabelExponentTrial(0.0, 0.5, 0.1), LabelExponentTrial(2.0, 0.6, 0.4)]
        write_trials(RunFolder(tmp_path), looks)
        assert read_trials(RunFolder(tmp_path)) == looks

    def test_no_trials_write_no_file(self, tmp_path):
        write_trials(RunFolder(tmp_path), [])
        assert not (tmp_path / FILE).exists()
        assert read_trials(RunFolder(tmp_path)) == []

    def test_folder_in_place_of_the_file_is_reported(self, tmp_path):
        (tmp_path / FILE).mkdir()
        with pytest.raises(FocuseError, match="damaged file"):
            read_trials(RunFolder(tmp_path))

    @pytest.mark.parametrize(
        "text",
        [
            "{",
            json.dumps([{"label_exponent": 1}]),
            "[3]",
            '[{"label_exponent": 1.0, "top_mrr": "x", "delta_mrr": 0.1}]',
            "[" * 100_000,
        ],
    )
    def test_damaged_file_of_trials_is_reported(self, tmp_path, text):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(FocuseError, match="damaged file"):
            read_trials(RunFolder(tmp_path))
