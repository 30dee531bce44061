"""`focuse train --model ukge-…`: soft logic from a file or from rules."""

from __future__ import annotations

import json
import sys

import pytest

import focuse
from focuse.cli.main import run as run_command
from focuse.rules.grammar import read_rules
from focuse.rules.grounding import inferred

TRAINING = "--dim 4 --epochs 2 --batch-size 64 --num-negatives 4 --eval-every 1 --eval-start 0 --device cpu"
OPTIONS = f"{TRAINING} --lr 0.01".split()
RULES = "# one more\nr0(x, y) -> r1(y, x) : 0.9\nr1(x, y) & r1(y, z) -> r1(x, z)\n"
SOFT = [("e1", "r0", "e2", 0.9), ("e3", "r1", "e4", 0.75)]


@pytest.fixture
def files(graph_file, tmp_path, monkeypatch):
    """A soft-logic file and rules beside the graph."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "soft.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in SOFT))
    (tmp_path / "rules.txt").write_text(RULES)
    return tmp_path


@pytest.fixture
def train_here(files, graph_file, monkeypatch, capsys):
    """`train_here(…)`: in this process; its exit code, stdout and stderr."""

    def train(*arguments, graph=graph_file):
        given = ["focuse", "train", graph, "--out", files / "run", *OPTIONS, *arguments]
        monkeypatch.setattr(sys, "argv", [str(one) for one in given])
        code = 0
        try:
            run_command()
        except SystemExit as error:
            code = error.code
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return train


def triples(graph):
    rows = graph.to_arrow().to_pylist()
    return [(row["head"], row["relation"], row["tail"], row["weight"]) for row in rows]


def test_soft_logic_and_rules_are_trained_in_a_process(command, files, graph_file):
    given = ["--model", "ukge-logi", "--inferred-triples", "soft.tsv", "--rules", "rules.txt", *OPTIONS]
    done = command("train", graph_file, "--out", "run", "--json", *given, check=True)
    data = json.loads(done.stdout)
    assert data["valid_mrr"] is None
    assert 0 < data["valid_mse"] < 1
    assert (data["settings"]["model"], data["settings"]["loss"]) == ("ukge-logi", "squared-error")
    assert (data["settings"]["stop_metric"], data["settings"]["rule_loss_weight"]) == ("mse", 0.2)
    assert "inferred triples (soft logic)" in done.stderr
    assert f"best validation MSE {data['valid_mse']:.4f} at epoch {data['best_epoch']}, whose embeddings" in done.stderr
    assert "valid MSE 0." in done.stderr
    assert "β" not in done.stderr


@pytest.mark.parametrize("model", ["ukge-logi", "ukge-rect"])
def test_soft_logic_is_read_from_a_file(train_here, model):
    code, _, errors = train_here("--model", model, "--inferred-triples", "soft.tsv", "--rule-loss-weight", "0.5")
    assert code == 0, errors
    assert "2 inferred triples (soft logic)" in errors
    run = focuse.load("run")
    assert triples(run.splits.inferred) == SOFT
    assert (run.settings.model, run.settings.rule_loss_weight) == (model, 0.5)


def test_rules_are_grounded_over_train_alone(train_here, small):
    code, _, errors = train_here("--model", "ukge-logi", "--rules", "rules.txt", "--rule-batch-size", "7")
    assert code == 0, errors
    run = focuse.load("run")
    expected = triples(inferred(run.graph, read_rules("rules.txt")))
    assert triples(run.splits.inferred) == expected
    assert len(expected) > 10
    assert f"{len(expected)} inferred triples (soft logic)" in errors
    assert run.settings.rule_batch_size == 7
    assert not {row[:3] for row in triples(run.graph)} & {row[:3] for row in expected}
    assert {row[:3] for row in expected} != {row[:3] for row in triples(inferred(small, read_rules("rules.txt")))}


def test_soft_logic_file_and_rules_are_combined(train_here):
    code, _, errors = train_here(
        "--model", "ukge-rect", "--rules", "rules.txt", "--inferred-triples", "soft.tsv", "--quiet"
    )
    assert (code, errors) == (0, "")
    run = focuse.load("run")
    expected = SOFT + triples(inferred(run.graph, read_rules("rules.txt")))
    assert triples(run.splits.inferred) == expected


def test_ukge_trains_without_soft_logic(train_here):
    assert train_here("--model", "ukge-logi", "--quiet")[::2] == (0, "")
    assert focuse.load("run").splits.inferred is None


def test_weights_in_another_unit_need_a_normalizer(train_here, files, small):
    graph_file = files / "scaled.tsv"
    focuse.read([(*row[:3], 10 + 50 * row[3]) for row in triples(small)]).write(graph_file)
    code, _, errors = train_here("--model", "ukge-logi", "--rules", "rules.txt", graph=graph_file)
    assert code == 2
    (line,) = errors.splitlines()
    assert (
        "the model 'ukge-logi' learns weights in [0, 1] as they are, found 25.845 to 59.995; use weight_scaling" in line
    )
    assert not (files / "run").exists()
    more = ("--weight-scaling", "global", "--quiet")
    assert train_here("--model", "ukge-logi", "--rules", "rules.txt", *more, graph=graph_file)[::2] == (0, "")
    run = focuse.load("run")
    assert run.settings.weight_scaling == "global"
    expected = inferred(run.graph, read_rules("rules.txt"), weight_scaling="global")
    assert triples(run.splits.inferred) == triples(expected)
    assert 0 < run.splits.inferred.weight.max() <= 1 < run.graph.weight.min()


class TestRefused:
    """Exit code 2, a message on stderr, nothing written."""

    @pytest.fixture
    def refused(self, train_here, files):
        def train(*arguments):
            before = {path.name for path in files.iterdir()}
            code, out, errors = train_here(*arguments)
            assert (code, out) == (2, "")
            assert errors.startswith("focuse: ")
            assert "Traceback" not in errors
            assert {path.name for path in files.iterdir()} == before
            return errors.removeprefix("focuse: ").rstrip("\n")

        return train

    @pytest.mark.parametrize(
        ("rows", "says"),
        [
            (
                "e1\tr0\te2\t0.9\ne1\tr0\tstranger\t0.8\n",
                "small.tsv does not have, such as 'stranger'; infer",
            ),
            ("e1\tunheard\te2\t0.9\n", "such as 'unheard'; infer"),
            ("e1\tr0\te2\t0.9\ne1\tr0\te3\t1.7\n", "bad.tsv, row 2: the confidence 1.7 is outside of [0, 1]"),
            ("e1\tr0\te2\t-0.1\n", "bad.tsv, row 1: the confidence -0.1 is outside of [0, 1]"),
            ("e1\tr0\te2\n", "bad.tsv: no confidences; give a fourth column"),
            (None, "bad.tsv: No such file or directory"),
        ],
    )
    def test_faulty_soft_logic_file_is_refused(self, refused, files, rows, says):
        if rows is not None:
            (files / "bad.tsv").write_text(rows)
        line = refused("--model", "ukge-logi", "--inferred-triples", "bad.tsv")
        assert says in line
        assert "\n" not in line

    def test_rules_that_do_not_parse_are_refused_with_a_caret(self, refused, files):
        (files / "bad.txt").write_text("# one\nr0(x, y) & r1(y z) -> r0(x, z)\n")
        message, line, caret = refused("--model", "ukge-rect", "--rules", "bad.txt").splitlines()
        assert message == "bad.txt, line 2, column 17: expected ','"
        assert line == "  r0(x, y) & r1(y z) -> r0(x, z)"
        assert line[caret.index("^")] == "z"

    @pytest.mark.parametrize(
        ("rules", "says"),
        [
            ("r0(x, y) -> r9(x, y)\n", "bad.txt, line 1: r0(x, y) -> r9(x, y) : 1.0: the graph has no relation 'r9'"),
            ("r0(x, y) & r1(y, x) & r2(x, x) & r0(y, y) & r1(y, y) & r2(y, y) -> r2(x, y)", "has no grounding"),
            ("# nothing but words\n", "bad.txt: no rules; write one per line"),
            (None, "bad.txt: No such file or directory"),
        ],
    )
    def test_rules_that_cannot_be_grounded_are_refused(self, refused, files, rules, says):
        if rules is not None:
            (files / "bad.txt").write_text(rules)
        line = refused("--model", "ukge-logi", "--rules", "bad.txt", "--inferred-triples", "soft.tsv")
        assert says in line
        assert "\n" not in line

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (
                "--model complex --inferred-triples soft.tsv",
                "soft logic and rules need a model of confidences; train ukge-rect or ukge-logi or passleaf",
            ),
            ("--rules rules.txt", "train ukge-rect or ukge-logi or passleaf"),
            ("--model ukge-logi --weight-mode focuse", "requires weight_mode 'none'"),
            ("--model ukge-rect --loss nll", "by the loss 'squared-error', not 'nll'"),
            ("--model distmult --loss squared-error", "loss 'squared-error' requires a confidence model (ukge-rect, "),
            ("--model complex --stop-metric mse", "stop_metric 'mse' requires a confidence model (ukge-rect, "),
            ("--model ukge-logi --rule-loss-weight -1", "rule_loss_weight -1: give a number of at least 0"),
            ("--model ukge-logi --rule-batch-size 0", "rule_batch_size 0: give a whole number of at least 1"),
        ],
    )
    def test_conflicting_options_are_refused(self, refused, arguments, says):
        line = refused(*arguments.split())
        assert says in line
        assert "\n" not in line

    def test_soft_logic_with_resume_is_refused(self, command, files):
        (files / "run").mkdir()
        done = command("train", "--resume", "run", "--inferred-triples", "soft.tsv", "--rules", "rules.txt")
        assert (done.returncode, done.stdout) == (2, "")
        assert "remove inferred-triples, rules" in done.stderr


def test_settings_of_a_run_with_soft_logic_need_it_again(train_here, files):
    assert train_here("--model", "ukge-logi", "--inferred-triples", "soft.tsv")[0] == 0
    (files / "run").rename(files / "first")
    config = ["--config", files / "first" / "run.toml"]
    code, _, told = train_here(*config)
    assert code == 2
    assert "that run was trained with inferred triples; give --inferred-triples or --rules again" in told
    assert not (files / "run").exists()
    assert train_here(*config, "--inferred-triples", "soft.tsv")[0] == 0
    first, again = (focuse.load(files / name) for name in ("first", "run"))
    assert triples(first.splits.inferred) == triples(again.splits.inferred)
    (files / "run").rename(files / "second")
    assert train_here(*config, "--rule-loss-weight", "0")[0] == 0
