"""`focuse train` with weight columns, directions and known negatives."""

from __future__ import annotations

import json

import pytest

import focuse

QUICK = ["--dim", "6", "--epochs", "2", "--quiet", "--json"]


@pytest.fixture(scope="module")
def many(small, with_columns, tmp_path_factory):
    path = tmp_path_factory.mktemp("many") / "many.tsv"
    with_columns(small, missing=0.2).write(path)
    return path


def test_columns_are_trained_with_learned_importance(command, many, tmp_path):
    options = [
        "--weight-columns",
        "fit,noise,distance",
        "--lower-is-better",
        "distance",
        "--weight-mode",
        "focuse",
    ]
    done = command("train", many, *options, "--out", tmp_path / "run", *QUICK, check=True)
    data = json.loads(done.stdout)
    assert data["weight_columns"]["names"] == ["fit", "noise", "distance"]
    assert data["weight_columns"]["lower_is_better"] == [False, False, True]
    assert data["weight_columns"]["importance"][1] < 0.05
    assert sum(data["weight_columns"]["importance"]) == pytest.approx(1)
    run = focuse.load(tmp_path / "run")
    assert run.splits.merger.importance.tolist() == data["weight_columns"]["importance"]
    assert run.settings.lower_is_better == ("distance",)
    # Another file is read and merged the same way, whatever the order of its columns.
    chosen = ["--columns", "head,relation,tail,distance,fit,noise"]
    done = command("evaluate", tmp_path / "run", many, *chosen, "--json", check=True)
    assert json.loads(done.stdout)["all"]["n"] == 600
    # The run's own file of settings trains it again.
    options = ["--weight-columns", "fit,noise,distance", "--config", tmp_path / "run" / "run.toml", "--quiet"]
    command("train", many, *options, "--out", tmp_path / "again", check=True)
    same = focuse.load(tmp_path / "again")
    assert [row["loss"] for row in same.history] == [row["loss"] for row in run.history]


def test_given_importance_is_printed(command, many, tmp_path):
    options = [
        "--weight-columns",
        "fit,noise,distance",
        "--column-importance",
        "fit=3,noise=1",
        "--dim",
        "6",
        "--epochs",
        "1",
    ]
    done = command("train", many, *options, "--out", tmp_path / "run", check=True)
    assert "importance of weight columns: fit 0.75, noise 0.25, distance 0.00" in done.stderr


def test_lower_is_better_is_passed_on(command, graph_file, tmp_path):
    command("train", graph_file, "--lower-is-better", "true", "--out", tmp_path / "run", *QUICK, check=True)
    run = focuse.load(tmp_path / "run")
    assert run.graph.lower_is_better
    shown = run.evaluate()
    weight = run.splits.test.weight
    assert weight[shown.top_share == 1].max() < weight[shown.bottom_share == 1].min()


def test_known_negatives_are_read_from_a_file(command, refused, signed, tmp_path):
    focuse.read(signed).write(tmp_path / "signed.tsv")
    (tmp_path / "false.tsv").write_text("h3\tr\tt1\t1\nh5\tr\tt3\t4\n")
    options = ["--weight-mode", "none", "--negative-weights", "known-negative", "--zero-weights", "known-negative"]
    arguments = ["train", tmp_path / "signed.tsv", "--known-negatives", tmp_path / "false.tsv", *options, *QUICK]
    data = json.loads(command(*arguments, "--out", tmp_path / "run", check=True).stdout)
    assert data["known_negatives"] == 82
    assert data["weight_columns"] is None
    false = focuse.load(tmp_path / "run").splits.known_negatives
    assert sorted(false.weight.tolist())[:2] == [0.25, 1.0]
    again = [*arguments[:2], "--config", tmp_path / "run" / "run.toml", "--out", tmp_path / "again"]
    assert "give --known-negatives again" in refused(*again)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--weight-columns", "fit,nois"], "no column 'nois'"),
        (["--weight-columns", "fit,noise", "--column-importance", "fit"], "write a column and a number"),
        (["--weight-columns", "fit,noise"], "all its weights are missing"),
        ([], "several weights: --weight-columns"),
    ],
)
def test_invalid_column_options_are_refused(refused, many, tmp_path, arguments, says):
    assert says in refused("train", many, *arguments, "--out", tmp_path / "run", "--quiet")
    assert not (tmp_path / "run").exists()


def test_known_negatives_with_the_focuse_layer_are_refused(refused, graph_file, tmp_path):
    (tmp_path / "false.tsv").write_text("e1\tr0\te1\n")
    options = ["--known-negatives", tmp_path / "false.tsv", "--quiet", "--out", tmp_path / "run"]
    assert "known negatives need the loss 'multiclass-nll', and a weight_mode other than 'focuse'" in refused(
        "train", graph_file, *options, "--weight-mode", "focuse"
    )
    command = [*options, "--weight-mode", "none", "--dim", "4", "--epochs", "1"]
    assert refused("train", graph_file, *command, "--lower-is-better", "p")


def test_describe_shows_weight_columns(command, many):
    options = ["--weight-columns", "fit,noise,distance"]
    data = json.loads(command("describe", many, *options, "--json", check=True).stdout)
    found = {row["name"]: row for row in data["columns"]}
    assert found["noise"]["importance"] < 0.05
    assert found["fit"]["missing"] == pytest.approx(0.2, abs=0.05)
    assert (
        30 <= found["distance"]["weight_min"] < found["distance"]["weight_mean"] < found["distance"]["weight_max"] <= 50
    )
    shown = command("describe", many, *options, check=True).stdout
    assert "weights: 3 columns" in shown
    assert "importance" in shown
