"""Confidence models with inferred triples: sampled, stored, and resumed."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import torch
from older import older
from safetensors.numpy import load_file as load_arrays
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

import focuse
from focuse import FocuseError
from focuse.config import SETTINGS
from focuse.data.graph import from_columns
from focuse.engines.autograd import AutogradEngine
from focuse.errors import Stopped
from focuse.training.problem import TrainingProblem

SAMPLINGS = [each for each in SETTINGS["negative_sampling"].choices if each != "none"]

SETTINGS = {"dim": 6, "epochs": 6, "batch_size": 64, "lr": 1e-2, "num_negatives": 4, "eval_every": 2, "eval_start": 0}
HINTS = [("e1", "r0", "e5", 0.9), ("e3", "r1", "e4", 0.75), ("e5", "r2", "e5", 0.0)]
MODELS = ["ukge-logi", "ukge-rect"]


def train(graph, out, model="ukge-logi", hints=HINTS, **settings):
    given = {**SETTINGS, "model": model, "inferred_triples": hints, "out": out, "progress": False, **settings}
    if given.get("negative_sampling") == "all":
        given["num_negatives"] = None
    return focuse.train(graph, **given)


@pytest.fixture(scope="module")
def whole(small, tmp_path_factory):
    """Uninterrupted runs by model."""
    root, made = tmp_path_factory.mktemp("whole"), {}

    def get(model="ukge-logi"):
        if model not in made:
            made[model] = root / model
            train(small, made[model], model)
        return made[model]

    return get


def triples(graph):
    columns = [graph.head.tolist(), graph.relation.tolist(), graph.tail.tolist()]
    names = (graph.entities, graph.relations, graph.entities)
    columns = [[name[one] for one in column] for name, column in zip(names, columns, strict=True)]
    return list(zip(*columns, graph.weight.tolist(), strict=True))


class TestStored:
    def test_loaded_run_has_its_inferred_triples(self, whole):
        run = focuse.load(whole())
        assert triples(run.splits.inferred) == HINTS
        assert run.splits.inferred.entities is run.graph.entities
        assert run.splits.inferred.weighted

    def test_run_without_soft_logic_stores_no_inferred_triples(self, small, tmp_path):
        train(small, tmp_path / "run", hints=None)
        assert focuse.load(tmp_path / "run").splits.inferred is None
        assert not any(name.startswith("inferred") for name in load_arrays(tmp_path / "run" / "splits.safetensors"))

    def test_saving_writes_the_same_files_as_training_into_a_folder(self, small, whole, tmp_path):
        train(small, None).save(tmp_path / "saved")
        for name in ("model.safetensors", "run.toml", "splits.safetensors"):
            assert (tmp_path / "saved" / name).read_bytes() == (whole() / name).read_bytes()

    @pytest.mark.parametrize("model", MODELS)
    def test_loaded_model_scores_like_the_trained_one(self, small, model, whole):
        again, run = focuse.load(whole(model)), train(small, None, model)
        assert again.settings == run.settings
        assert again.scorer.tables.keys() == {"entity", "relation", "scale"}
        assert torch.equal(again.scorer.tables["scale"], run.scorer.tables["scale"])
        assert not torch.equal(again.scorer.tables["scale"], torch.tensor([1.0, 0.0]))
        assert again.evaluate().to_dict() == run.evaluate().to_dict()
        assert again.predict(head="e1", relation="r0") == run.predict(head="e1", relation="r0")

    def test_inferred_triples_are_not_marked_as_known(self, small, whole):
        """Prediction does not mark them as known."""
        run = focuse.load(whole())
        facts = {row[:3] for row in triples(small)}
        assert HINTS[0][:3] not in facts
        (found,) = [row for row in run.predict(head="e1", relation="r0", top=40) if row.tail == "e5"]
        assert not found.known


class TestResume:
    @pytest.mark.parametrize("step", [1, 11, 16])  # first batch, mid-epoch, the last batch of an epoch
    @pytest.mark.parametrize("model", MODELS)
    def test_resume_after_interrupt_gives_identical_tables(self, small, tmp_path, whole, listen, model, step):
        folder = tmp_path / "run"
        listen(lambda epoch, batches: os.kill(os.getpid(), signal.SIGINT) if batches == step else None)
        with pytest.raises(Stopped):
            train(small, folder, model)
        before = load_file(folder / "checkpoint.safetensors")
        assert {"table/scale", "optimizer/scale.exp_avg"} <= before.keys()
        listen()
        run = focuse.resume(folder)
        assert triples(run.splits.inferred) == HINTS
        one, two = (load_file(part / "checkpoint.safetensors") for part in (folder, whole(model)))
        assert one.keys() == two.keys() >= {"best/scale", "table/scale"}
        assert all(torch.equal(one[key], two[key]) for key in one)
        assert not torch.equal(before["table/scale"], one["table/scale"])
        for name in ("model.safetensors", "splits.safetensors"):
            assert (folder / name).read_bytes() == (whole(model) / name).read_bytes()

    def test_inferred_triples_change_the_result(self, small, tmp_path, whole, listen):
        """Resumed without them it would end elsewhere: the test above can fail."""
        train(small, tmp_path / "plain", hints=None)
        one, two = (load_file(part / "model.safetensors") for part in (tmp_path / "plain", whole()))
        assert not torch.equal(one["scale"], two["scale"])

    def test_resume_for_more_epochs_equals_a_longer_training(self, small, tmp_path, whole):
        train(small, tmp_path / "run", epochs=4)
        more = focuse.resume(tmp_path / "run", epochs=6, progress=False)
        one, two = (load_file(part / "checkpoint.safetensors") for part in (tmp_path / "run", whole()))
        assert all(torch.equal(one[key], two[key]) for key in two if key.startswith("table/"))
        assert len(more.history) == 6


class TestDamaged:
    @pytest.fixture
    def damaged(self, small, tmp_path):
        train(small, tmp_path / "run", epochs=1)
        return older(tmp_path / "run")

    def refused(self, folder, use):
        with pytest.raises(FocuseError) as error:
            use(folder)
        assert "\n" not in str(error.value)
        assert "Traceback" not in str(error.value)
        return str(error.value)

    def test_missing_column_of_inferred_triples_is_reported(self, damaged):
        path = damaged / "splits.safetensors"
        arrays = {name: value for name, value in load_arrays(path).items() if name != "inferred/tail"}
        save_arrays(arrays, path)
        assert "splits.safetensors: damaged file: 'inferred/tail' is missing" in self.refused(damaged, focuse.load)

    def test_inferred_id_beyond_the_vocabulary_is_reported(self, damaged):
        path = damaged / "splits.safetensors"
        arrays = load_arrays(path)
        arrays["inferred/head"] = np.full_like(arrays["inferred/head"], 40)
        save_arrays(arrays, path)
        assert "inferred/head has an id that is not in the vocabulary" in self.refused(damaged, focuse.load)

    @pytest.mark.parametrize("scale", [None, torch.ones(3)])
    def test_missing_or_misshapen_dense_tensor_is_reported(self, damaged, scale):
        path = damaged / "model.safetensors"
        tensors = {**load_file(path), "scale": scale}
        save_file({name: value for name, value in tensors.items() if value is not None}, path)
        assert "damaged run, or not of ukge-logi: table 'scale' is" in self.refused(damaged, focuse.load)

    def test_unsupported_run_format_is_reported(self, damaged):
        path = damaged / "run.toml"
        path.write_text(path.read_text().replace("format = 4", "format = 1"))
        assert "run format 1, this focuse" in self.refused(damaged, focuse.load)


# ---- what is learnt ------------------------------------------------------------------------------------------------

CONFIDENT = {"dim": 8, "epochs": 12, "batch_size": 64, "lr": 2e-2, "num_negatives": 8, "eval_every": 2, "eval_start": 4}
CONFIDENT |= {"filter_negatives": True, "valid_fraction": 0.05, "test_fraction": 0.05, "progress": False}
# Pairs of groups that are linked, and how strongly. Groups 1 and 2 are not, but rules may say so.
STRENGTH = {(0, 0): 0.9, (1, 1): 0.25, (0, 1): 0.6, (2, 3): 0.4}
GROUPED_HINTS = [(f"e{a}", "r", f"e{b}", 0.9) for a in range(1, 36, 4) for b in range(2, 36, 4)]


@pytest.fixture(scope="module")
def grouped():
    """Four hidden groups say who is linked with whom, and how strongly: nothing but that is to learn."""
    groups = [(a, b, tuple(sorted((a % 4, b % 4)))) for a in range(36) for b in range(36)]
    facts = [(f"e{a}", f"e{b}", STRENGTH[pair]) for a, b, pair in groups if pair in STRENGTH]
    head, tail, strength = zip(*facts, strict=True)
    noise = np.random.default_rng(0).normal(0, 0.03, len(facts))
    weight = np.round(np.clip(np.array(strength) + noise, 0, 1), 4)
    return from_columns(head, ["r"] * len(facts), tail, weight, "grouped")


@pytest.fixture(scope="module")
def confident(grouped):
    """`confident(model, hinted)`: trained once each."""
    made = {}

    def get(model, hinted=False):
        if (model, hinted) not in made:
            hints = GROUPED_HINTS if hinted else None
            made[model, hinted] = focuse.train(grouped, model=model, inferred_triples=hints, **CONFIDENT)
        return made[model, hinted]

    return get


def confidence_of(run, graph):
    """φ(w Σ h r t + b) in NumPy, from the run's tables."""
    entity, relation, scale = (run.scorer.tables[name].double().numpy() for name in ("entity", "relation", "scale"))
    f = scale[0] * (entity[graph.head] * relation[graph.relation] * entity[graph.tail]).sum(1) + scale[1]
    return 1 / (1 + np.exp(-f)) if run.settings.model == "ukge-logi" else np.clip(f, 0, 1)


def same(one, other):
    return all(torch.equal(one.scorer.tables[name], other.scorer.tables[name]) for name in one.scorer.tables)


@pytest.mark.parametrize("model", MODELS)
class TestConfidence:
    def test_confidence_beats_the_relation_mean_on_validation(self, confident, model):
        run = confident(model)
        valid, train = run.splits.valid, run.graph
        trivial = np.mean((train.weight.mean() - valid.weight) ** 2)
        assert np.mean((confidence_of(run, valid) - valid.weight) ** 2) < 0.7 * trivial

    def test_dense_tensors_are_trained_and_restored_to_the_best_epoch(self, confident, model):
        run = confident(model)
        assert np.abs(run.scorer.tables["scale"].numpy() - [1.0, 0.0]).min() > 0.01
        assert not torch.equal(run.last.best["scale"], run.last.tables["scale"])
        assert torch.equal(run.scorer.tables["scale"], run.last.best["scale"])

    def test_epoch_with_lowest_validation_error_is_kept(self, confident, model):
        run = confident(model)
        looks = {row["epoch"]: row["valid_mse"] for row in run.history if "valid_mse" in row}
        assert list(looks) == [4, 6, 8, 10, 12]
        at = run.last.progress
        assert (at.best_epoch, -at.best_value) == min(looks.items(), key=lambda look: look[1])
        assert at.best_epoch < 12
        assert not any("valid_mrr" in row for row in run.history)

    def test_inferred_triples_get_higher_confidence(self, confident, model):
        plain, hinted = confident(model), confident(model, True)
        graph = hinted.splits.inferred
        assert len(graph) == len(GROUPED_HINTS)
        assert confidence_of(hinted, graph).mean() > confidence_of(plain, graph).mean() + 0.2
        valid = plain.splits.valid  # and what is known is still known
        errors = [np.mean((confidence_of(run, valid) - valid.weight) ** 2) for run in (plain, hinted)]
        assert errors[1] < 2 * errors[0]

    def test_same_seed_gives_identical_tables(self, grouped, confident, model):
        first = confident(model, True)
        assert same(first, focuse.train(grouped, model=model, inferred_triples=GROUPED_HINTS, **CONFIDENT))
        other = {**CONFIDENT, "epochs": 1, "eval_start": 0}
        one, two = (
            focuse.train(grouped, model=model, inferred_triples=GROUPED_HINTS, seed=seed, **other) for seed in (0, 1)
        )
        assert not torch.equal(one.scorer.tables["scale"], two.scorer.tables["scale"])

    def test_soft_logic_weight_zero_changes_nothing(self, grouped, confident, model):
        weightless = focuse.train(
            grouped, model=model, inferred_triples=GROUPED_HINTS, rule_loss_weight=0.0, **CONFIDENT
        )
        assert same(weightless, confident(model))
        assert not same(confident(model, True), confident(model))

    @pytest.mark.parametrize("sampling", SAMPLINGS)
    @pytest.mark.parametrize("optimizer", ["adam", "sparse-adagrad"])
    def test_every_sampling_trains_with_inferred_triples(self, small, model, sampling, optimizer):
        hints = [("e1", "r0", "e2", 0.9), ("e3", "r1", "e4", 0.7)]
        settings = {
            "negative_sampling": sampling,
            "optimizer": optimizer,
            "lr": 5e-2 if optimizer == "sparse-adagrad" else 1e-2,
        }
        run = train(small, None, model, hints, **settings)
        losses = [row["loss"] for row in run.history]
        assert losses[-1] < losses[0]
        assert {row["beta"] for row in run.history} == {None}


class TestSampling:
    def seen(self, monkeypatch, graph, **settings):
        """The hints that reached each step, as rows (head, tail, confidence)."""
        steps, step = [], AutogradEngine.step

        def spy(self, given):
            hints = given.auxiliary
            columns = () if hints is None else (hints.head, hints.tail, hints.weight)
            steps.append(list(zip(*(column.tolist() for column in columns), strict=True)))
            return step(self, given)

        monkeypatch.setattr(AutogradEngine, "step", spy)
        return steps, focuse.train(
            graph, **{**CONFIDENT, "model": "ukge-logi", "epochs": 2, "engine": "torch", **settings}
        )

    def test_each_batch_draws_its_own_sample_of_inferred_triples(self, grouped, monkeypatch):
        steps, run = self.seen(monkeypatch, grouped, inferred_triples=GROUPED_HINTS, rule_batch_size=80)
        assert {len(step) for step in steps} == {80}
        assert len({tuple(step) for step in steps}) == len(steps) == 2 * -(-len(run.graph) // 64)
        graph = run.splits.inferred
        given = set(
            zip(graph.head.tolist(), graph.tail.tolist(), graph.weight.astype(np.float32).tolist(), strict=True)
        )
        drawn = [hint for step in steps for hint in step]
        assert set(drawn) == given  # 81 of them, drawn 1,120 times
        assert max(drawn.count(hint) for hint in given) < 35

    def test_default_sample_size_is_64_even_with_fewer_inferred_triples(self, grouped, monkeypatch):
        steps, _ = self.seen(monkeypatch, grouped, inferred_triples=GROUPED_HINTS[:2])
        assert {len(step) for step in steps} == {64}

    def test_without_soft_logic_no_inferred_triples_are_drawn(self, grouped, monkeypatch):
        assert not any(self.seen(monkeypatch, grouped)[0])

    def test_inferred_triples_have_their_own_random_stream(self, grouped, monkeypatch):
        """Inferred triples have a random stream of their own: none of their rows follows from a negative."""
        drawn, sample = [], TrainingProblem._auxiliary

        def spy(self, seed):
            negatives = self.negative_sampler(self.triple_store, seed)[0].entities.flatten()[:64]
            drawn.append(torch.corrcoef(torch.stack([negatives, sample(self, seed).head]).double())[0, 1])
            return sample(self, seed)

        monkeypatch.setattr(TrainingProblem, "_auxiliary", spy)
        focuse.train(grouped, **{**CONFIDENT, "model": "ukge-logi", "epochs": 2}, inferred_triples=GROUPED_HINTS)
        assert abs(float(torch.stack(drawn).mean())) < 0.15
