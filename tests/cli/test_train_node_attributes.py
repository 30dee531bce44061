"""`focuse train --node-attributes`: attributes of entities from a file."""

from __future__ import annotations

import json
import sys

import pytest

import focuse
from focuse.cli.main import run as run_command

TRAINING = "--dim 4 --epochs 2 --batch-size 64 --num-negatives 4 --eval-every 1 --eval-start 0 --device cpu --quiet"


@pytest.fixture
def train_here(small, graph_file, tmp_path, monkeypatch, capsys):
    """`train_here(…)` beside some files: in this process; its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    lines = [f"{name}\tage\t{place % 7}\n" for place, name in enumerate(small.entities) if place % 3]
    (tmp_path / "numbers.tsv").write_text("entity\tattribute\tvalue\n" + "".join(lines))
    (tmp_path / "broken.tsv").write_text("e1\tage\t1\ne2\tage\tx\n")
    (tmp_path / "strange.tsv").write_text("E11\tage\t1\n")

    def train(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", [str(one) for one in ("focuse", "train", graph_file, *arguments)])
        code = 0
        try:
            run_command()
        except SystemExit as error:
            code = int(error.code or 0)
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return train


def test_run_with_attributes_works_without_their_file(train_here, tmp_path):
    given = "--model transea --node-attributes numbers.tsv --attribute-loss-weight 0.4 --json --out run"
    code, shown, _ = train_here(*given.split(), *TRAINING.split(), "--label-exponent", 1)
    data = json.loads(shown)
    assert code == 0
    assert data["node_attributes"] == ["age"]
    assert (data["settings"]["model"], data["settings"]["attribute_loss_weight"]) == ("transea", 0.4)
    (tmp_path / "numbers.tsv").unlink()
    run = focuse.load("run")
    assert run.evaluate().all.mrr > 0
    assert int(run.splits.attributes.present.sum()) == 26


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--model kblrn", "model 'kblrn' needs node_attributes"),
        (
            "--node-attributes numbers.tsv",
            "model 'complex' does not use node attributes; train one of literale-distmult",
        ),
        ("--model kblrn --node-attributes none.tsv", "none.tsv: No such file"),
        ("--model kblrn --node-attributes broken.tsv", "broken.tsv, line 2: the value 'x' is not a number"),
        (
            "--model kblrn --node-attributes strange.tsv",
            "the graph has none of its 1 entities, such as 'E11' (did you mean e11",
        ),
        ("--model complex --attribute-loss-weight 0.2", "attribute_loss_weight requires model 'transea'"),
    ],
)
def test_invalid_attribute_options_are_refused_without_files(train_here, tmp_path, given, message):
    code, shown, said = train_here("--out", "run", *given.split(), *TRAINING.split())
    assert (code, shown) == (2, "")
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_settings_of_a_run_with_attributes_need_them_again(train_here):
    given = "--model literale-distmult --node-attributes numbers.tsv --out run"
    assert train_here(*given.split(), *TRAINING.split(), "--label-exponent", 1)[0] == 0
    again = ["--config", "run/run.toml", "--out", "again"]
    assert "needs node_attributes" in train_here(*again)[2]
    assert train_here(*again, "--node-attributes", "numbers.tsv")[0] == 0
