"""Options with numbers written as one word."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.option_strings import (
    parse_duration,
    parse_named_numbers,
    parse_names,
    parse_option_string,
    to_option_string,
)

WORDS = st.text("abcdefghijklmnopqrstuvwxyz-0123456789", min_size=1, max_size=12)


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@settings(deadline=None)
@given(WORDS, st.lists(NUMBERS, max_size=3), st.dictionaries(WORDS, NUMBERS, max_size=3))
def test_option_strings_are_parsed(name: str, plain: list[float], named: dict[str, float]) -> None:
    parts = [repr(number) for number in plain] + [f"{key}={number!r}" for key, number in named.items()]
    assert parse_option_string(f"{name}:{','.join(parts)}", "loss") == (name, plain, named)


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
def test_examples_of_option_strings(text: str, expected: tuple[str, list[float], dict[str, float]]) -> None:
    assert parse_option_string(text, "loss") == expected


@pytest.mark.parametrize(
    "text", ["l3:x", "l3:1,x", "l3:nan", "l3:inf", "margin:margin=", "margin:margin=-inf", "a:b:1"]
)
def test_text_that_is_not_a_number_is_refused(text: str) -> None:
    with pytest.raises(FocuseError, match=r"loss .*is not a number"):
        parse_option_string(text, "loss")


def test_a_number_that_is_given_twice_is_refused() -> None:
    with pytest.raises(FocuseError, match="margin is given twice"):
        parse_option_string("margin:margin=2,margin=3", "loss")


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("1.5h", 5400), (" 0.5s ", 0.5)]
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "30", "m30", "30 min", "-1s", "0s", "nans", "infs", "1h30m", "2H"])
def test_invalid_durations_come_with_an_example(text: str) -> None:
    with pytest.raises(FocuseError, match="like '90s', '30m', '2h'"):
        parse_duration(text)


NAMES = st.text("abc =.é", min_size=1, max_size=6).map(str.strip).filter(lambda name: name.strip("= ") != "")


@given(st.dictionaries(NAMES, st.floats(0, 1e9), max_size=4))
def test_numbers_of_columns_are_written_and_parsed(numbers: dict[str, float]) -> None:
    assert parse_named_numbers(to_option_string(numbers), "importance") == numbers
    assert parse_names(to_option_string(list(numbers))) == list(numbers)


def test_option_strings_are_not_changed() -> None:
    assert to_option_string("a=1") == "a=1"
    assert to_option_string(None) is None
    assert (to_option_string(False), to_option_string({"b", "a"})) == ("", "a,b")
