"""`focuse evaluate`: ranks, weights and probabilities, as text and as JSON."""

from __future__ import annotations

import json
import re

import pytest

import focuse
from focuse.api import load
from focuse.cli.main import app
from focuse.errors import FocuseError
from focuse.evaluation.preference import Preference, write_preference
from focuse.storage.run_folder import RunFolder

FIGURES = {"mr", "mrr", "hits@1", "hits@3", "hits@10", "n"}


def test_json_has_the_documented_keys(command, trained):
    done = command("evaluate", trained.folder, "--json", check=True)
    data = json.loads(done.stdout)
    assert {"all", "top", "bottom", "delta_mrr", "delta_median"} <= set(data)
    for part in ("all", "top", "bottom", "weighted"):
        assert set(data[part]) == FIGURES
    assert (data["all"]["n"], data["top"]["n"], data["bottom"]["n"]) == (60, 6, 6)
    assert data["delta_mrr"] == pytest.approx(data["top"]["mrr"] - data["bottom"]["mrr"])
    usual = {"ranks": "filtered", "ties": "worst", "protocol": "per-side", "deciles": "of all weights"}
    assert data["settings"] == usual
    assert set(data["order"]["concordance"]) == {"relation", "query", "all"}
    assert data["order"]["concordance"]["all"]["pairs"] > data["order"]["concordance"]["relation"]["pairs"] > 0
    assert set(data["suggestions"]) == {"queries", "first@1", "first@3", "first@10"}
    assert set(data["suggestions"]["first@3"]) == {"n", "weight", "possible", "precision", "mean_weight"}
    assert done.stderr == ""


def test_text_shows_the_chosen_options(command, trained, tmp_path):
    (tmp_path / "test.tsv").write_text("e1\tr0\te2\t0.5\ne3\tr1\tstranger\t0.7\ne4\tr1\te5\t0.9\n")
    done = command(
        "evaluate", trained.folder, tmp_path / "test.tsv", "--ties", "mean", "--protocol", "combined", "--unfiltered",
        "--deciles", "relation",
        check=True,
    )  # fmt: skip
    for word in ("MRR", "Hits@10", "top 10 %", "bottom 10 %", "weighted mean", "ΔMRR", "ΔM "):
        assert word in done.stdout
    assert "ranks unfiltered, ties mean, protocol combined, deciles within each relation" in done.stdout
    assert "1 of 3 rows name 1 entity ('stranger') not in train" in done.stdout


@pytest.fixture(scope="module")
def separate(small, tmp_path_factory):
    """The folder of a run with a weight model, in which all preferences differ."""
    folder = tmp_path_factory.mktemp("separate") / "run"
    focuse.train(small, dim=6, epochs=6, device="cpu", progress=False, out=folder)
    store = RunFolder.open(folder)
    write_preference(store, Preference(strong=4.0, default=0.25))
    return folder


def test_a_preference_chooses_the_ranking_and_all_are_compared(inside, separate):
    run = focuse.load(separate, device="cpu")
    for words, prefer in ((), None), (["--prefer", "strong"], "strong"), (["--prefer", "0.5"], 0.5):
        told = json.loads(inside("evaluate", separate, "--json", *words))
        expected = run.evaluate(prefer=prefer)
        assert told["all"]["mrr"] == expected.all.mrr
        assert list(told["compared"]) == list(expected.compared)
        assert told["compared"]["likely"]["mrr"] == run.evaluate(prefer="likely").all.mrr
    shown = inside("evaluate", separate)
    for name in ("likely", "default", "strong", "frequency in train"):
        assert re.search(rf"^{name} +0\.\d{{3}} ", shown, re.MULTILINE)


def test_a_preference_orders_predictions_and_discoveries(inside, separate):
    run, asked = focuse.load(separate, device="cpu"), ["--head", "e1", "--relation", "r0", "--top", "8"]
    orders = {}
    for prefer in ("likely", "strong"):
        rows = json.loads(inside("predict", separate, *asked, "--prefer", prefer, "--json"))["rows"]
        expected = run.predict(head="e1", relation="r0", top=8, prefer=prefer)
        orders[prefer] = [row["tail"] for row in rows]
        assert orders[prefer] == [row.tail for row in expected]
        found = json.loads(inside("discover", separate, "--top", "5", "--prefer", prefer, "--json"))["rows"]
        names = ("head", "relation", "tail")
        expected = [tuple(getattr(row, name) for name in names) for row in run.discover(top=5, prefer=prefer)]
        assert [tuple(row[name] for name in names) for row in found] == expected
    assert orders["likely"] != orders["strong"]
    likely = json.loads(inside("predict", separate, *asked, "--prefer", "likely", "--json"))["rows"]
    chances = [row["probability"] for row in likely]
    assert chances == sorted(chances, reverse=True)


def test_invalid_preferences_are_refused(refused_inside, separate, trained):
    asked = ["--head", "e1", "--relation", "r0"]
    for words in (["evaluate", separate], ["predict", separate, *asked], ["discover", separate]):
        assert "give 'likely', 'strong', 'default', or a number from 0" in refused_inside(*words, "--prefer", "weak")
    for words in (["evaluate", trained.folder], ["predict", trained.folder, *asked], ["discover", trained.folder]):
        assert "the run has no weight model" in refused_inside(*words, "--prefer", "strong")


def test_candidates_can_be_sampled(command, trained):
    data = json.loads(command("evaluate", trained.folder, "--sample-candidates", "10", "--json", check=True).stdout)
    assert data["settings"]["candidates"] == 10
    assert data["suggestions"] is None
    assert data["all"]["mr"] <= 11


@pytest.mark.parametrize(
    ("test", "options", "says"),
    [
        ("x\tr0\te1\t1\ne1\tr9\te2\t1\n", [], "no test triple has all its names in train"),
        (None, [], "No such file or directory"),
        ("e1\tr0\te2\t1\n", ["--ties", "wurst"], "did you mean worst?"),
    ],
)
def test_invalid_test_graphs_are_refused(refused, trained, tmp_path, test, options, says):
    if test is not None:
        (tmp_path / "test.tsv").write_text(test)
    assert says in refused("evaluate", trained.folder, tmp_path / "test.tsv", *options)


class TestWeights:
    """`--weights`; in this process, which is faster, but for one."""

    @pytest.fixture
    def shown(self, capsys):
        def run(*arguments):
            app([str(argument) for argument in arguments], standalone_mode=False)
            return capsys.readouterr().out

        return run

    def test_json_of_weights_equals_that_of_the_run(self, command, trained):
        done = command("evaluate", trained.folder, "--weights", "--json", check=True)
        assert done.stderr == ""
        told = json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
        assert told == load(trained.folder).evaluate_weights().to_dict()
        assert set(told) == {"protocols", "rows", "baselines", "threshold", "notes", "ndcg", "intervals"}
        assert told["rows"]["complex, isotonic"]["with_negatives"]["n"] == 120
        assert told["threshold"] == 0.85

    def test_negatives_queries_and_threshold_can_be_given(self, shown, trained, tmp_path):
        (tmp_path / "test.tsv").write_text("e1\tr0\te2\t0.5\ne4\tr1\te5\t0.9\n")
        (tmp_path / "false.tsv").write_text("e1\tr0\te2\t0.5\ne1\tr0\te3\t0\ne4\tr1\te7\t0\ne4\tr2\te7\t0\n")
        (tmp_path / "queries.tsv").write_text("e1\tr0\te2\t0.5\ne1\tr0\te9\t0.1\n")
        files = ["--negatives-file", tmp_path / "false.tsv", "--ndcg-queries", tmp_path / "queries.tsv"]
        asked = ["evaluate", trained.folder, tmp_path / "test.tsv", "--weights", *files, "--strong-above", "0.7"]
        told = json.loads(shown(*asked, "--json"))
        assert {protocol: figures["n"] for protocol, figures in told["rows"]["global mean"].items()} == {
            "positives": 2,
            "clean": told["rows"]["global mean"]["clean"]["n"],
            "with_negatives": 5,
            "negatives": 3,
        }
        assert told["rows"]["global mean"]["with_negatives"]["at_threshold"]["strong"] == 1
        assert told["threshold"] == 0.7
        assert told["ndcg"]["complex"]["queries"] == 1
        text = shown(*asked)
        for words in (*told["protocols"].values(), "complex, isotonic", "nDCG", "weight > 0.7"):
            assert words in text

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            (["--negatives-file", "false.tsv"], "--negatives-file requires --weights or --probabilities"),
            (["--ndcg-queries", "false.tsv"], "--ndcg-queries, --strong-above and --coverage require --weights"),
            (["--coverage", "0.8"], "--ndcg-queries, --strong-above and --coverage require --weights"),
            (["--weights", "--probabilities"], "give one of --weights and --probabilities"),
            (["--weights", "--coverage", "1"], "coverage 1.0: give a fraction above 0 and below 1"),
            (["--probabilities", "--unfiltered"], "only apply to ranks"),
            (["--weights", "--sample-candidates", "5"], "only apply to ranks"),
            (["--weights", "--deciles", "global"], "only apply to ranks"),
            (["--sample-candidates", "0"], "sample_candidates 0: give a whole number"),
            (["--header", "--columns", "9,8,7"], "columns requires a file to read"),
            (["--weights", "--strong-above", "1.5"], "strong_above 1.5: give a weight in [0, 1]"),
            (["--weights", "--negatives-file", "nowhere.tsv"], "nowhere.tsv"),
        ],
    )
    def test_invalid_weight_options_are_refused(self, shown, trained, options, says):
        with pytest.raises(FocuseError) as error:
            shown("evaluate", trained.folder, *options)
        assert says in str(error.value)


def test_probabilities_are_printed(capsys, trained):
    app(["evaluate", str(trained.folder), "--probabilities", "--json"], standalone_mode=False)
    told = json.loads(capsys.readouterr().out)
    assert told["positives"] < told["negatives"]  # the best new links, of which few are in test
    assert told["base_rate"] == pytest.approx(told["positives"] / (told["positives"] + told["negatives"]))
    assert list(told["rows"]) == ["before: logistic of the score", "after: platt"]
    assert all(0 <= row["brier"] <= 1 and 0 <= row["reliability"]["ece"] <= 1 for row in told["rows"].values())


def test_missing_run_is_refused(refused, tmp_path):
    line = refused("evaluate", tmp_path / "nowhere")
    assert f"{tmp_path / 'nowhere'}: not a run (no run.toml)" in line
    assert not (tmp_path / "nowhere").exists()
