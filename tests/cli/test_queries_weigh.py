"""`focuse predict-weights`."""

from __future__ import annotations

import json

import pytest

from focuse.cli.main import app
from focuse.errors import FocuseError


@pytest.fixture
def weighed(capsys):
    def run(*arguments):
        app(["predict-weights", *map(str, arguments)], standalone_mode=False)
        return capsys.readouterr().out

    return run


@pytest.fixture
def asked(tmp_path):
    path = tmp_path / "asked.tsv"
    path.write_text("e1\tr0\te2\ne4\tr1\te5\n", encoding="utf-8")
    return path


def test_weights_are_printed_as_json(weighed, trained, asked):
    told = json.loads(weighed(trained.folder, asked, "--coverage", "0.8", "--json"))
    assert told["coverage"] == 0.8
    assert [(row["head"], row["tail"]) for row in told["triples"]] == [("e1", "e2"), ("e4", "e5")]
    assert all(row["low"] <= row["expected"] <= row["high"] for row in told["triples"])


def test_weights_are_printed_as_text(weighed, trained, asked):
    lines = weighed(trained.folder, asked).splitlines()
    assert len(lines) == 3
    assert "weight = 0." in lines[0]
    assert "known from train" in lines[0]
    assert "weight ≈" in lines[1]
    assert "90% in" in lines[1]
    assert all("probability" in line for line in lines[:2])
    assert "too few to learn weights from their surroundings" in lines[2]


def test_weights_are_written_to_a_file(weighed, trained, tmp_path):
    given, out = tmp_path / "given.tsv", tmp_path / "told.csv"
    given.write_text("e1\tr0\te2\t0.5\n", encoding="utf-8")
    assert f"1 triple written to {out}" in weighed(trained.folder, given, "--out", out)
    heading, row = out.read_text(encoding="utf-8").splitlines()
    assert heading.replace('"', "") == "head,relation,tail,weight,expected,typical,low,high,probability,known"
    assert row.replace('"', "").startswith("e1,r0,e2,0.5,")


def test_invalid_options_are_refused(weighed, trained, asked, tmp_path):
    with pytest.raises(FocuseError, match=r"coverage 1\.0"):
        weighed(trained.folder, asked, "--coverage", "1")
    for out, why in (("told.xlsx", "cannot write .xlsx"), ("no/told.csv", "there is no folder")):
        with pytest.raises(FocuseError, match=why):
            weighed(tmp_path / "no run is looked for", asked, "--out", tmp_path / out)
    with pytest.raises(FocuseError, match="nowhere"):
        weighed(trained.folder, tmp_path / "nowhere.tsv")
