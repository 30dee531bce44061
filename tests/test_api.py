"""The public API: train, evaluate, predict, save and load."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import focuse
from focuse import FocuseError
from focuse.data.splits import split
from focuse.data.triple_index import id_tensors
from focuse.engines.factory import choose_device
from focuse.engines.scorer import TableScorer
from focuse.inference.link_search import CandidateSpace
from focuse.models.registry import make_model
from focuse.rules.grammar import parse_rules
from focuse.rules.grounding import inferred
from focuse.training.trainer import Trainer

QUICK = {
    "dim": 8,
    "epochs": 4,
    "lr": 1e-2,
    "num_negatives": 5,
    "eval_every": 2,
    "progress": False,
}


@pytest.fixture(scope="module")
def run(small):
    return focuse.train(small, **QUICK)


@pytest.mark.slow
def test_readme_example_runs(careers, tmp_path, capsys):
    careers.select(np.arange(0, len(careers), 3)).write(tmp_path / "skills.tsv")  # a third of it shows as much

    graph = focuse.read(tmp_path / "skills.tsv")
    run = focuse.train(graph, model="complex", dim=20, epochs=2)
    print(run.evaluate())
    print(run.predict(head="Mortgage Broker", relation="requires skill", top=10))
    run.save(tmp_path / "runs" / "skills")
    run = focuse.load(tmp_path / "runs" / "skills")

    shown = capsys.readouterr().out
    for word in ("MRR", "Hits@10", "top 10 %", "bottom 10 %", "ΔMRR", "weighted mean"):
        assert word in shown
    assert shown.count("Mortgage Broker  requires skill") == 10
    assert run.predict(head="Mortgage Broker", relation="requires skill", top=10)[0].rank == 1


class TestSaveAndLoad:
    @pytest.mark.parametrize("weight_scaling", ["relation", "global", "quantile", "none"])
    def test_saved_and_loaded_run_is_unchanged(self, small, tmp_path, weight_scaling):
        run = focuse.train(small, weight_scaling=weight_scaling, **QUICK)
        run.save(tmp_path / "run")
        again = focuse.load(tmp_path / "run")
        assert again.settings == run.settings
        assert again.history == run.history
        assert again.evaluate().to_dict() == run.evaluate().to_dict()
        assert again.predict(head="e1", relation="r0") == run.predict(head="e1", relation="r0")
        weights, kinds = run.graph.weight, run.graph.relation
        np.testing.assert_array_equal(
            again.normalizer.transform(weights, kinds), run.normalizer.transform(weights, kinds)
        )
        for part in ("train", "valid", "test"):
            one, two = (getattr(which.splits, part) for which in (run, again))
            assert one.to_arrow().equals(two.to_arrow())

    def test_saving_writes_the_same_files_as_training_into_a_folder(self, small, run, tmp_path):
        run.save(tmp_path / "saved")
        focuse.train(small, out=tmp_path / "trained", **QUICK)
        for name in ("model.safetensors", "run.toml", "splits.safetensors"):
            assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "trained" / name).read_bytes()
        more = focuse.resume(tmp_path / "saved", epochs=6, progress=False)
        assert [row["epoch"] for row in more.history] == [1, 2, 3, 4, 5, 6]

    def test_save_refuses_a_folder_that_is_not_empty(self, run, tmp_path):
        (tmp_path / "note").write_text("")
        with pytest.raises(FocuseError, match="exists and is not empty"):
            run.save(tmp_path)

    def test_saving_a_loaded_run_is_refused(self, run, tmp_path):
        run.save(tmp_path / "run")
        with pytest.raises(FocuseError, match="copy that folder instead"):
            focuse.load(tmp_path / "run").save(tmp_path / "copy")
        assert not (tmp_path / "copy").exists()


class TestEvaluate:
    def test_evaluation_of_a_file_reports_unseen_names(self, run, small, tmp_path):
        rows = [tuple(row.values()) for row in small.to_arrow().slice(0, 40).to_pylist()]
        odd = [("e1", "r0", "stranger", 0.5), ("e1", "unheard", "e2", 0.5), ("nobody", "r1", "e2", 0.5)]
        path = tmp_path / "test.tsv"
        path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows + odd))
        shown = run.evaluate(path)
        assert (shown.all.n, shown.unseen_rows, shown.to_dict()["unseen_rows"]) == (40, 3, 3)
        for word in ("3 of 43 rows", "2 entities", "'stranger'", "'nobody'", "1 relation ('unheard')"):
            assert word in str(shown)
        assert shown.to_dict()["all"] == run.evaluate(rows).to_dict()["all"]

    def test_evaluation_with_only_unseen_names_is_refused(self, run):
        with pytest.raises(FocuseError, match=r"no test triple has all its names in train.*2 of 2 rows"):
            run.evaluate([("x", "r0", "e1", 1.0), ("e1", "r0", "y", 0.5)])

    def test_evaluation_without_a_test_split_is_refused_with_advice(self, small):
        parts = split(small)
        run = focuse.train(parts.train, valid=parts.valid, **QUICK)
        with pytest.raises(FocuseError, match="no test split; give a test graph"):
            run.evaluate()
        assert run.evaluate(parts.test).all.n == len(parts.test)

    def test_evaluation_options_reach_the_ranking(self, run):
        plain = run.evaluate()
        chosen = {"ranks": "filtered", "ties": "worst", "protocol": "per-side", "deciles": "of all weights"}
        strong, default = run.preference.strong, run.preference.exponent()
        assert plain.settings == chosen | {"weights": f"default ^{default:g}, strong ^{strong:g}"}
        assert run.evaluate(filtered=False).all.mrr < plain.all.mrr
        assert run.evaluate(protocol="combined").all.mr > plain.all.mr
        assert run.evaluate(ties="best").all.mr <= plain.all.mr
        for wrong in ({"ties": "wurst"}, {"protocol": "side"}):
            with pytest.raises(FocuseError, match="did you mean"):
                run.evaluate(**wrong)

    def test_evaluation_of_a_single_triple_works(self, run):
        shown = run.evaluate([("e1", "r0", "e2", 0.5)])
        assert shown.all.n == 1
        data = json.loads(json.dumps(shown.to_dict(), allow_nan=False))
        assert data["delta_mrr"] is None


class TestPredict:
    def test_predictions_mark_known_triples_of_all_splits(self, run):
        for graph in (run.splits.train, run.splits.valid, run.splits.test):
            head, relation = graph.entities[graph.head[0]], graph.relations[graph.relation[0]]
            tail = graph.entities[graph.tail[0]]
            found = run.predict(head=head, relation=relation, top=40)
            plausible = CandidateSpace(run.graph, np.arange(3)).ends(int(graph.relation[0]))[1]
            assert {row.tail for row in found} == {graph.entities[tail] for tail in plausible.tolist()}
            found = run.predict(head=head, relation=relation, top=40, any_type=True)
            assert len(found) == 40
            (fact,) = [row for row in found if row.tail == tail]
            assert (fact.known, fact.weight) == (True, graph.weight[0])
            new = run.predict(head=head, relation=relation, top=40, new_only=True, any_type=True)
            assert tail not in [row.tail for row in new]
            assert [row.known for row in new] == [False] * len(new)

    def test_unknown_name_suggests_the_nearest(self, run):
        with pytest.raises(FocuseError, match=r"no entity 'e_39'.*did you mean e39"):
            run.predict(head="e_39", relation="r0")


class TestSplits:
    def test_given_splits_are_used_unchanged(self, small):
        parts = split(small, seed=5)
        run = focuse.train(parts.train, valid=parts.valid, test=parts.test, **QUICK)
        assert len(run.splits.train) == len(parts.train)
        assert run.splits.test.to_arrow().equals(parts.test.to_arrow())

    @pytest.mark.parametrize(("share", "held"), [(0.1, 54), (0.25, 135), (0.0, 0)])
    def test_validation_share_is_held_out_beside_a_given_test_graph(self, small, share, held):
        parts = split(small, valid_fraction=0.0, test_fraction=0.1)
        run = focuse.train(parts.train, test=parts.test, valid_fraction=share, **QUICK)
        assert len(run.splits.valid) == held
        assert len(run.splits.train) == 540 - held

    def test_unseen_names_in_given_splits_are_reported(self, small, listen):
        recorder = listen()
        run = focuse.train(small, test=[("e1", "r0", "stranger", 0.5), ("e1", "r0", "e2", 0.5)], **QUICK)
        assert any("'stranger'" in note and "1 of 2 rows" in note for note in recorder.notes)
        assert run.evaluate().unseen_rows == 1

    def test_shares_out_of_range_are_refused(self, small):
        with pytest.raises(FocuseError, match="must be below 1"):
            focuse.train(small, valid_fraction=0.6, test_fraction=0.6, **QUICK)

    def test_graph_of_two_edges_can_be_trained(self):
        run = focuse.train([("a", "r", "b", 0.1), ("b", "r", "c", 0.9)], **QUICK)
        assert len(run.graph) == 2
        with pytest.raises(FocuseError, match="no test split"):
            run.evaluate()


def test_best_epoch_is_announced(small, listen):
    recorder = listen()
    run = focuse.train(small, **QUICK)
    at = run.last.progress
    found = f"best validation MRR {at.best_value:.3f} at epoch {at.best_epoch}"
    more = "; it was still improving" if at.best_epoch == 4 else ""
    assert recorder.notes[-2] == f"finished all 4 epochs; {found}, whose embeddings are kept{more}"
    assert recorder.notes[-1].startswith("weight model: validation MSE of weights 0.")
    focuse.train(small, valid_min_weight=0.8, weight_mode="none", **QUICK)
    assert "best validation MRR of strong triples 0." in recorder.notes[-1]


class TestConfidence:
    """Models of a confidence: what rules infer, and weights in the user's units."""

    RULE = "r0(x, y) -> r1(y, x) : 0.9"

    @pytest.fixture
    def units(self, small):
        """The same weights between 10 and 60."""
        rows = [tuple(row.values()) for row in small.to_arrow().to_pylist()]
        return focuse.read([(*names, 10 + 50 * weight) for *names, weight in rows])

    def test_soft_logic_may_be_rows_a_graph_or_a_file(self, small, tmp_path, listen):
        recorder = listen()
        rows = [("e1", "r0", "e2", 0.9), ("e3", "r1", "e4", 0.5)]
        focuse.read(rows).write(tmp_path / "soft.tsv")
        found = [
            focuse.train(small, model="ukge-logi", inferred_triples=given, **QUICK)
            for given in (rows, focuse.read(rows), tmp_path / "soft.tsv", str(tmp_path / "soft.tsv"))
        ]
        assert recorder.notes.count("2 inferred triples (soft logic)") == 4
        for run in found:
            assert run.splits.inferred.weight.tolist() == [0.9, 0.5]
            assert torch.equal(run.scorer.tables["entity"], found[0].scorer.tables["entity"])

    def test_rules_may_be_a_file_or_rule_objects(self, small, tmp_path, listen):
        (tmp_path / "rules.txt").write_text(self.RULE)
        recorder = listen()
        by_file, given = (
            focuse.train(small, model="ukge-rect", rules=rules, **QUICK)
            for rules in (tmp_path / "rules.txt", parse_rules(self.RULE))
        )
        assert by_file.splits.inferred.to_arrow().equals(given.splits.inferred.to_arrow())
        expected = inferred(given.graph, self.RULE)
        assert given.splits.inferred.to_arrow().equals(expected.to_arrow())
        assert f"{len(expected)} inferred triples (soft logic)" in recorder.notes

    def test_rules_that_infer_nothing_new_are_refused(self, small, tmp_path):
        with pytest.raises(FocuseError, match="infer no triple that train does not have"):
            focuse.train(
                small, model="ukge-logi", rules=parse_rules("r0(x, y) -> r0(x, y)"), out=tmp_path / "r", **QUICK
            )
        assert not (tmp_path / "r").exists()

    @pytest.mark.parametrize("rules", [5, [], ["r0(x, y) -> r1(x, y)"]])
    def test_values_that_are_no_rules_are_refused(self, small, rules):
        with pytest.raises(FocuseError, match="rules"):
            focuse.train(small, model="ukge-logi", rules=rules, **QUICK)

    @pytest.mark.parametrize("part", ["valid", "test"])
    def test_held_out_confidences_outside_the_unit_interval_are_refused(self, small, part):
        says = r"confidences must be in \[0, 1\], found 0.5 to 5; use weight_scaling 'relation'"
        with pytest.raises(FocuseError, match=says):
            focuse.train(
                small, model="ukge-rect", **{part: [("e1", "r0", "e2", 5.0), ("e2", "r0", "e1", 0.5)]}, **QUICK
            )

    @pytest.mark.parametrize("given", [{"inferred_triples": [("e1", "r0", "e2", 0.9)]}, {"rules": "rules.txt"}])
    def test_models_without_confidence_refuse_soft_logic_and_rules(self, small, given):
        says = "train ukge-rect or ukge-logi or .*beurre, not 'complex'"
        with pytest.raises(FocuseError, match=says):
            focuse.train(small, **given, **QUICK)

    def test_weights_outside_the_unit_interval_suggest_normalizers(self, units, tmp_path):
        with pytest.raises(
            FocuseError,
            match=r"learns weights in \[0, 1\] as they are.*weight_scaling 'relation', 'global' or 'quantile'",
        ) as error:
            focuse.train(units, model="ukge-logi", out=tmp_path / "run", **QUICK)
        assert "\n" not in str(error.value)
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("model", ["ukge-logi", "ukge-rect"])
    @pytest.mark.parametrize("weight_scaling", ["global", "relation"])
    def test_predicted_weights_are_in_the_units_of_the_graph(self, units, model, weight_scaling):
        run = focuse.train(units, model=model, weight_scaling=weight_scaling, rules=parse_rules(self.RULE), **QUICK)
        assert run.splits.inferred.weight.max() <= 1
        train, valid = run.graph, run.splits.valid
        found = run.weight_predictor().native(valid.head, valid.relation, valid.tail)
        scores = run.scorer.score(*id_tensors(valid)).double().numpy()
        share = 1 / (1 + np.exp(-scores)) if model == "ukge-logi" else np.clip(scores, 0, 1)
        for row, kind in enumerate(valid.relation):
            seen = train.weight if weight_scaling == "global" else train.weight[train.relation == kind]
            assert found[row] == pytest.approx(seen.min() + share[row] * np.ptp(seen), rel=1e-6)
        assert 10 < found.min() < found.max() < 60

    def test_predictions_have_the_confidence_of_the_model(self, small):
        run = focuse.train(small, model="ukge-logi", **QUICK)
        for link in run.predict(head="e1", relation="r0", top=5):
            assert link.confidence == pytest.approx(1 / (1 + np.exp(-link.score)), rel=1e-6)

    def test_best_validation_error_is_announced_and_stop_metric_can_be_set(self, small, listen):
        recorder = listen()
        run = focuse.train(small, model="ukge-logi", **QUICK)
        lowest = min(row["valid_mse"] for row in run.history if "valid_mse" in row)
        assert f"best validation MSE {lowest:.4f} at epoch" in recorder.notes[-1]
        ranked = focuse.train(small, model="ukge-logi", stop_metric="mrr", **QUICK)
        assert "best validation MRR" in recorder.notes[-1]
        assert any("valid_mrr" in row for row in ranked.history)

    def test_table_scorer_uses_dense_tensors(self, small):
        tables = focuse.train(small, model="ukge-rect", **QUICK).scorer.tables
        one, two = (
            TableScorer(make_model("ukge-rect"), {**tables, "scale": torch.tensor(pair)})
            for pair in ([1.0, 0.0], [2.0, 3.0])
        )
        ids = id_tensors(small.select(np.arange(5)))
        torch.testing.assert_close(two.score(*ids), 2 * one.score(*ids) + 3)


def test_unavailable_devices_are_refused():
    assert choose_device("auto") == ("cuda" if torch.cuda.is_available() else "cpu")
    assert choose_device("cpu") == "cpu"
    for name in ("banana", "cuda:99"):
        with pytest.raises(FocuseError, match=f"device '{name}' is not available; use 'auto' or 'cpu'"):
            choose_device(name)


def test_settings_are_checked_before_the_graph_is_read():
    with pytest.raises(FocuseError, match="unknown model"):
        focuse.train("no such file.tsv", model="nonsense")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("Storage size calculation overflowed with sizes=[9]")])
def test_failure_in_the_first_step_leaves_no_run(small, tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(Trainer, "_train_batch", fail)
    with pytest.raises(FocuseError, match="not enough memory; lower dim"):
        focuse.train(small, out=tmp_path / "run", **QUICK)
    assert not (tmp_path / "run").exists()
