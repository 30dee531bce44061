"""Parsers for settings that are written as strings, such as 'margin:margin=2', '30m' or '6GB'."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from focuse.errors import FocuseError, nearest


def choose(kind: str, name: str, choices: Iterable[str]) -> str:
    """Return `name` if it is one of `choices`, else raise an error that lists them; `kind` is the setting's name."""
    names = list(choices)
    if not isinstance(name, str):
        raise FocuseError(f"{kind} {name!r}: choose one of {', '.join(names)}")
    if name not in names:
        raise FocuseError(f"unknown {kind} {name!r}{nearest(name, names)}: choose one of {', '.join(names)}")
    return name


def check_count(name: str, value: Any, minimum: int = 1) -> int:
    """Return an option that must be a whole number of at least `minimum`, else raise FocuseError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not minimum <= int(value) < 1 << 32:
        raise FocuseError(f"{name} {value!r}: give a whole number, at least {minimum} and below 2**32")
    return int(value)


def check_fraction(name: str, value: Any) -> float:
    """Return an option that must be a number in [0, 1], else raise FocuseError."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise FocuseError(f"{name} {value!r}: give a number in [0, 1]")
    return float(value)


def check_seed(seed: Any) -> int:
    """Return a random seed, which must not be negative."""
    return check_count("seed", seed, 0)


def _finite_number(text: str) -> float:
    """Return the number in a text, or NaN if there is none or an infinite one."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def parse_option_string(text: str, kind: str) -> tuple[str, list[float], dict[str, float]]:
    """Return the name, the positional numbers and the named numbers of an option; `kind` is its name in errors.

    >>> parse_option_string("self-adversarial:margin=6", "loss")
    ('self-adversarial', [], {'margin': 6.0})
    """
    name, _, rest = text.partition(":")
    positional: list[float] = []
    named: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.rpartition("=")
        number = _finite_number(value)
        if math.isnan(number):
            raise FocuseError(
                f"{kind} {text!r}: {value!r} is not a number; write the option like 'l3:1e-3' or 'margin:margin=2'"
            )
        if equals and key.strip() in named:
            raise FocuseError(f"{kind} {text!r}: {key.strip()} is given twice")
        if equals:
            named[key.strip()] = number
        else:
            positional.append(number)
    return name.strip(), positional, named


def parse_named_numbers(text: str, kind: str) -> dict[str, float]:
    """Return a dictionary from column names to numbers, parsed from 'name=number,…'.

    >>> parse_named_numbers("confidence=2, recency=1", "importance")
    {'confidence': 2.0, 'recency': 1.0}
    """
    numbers: dict[str, float] = {}
    for part in parse_names(text):
        name, _, value = part.rpartition("=")
        name = name.strip()
        number = _finite_number(value)
        if not name or not number >= 0:
            raise FocuseError(f"{kind} {part!r}: write a column and a number of at least 0, like 'confidence=2'")
        if name in numbers:
            raise FocuseError(f"{kind} {text!r}: {name} is given twice")
        numbers[name] = number
    return numbers


def parse_names(text: str) -> list[str]:
    """Return the names in a string of names that are separated by commas.

    >>> parse_names("p, distance")
    ['p', 'distance']
    """
    return [name for name in (part.strip() for part in text.split(",")) if name]


def to_option_string(value: Any) -> Any:
    """Return the option string of names, or of names with numbers; values of other types are returned unchanged.

    >>> to_option_string({"confidence": 2, "recency": 1}), to_option_string(["p", "distance"]), to_option_string(True)
    ('confidence=2,recency=1', 'p,distance', 'all')
    """
    if isinstance(value, bool):
        return "all" if value else ""
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return value
    invalid = [name for name in value if not isinstance(name, str) or "," in name or not name.strip()]
    if invalid:
        raise FocuseError(f"column {invalid[0]!r}: give a name without a comma")
    if isinstance(value, Mapping):
        return ",".join(f"{name}={number}" for name, number in value.items())
    return ",".join(value if isinstance(value, list | tuple) else sorted(value))


SECONDS_PER_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str | float) -> float:
    """Return the seconds of a duration that is a number of seconds, or text with a number and a unit: s, m, h or d.

    >>> parse_duration("1.5h")
    5400.0
    """
    text = text.strip() if isinstance(text, str) else f"{text}s"
    seconds = _finite_number(text[:-1]) * SECONDS_PER_UNIT.get(text[-1:], math.nan)
    if not 0 < seconds < math.inf:
        raise FocuseError(f"duration {text!r}: give a number above 0 and its unit, like '90s', '30m', '2h' or '1d'")
    return seconds


def parse_partitions(text: str) -> tuple[int, int, int]:
    """Return the number of partitions, the number loaded at once, and the rounds per epoch.

    >>> parse_partitions("32:8"), parse_partitions("8:4:2")
    ((32, 8, 1), (8, 4, 2))
    """
    match = re.fullmatch(r"\s*([0-9]{1,4})\s*:\s*([0-9]{1,4})\s*(?::\s*([1-9][0-9]?)\s*)?", text)
    if match is None or not 1 <= int(match[2]) <= int(match[1]):
        raise FocuseError(
            f"partitions {text!r}: give the number of partitions and the number loaded at once, like '32:8'"
        )
    return int(match[1]), int(match[2]), int(match[3] or 1)
