"""Types of entities, inferred from names or given as a table."""

from __future__ import annotations

import pytest

from focuse.data.graph import Vocabulary
from focuse.errors import FocuseError
from focuse.inference.candidates import entities_of_types, entity_types

NELL = [*(f"concept:athlete:a{i}" for i in range(30)), *(f"concept:team:t{i}" for i in range(20)), "concept:date"]


def test_type_is_the_text_before_the_first_colon():
    names = Vocabulary(["job:nurse", "skill:care", "plain", "skill:a:b"])
    assert entity_types(None, names).to_pylist() == ["job", "skill", None, "skill"]


def test_type_is_the_second_part_if_nearly_all_prefixes_agree():
    names = Vocabulary([*NELL, "odd"])
    assert entity_types(None, names).to_pylist() == ["athlete"] * 30 + ["team"] * 20 + [None, None]
    assert entities_of_types("team", None, names).tolist() == list(range(30, 50))


def test_single_prefix_without_a_second_part_is_the_type():
    names = Vocabulary(["http://a", "http://b", "http://c"])
    assert entity_types(None, names).to_pylist() == ["http"] * 3


def test_unknown_type_lists_the_known_ones():
    with pytest.raises(
        FocuseError, match=r"no entity of type 'coach'; the types are athlete, team; .*--types-file FILE"
    ):
        entities_of_types("coach", None, Vocabulary(NELL))
    many = Vocabulary([f"k{i}:{j}" for i in range(12) for j in range(i + 1)])
    with pytest.raises(FocuseError, match="the types are k11, k10, k9, k8, k7, k6, k5, k4, …; give"):
        entities_of_types("zebra", None, many)
