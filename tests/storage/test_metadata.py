"""The metadata of a run: TOML that Python reads back, and the names of format 2."""

from __future__ import annotations

import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.storage.metadata import FORMAT, to_toml, upgrade_config

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ODD = st.sampled_from(
    ["", ".", "a.b", "[a]", "-", "_", "#", "=", '"', "'", "\\", "a\nb", "é", "²", "\x7f", "\x00", " "]
)
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.booleans() | NUMBERS | TEXT | ODD
LISTS = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
TABLES = st.recursive(
    st.dictionaries(TEXT | ODD, LISTS, max_size=3),
    lambda inner: st.dictionaries(TEXT | ODD, inner | LISTS, max_size=3),
    max_leaves=5,
)


def exact(value: Any) -> Any:
    """A value with its types and the sign of its zeros, for comparison."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    return [exact(item) for item in value] if isinstance(value, list) else (type(value), repr(value))


@settings(deadline=None)
@given(TABLES)
def test_any_table_is_read_back_as_it_was(table: dict[str, Any]) -> None:
    assert exact(tomllib.loads(to_toml(table))) == exact(table)


@pytest.mark.parametrize("text", ["\x7f", "\x00\x1f\x85\u2028", "tab\tline\nreturn\r\n", '"""', "\\u0041", "𝛼 β", "'"])
def test_strings_with_special_characters_are_read_back(text: str) -> None:
    assert tomllib.loads(to_toml({text: text, "list": [text]})) == {text: text, "list": [text]}


@pytest.mark.parametrize("number", [1e-5, 1e16, 1e22, 5e-324, -0.0, 1.7976931348623157e308, 2**62])
def test_extreme_numbers_are_read_back(number: float) -> None:
    assert exact(tomllib.loads(to_toml({"n": number}))) == exact({"n": number})


def test_numpy_floats_are_written_as_numbers() -> None:
    """np.float64 is a float, but its repr is not a number's."""
    assert tomllib.loads(to_toml({"mrr": np.float64(0.25), "list": [np.float64(1.5)]})) == {"mrr": 0.25, "list": [1.5]}


def test_plain_values_come_before_tables() -> None:
    table = {"first": {"inner": {"deep": 1}, "flat": 2}, "second": 3}
    text = to_toml(table)
    assert tomllib.loads(text) == table
    assert text.index("second") < text.index("[first]") < text.index("flat") < text.index("[first.inner]")


@pytest.mark.parametrize("value", [None, {1, 2}, b"bytes", [None]])
def test_values_that_toml_does_not_have_are_an_error(value: Any) -> None:
    with pytest.raises(TypeError, match="TOML has no value of type"):
        to_toml({"key": value})


def test_keys_and_settings_of_format_2_get_their_new_names() -> None:
    old = {
        "format": 2,
        "settings": {"sharpness": 2.0, "coin": "fair", "dim": 4},
        "columns": {"names": []},
        "numbers": "n.tsv",
    }
    assert upgrade_config({**old, "direction": "lower"}) == {
        "format": 2,
        "settings": {"stop_fraction": 1.0, "label_exponent": 2.0, "corrupt_side": "uniform", "dim": 4},
        "weight_columns": {"names": []},
        "node_attributes": "n.tsv",
        "lower_weights_are_stronger": True,
    }
    today = {"format": FORMAT, "settings": {"label_exponent": 2.0}}
    assert upgrade_config(today) == today


def test_settings_of_every_format_get_their_new_names() -> None:
    old = {"focus": "paper", "decay": 3, "sampling": "independent", "negatives": 4, "zero_weights": "negatives"}
    new = {
        "weight_mode": "focuse",
        "beta_decay_epochs": 3,
        "negative_sampling": "per-triple",
        "num_negatives": 4,
        "zero_weights": "known-negative",
    }
    assert upgrade_config({"format": 2, "settings": old})["settings"] == {"stop_fraction": 1.0, **new}
    assert upgrade_config({"format": 2, "settings": {"stopping_share": 0.5}})["settings"] == {"stop_fraction": 0.5}
    assert upgrade_config({"format": FORMAT, "settings": old})["settings"] == new
    assert upgrade_config({"format": FORMAT, "settings": new})["settings"] == new
