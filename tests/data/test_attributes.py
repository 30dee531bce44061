"""Attributes of entities: read from every source, aligned and standardized."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focuse.data.attributes import AttributeTable, NodeAttributes, align_attributes, read_attributes
from focuse.data.graph import Vocabulary
from focuse.errors import FocuseError
from focuse.storage.tensors import write_arrays

ROWS = [("a", "age", 30.0), ("b", "age", 50.0), ("a", "height", 1.8), ("b", "height", None), ("c", "age", 40.0)]


TEXT = "".join(f"{entity}\t{attribute}\t{'' if value is None else value}\n" for entity, attribute, value in ROWS)


NAMES = Vocabulary(["c", "b", "a"])


def put(folder: Path, text: str | bytes, name: str = "numbers.tsv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def complaint(source: object) -> str:
    with pytest.raises(FocuseError) as error:
        read_attributes(source)
    assert "\n" not in str(error.value)
    return str(error.value)


def rows_of(found: AttributeTable) -> list[tuple[str, str, float | None]]:
    values = [None if np.isnan(value) else value for value in found.value]
    return list(zip(found.entity.to_pylist(), found.attribute.to_pylist(), values, strict=True))


def sources(folder: Path) -> dict[str, object]:
    columns = dict(zip(("entity", "attribute", "value"), map(list, zip(*ROWS, strict=True)), strict=True))
    frame = pd.DataFrame(columns)
    frame.to_parquet(folder / "n.parquet")
    frame[["value", "attribute", "entity"]].to_csv(folder / "turned.csv", index=False)
    return {
        "tsv": put(folder, TEXT),
        "headed": put(folder, "Entity\tAttribute\tValue\n" + TEXT, "headed.tsv"),
        "nan": put(folder, TEXT.replace("height\t\n", "height\tNaN\n"), "nan.tsv"),
        "crlf": put(folder, TEXT.replace("\n", "\r\n"), "crlf.tsv"),
        "semicolons": put(folder, TEXT.replace("\t", ";"), "n.csv"),
        "gzip": put(folder, gzip.compress(TEXT.encode()), "n.tsv.gz"),
        "parquet": str(folder / "n.parquet"),
        "turned": folder / "turned.csv",
        "pandas": frame,
        "other index": frame.set_index(pd.Index([9, 7, 5, 3, 1])),
        "polars": pl.DataFrame(columns),
        "arrow": pa.table(columns),
        "tuples": ROWS,
        "generator": (row for row in ROWS),
        "words": [(entity, attribute, "" if value is None else str(value)) for entity, attribute, value in ROWS],
    }


@pytest.mark.parametrize("kind", [
    "tsv", "headed", "nan", "crlf", "semicolons", "gzip", "parquet", "turned", "pandas", "other index", "polars",
    "arrow", "tuples", "generator", "words",
])  # fmt: skip
def test_every_source_gives_the_same_rows(tmp_path, kind):
    found = read_attributes(sources(tmp_path)[kind])
    assert rows_of(found) == ROWS
    assert len(found) == len(ROWS)
    assert read_attributes(found) is found


def test_a_file_with_more_columns_is_refused(tmp_path):
    assert "4 columns" in complaint(put(tmp_path, "when\twho\twhat\thow much\n2001\ta\tage\t3\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tage\t1\nb\tage\told\n", "line 2: the value 'old' is not a number; correct it"),
        ("a\tage\t1\n\nb\tage\tinf\n", "line 3: the value 'inf' is not finite"),
        ("a\tage\t1\nb\tage\t1e999\n", "line 2: the value '1e999' is not finite"),
        ("name,mass,year\na,180.2,1899\nb,206.3,1961\nc,151.2,1878\n", "the attributes are numbers (180.2, 206.3, …)"),
        ("a\tage\t1\nb\tage\t1,5\n", "line 2: the value '1,5' has a decimal comma; write it with a point"),
        ("a\tage\t1\nb\tage\n", "line 2: 2 columns instead of 3; give every line entity, attribute and value"),
        ("a\tage\t1\nb\tage\t2\t3\n", "line 2: 4 columns instead of 3"),
        ("a\tage\t1\n\tage\t2\n", "line 2: the entity is empty"),
        ("a\tage\t1\nb\t\t2\n", "line 2: the attribute is empty"),
        ("a\tage\told\nb\tage\t2\n", "line 1: the value 'old' is not a number; correct it, or head the columns entity"),
        ("a\tage\n", "line 1: found no tab, comma, semicolon, bar or space that cuts it into 3 columns"),
        ("", "the file is empty; expected lines of entity, attribute and value"),
        ("entity\tattribute\tvalue\n", "no rows"),
        (b"a\tage\t1\nb\t\xff\t1\n", "line 2: the attribute is not UTF-8 text"),
        (b"PAR1 nonsense PAR1", "not a readable Parquet file"),
    ],
)
def test_a_faulty_file_is_one_line_that_names_it(tmp_path, text, message):
    path = put(tmp_path, text)
    assert complaint(path).startswith(f"{path}")
    assert message in complaint(path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([("a", "age", 1), ("b", "age", "old")], "row 2: the value 'old' is not a number"),
        ([("a", "age", 1), ("b", "age", float("inf"))], "row 2: the value 'inf' is not finite"),
        ([("a", "age", 1), ("b", "age")], "row 2: 2 values; give every row entity, attribute and value"),
        (["abc"], "row 1: 'abc' is not a tuple"),
        ([("a", "", 1)], "row 1: the attribute is empty"),
        ([("a", None, 1)], "row 1: the attribute is empty"),
        ([], "no rows; expected tuples of entity, attribute and value"),
        (pd.DataFrame({"entity": ["a"], "age": [3]}), "2 columns (entity, age), expected 3"),
        ({"a": 1}, "cannot read attributes from dict: give a file, a frame or rows"),
        (7, "cannot read attributes from int"),
        ("nowhere.tsv", "nowhere.tsv: No such file"),
    ],
)
def test_a_faulty_table_is_one_line_that_names_the_row(source, message):
    assert message in complaint(source)


def test_attributes_are_standardized_over_the_graphs_entities():
    found, notes = align_attributes(read_attributes(ROWS), NAMES)
    assert notes == ["attributes: all values of 'height' are equal and carry no information; they are set to 0"]
    assert found.names == ("age", "height")
    step = np.sqrt(1.5)
    np.testing.assert_allclose(found.values, [[0, 0], [step, 0], [-step, 0]], atol=1e-7)
    assert found.present.tolist() == [[True, False], [True, False], [True, True]]
    np.testing.assert_allclose((found.values * found.deviation + found.mean)[:, 0], [40, 50, 30])
    assert (found.values * found.deviation + found.mean)[2, 1] == 1.8
    assert str(found) == "attributes: 2 attributes (age, height) of 3 of 3 entities"
    assert found.values.dtype == np.float32


def test_entities_unknown_to_the_graph_are_left_out():
    """Neither in mean and deviation, nor is an attribute kept that only they have; the note offers near names."""
    rows = [("anna", "age", 1), ("berta", "age", 3), ("bertha", "age", 999), ("bertha", "fame", 5), ("x", "age", 7)]
    found, notes = align_attributes(read_attributes(rows), Vocabulary(["anna", "berta"]))
    assert found.values.tolist() == [[-1.0], [1.0]]
    assert notes == [
        "attributes: 2 of 4 entities are not in the graph and left out: 'bertha' (did you mean berta?), 'x'",
        "attributes: no entity of the graph has 'fame'; left out",
    ]
    many = [("anna", "age", 1), ("berta", "age", 3), *((f"nobody{i}", "age", i) for i in range(9))]
    assert (
        "9 of 11 entities are not in the graph and left out: such as 'nobody0'"
        in align_attributes(read_attributes(many), Vocabulary(["anna", "berta"]))[1][0]
    )


def test_no_known_entity_or_no_value_is_an_error():
    with pytest.raises(FocuseError, match=r"the graph has none of its 1 entities, such as 'Anna' \(did you mean anna"):
        align_attributes(read_attributes([("Anna", "age", 1)]), Vocabulary(["anna"]))
    with pytest.raises(FocuseError, match="every value is missing"):
        align_attributes(read_attributes([("anna", "age", None)]), Vocabulary(["anna"]))


def test_repeated_values_are_replaced_by_their_mean():
    rows = [("a", "age", 10), ("a", "age", 30), ("a", "age", None), ("b", "age", 40)]
    found, notes = align_attributes(read_attributes(rows), Vocabulary("ab"))
    assert notes == ["attributes: 1 row repeats an entity's attribute; the mean is used"]
    assert (found.values * found.deviation + found.mean).ravel().tolist() == [20.0, 40.0]


cells = st.dictionaries(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "y", "z"])),
    st.floats(allow_nan=False, allow_infinity=False) | st.just(0.1),
    min_size=1,
)


@given(cells)
def test_values_of_any_size_are_standardized_without_overflow(table):
    """Against each attribute's own mean and deviation, one after the other."""
    names = Vocabulary("abcdef")
    found, _ = align_attributes(read_attributes([(*place, value) for place, value in table.items()]), names)
    assert np.isfinite(found.values).all()
    assert np.isfinite(found.deviation).all()
    for column, attribute in enumerate(found.names):
        own = {names.column.to_pylist().index(entity): v for (entity, name), v in table.items() if name == attribute}
        assert sorted(np.flatnonzero(found.present[:, column])) == sorted(own)
        values = np.array([own[place] for place in sorted(own)])
        values = values / max(np.abs(values).max(), 5e-324) if np.abs(values).max() > 0 else values
        mine = found.values[sorted(own), column]
        if np.ptp(values) == 0:
            assert (mine == 0).all()
        elif values.std() > 1e-6:
            np.testing.assert_allclose(mine, (values - values.mean()) / values.std(), rtol=1e-4, atol=1e-4)
        assert (np.delete(found.values[:, column], sorted(own)) == 0).all()


def test_attributes_are_unchanged_after_writing_and_reading(tmp_path):
    found, _ = align_attributes(read_attributes(ROWS), NAMES)
    metadata = {"names": json.dumps(found.names), "source": found.source}
    write_arrays(tmp_path / "numbers.safetensors", found.arrays(), metadata)
    again = NodeAttributes.read(tmp_path / "numbers.safetensors", 3)
    assert (again.names, again.source) == (found.names, found.source)
    for part in ("values", "present", "mean", "deviation"):
        np.testing.assert_array_equal(getattr(again, part), getattr(found, part))
    with pytest.raises(ValueError, match="instead of"):
        NodeAttributes.read(tmp_path / "numbers.safetensors", 4)
