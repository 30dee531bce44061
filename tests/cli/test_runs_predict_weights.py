"""`focuse predict-weights`."""

from __future__ import annotations

import json

import pytest

from focuse.cli.main import app
from focuse.errors import FocuseError


@pytest.fixture
def predicted(capsys):
    def run(*arguments):
        app(["predict-weights", *map(str, arguments)], standalone_mode=False)
        return capsys.readouterr().out

    return run


@pytest.fixture
def asked(tmp_path):
    path = tmp_path / "asked.tsv"
    path.write_text("e1\tr0\te2\ne4\tr1\te5\n", encoding="utf-8")
    return path


def test_weights_are_printed_as_json(predicted, trained, asked):
    told = json.loads(predicted(trained.folder, asked, "--coverage", "0.8", "--json"))
    assert told["coverage"] == 0.8
    assert [(row["head"], row["tail"]) for row in told["rows"]] == [("e1", "e2"), ("e4", "e5")]
    assert all(row["weight_low"] <= row["weight_mean"] <= row["weight_high"] for row in told["rows"])


def test_weights_are_printed_as_text(predicted, trained, asked):
    lines = predicted(trained.folder, asked).splitlines()
    names = "head relation tail in_train weight_mean weight_median weight_low weight_high probability"
    assert lines[0].split() == names.split()
    assert [line.split()[:4] for line in lines[1:3]] == [["e1", "r0", "e2", "yes"], ["e4", "r1", "e5", "no"]]
    assert "too few to learn weights from graph features" in lines[3]
    assert len(lines) == 4


def test_weights_are_written_to_a_file(predicted, trained, tmp_path):
    given, out = tmp_path / "given.tsv", tmp_path / "told.csv"
    given.write_text("e1\tr0\te2\t0.5\n", encoding="utf-8")
    assert f"1 triple written to {out}" in predicted(trained.folder, given, "--out", out)
    heading, row = out.read_text(encoding="utf-8").splitlines()
    assert heading.replace('"', "") == (
        "head,relation,tail,in_train,weight,weight_mean,weight_median,weight_low,weight_high,probability"
    )
    assert row.replace('"', "").startswith("e1,r0,e2,true,0.5,")


def test_invalid_options_are_refused(predicted, trained, asked, tmp_path):
    with pytest.raises(FocuseError, match=r"coverage 1\.0"):
        predicted(trained.folder, asked, "--coverage", "1")
    for out, why in (("told.xlsx", "cannot write .xlsx"), ("no/told.csv", "there is no folder")):
        with pytest.raises(FocuseError, match=why):
            predicted(tmp_path / "no run is looked for", asked, "--out", tmp_path / out)
    with pytest.raises(FocuseError, match="nowhere"):
        predicted(trained.folder, tmp_path / "nowhere.tsv")
