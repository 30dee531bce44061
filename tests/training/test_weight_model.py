"""The weight model: its loss, its training in every engine, and the order of likely and strong links."""

import json
import shutil
import signal
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import focuse
from focuse import api
from focuse.config import Config
from focuse.data.datasets import careers
from focuse.data.graph import Graph
from focuse.data.splits import split
from focuse.engines.scorer import StrengthScorer
from focuse.errors import FocuseError, Stopped
from focuse.evaluation import preference as preferences
from focuse.evaluation.preference import Preference, PreferenceTrial, choose_preference
from focuse.objective.losses import WeightCrossEntropy
from focuse.training.callbacks import Reporter

SMALL: dict[str, Any] = {"dim": 16, "epochs": 6, "device": "cpu", "progress": False}
Tables = Mapping[str, torch.Tensor]


def small_graph(rows: int = 600, seed: int = 0, entities: int = 30) -> Graph:
    """Return a graph whose weights follow from its entities."""
    random = np.random.default_rng(seed)
    head, tail = random.integers(0, entities, rows), random.integers(0, entities, rows)
    strength = random.random(entities)
    weight = np.round((strength[head] + strength[tail]) / 2, 3)
    return focuse.read([(f"e{h}", f"r{(h + t) % 3}", f"e{t}", w) for h, t, w in zip(head, tail, weight, strict=True)])


def equal(first: Tables, second: Tables) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# ---- the loss -------------------------------------------------------------------------------------------------------


def test_the_loss_is_the_cross_entropy_of_the_weight_and_its_slope_is_the_error() -> None:
    score = torch.tensor([-3.0, -0.2, 0.0, 1.5, 40.0], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor([0.0, 0.3, 0.5, 1.0, 0.9], dtype=torch.float64)
    loss = WeightCrossEntropy()(score, torch.empty(5, 0), weight, None, 1.0)
    s, w, p = score.detach().numpy()[:4], weight.numpy()[:4], 1 / (1 + np.exp(-score.detach().numpy()))
    expected = -(w * np.log(1 / (1 + np.exp(-s))) + (1 - w) * np.log(1 - 1 / (1 + np.exp(-s))))
    np.testing.assert_allclose(loss.detach().numpy()[:4], expected, rtol=1e-12)
    loss.sum().backward()  # type: ignore[no-untyped-call]
    assert score.grad is not None
    np.testing.assert_allclose(score.grad.numpy(), p - weight.numpy(), atol=1e-12)


def test_both_engines_in_memory_learn_the_same_weights() -> None:
    graph = small_graph()
    given: dict[str, Any] = {**SMALL, "model": "complex-weights", "epochs": 3}
    expected, found = (focuse.train(graph, **given, engine=engine) for engine in ("torch", "native"))
    losses = [[row["loss"] for row in run.history] for run in (expected, found)]
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)


def test_the_model_starts_at_the_same_weight_everywhere_and_learns_an_intercept_per_relation() -> None:
    rows = [(f"e{i % 40}", f"r{i % 2}", f"e{(i * 7 + i // 40) % 40}", 0.9 if i % 2 else 0.2) for i in range(800)]
    run = focuse.train(rows, **{**SMALL, "model": "complex-weights", "epochs": 20})
    test = run.splits.test
    ids = [torch.from_numpy(part).long() for part in (test.head, test.relation, test.tail)]
    weight = torch.sigmoid(run.scorer.score(*ids)).numpy()
    np.testing.assert_allclose(weight, test.weight, atol=0.05)


def test_settings_without_negatives_and_the_cross_entropy_require_each_other() -> None:
    with pytest.raises(FocuseError, match="require each other"):
        Config.from_kwargs(negative_sampling="none")
    with pytest.raises(FocuseError, match="require each other"):
        Config.from_kwargs(model="ukge-logi", loss="cross-entropy")


def test_inferred_triples_need_a_loss_with_negatives() -> None:
    graph = small_graph()
    with pytest.raises(FocuseError, match="soft logic and rules need the loss 'squared-error', not 'cross-entropy'"):
        focuse.train(graph, model="complex-weights", inferred_triples=[("e1", "r0", "e2", 0.7)], progress=False)


# ---- training -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graph() -> Graph:
    return small_graph()


@pytest.mark.parametrize(
    ("sampling", "model"), [("shared", "complex"), ("per-triple", "distmult"), ("all", "complex"), ("shared", "transe")]
)
def test_the_structure_is_that_of_the_twin_without_weights(graph: Graph, sampling: str, model: str) -> None:
    given = {**SMALL, "negative_sampling": sampling, "model": model}
    twin = focuse.train(graph, **given, weight_mode="none", valid_min_weight=0.0)
    run = focuse.train(graph, **given)
    assert equal(run.scorer.tables, twin.scorer.tables)
    assert run.evaluate(prefer="likely").all == twin.evaluate().all
    reference = focuse.train(graph, **SMALL).weight_model
    assert run.weight_model is not None
    assert reference is not None
    assert equal(run.weight_model.scorer.tables, reference.scorer.tables)


def test_known_negatives_have_no_weight(graph: Graph) -> None:
    false = [(f"e{i}", "r0", f"e{(7 * i + 3) % 30}") for i in range(30)]
    run, plain = focuse.train(graph, **SMALL, known_negatives=false), focuse.train(graph, **SMALL)
    assert run.splits.known_negatives is not None
    assert run.weight_model is not None
    assert plain.weight_model is not None
    assert equal(run.weight_model.scorer.tables, plain.weight_model.scorer.tables)


def test_a_stopped_training_of_the_weight_model_resumes_bitwise(graph: Graph, tmp_path: Path) -> None:
    whole = focuse.train(graph, **SMALL, out=tmp_path / "whole")

    class StopIn(Reporter):
        """Interrupts the training of the weight model in an epoch, or as it starts."""

        def __init__(self, epoch: int) -> None:
            self.last, self.weights = epoch, False

        def start(self, settings: Config, epochs_done: int) -> None:
            self.weights = settings.model == "complex-weights"
            if self.weights and not self.last:
                raise KeyboardInterrupt

        def step(self, epoch: int, fraction: float) -> None:
            if self.weights and epoch + 1 == self.last:
                signal.raise_signal(signal.SIGINT)

    for epoch in (0, 1, 4):
        out = tmp_path / f"stopped{epoch}"
        with pytest.raises(Stopped, match=f"focuse train --resume {out}$"):
            focuse.train(graph, **{**SMALL, "progress": StopIn(epoch)}, out=out)
        assert focuse.load(out).weight_model is None
        run = focuse.resume(out, progress=False)
        for made in (run, focuse.load(out)):
            assert made.weight_model is not None
            assert whole.weight_model is not None
            assert equal(made.weight_model.scorer.tables, whole.weight_model.scorer.tables)
            assert equal(made.scorer.tables, whole.scorer.tables)
            assert made.preference == whole.preference
            assert made.evaluate().to_dict() == whole.evaluate().to_dict()


def test_a_training_that_was_stopped_while_choosing_the_preference_chooses_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> Preference:
        raise KeyboardInterrupt

    def preference(name: str) -> bytes:
        return (tmp_path / name / preferences.FILE).read_bytes()

    graph = small_graph(4000, entities=120)
    whole = focuse.train(graph, **SMALL, out=tmp_path / "whole")
    assert len(whole.preference.trials) == len(preferences.EXPONENTS)
    with monkeypatch.context() as patch:
        patch.setattr(api, "fit_preference", stop)
        with pytest.raises(Stopped, match="stopped while choosing the preference; continue with: "):
            focuse.train(graph, **SMALL, out=tmp_path / "run")
    assert focuse.resume(tmp_path / "run", progress=False).preference == whole.preference
    assert preference("run") == preference("whole")
    shutil.copytree(tmp_path / "run", tmp_path / "longer")
    with monkeypatch.context() as patch:  # a longer training does not keep the preference of the shorter one
        patch.setattr(api, "fit_preference", stop)
        with pytest.raises(Stopped):
            focuse.resume(tmp_path / "longer", epochs=8, progress=False)
    again = focuse.resume(tmp_path / "longer", progress=False)
    assert again.preference == focuse.resume(tmp_path / "run", epochs=8, progress=False).preference
    assert preference("longer") == preference("run") != preference("whole")


def test_a_saved_run_keeps_its_weight_model(graph: Graph, tmp_path: Path) -> None:
    run = focuse.train(graph, **SMALL)
    run.save(tmp_path / "run")
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    loaded = focuse.load(tmp_path / "copy")
    assert loaded.evaluate(prefer=0.7).to_dict() == run.evaluate(prefer=0.7).to_dict()


def test_partitions_train_the_weight_model_too(graph: Graph, tmp_path: Path) -> None:
    run = focuse.train(graph, **SMALL, engine="partitioned", partitions="4:2", out=tmp_path / "run")
    plain = focuse.train(graph, **SMALL)
    errors = []
    for made in (run, focuse.load(tmp_path / "run"), plain):
        assert made.weight_model is not None
        test = made.splits.test
        ids = [torch.from_numpy(part).long() for part in (test.head, test.relation, test.tail)]
        weight = torch.sigmoid(made.weight_model.scorer.score(*ids)).numpy()
        errors.append(float(np.mean((weight - test.weight) ** 2)))
        assert all("valid_mse" in row for row in made.weight_model.history)
    assert errors[0] == errors[1]
    assert errors[0] < max(1.5 * errors[2], 0.01) < test.weight.var()


def test_new_entities_get_rows_in_the_weight_model(graph: Graph) -> None:
    run = focuse.train(graph, **SMALL)
    grown = focuse.extend(run, [("new", "r0", f"e{i}", 0.9) for i in range(10)], progress=False)
    assert run.weight_model is not None
    assert grown.weight_model is not None
    before, after = (made.scorer.tables["entity"] for made in (run.weight_model, grown.weight_model))
    assert len(after) == len(before) + 1
    assert torch.equal(after[: len(before)], before)
    assert grown.evaluate(prefer="strong").all.n


def test_weights_that_are_equal_need_no_weight_model() -> None:
    run = focuse.train([(f"e{i % 9}", "r", f"e{i % 7}", 1.0) for i in range(60)], **SMALL)
    assert run.settings.weight_mode == "none"
    assert run.weight_model is None
    assert list(run.evaluate().compared) == ["model", "frequency in train"]
    with pytest.raises(FocuseError, match="no weight model"):
        run.evaluate(prefer="strong")


# ---- likely and strong ----------------------------------------------------------------------------------------------


def test_scores_and_ranks_follow_the_equation(graph: Graph) -> None:
    run = focuse.train(graph, **SMALL)
    assert run.weight_model is not None
    joined = StrengthScorer(run.scorer, run.weight_model.scorer, 3.0)
    test, entities = run.splits.test, len(run.graph.entities)
    known = {
        (int(h), int(r), int(t))
        for part in (run.splits.train, run.splits.valid, run.splits.test)
        for h, r, t in zip(part.head, part.relation, part.tail, strict=True)
    }

    def score(h: int, r: int, t: int) -> float:
        ids = [torch.tensor([number]) for number in (h, r, t)]
        weight = 1 / (1 + np.exp(-float(run.weight_model.scorer.score(*ids))))  # type: ignore[union-attr]
        return float(run.scorer.score(*ids)) + 3.0 * float(np.log(weight))

    rows = list(zip(test.head.tolist(), test.relation.tolist(), test.tail.tolist(), strict=True))[:5]
    for h, r, _ in rows:
        of_all = joined.score_all(torch.tensor([h]), torch.tensor([r]), "tail")[0].numpy()
        np.testing.assert_allclose(of_all, [score(h, r, e) for e in range(entities)], rtol=1e-4, atol=1e-5)
    some = test.select(np.arange(5))
    run.preference = Preference(strong=3.0)
    found = run.evaluate(some, prefer="strong").ranks[:, 0]
    for (h, r, t), rank in zip(rows, found, strict=True):
        own = score(h, r, t)
        better = sum(score(h, r, e) > own + 1e-5 for e in range(entities) if (h, r, e) not in known)
        assert rank == 1 + better


def test_evaluations_compare_likely_default_and_strong_links_with_frequency(graph: Graph) -> None:
    run = focuse.train(graph, **SMALL)
    run.preference = Preference(strong=4.0, default=0.25)
    found, rankings = run.evaluate(), ["likely", "default", "strong", "frequency in train"]
    assert list(found.compared) == rankings
    assert found.all == found.compared["default"].all
    for name, prefer in (("likely", 0), ("default", 0.25), ("strong", 1)):
        alone = run.evaluate(prefer=prefer)
        assert found.compared[name].summary() == alone.summary()
        assert list(alone.compared) == [*rankings[:3], *([] if str(prefer) in rankings else [str(prefer)]), rankings[3]]
    assert len({found.compared[name].all.mrr for name in rankings}) == 4
    half = run.evaluate(prefer=0.5)
    assert (
        half.all == half.compared["0.5"].all == replace(run, preference=Preference(2.0)).evaluate(prefer="strong").all
    )
    assert run.evaluate(prefer="strong").all == found.compared["strong"].all


def test_the_compared_rankings_are_part_of_an_evaluation_as_json_and_as_text(graph: Graph) -> None:
    found = focuse.train(graph, **SMALL).evaluate()
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    numbers = ["mrr", "mrr_top", "mrr_bottom", "delta_mrr", "concordance", "weighted_precision@10"]
    assert {name: list(row) for name, row in told["compared"].items()} == dict.fromkeys(found.compared, numbers)
    row = told["compared"]["default"]
    assert (row["mrr"], row["mrr_top"], row["delta_mrr"]) == (told["all"]["mrr"], told["top"]["mrr"], told["delta_mrr"])
    shown = [line.split() for line in str(found).splitlines()]
    for name in ("likely", "default", "strong", "frequency"):
        (line,) = [line for line in shown if line[:1] == [name]]
        assert f"{found.compared['default'].all.mrr:.3f}" in line or name != "default"


@pytest.mark.parametrize("prefer", ["likely", None, "strong"])
def test_first_answers_do_not_depend_on_how_many_are_asked_for(graph: Graph, prefer: str | None) -> None:
    run = focuse.train(graph, **SMALL)
    run.preference = Preference(strong=4.0, default=0.5)
    for head in ("e1", "e2", "e3"):
        few, many = (run.predict(head=head, relation="r0", top=top, prefer=prefer).to_dicts() for top in (3, 12))
        assert few == many[:3]
        new = run.predict(head=head, relation="r0", top=12, new_only=True, prefer=prefer).to_dicts()
        ranks = {row["tail"]: row["rank"] for row in many}
        assert all(ranks.get(row["tail"], row["rank"]) == row["rank"] for row in new)
    assert run.discover(top=4, prefer=prefer).to_dicts() == run.discover(top=30, prefer=prefer).to_dicts()[:4]


def test_preferences_are_words_or_numbers() -> None:
    preference = Preference(strong=8.0, default=0.25)
    assert [preference.exponent(one) for one in (None, "likely", "strong", 0.5, "0.5", 1)] == [2, 0, 8, 4, 4, 8]
    for wrong in ("weak", 1.5, -0.1, True, float("nan"), [1]):
        with pytest.raises(FocuseError, match="give 'likely', 'strong', 'default', or a number from 0"):
            preference.exponent(wrong)  # type: ignore[arg-type]


def test_strong_keeps_the_top_decile_and_weights_that_do_not_help_are_not_used() -> None:
    def trials(*rows: tuple[float, ...]) -> list[PreferenceTrial]:
        return [PreferenceTrial(*row) for row in rows]

    chosen = choose_preference(
        trials((0, 0.9, 0.9, 0.8, 0.3), (2, 0.8, 0.91, 0.4, 0.4), (8, 0.5, 0.896, 0.1, 0.2), (32, 0.3, 0.8, 0, 0.1))
    )
    assert chosen.strong == 8
    assert chosen.exponent() == 2
    useless = choose_preference(trials((0, 0.9, 0.9, 0.8, 0.3), (2, 0.5, 0.5, 0.45, 0.1)))
    assert useless.exponent() == 0


def test_strong_links_depend_on_the_weights() -> None:
    """Shuffled weights must lose at least half of what 'strong' gains over 'likely'."""
    splits = split(careers(), 0.1, 0.1, 0)
    random = np.random.default_rng(0)

    def shuffled(part: Graph) -> Graph:
        return Graph(
            part.head, part.relation, part.tail, random.permutation(part.weight), part.entities, part.relations
        )

    gains = []
    for change in (lambda part: part, shuffled):
        train, valid = change(splits.train), change(splits.valid)
        run = focuse.train(train, valid=valid, test=splits.test, epochs=15, dim=50, device="cpu", progress=False)
        run.preference = Preference(strong=4.0)
        gains.append(run.evaluate(prefer="strong").delta_mrr - run.evaluate(prefer="likely").delta_mrr)
    assert gains[0] > 0.1
    assert gains[1] < gains[0] / 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_learns_the_same_weights(graph: Graph) -> None:
    given: dict[str, Any] = {**SMALL, "model": "complex-weights", "epochs": 8}
    expected, found = (focuse.train(graph, **{**given, "device": device}) for device in ("cpu", "cuda"))
    for first, second in zip(expected.history, found.history, strict=True):
        assert first["loss"] == pytest.approx(second["loss"], rel=1e-3)
        assert first["valid_mse"] == pytest.approx(second["valid_mse"], rel=2e-2)
