"""Names that a spreadsheet would run."""

from __future__ import annotations

import csv
from pathlib import Path

import pyarrow as pa
import pytest

import focuse
from focuse.errors import FocuseError
from focuse.graph import read
from focuse.graph.links import write_links
from focuse.graph.spreadsheets import for_spreadsheets, guarded, text_table

ODD = ["=cmd|'/c calc'!A1", "+1", "-1+2", "@SUM(1)", "\tx", "\rx", "\nx", "＝1", '"=1"', '""-x']


def rows(path: Path, delimiter: str) -> list[list[str]]:
    quoting = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, delimiter=delimiter, quoting=quoting))


@pytest.mark.parametrize("name", ODD)
def test_such_names_get_an_apostrophe_and_others_none(name: str) -> None:
    assert guarded(pa.array([name, "a=b", "x", "'", "é", '"x"'])).to_pylist() == [
        f"'{name}", "a=b", "x", "'", "é", '"x"',
    ]  # fmt: skip


def test_files_are_faithful_unless_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = read([(name, "=r", "b", -0.5) for name in ODD])
    graph.write(tmp_path / "g.csv")
    assert list(read(tmp_path / "g.csv").entities) == list(graph.entities)
    monkeypatch.setenv("FOCUSE_SPREADSHEET", "1")
    graph.write(tmp_path / "safe.csv")
    found = rows(tmp_path / "safe.csv", ",")
    assert [row[0] for row in found[1:]] == [f"'{name}" for name in ODD]
    assert {(row[1], row[3]) for row in found[1:]} == {("'=r", "-0.5")}  # numbers stay numbers


@pytest.mark.parametrize(("suffix", "delimiter"), [(".csv", ","), (".tsv", "\t")])
def test_results_too(suffix: str, delimiter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"head": ["=1"], "relation": ["r"], "tail": ["@x"], "probability": [-0.25], "=note": ["+"]})
    write_links(table, tmp_path / f"plain{suffix}")
    assert rows(tmp_path / f"plain{suffix}", delimiter)[1] == ["=1", "r", "@x", "-0.25", "+"]
    monkeypatch.setenv("FOCUSE_SPREADSHEET", "on")
    write_links(table, tmp_path / f"safe{suffix}")
    assert rows(tmp_path / f"safe{suffix}", delimiter) == [
        ["head", "relation", "tail", "probability", "'=note"],
        ["'=1", "r", "'@x", "-0.25", "'+"],
    ]
    write_links(table, tmp_path / "same.parquet")  # no spreadsheet runs what stands there


def test_embeddings_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = [("=1", "r", str(i), i) for i in range(20)]
    run = focuse.train(graph, dim=2, epochs=1, sharpness=1, progress=False)
    monkeypatch.setenv("FOCUSE_SPREADSHEET", "1")
    run.export(tmp_path / "e.csv")
    assert "'=1" in [row[0] for row in rows(tmp_path / "e.csv", ",")]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_dictionaries_are_guarded_as_well(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOCUSE_SPREADSHEET", "1")
    assert text_table(pa.table({"x": pa.array(["=1", None, "a"], kind).dictionary_encode()}))["x"].to_pylist() == [
        "'=1", None, "a",
    ]  # fmt: skip


def test_what_it_may_be_set_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOCUSE_SPREADSHEET", "maybe")
    with pytest.raises(FocuseError, match="set it to 1 or 0"):
        for_spreadsheets()
