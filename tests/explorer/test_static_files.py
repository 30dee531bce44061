"""Files that the page saves (`static/files.js`): read back by programs, and safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from focuse.explorer import app

NODE = shutil.which("node")
MODULE = (Path(app.__file__).parent / "static" / "files.js").as_uri()
pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node.js")
ROWS = [
    {"name": "=1+1", "n": -0.5},
    {"name": 'a,b\n"c"\t', "n": None},
    {"name": "日本", "n": 2},
    {"name": '"=1', "n": True},
    {"name": "@x", "n": 0},
]


def call(function: str, *arguments: Any) -> Any:
    code = f"const m = await import({json.dumps(MODULE)}); const a = JSON.parse(process.argv[1]);"
    code += f"process.stdout.write(JSON.stringify(m.{function}(...a)));"
    command = [str(NODE), "--input-type=module", "-e", code, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("form", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_text_is_read_back_unchanged_except_formulas(form, delimiter) -> None:
    read = list(csv.reader(io.StringIO(call("fileText", ROWS, form), newline=""), delimiter=delimiter))
    assert read == [
        ["name", "n"],
        ["'=1+1", "-0.5"],
        ['a,b\n"c"\t', ""],
        ["日本", "2"],
        ["'\"=1", "true"],
        ["'@x", "0"],
    ]


@pytest.mark.parametrize("rows", [[], ROWS])
def test_json_is_read_back_unchanged(rows) -> None:
    assert json.loads(call("fileText", rows, "json")) == rows


def test_file_name_has_only_letters_digits_and_dashes() -> None:
    assert call("fileName", ["triples", 'a"/../b\n'], "csv") == "focuse-triples-a-b.csv"
    assert call("fileName", ["../.."], "csv") == "focuse-table.csv"


def test_compared_rows_have_the_same_columns() -> None:
    link = {"rank": 2, "score": 0.5}
    rows = [
        {"name": "x", "moved": 0, "first": link, "second": link},
        {"name": "y", "moved": None, "first": None, "second": link},
    ]
    made = call("comparedRows", rows)
    assert (
        list(made[0]) == list(made[1]) == ["name", "moved", "first_rank", "first_score", "second_rank", "second_score"]
    )
    assert (made[1]["first_rank"], made[1]["second_rank"]) == (None, 2)
