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
    done = command("inspect", files / "train.tsv", "--test", files / "test.tsv", "--json", check=True)
    data = json.loads(done.stdout)
    assert (data["edges"], data["entities"], data["relations"]) == (600, 40, 3)
    assert {row["name"] for row in data["per_relation"]} == {"r0", "r1", "r2"}
    assert sum(sum(row["histogram"]) for row in data["per_relation"]) == 600
    leak = data["leakage"]["test"]
    assert (leak["rows"], leak["same_triple"], leak["unseen"]["rows"]) == (2, 1, 1)
    assert done.stderr == ""


def test_text_describes_the_graph(command, files):
    shown = command("inspect", files / "train.tsv", "--test", files / "test.tsv", "--relations", "2", check=True).stdout
    for words in (
        "600 edges, 40 entities, 3 relations",
        "repeated triples: 0",
        "inverse pairs",
        "and 1 more relations",
        "test: 2 rows",
        "1 (50.0%)",
        "'stranger'",
    ):
        assert words in shown


def test_says_that_the_layer_would_be_off(command, tmp_path):
    (tmp_path / "three.csv").write_text("head,relation,tail\na,r,b\nb,r,c\n")
    assert "the focus layer would be off" in command("inspect", tmp_path / "three.csv", check=True).stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [("a\tr\tb\t0.5\nb\tr\tc\tmuch\n", "g.tsv, line 2: "), ("", "g.tsv"), (None, "g.tsv: No such file or directory")],
)
def test_refused(refused, tmp_path, text, says):
    if text is not None:
        (tmp_path / "g.tsv").write_text(text)
    assert says in refused("inspect", tmp_path / "g.tsv")


def test_torch_is_not_loaded(files):
    code = (
        "import sys; sys.argv = ['focuse', 'inspect', sys.argv[1]]; from focuse.cli.main import run; run(); "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, files / "train.tsv"], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"
