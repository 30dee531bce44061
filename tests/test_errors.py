"""Messages of errors: one line, without terminal codes, with the nearest names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from focuse.errors import FocuseError, Stopped, nearest
from focuse.option_strings import choose


@given(st.text())
def test_message_is_one_line_whatever_it_quotes(text: str) -> None:
    assert len(str(FocuseError(f"file {text}: bad")).splitlines()) == 1


def test_a_message_without_line_ends_is_left_as_it_is() -> None:
    assert str(FocuseError("a.tsv, line 3:  two  spaces")) == "a.tsv, line 3:  two  spaces"


def test_nearest_returns_only_close_names_best_first() -> None:
    assert nearest("transe", ["transd", "transe2", "rescal"]) == " (did you mean transe2 or transd?)"
    assert nearest("zzz", ["complex", "transe"]) == ""
    assert nearest("abc", []) == ""
    assert nearest("aaaa", ["aaa1", "aaa2", "aaa3", "aaa4"], limit=2).count(" or ") == 1


def test_choose_returns_the_word_or_lists_the_choices() -> None:
    assert choose("model", "complex", ["complex", "transe"]) == "complex"
    with pytest.raises(FocuseError) as caught:
        choose("model", "complx", iter(["complex", "transe"]))
    assert str(caught.value) == "unknown model 'complx' (did you mean complex?): choose one of complex, transe"


def test_stopped_is_a_focuse_error() -> None:
    assert issubclass(Stopped, FocuseError)


def test_message_contains_no_terminal_codes() -> None:
    assert str(FocuseError("name \x1b[2J\x07 and \u202eabc")) == r"name \x1b[2J\x07 and \u202eabc"


def test_long_quoted_text_is_abbreviated() -> None:
    text = str(FocuseError(f"a.tsv: no column {'x' * 100_000}; name the ones to use"))
    assert text.startswith("a.tsv: no column xxx")
    assert text.endswith("xxx; name the ones to use")
    assert len(text) < 2_100
