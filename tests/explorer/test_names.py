"""Search of names, compared with plain Python and the edit distance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from focuse.data.graph import Vocabulary
from focuse.explorer import names as module
from focuse.explorer.names import Search, fold, spelling_errors

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
    search = Search(Vocabulary(names), np.array(degree or range(len(names))))
    return [names[place] for place in search(query, limit)]


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


letters = st.text("abc é<(.*[\\", max_size=12)


@given(query=letters, names=st.lists(letters, min_size=1, max_size=30, unique=True))
def test_every_name_that_holds_the_query_is_found(query: str, names: list[str]) -> None:
    words = fold(query).strip()
    holding = [name for name in names if words and words in fold(name)]
    result = found(query, len(names), names)
    if holding:
        assert sorted(result) == sorted(holding)
        kinds = [0 if fold(name) == words else 1 if fold(name).startswith(words) else 2 for name in result]
        assert kinds == sorted(kinds)


@given(query=st.text("ab é_1-", min_size=1, max_size=3), names=st.lists(st.text("ab é_1-", max_size=12), min_size=1))
def test_small_and_large_vocabularies_are_ranked_alike(query: str, names: list[str]) -> None:
    """Few are looked at one by one, many by a pattern."""
    search = Search(Vocabulary(list(dict.fromkeys(names))), np.zeros(len(set(names))))
    one_by_one = search(query, 99).tolist()
    before, module.A_FEW = module.A_FEW, -1
    try:
        assert search(query, 99).tolist() == one_by_one
    finally:
        module.A_FEW = before


def errors_by_the_book(query: str, name: str) -> int:
    """The least edit distance of the query to any part of the name."""
    row = [0] * (len(name) + 1)
    for i, letter in enumerate(query, 1):
        after = [i]
        for j, other in enumerate(name, 1):
            after.append(min(row[j - 1] + (letter != other), row[j] + 1, after[-1] + 1))
        row = after
    return min(row)


@given(
    query=st.text("abcd", min_size=1, max_size=8), names=st.lists(st.text("abcd", max_size=12), min_size=1, max_size=8)
)
def test_spelling_errors_match_the_edit_distance(query: str, names: list[str]) -> None:
    assert spelling_errors(query, names).tolist() == [errors_by_the_book(query, name) for name in names]
