"""Choices with numbers, written as one word."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.training.specs import parse_duration, parse_named, parse_names, parse_spec, worded

WORDS = st.text("abcdefghijklmnopqrstuvwxyz-0123456789", min_size=1, max_size=12)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(WORDS, st.lists(NUMBERS, max_size=3), st.dictionaries(WORDS, NUMBERS, max_size=3))
def test_what_is_written_is_read(name: str, plain: list[float], named: dict[str, float]) -> None:
    parts = [repr(number) for number in plain] + [f"{key}={number!r}" for key, number in named.items()]
    assert parse_spec(f"{name}:{','.join(parts)}", "loss") == (name, plain, named)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("l3", ("l3", [], {})),
        ("l3:", ("l3", [], {})),
        ("l3:1e-3", ("l3", [0.001], {})),
        (" margin : 2 ", ("margin", [2.0], {})),
        ("self-adversarial:margin=6, temperature = 0.5", ("self-adversarial", [], {"margin": 6.0, "temperature": 0.5})),
    ],
)
def test_examples(text: str, expected: tuple[str, list[float], dict[str, float]]) -> None:
    assert parse_spec(text, "loss") == expected


@pytest.mark.parametrize(
    "text", ["l3:x", "l3:1,x", "l3:nan", "l3:inf", "margin:margin=", "margin:margin=-inf", "a:b:1"]
)
def test_what_is_no_number_is_an_error(text: str) -> None:
    with pytest.raises(FocuseError, match=r"loss .*is not a number"):
        parse_spec(text, "loss")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("1.5h", 5400), (" 0.5s ", 0.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "30", "m30", "30 min", "-1s", "0s", "nans", "infs", "1h30m", "2H"])
def test_what_is_no_duration_says_how_to_write_one(text: str) -> None:
    with pytest.raises(FocuseError, match="like '90s', '30m', '2h'"):
        parse_duration(text)


NAMES = st.text("abc =.é", min_size=1, max_size=6).map(str.strip).filter(lambda name: name.strip("= ") != "")


@given(st.dictionaries(NAMES, st.floats(0, 1e9), max_size=4))
def test_numbers_of_columns_are_worded_and_read(numbers: dict[str, float]) -> None:
    assert parse_named(worded(numbers), "importance") == numbers
    assert parse_names(worded(list(numbers))) == list(numbers)


def test_what_is_worded_already_stays() -> None:
    assert worded("a=1") == "a=1"
    assert worded(None) is None
    assert (worded(False), worded({"b", "a"})) == ("", "a,b")
