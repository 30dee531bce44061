"""Delimiter, header and columns, found by looking at the first lines."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.graph.layout import HEADINGS, choose_places, detect


@pytest.mark.parametrize("delimiter", ["\t", ",", ";", "|", " "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_each_delimiter_is_found_with_any_line_end(delimiter: str, end: str) -> None:
    line = delimiter.join(["a", "r", "b", "0.5"])
    layout = detect(line + end + line + end, "f")
    assert (layout.delimiter, layout.skip, layout.width, layout.places) == (delimiter, 0, 4, (0, 1, 2, 3))


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("Paris, France\tis in\tEurope, the\t1\nA, B\tr\tC, D\t2\n", "\t"),
        ('"a;b;c","r;s;t","d",1\n"e;f;g","r;s;t","h",2\n', ","),
        ('"a\tb","r","c\td",1\n"x","r","y",2\n', ","),
        ("a b c;r s t;d e f;1\na b;r;c;2\n", ";"),
        ('"head","relation","tail","weight"\n"\t\t\n\t\t\n\t\t\n\t\t","r","b",1\n', ","),
        ('"""a, b\tr\t""c, d\t1\n"e, f, g\tr\th\t2\n', "\t"),
    ],
)
def test_delimiters_inside_names_do_not_deceive(text: str, delimiter: str) -> None:
    assert detect(text, "f").delimiter == delimiter


def test_two_columns_by_tab_are_not_cut_at_the_spaces_of_their_names() -> None:
    with pytest.raises(FocuseError, match=r"f, line 1: found no tab"):
        detect("Mortgage Broker\trequires skill\nWard Nurse\tneeds it\n", "f")
    assert detect("Mortgage Broker\trequires skill\n", "f", delimiter=" ").delimiter == " "


@pytest.mark.parametrize("odd", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_letters_that_only_python_takes_for_line_ends_are_part_of_a_name(odd: str) -> None:
    assert detect(f"a{odd}b\tr\tc\t1\n", "f").width == 4


def test_quotes_delimit_in_csv_and_are_letters_in_tsv() -> None:
    assert detect('"a,b",r,c,1\n', "f").width == 4
    assert detect('"a,b\tr\tc\t1\n', "f").width == 4
    assert detect("a,r,b,1\n", "f").quoted
    assert not detect("a\tr\tb\t1\n", "f").quoted


@settings(deadline=None)
@given(st.data(), st.permutations(["head", "relation", "tail", "weight"]))
def test_known_headings_in_any_order_and_case(data: st.DataObject, order: list[str]) -> None:
    words = [data.draw(st.sampled_from(sorted(HEADINGS[role]))) for role in order]
    words = [data.draw(st.sampled_from([word, word.upper(), f" {word} ", word.title()])) for word in words]
    layout = detect("\t".join(words) + "\na\tb\tc\td\n", "f")
    assert layout.skip == 1
    assert layout.places == tuple(order.index(role) for role in ("head", "relation", "tail", "weight"))


@pytest.mark.parametrize(
    ("first", "header"),
    [
        ("head\trelation\ttail\tweight", True),
        ("person\tlikes\tfilm\tstars", False),
        ("person\tlikes\tfilm\tweight", True),
        ("from\ttype\tto\t0.5", False),  # an edge between entities with such names
        ("from\ttype\tto\tnan", False),
        ("subject\tpredicate\tobject", True),
        ("cat\ttype\tanimal", False),  # three columns: one known word may well be a relation
        ("from\tlabel\tto", True),
    ],
)
def test_what_counts_as_a_header(first: str, header: bool) -> None:
    assert detect(first + "\nx\ty\tz" + ("\t1" if first.count("\t") == 3 else "") + "\n", "f").skip == int(header)


def test_the_user_overrules_what_is_detected() -> None:
    assert detect("person\tlikes\tfilm\tstars\n", "f", header=True).skip == 1
    assert detect("head\trelation\ttail\tweight\n", "f", header=False).skip == 0
    assert detect("a b,c,d\n", "f", delimiter=",").places == (0, 1, 2)


@pytest.mark.parametrize("delimiter", ["::", "", "§", '"', "\n", "\r"])
def test_impossible_delimiters_are_refused(delimiter: str) -> None:
    with pytest.raises(FocuseError, match="delimiter"):
        detect("a,r,b,1\n", "f", delimiter=delimiter)


def test_lines_before_the_end_of_the_header_are_counted() -> None:
    assert detect("\n\r\nhead,relation,tail,weight\na,r,b,1\n", "f").skip == 3
    assert detect('head,"relation\n\n","tail",weight\na,r,b,1\n', "f", header=True).skip == 3


@pytest.mark.parametrize("sample", ["", "\n", "\r\n\n\r"])
def test_an_empty_sample_is_an_error(sample: str) -> None:
    with pytest.raises(FocuseError, match=r"f: the file is empty"):
        detect(sample, "f")


def test_no_delimiter_is_an_error_that_shows_the_line() -> None:
    with pytest.raises(FocuseError, match=r"f, line 1: found no tab.*'a:r:b:1'"):
        detect("a:r:b:1\nc:r:d:2\n", "f")


def test_the_remaining_column_is_the_weight_only_when_it_stands_last() -> None:
    assert choose_places(["head", "relation", "tail", "stars"], True, None, "f") == (0, 1, 2, 3)
    assert choose_places(["target", "source", "type", "stars"], True, None, "f") == (1, 2, 0, 3)
    with pytest.raises(FocuseError, match="columns"):
        choose_places(["id", "head", "relation", "tail"], True, None, "f")


def test_partly_known_headings_leave_the_others_in_order() -> None:
    assert choose_places(["to", "verb", "person", "weight"], True, None, "f") == (1, 2, 0, 3)
    assert choose_places(["person", "likes", "film"], True, None, "f") == (0, 1, 2)


def test_three_columns_of_which_one_is_a_weight_are_refused() -> None:
    with pytest.raises(FocuseError, match="source, target, weight"):
        choose_places(["source", "target", "weight"], True, None, "f")


@pytest.mark.parametrize("width", [1, 2, 5, 9])
def test_other_widths_are_refused(width: int) -> None:
    with pytest.raises(FocuseError, match=rf"f: {width} columns.*--columns"):
        choose_places(["x"] * width, False, None, "f")
    with pytest.raises(FocuseError, match=r"f, line 1: 5 columns.*--columns"):
        detect("\t".join(["a"] * 5) + "\n", "f")


def test_a_wide_table_is_taken_when_its_four_headings_are_known() -> None:
    assert choose_places(["id", "tail", "weight", "x", "head", "rel"], True, None, "f") == (4, 5, 1, 2)
    with pytest.raises(FocuseError, match="--columns"):  # its weight would be silently lost
        choose_places(["head", "relation", "tail", "grade", "date"], True, None, "f")


def test_columns_by_number_name_and_both() -> None:
    first = ["id", "film", "person", "stars", "verb"]
    assert choose_places(first, True, ["person", "verb", "film", "stars"], "f") == (2, 4, 1, 3)
    assert choose_places(first, True, [3, 5, 2], "f") == (2, 4, 1)
    assert choose_places(first, True, ["3", "verb", 2, "4"], "f") == (2, 4, 1, 3)
    assert choose_places([" id", " film ", "x"], True, ["film", "id", "x"], "f") == (1, 0, 2)


def test_a_number_is_a_place_and_text_is_a_heading_first() -> None:
    first = ["0", "1", "2", "3"]
    assert choose_places(first, True, [1, 2, 3, 4], "f") == (0, 1, 2, 3)
    assert choose_places(first, True, ["0", "1", "2", "3"], "f") == (0, 1, 2, 3)


def test_columns_by_name_imply_a_header() -> None:
    layout = detect("verb,person,film,stars\nlikes,Ann,Alien,5\n", "f", columns=["person", "verb", "film", "stars"])
    assert (layout.skip, layout.places) == (1, (1, 0, 2, 3))


@pytest.mark.parametrize("columns", [[0, 1, 2], [1, 2, 9], ["1", "2", "-3"], ["x", "y", "z"], [1, 2], [1, 2, 3, 4, 5]])
def test_columns_that_are_not_there(columns: list[str | int]) -> None:
    with pytest.raises(FocuseError, match="column"):
        detect("a,r,b,1\n", "f", columns=columns)


@pytest.mark.parametrize("columns", list(itertools.product([1, 2, 3], repeat=3)))
def test_one_column_for_two_roles_is_refused(columns: tuple[int, ...]) -> None:
    if len(set(columns)) < 3:
        with pytest.raises(FocuseError, match="twice"):
            detect("a,r,b\n", "f", columns=columns)
    else:
        assert detect("a,r,b\n", "f", columns=columns).places == tuple(place - 1 for place in columns)
