"""Names that are similar to a mistyped one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import focuse
from focuse.data import graph as graph_module
from focuse.data.graph import Vocabulary
from focuse.errors import FocuseError, fold_name, similar_names

REAL = ["Machine Learning", "Café au lait", "naïve Bayes", "Q42 (Douglas Adams)", "C++", "C", "R", "Straße"]


def synthetic(count: int) -> Vocabulary:
    """Names of two words and a number, and a few real ones at the end."""
    random = np.random.default_rng(0)
    letters = random.choice(list("abcdefghijklmnopqrstuvwxyz"), (2000, 7))
    words = pa.array(["".join(row).capitalize() for row in letters])
    first, second = (words.take(pa.array(random.integers(0, 2000, count))) for _ in range(2))
    names = pc.binary_join_element_wise(first, second, pa.array(np.arange(count)).cast(pa.string()), " ")
    return Vocabulary(pa.concat_arrays([names, pa.array(REAL)]))


@pytest.fixture(scope="module")
def many() -> Vocabulary:
    return synthetic(20_000)


@pytest.mark.slow
def test_a_million_names_are_searched_quickly() -> None:
    million = synthetic(1_000_000)
    name = million[499_999]
    assert million.nearest(name[:3] + name[4:])[0] == name
    assert million.nearest("CAFE_au-lait")[0] == "Café au lait"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("machine learning", "Machine Learning"),
        ("MACHINE_LEARNING", "Machine Learning"),
        ("machine-lerning", "Machine Learning"),
        ("Learning, Machine", "Machine Learning"),
        ("cafe au lait", "Café au lait"),
        ("Naive Bayes", "naïve Bayes"),
        ("Q42", "Q42 (Douglas Adams)"),
        ("douglas adams", "Q42 (Douglas Adams)"),
        ("c++", "C++"),
        ("strasse", "Straße"),
    ],
)
def test_the_intended_name_is_found(many: Vocabulary, typed: str, meant: str) -> None:
    assert many.nearest(typed)[0] == meant


@pytest.mark.parametrize("place", [0, 9_999, 19_999])
def test_missing_and_swapped_letters_are_tolerated(many: Vocabulary, place: int) -> None:
    name = many[place]
    assert many.nearest(name[:3] + name[4:])[0] == name
    assert many.nearest(name[:2] + name[3] + name[2] + name[4:])[0] == name


def test_nothing_is_offered_if_no_name_is_similar(many: Vocabulary) -> None:
    assert many.nearest("∑∑∑∑∑∑") == []
    assert many.nearest("") == []
    assert many.nearest("Machine Learning", 0) == []
    with pytest.raises(FocuseError, match=r"^the graph has no entity '∑∑∑'$"):
        many.id("∑∑∑", "entity")


@given(st.lists(st.text("abAB é_-ß1", min_size=1, max_size=6), unique=True, max_size=30), st.text("abé _", max_size=6))
def test_names_that_differ_in_case_accents_and_separators_come_first(names: list[str], typed: str) -> None:
    offered = similar_names(typed, names)
    assert set(offered) <= set(names)
    same = [name for name in names if fold_name(name) == fold_name(typed)]
    if fold_name(typed):
        assert set(offered) >= set(same) if len(same) <= 3 else set(offered) <= set(same)


def test_the_chunk_size_does_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Vocabulary([f"name {i}" for i in range(100)] + ["nam 7"])
    whole = names.nearest("nam7")
    monkeypatch.setattr(graph_module, "CHUNK_NAMES", 7)
    assert names.nearest("nam7") == whole
    assert whole[0] == "nam 7"


def test_an_error_says_if_the_name_is_of_the_other_kind() -> None:
    graph = focuse.read([("Alice", "requires skill", "Python", 1), ("Bob", "knows", "SQL", 1)])
    for name, said in [
        ("requires skill", "the graph has no entity 'requires skill': that is a relation, not an entity"),
        ("Requires_Skill", "the graph has no entity 'Requires_Skill': 'requires skill' is a relation, not an entity"),
    ]:
        with pytest.raises(FocuseError) as caught:
            graph.entities.id(name, "entity")
        assert str(caught.value) == said
    with pytest.raises(FocuseError, match="'Python': that is an entity, not a relation"):
        graph.relations.id("Python", "relation")
    with pytest.raises(FocuseError, match=r"did you mean Alice\?"):
        graph.entities.id("alise", "entity")
