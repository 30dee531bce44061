"""`focuse describe`: statistics, leakage and baselines of a graph."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.fixture
def files(small, tmp_path):
    """A train file, and a test file with a leak and an unseen name."""
    small.write(tmp_path / "train.tsv")
    first = (tmp_path / "train.tsv").read_text().splitlines()[0]
    (tmp_path / "test.tsv").write_text(f"{first}\ne1\tr0\tstranger\t0.5\n")
    return tmp_path


def test_json_describes_the_graph(command, files):
    done = command("describe", files / "train.tsv", "--test", files / "test.tsv", "--json", check=True)
    data = json.loads(done.stdout)
    assert (data["edges"], data["entities"], data["relations"]) == (600, 40, 3)
    assert {row["name"] for row in data["per_relation"]} == {"r0", "r1", "r2"}
    assert sum(sum(row["histogram"]) for row in data["per_relation"]) == 600
    leak = data["leakage"]["test"]
    assert (leak["rows"], leak["same_triple"], leak["unseen"]["rows"]) == (2, 1, 1)
    assert done.stderr == ""


def test_text_describes_the_graph(command, files):
    shown = command(
        "describe", files / "train.tsv", "--test", files / "test.tsv", "--max-relations", "2", check=True
    ).stdout
    for words in (
        "600 edges, 40 entities, 3 relations",
        "repeated triples: 0",
        "inverse pairs",
        "… 1 more row",
        "test: 2 rows",
        "1 (50.0%)",
        "'stranger'",
    ):
        assert words in shown


def test_baselines_of_a_split_are_shown(command, tmp_path):
    (tmp_path / "train.tsv").write_text("a\tr\tb\t0.2\nb\tr\tc\t0.6\nc\ts\ta\t0.4\n")
    (tmp_path / "test.tsv").write_text("b\tr\ta\t0.3\na\ts\tb\t0.5\na\tr\tc\t0.4\nc\ts\tx\t0.9\n")
    (tmp_path / "valid.tsv").write_text("a\tr\ta\t0.9\n")
    files = ("describe", tmp_path / "train.tsv", "--test", tmp_path / "test.tsv", "--valid", tmp_path / "valid.tsv")
    data = json.loads(command(*files, "--json", check=True).stdout)["baselines"]
    assert list(data) == ["valid", "test"]
    assert list(data["test"]) == ["positives", "clean"]
    rows = data["test"]["positives"]
    # The edge back .2, the pair's .2, the pair's .4: off by .1, .3, 0; the relation's means by .1, .1, 0.
    assert rows["inverse copy"] == {"n": 3, "mse": pytest.approx(0.1 / 3), "mae": pytest.approx(0.4 / 3)}
    assert rows["relation mean"] == {"n": 3, "mse": pytest.approx(0.02 / 3), "mae": pytest.approx(0.2 / 3)}
    assert rows["global mean"] == pytest.approx(rows["relation mean"])
    # (a, s, b) alone is neither in train nor the inverse of an edge there.
    assert data["test"]["clean"]["inverse copy"] == {"n": 1, "mse": pytest.approx(0.09), "mae": pytest.approx(0.3)}
    assert data["valid"]["clean"]["relation mean"]["mae"] == pytest.approx(0.5)
    shown = command(*files, check=True).stdout
    assert "test: weights predicted by baselines (all 3 rows; not leaked: 1 rows)" in shown
    copied = [line for line in shown.splitlines() if line.startswith("  inverse copy")]
    assert copied[-1].split() == ["inverse", "copy", "0.03333", "0.1333", "0.09", "0.3"]


def test_undefined_values_are_a_dash_in_text_and_null_in_json(command, files):
    """The only row that train knows stands in train: nothing is clean."""
    arguments = ("describe", files / "train.tsv", "--test", files / "test.tsv")
    shown = command(*arguments, check=True).stdout.splitlines()
    [row] = [line for line in shown if line.startswith("  global mean")]
    assert row.split()[-2:] == ["–", "–"]
    data = json.loads(command(*arguments, "--json", check=True).stdout)["baselines"]["test"]
    assert data["clean"]["global mean"] == {"n": 0, "mse": None, "mae": None}


def test_graph_without_weights_has_no_baselines(command, tmp_path):
    (tmp_path / "three.csv").write_text("head,relation,tail\na,r,b\nb,r,c\n")
    arguments = ("describe", tmp_path / "three.csv", "--test", tmp_path / "three.csv")
    assert "baselines" not in command(*arguments, check=True).stdout
    assert json.loads(command(*arguments, "--json", check=True).stdout)["baselines"] == {}


def test_equal_weights_give_a_note_that_the_layer_would_be_off(command, tmp_path):
    (tmp_path / "three.csv").write_text("head,relation,tail\na,r,b\nb,r,c\n")
    assert "training ignores them" in command("describe", tmp_path / "three.csv", check=True).stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [("a\tr\tb\t0.5\nb\tr\tc\tmuch\n", "g.tsv, line 2: "), ("", "g.tsv"), (None, "g.tsv: No such file or directory")],
)
def test_faulty_files_are_refused(refused, tmp_path, text, says):
    if text is not None:
        (tmp_path / "g.tsv").write_text(text)
    assert says in refused("describe", tmp_path / "g.tsv")


def test_torch_is_not_loaded(files):
    code = (
        "import sys; sys.argv = ['focuse', 'describe', sys.argv[1], '--test', sys.argv[2]]; "
        "from focuse.cli.main import run; run(); print('torch' in sys.modules)"
    )
    arguments = [sys.executable, "-c", code, files / "train.tsv", files / "test.tsv"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "False"
