"""Delimiter, header and columns, found by looking at the first lines."""

from __future__ import annotations

import io
import itertools
import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from focuse.data.roles import HEAD, RELATION, TAIL, WEIGHT, Asked
from focuse.data.sniffer import TableLayout, first_fault, row_fault, weight_fault
from focuse.data.sniffer import detect_layout as detect
from focuse.errors import FocuseError

HEADINGS = {"head": HEAD, "relation": RELATION, "tail": TAIL, "weight": WEIGHT}


def detect_layout(
    sample: str, where: str, delimiter: str | None = None, header: bool | None = None, **asked: Any
) -> TableLayout:
    return detect(sample, where, delimiter, header, Asked(**asked))[0]


@pytest.mark.parametrize("delimiter", ["\t", ",", ";", "|", " "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_each_delimiter_is_found_with_any_line_end(delimiter: str, end: str) -> None:
    line = delimiter.join(["a", "r", "b", "0.5"])
    layout = detect_layout(line + end + line + end, "f")
    assert (layout.delimiter, layout.header_lines, layout.width, layout.columns) == (delimiter, 0, 4, (0, 1, 2, 3))


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
def test_delimiters_inside_names_are_not_misleading(text: str, delimiter: str) -> None:
    assert detect_layout(text, "f").delimiter == delimiter


def test_two_columns_by_tab_are_not_cut_at_the_spaces_of_their_names() -> None:
    assert detect_layout("Mortgage Broker\trequires skill\nWard Nurse\tneeds it\n", "f").columns == (0, 1)
    assert detect_layout("Mortgage Broker\trequires skill\n", "f", delimiter=" ").delimiter == " "


@pytest.mark.parametrize("odd", ["\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_unicode_line_separators_are_part_of_a_name(odd: str) -> None:
    assert detect_layout(f"a{odd}b\tr\tc\t1\n", "f").width == 4


def test_quotes_delimit_in_csv_and_are_part_of_names_in_tsv() -> None:
    assert detect_layout('"a,b",r,c,1\n', "f").width == 4
    assert detect_layout('"a,b\tr\tc\t1\n', "f").width == 4
    assert detect_layout("a,r,b,1\n", "f").quoted
    assert not detect_layout("a\tr\tb\t1\n", "f").quoted


@settings(deadline=None)
@given(st.data(), st.permutations(["head", "relation", "tail", "weight"]))
def test_known_headings_in_any_order_and_case(data: st.DataObject, order: list[str]) -> None:
    words = [data.draw(st.sampled_from(sorted(HEADINGS[role]))) for role in order]
    words = [data.draw(st.sampled_from([word, word.upper(), f" {word} ", word.title()])) for word in words]
    row = ["1" if role == "weight" else role for role in order]
    layout = detect_layout("\t".join(words) + "\n" + "\t".join(row) + "\n", "f")
    assert layout.header_lines == 1
    assert layout.columns == tuple(order.index(role) for role in ("head", "relation", "tail", "weight"))


@pytest.mark.parametrize(
    ("first", "header"),
    [
        ("head\trelation\ttail\tweight", True),
        ("person\tlikes\tfilm\tstars", True),  # a text above a column of numbers
        ("person\tlikes\tfilm\tweight", True),
        ("from\ttype\tto\t0.5", False),  # an edge between entities with such names
        ("from\ttype\tto\tnan", False),
        ("subject\tpredicate\tobject", True),
        ("cat\ttype\tanimal", False),  # three columns: one known word may well be a relation
        ("from\tlabel\tto", True),
    ],
)
def test_what_counts_as_a_header(first: str, header: bool) -> None:
    assert detect_layout(
        first + "\nx\ty\tz" + ("\t1" if first.count("\t") == 3 else "") + "\n", "f"
    ).header_lines == int(header)


def test_the_user_overrides_detection() -> None:
    assert detect_layout("person\tlikes\tfilm\tstars\n", "f", header=True).header_lines == 1
    assert detect_layout("head\trelation\ttail\tweight\n", "f", header=False).header_lines == 0
    assert detect_layout("a b,c,d\n", "f", delimiter=",").columns == (0, 1, 2)


@pytest.mark.parametrize("delimiter", ["::", "", "§", '"', "\n", "\r"])
def test_impossible_delimiters_are_refused(delimiter: str) -> None:
    with pytest.raises(FocuseError, match="delimiter"):
        detect_layout("a,r,b,1\n", "f", delimiter=delimiter)


def test_lines_before_the_end_of_the_header_are_counted() -> None:
    assert detect_layout("\n\r\nhead,relation,tail,weight\na,r,b,1\n", "f").header_lines == 3
    assert detect_layout('head,"relation\n\n","tail",weight\na,r,b,1\n', "f", header=True).header_lines == 3


@pytest.mark.parametrize("sample", ["", "\n", "\r\n\n\r"])
def test_an_empty_sample_is_an_error(sample: str) -> None:
    with pytest.raises(FocuseError, match=r"f: the file is empty"):
        detect_layout(sample, "f")


def test_no_delimiter_is_an_error_that_shows_the_line() -> None:
    with pytest.raises(FocuseError, match=r"f, line 1: found no tab.*'a:r:b:1'"):
        detect_layout("a:r:b:1\nc:r:d:2\n", "f")


def test_columns_by_name_imply_a_header() -> None:
    layout = detect_layout(
        "verb,person,film,stars\nlikes,Ann,Alien,5\n", "f", columns=["person", "verb", "film", "stars"]
    )
    assert (layout.header_lines, layout.columns) == (1, (1, 0, 2, 3))


@pytest.mark.parametrize("columns", [[0, 1, 2], [1, 2, 9], ["1", "2", "-3"], ["x", "y", "z"], [1], [1, 2, 3, 4, 5]])
def test_unknown_columns_are_refused(columns: list[str | int]) -> None:
    with pytest.raises(FocuseError, match="column"):
        detect_layout("a,r,b,1\n", "f", columns=columns)


@pytest.mark.parametrize("columns", list(itertools.product([1, 2, 3], repeat=3)))
def test_one_column_for_two_roles_is_refused(columns: tuple[int, ...]) -> None:
    if len(set(columns)) < 3:
        with pytest.raises(FocuseError, match="twice"):
            detect_layout("a,r,b\n", "f", columns=columns)
    else:
        assert detect_layout("a,r,b\n", "f", columns=columns).columns == tuple(place - 1 for place in columns)


TSV = TableLayout("\t", 0, 4, (0, 1, 2, 3), quoted=False)


CSV = TableLayout(",", 0, 4, (0, 1, 2, 3))


def fault(text: bytes, layout: TableLayout = TSV) -> str:
    return str(first_fault(io.BytesIO(text), layout, "f") or "")


@pytest.mark.parametrize("before", [0, 1, 7, 5000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_the_line_is_counted_from_one(before: int, end: bytes) -> None:
    text = (b"a\tr\tb\t1" + end) * before + b"a\tr\tb" + end + b"a\tr\t\t1" + end
    assert fault(text).startswith(f"f, line {before + 1}: 3 columns instead of 4")


def test_blank_lines_and_multi_line_fields_count_as_lines() -> None:
    assert fault(b"\n\na\tr\tb\t1\n\n\na\tr\tb\tx\n").startswith("f, line 6: the weight 'x'")
    assert fault(b'"a\n\nb",r,"c\r\nd",1\nx,r,y,oops\n', CSV).startswith("f, line 5: the weight 'oops'")
    assert fault(b'x,r,y,1\n"a\nb",r,"",1\n', CSV).startswith("f, line 2: the tail is empty")


def test_header_lines_are_not_checked() -> None:
    assert fault(b"\nhead\trelation\ttail\n" + b"a\tr\tb\t1\n", TableLayout("\t", 2, 4, (0, 1, 2, 3))) == ""


def test_only_the_columns_in_use_are_checked() -> None:
    layout = TableLayout("\t", 0, 5, (4, 1, 3))
    assert fault(b"\xff\tr\t\tb\tc\n", layout) == ""
    assert fault(b"x\tr\ty\t\tc\n", layout).startswith("f, line 1: the tail is empty")
    assert fault(b"x\tr\ty\tb\t\n", layout).startswith("f, line 1: the head is empty")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\tr\tb\t1", "the head is empty"),
        (b"a\t\tb\t1", "the relation is empty"),
        (b"a\tr\t\t1", "the tail is empty"),
        (b"a\tr\tb\t", "the weight is empty"),
        (b"a\tr\tb\tnan", "the weight 'nan' is not finite"),
        (b"a\tr\tb\t-Infinity", "the weight '-Infinity' is not finite"),
        (b"a\tr\tb\t1e999", "the weight '1e999' is not finite"),
        (b"a\tr\tb\t0,5", "the weight '0,5' has a decimal comma; write it with a point"),
        (b"a\tr\tb\t0,125", "the weight '0,125' has a decimal comma; write it with a point"),
        (b"a\tr\tb\t1,200", "the weight '1,200' has a comma; write a decimal point, and thousands without"),
        (b"a\tr\tb\t1,200,000.5", "the weight '1,200,000.5' has a comma; write a decimal point, and thousands without"),
        (b"a\t\xe9\tb\t1", "the relation is not UTF-8"),
        (b"a\tr\tb\t\xff", "the weight is not UTF-8"),
        (b"a\tr\tb\t1\t1", "5 columns instead of 4"),
    ],
)
def test_each_fault_has_its_message(line: bytes, message: str) -> None:
    assert fault(b"a\tr\tb\t1\n" + line + b"\n").startswith(f"f, line 2: {message}")


def test_text_as_the_first_weight_suggests_a_header() -> None:
    assert fault(b"who\tdoes\twhat\thow\n").endswith(
        "or say that line 1 is a header (--header), or which column is the weight (--weight)"
    )
    assert "--header" not in fault(b"a\tr\tb\t1\nwho\tdoes\twhat\thow\n")


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    assert fault(b"\xef\xbb\xbf\tr\tb\t1\n").startswith("f, line 1: the head is empty")


def test_a_valid_file_has_no_fault() -> None:
    assert first_fault(io.BytesIO(b'a"\tr\tb\t1\n\n'), TSV, "f") is None


def test_a_truncated_stream_is_reported_with_its_line() -> None:
    class Broken(io.BytesIO):
        def read1(self, size: int | None = -1, /) -> bytes:
            text = super().read1(size)
            if not text:
                raise OSError("truncated")
            return text

    found = first_fault(Broken(b"a\tr\tb\t1\n" * 3), TSV, "f")
    assert str(found) == "f, line 4: truncated"


def arrow_reads(text: str) -> float | None:
    """What Arrow's own parser makes of a number."""
    try:
        return float(pa.array([text]).cast(pa.float64())[0].as_py())
    except pa.ArrowInvalid:
        return None


@settings(deadline=None, max_examples=300)
@given(st.one_of(st.text("0123456789+-.eE_xnaif", max_size=6), st.floats().map(repr), st.text(max_size=3)))
@example("1_000")
@example("٣")
@example("\xa01")
@example("+.5e-3")
@example("1e400")
def test_a_weight_is_valid_exactly_if_arrow_reads_it(text: str) -> None:
    stripped = text.strip(" \t")
    value = arrow_reads(stripped) if stripped else None
    assert (weight_fault(text) == "") == (value is not None and math.isfinite(value))


def test_a_long_weight_is_abbreviated() -> None:
    assert len(weight_fault("x" * 10_000)) < 200


def test_row_fault_is_empty_for_a_valid_row() -> None:
    assert row_fault(["a", "r", "b", "1e-3"], TSV) == ""
