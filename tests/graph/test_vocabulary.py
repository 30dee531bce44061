"""Names and ids."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.graph import Vocabulary

UNIQUE = st.lists(st.text(), unique=True, max_size=20)


@settings(deadline=None)
@given(UNIQUE, st.lists(st.text(), max_size=10))
def test_ids_agree_with_a_dict(names: list[str], others: list[str]) -> None:
    vocabulary = Vocabulary(names)
    places = {name: place for place, name in enumerate(names)}
    asked = names[::-1] + others
    ids = vocabulary.ids(asked)
    assert ids.dtype == np.int32
    assert ids.tolist() == vocabulary.ids(pa.array(asked, pa.string())).tolist()
    assert ids.tolist() == [places.get(name, -1) for name in asked]
    assert list(vocabulary) == names
    assert len(vocabulary) == len(names)
    assert [vocabulary[place] for place in range(len(names))] == names
    assert vocabulary.take(np.arange(len(names))[::-1]).to_pylist() == names[::-1]


@settings(deadline=None, max_examples=30)
@given(UNIQUE)
def test_there_and_back(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "names.parquet"
        Vocabulary(names).write(path)
        again = Vocabulary.read(path)
    assert again == Vocabulary(names)
    assert list(again) == names
    assert again.ids(names).tolist() == list(range(len(names)))


def test_equality_is_that_of_names_in_order() -> None:
    assert Vocabulary(["a", "b"]) == Vocabulary(pa.array(["a", "b"]))
    assert Vocabulary(["a", "b"]) != Vocabulary(["b", "a"])
    assert Vocabulary(["a"]) != ["a"]


@settings(deadline=None)
@given(st.text(min_size=1, max_size=8))
def test_one_name(name: str) -> None:
    assert Vocabulary(["", name]).id(name) == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("pyton", "the graph has no skill 'pyton' (did you mean python?)"),
        ("xyz", "the graph has no skill 'xyz'; it has python, sql"),
        ("", "the graph has no skill ''; it has python, sql"),
        ("\udcff", "the graph has no skill '\\udcff'; it has python, sql"),
    ],
)
def test_an_unknown_name_offers_the_nearest(name: str, message: str) -> None:
    with pytest.raises(FocuseError) as caught:
        Vocabulary(["python", "sql"]).id(name, "skill")
    assert str(caught.value) == message


def test_one_name_is_found_as_many_are() -> None:
    names = Vocabulary(["b", "a", "", "é"])
    for name in ["b", "a", "", "é", "e", "ab"]:
        assert names.find(name) == names.ids([name])[0]
    assert names.find("\ud800") == Vocabulary([]).find("a") == -1
