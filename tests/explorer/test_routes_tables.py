"""Files that spreadsheets and programs read back."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focuse.explorer.routes import FORMULA_STARTS, disposition, safe_cell, write_table

ROWS = [{"name": "=1+1", "n": -0.5}, {"name": 'a,b\n"c"\t', "n": None}, {"name": "日本", "n": 2}]


@pytest.mark.parametrize(("form", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_text_is_read_back_unchanged_except_formulas(form, delimiter) -> None:
    text = "".join(write_table(["name", "n"], ROWS, form))
    read = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    assert read == [["name", "n"], ["'=1+1", "-0.5"], ['a,b\n"c"\t', ""], ["日本", "2"]]


@pytest.mark.parametrize("rows", [[], ROWS[:1], ROWS])
def test_json_is_read_back_unchanged(rows) -> None:
    assert json.loads("".join(write_table(["name", "n"], rows, "json"))) == rows


@given(st.text())
def test_no_cell_begins_a_formula(name: str) -> None:
    assert not str(safe_cell(name)).startswith(FORMULA_STARTS)


@given(st.lists(st.text(), max_size=3))
def test_file_name_is_safe_in_a_header(words: list[str]) -> None:
    header = disposition(words, "csv")
    header.encode("latin-1")
    plain = header.split('"')[1]
    assert plain.startswith("focuse-")
    assert not set(plain) & set("/\\\r\n;%")
    assert "\n" not in header
    assert "\r" not in header
