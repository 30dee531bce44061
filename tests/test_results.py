"""ResultTable: its forms, files, printed text and limits."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from focuse.errors import FocuseError
from focuse.results import ResultTable, check_table_path, format_table

HOSTILE = '<b>\x1b[31m\n"=1+1'


@pytest.fixture
def table() -> ResultTable:
    columns = {
        "rank": np.array([1, 2, 3]),
        "head": ["a", "b", "c"],
        "relation": pa.array(["r", "r", "s"]),
        "tail": pa.chunked_array([["x"], ["y", "z"]]),
        "score": np.array([1.5, np.nan, -0.25]),
        "known": np.array([True, False, False]),
    }
    return ResultTable(columns, notes=["three links"], info={"scored": 12, "stopped": False})


def test_columns_rows_and_info_are_accessible(table: ResultTable) -> None:
    assert len(table) == 3
    assert table.columns == ["rank", "head", "relation", "tail", "score", "known"]
    assert (table[0].tail, table[-1].tail, table[1].score) == ("x", "z", None)
    assert [row.rank for row in table] == [1, 2, 3]
    assert table["tail"].tolist() == ["x", "y", "z"]
    assert np.isnan(table["score"][1])
    assert (table.scored, table.stopped, table.notes) == (12, False, ("three links",))
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = table.missing
    with pytest.raises(FocuseError, match="no column 'weight'; the table has rank, head"):
        _ = table["weight"]
    with pytest.raises(IndexError):
        _ = table[3]


def test_slices_are_tables_with_the_same_notes(table: ResultTable) -> None:
    for index in (slice(1), slice(1, None), slice(None, None, -2), slice(5, 9)):
        part = table[index]
        assert isinstance(part, ResultTable)
        assert part.to_dicts() == table.to_dicts()[index]
        assert (part.notes, part.scored) == (table.notes, 12)
    assert table[:] == table
    assert table[:2] != table
    assert table != list(table)


def test_missing_values_are_none_in_every_form(table: ResultTable) -> None:
    assert table.to_arrow()["score"].null_count == 1
    assert [row["score"] for row in table.to_dicts()] == [1.5, None, -0.25]
    assert json.loads(json.dumps(table.to_json(), allow_nan=False))["rows"][1]["score"] is None
    assert table.to_polars()["score"].to_list() == [1.5, None, -0.25]
    assert table.to_pandas()["score"].isna().tolist() == [False, True, False]


def test_pandas_and_polars_frames_become_the_same_table(table: ResultTable) -> None:
    frame, other = table.to_pandas(), table.to_polars()
    assert isinstance(frame, pd.DataFrame)
    assert isinstance(other, pl.DataFrame)
    again = ResultTable({name: frame[name].to_numpy() for name in frame})
    assert again.to_dicts() == ResultTable(other.to_arrow()).to_dicts() == table.to_dicts()


def test_json_has_rows_info_and_notes(table: ResultTable) -> None:
    nested = ResultTable({"a": [1]}, info={"summary": table[:1], "method": "kmeans"})
    assert nested.to_json() == {"rows": [{"a": 1}], "summary": table[:1].to_dicts(), "method": "kmeans", "notes": []}
    assert table.info_to_json() == {"scored": 12, "stopped": False, "notes": ["three links"]}


@pytest.mark.parametrize("suffix", ["tsv", "csv", "parquet", "json", "nt", "CSV", "tsv.gz"])
def test_files_hold_all_rows(table: ResultTable, tmp_path: Path, suffix: str) -> None:
    path = table.write(tmp_path / f"found.{suffix}")
    if suffix == "nt":
        assert path.read_text(encoding="utf-8").count("<urn:focuse:r>") >= 2
        return
    if suffix == "json":
        rows = json.loads(path.read_text(encoding="utf-8"))
    elif suffix == "parquet":
        rows = pq.read_table(path).to_pylist()
    else:
        options = arrow_csv.ParseOptions(delimiter="\t" if suffix.startswith("tsv") else ",")
        rows = arrow_csv.read_csv(path, parse_options=options).to_pylist()
    assert rows == table.to_dicts()
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_files_that_cannot_be_written_are_refused(table: ResultTable, tmp_path: Path) -> None:
    for name, words in (("x.doc", "cannot write .doc; use .tsv"), ("x", "without suffix"), ("no/x.tsv", "no folder")):
        with pytest.raises(FocuseError, match=words):
            table.write(tmp_path / name)
    with pytest.raises(FocuseError, match=r"cannot write \.nt"):
        ResultTable({"entity": ["a"]}).write(tmp_path / "entities.nt")  # not links
    (tmp_path / "run.toml").touch()
    (tmp_path / "entities.parquet").write_bytes(b"names")
    with pytest.raises(FocuseError, match="this file is a part of the run"):
        table.write(tmp_path / "entities.parquet")
    assert (tmp_path / "entities.parquet").read_bytes() == b"names"
    with pytest.raises(FocuseError, match="tab or line end"):
        ResultTable({"entity": ["a\tb"]}).write(tmp_path / "names.tsv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["entities.parquet", "run.toml"]
    with pytest.raises(FocuseError, match=r"cannot write \.gz"):
        check_table_path(tmp_path / "x.json.gz")
    assert check_table_path(tmp_path / "new.json") == tmp_path / "new.json"


def test_text_aligns_columns_and_hides_empty_ones() -> None:
    columns = {
        "name": ["a", "bb"],
        "score": [0.5, 1234.5],
        "n": [1, 20_000],
        "known": [True, False],
        "none": [None] * 2,
    }
    table = ResultTable(columns, notes=["a note"])
    assert str(table).splitlines() == [
        "name    score       n  known",
        "a         0.5       1  yes",
        "bb    1,234.5  20,000  no",
        "a note",
    ]
    assert "none" in table.columns
    assert str(ResultTable(columns, printed=["n", "name"])).splitlines()[0] == "     n  name"
    assert format_table([], []) == ""


def test_text_shows_the_first_rows_only() -> None:
    table = ResultTable({"n": np.arange(1000)})
    lines = str(table).splitlines()
    assert len(lines) == 52
    assert lines[-1] == "… 950 more rows"
    assert table.to_text(rows=2).splitlines() == ["n", "0", "1", "… 998 more rows"]
    assert "950 more rows" in table._repr_html_()
    assert repr(table) == "ResultTable(1,000 rows: n)"


def test_empty_table_says_so_and_keeps_its_columns(tmp_path: Path) -> None:
    table = ResultTable(
        {"entity": pa.array([], pa.string()), "n": np.empty(0, np.int64)}, notes=["why"], empty="nothing"
    )
    assert str(table) == "nothing\nwhy"
    assert (list(table), table.to_dicts(), table["n"].tolist()) == ([], [], [])
    assert "<p>nothing</p><p>why</p>" in table._repr_html_()
    assert table.write(tmp_path / "none.tsv").read_text(encoding="utf-8") == "entity\tn\n"
    assert json.loads(table.write(tmp_path / "none.json").read_text(encoding="utf-8")) == []


def test_hostile_names_are_escaped_where_they_are_shown(tmp_path: Path) -> None:
    table = ResultTable({"entity": [HOSTILE], HOSTILE: [1]}, notes=[HOSTILE])
    shown, page = str(table), table._repr_html_()
    assert len(shown.splitlines()) == 3
    assert "\x1b" not in shown + page
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert table[0].entity == HOSTILE
    assert pq.read_table(table.write(tmp_path / "names.parquet")).to_pylist() == table.to_dicts()


def test_million_rows_are_handled_by_column(tmp_path: Path) -> None:
    """Printing, slicing and writing take a fraction of the time in which the Python rows would be made."""
    count = 1_000_000
    names = pa.array([f"e{i}" for i in range(1000)]).take(pa.array(np.arange(count) % 1000))
    table = ResultTable({"entity": names, "score": np.linspace(0, 1, count)})
    start = time.process_time()
    for _ in range(20):
        assert len(str(table).splitlines()) == 52
        assert table[count - 1].entity == "e999"
        assert table._repr_html_()
    assert table["score"].sum() == pytest.approx(count / 2)
    assert len(table[::2]) == count // 2
    table.write(tmp_path / "all.parquet")
    table.to_polars()
    by_column = time.process_time() - start
    start = time.process_time()
    assert len(table.to_dicts()) == count
    assert by_column < 2 * (time.process_time() - start)
