"""Search of names, compared with plain Python."""

import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focuse.data.graph import Vocabulary
from focuse.explorer.index import NameIndex

NAMES = [
    "SQL",
    "mysql",
    "Sqlite",
    "plain sql",
    "Façade Designer",
    "Site Reliability Engineer",
    "Sound Engineer",
    "日本語",
]


def found(query: str, limit: int = 9, names: list[str] = NAMES, degree: list[int] | None = None) -> list[str]:
    index = NameIndex(Vocabulary(names), np.array(degree or range(len(names))))
    return [names[place] for place in index.search(query, limit)]


def test_exact_then_prefix_then_word_then_part() -> None:
    assert found("sql") == ["SQL", "Sqlite", "plain sql", "mysql"]


def test_equal_matches_are_ordered_by_degree() -> None:
    assert found("s", names=["sa", "sb", "sc"], degree=[1, 9, 3]) == ["sb", "sc", "sa"]


def test_search_ignores_case_and_accents() -> None:
    assert found("FACADE") == ["Façade Designer"]
    assert found("façade") == ["Façade Designer"]
    assert found("本") == ["日本語"]
    assert found("ΑΣ", names=["ΑΣ", "β"]) == found("ας", names=["ΑΣ", "β"]) == ["ΑΣ"]


@pytest.mark.parametrize("typed", ["site reliabilty engineer", "Site Relaibility", "sound enginere", "nosuch enginer"])
def test_misspelled_names_are_found(typed: str) -> None:
    assert "Engineer" in found(typed)[0]


def test_empty_query_finds_nothing() -> None:
    assert found("") == found("   ") == found("x") == found("qqqqqqqq") == []


def test_limit_is_respected() -> None:
    assert len(found("e", limit=2)) == 2


def fold(text: str) -> str:
    plain = unicodedata.normalize("NFD", text.lower())
    return "".join(mark for mark in plain if unicodedata.category(mark) != "Mn")


letters = st.text("abc é<(.*[\\", max_size=12)


@given(query=letters, names=st.lists(letters, min_size=1, max_size=30, unique=True))
def test_every_name_that_contains_the_query_is_found(query: str, names: list[str]) -> None:
    words = fold(query).strip()
    containing = [name for name in names if words and words in fold(name)]
    result = found(query, len(names), names)
    if containing:
        assert sorted(result) == sorted(containing)
        kinds = [0 if fold(name) == words else 1 if fold(name).startswith(words) else 2 for name in result]
        assert kinds == sorted(kinds)


@given(st.text("abc", min_size=4, max_size=12), st.integers(0, 11), st.sampled_from("xyz"))
def test_name_with_one_wrong_letter_is_found(name: str, at: int, letter: str) -> None:
    typed = name[: at % len(name)] + letter + name[at % len(name) + 1 :]
    assert name in found(typed, names=[name, "qqqqqqq"])
