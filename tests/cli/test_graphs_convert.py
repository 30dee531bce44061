"""`focuse convert` and `--sql`: graphs between formats, and from a database."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from focuse.data.readers import read

EDGES = "SELECT * FROM edges"


@pytest.fixture
def base(small, tmp_path: Path) -> str:
    """The small graph in a data base."""
    with sqlite3.connect(tmp_path / "graph.db") as connection:
        connection.execute("CREATE TABLE edges (head TEXT, relation TEXT, tail TEXT, weight REAL)")
        rows = [tuple(row.values()) for row in small.to_arrow().to_pylist()]
        connection.executemany("INSERT INTO edges VALUES (?, ?, ?, ?)", rows)
    connection.close()
    return f"sqlite:///{tmp_path / 'graph.db'}"


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
    assert "1 fact without a weight left out" in done.stdout


def test_impossible_conversions_are_refused(refused, graph_file: Path, tmp_path: Path, base: str) -> None:
    assert "cannot write .xlsx; use .tsv, .csv, .parquet, .nt, .nq" in refused(
        "convert", graph_file, tmp_path / "x.xlsx"
    )
    assert "this file is also read" in refused("convert", graph_file, graph_file)
    assert "no such table: absent" in refused("describe", base, "--sql", "SELECT * FROM absent")


def test_commands_read_from_a_database(command, base: str, graph_file: Path, tmp_path: Path) -> None:
    shown = json.loads(command("describe", base, "--sql", EDGES, "--json", check=True).stdout)
    assert shown["edges"] == 600
    folder = tmp_path / "run"
    held = f"{base}?sql=SELECT%20*%20FROM%20edges%20LIMIT%2030"
    small = ("--dim", "2", "--epochs", "1", "--quiet", "--weight-mode", "none")
    done = command("train", base, "--sql", EDGES, "--test", held, "--out", folder, "--json", *small, check=True)
    assert json.loads(done.stdout)["test_rows"] == 30
    assert base in (folder / "run.toml").read_text(encoding="utf-8")
    done = command("convert", base, tmp_path / "out.tsv", "--sql", EDGES, check=True)
    assert read(tmp_path / "out.tsv").to_arrow().equals(read(graph_file).to_arrow())
