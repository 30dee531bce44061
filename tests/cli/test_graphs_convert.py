"""`focuse convert`: graphs between formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from focuse.data.readers import read


def test_converted_graph_can_be_converted_back(command, graph_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyoxigraph")
    step = graph_file
    for name in ("one.nt.gz", "two.graphml"):
        done = command("convert", step, tmp_path / name, "--json", check=True)
        data = json.loads(done.stdout)
        assert data["edges"] == 600
        assert data["weights"] == ["weight"]
        step = tmp_path / name
    assert read(step).to_arrow().equals(read(graph_file).to_arrow())


def test_rdf_options_are_passed_on(command, tmp_path: Path) -> None:
    pytest.importorskip("pyoxigraph")
    text = '<http://e/a> <http://e/p> <http://e/b> {| <http://e/w> 0.5 |} ; <http://e/q> <http://e/c>, "x" .'
    (tmp_path / "x.ttl").write_text(text, encoding="utf-8")
    more = ("--missing-weight", "1", "--short-names", "--literals", "keep")
    done = command("convert", tmp_path / "x.ttl", tmp_path / "x.tsv", *more, check=True)
    assert done.stdout.startswith("3 edges written to ")
    assert (tmp_path / "x.tsv").read_text(encoding="utf-8") == 'a\tp\tb\t0.5\na\tq\tc\t1\na\tq\t"x"\t1\n'
    done = command("convert", tmp_path / "x.ttl", tmp_path / "x.tsv", "--missing-weight", "drop", check=True)
    assert "note: " in done.stdout
    assert "1 triple without a weight left out" in done.stdout


def test_impossible_conversions_are_refused(refused, graph_file: Path, tmp_path: Path) -> None:
    assert "cannot write .xlsx; use .tsv, .csv, .parquet, .nt, .nq" in refused(
        "convert", graph_file, tmp_path / "x.xlsx"
    )
    assert "this file is also read" in refused("convert", graph_file, graph_file)
