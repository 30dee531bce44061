"""The first faulty line, by its number."""

from __future__ import annotations

import io
import math

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from focuse.graph.diagnosis import first_fault, row_fault, weight_fault
from focuse.graph.layout import Layout

TSV = Layout("\t", 0, 4, (0, 1, 2, 3))
CSV = Layout(",", 0, 4, (0, 1, 2, 3))


def fault(text: bytes, layout: Layout = TSV) -> str:
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


def test_header_lines_are_not_looked_at() -> None:
    assert fault(b"\nhead\trelation\ttail\n" + b"a\tr\tb\t1\n", Layout("\t", 2, 4, (0, 1, 2, 3))) == ""


def test_only_the_columns_in_use_are_looked_at() -> None:
    layout = Layout("\t", 0, 5, (4, 1, 3))
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
def test_each_fault_has_its_words(line: bytes, message: str) -> None:
    assert fault(b"a\tr\tb\t1\n" + line + b"\n").startswith(f"f, line 2: {message}")


def test_text_as_the_first_weight_suggests_a_header() -> None:
    assert fault(b"who\tdoes\twhat\thow\n").endswith(
        "or say that line 1 is a header (--header) or which columns to use (--columns)"
    )
    assert "--header" not in fault(b"a\tr\tb\t1\nwho\tdoes\twhat\thow\n")


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    assert fault(b"\xef\xbb\xbf\tr\tb\t1\n").startswith("f, line 1: the head is empty")


def test_a_sound_file_has_no_fault() -> None:
    assert first_fault(io.BytesIO(b'a"\tr\tb\t1\n\n'), TSV, "f") is None


def test_a_stream_that_breaks_off_is_told_with_its_line() -> None:
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
def test_a_weight_is_sound_exactly_if_the_fast_reader_takes_it(text: str) -> None:
    stripped = text.strip(" \t")
    value = arrow_reads(stripped) if stripped else None
    assert (weight_fault(text) == "") == (value is not None and math.isfinite(value))


def test_a_long_weight_is_not_shown_whole() -> None:
    assert len(weight_fault("x" * 10_000)) < 200


def test_row_fault_is_empty_for_a_sound_row() -> None:
    assert row_fault(["a", "r", "b", "1e-3"], TSV) == ""
