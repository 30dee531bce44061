"""Choices with numbers, written as one word: 'l3:1e-3', 'margin:2', 'self-adversarial:margin=6,temperature=0.5'."""

from __future__ import annotations

import math

from focuse.errors import FocuseError


def parse_spec(text: str, kind: str) -> tuple[str, list[float], dict[str, float]]:
    """The name, the plain numbers and the named numbers of such a word.

    >>> parse_spec("self-adversarial:margin=6", "loss")
    ('self-adversarial', [], {'margin': 6.0})
    """
    name, _, rest = text.partition(":")
    plain: list[float] = []
    named: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.rpartition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise FocuseError(
                f"{kind} {text!r}: {value!r} is not a number; write it like 'l3:1e-3' or 'margin:margin=2'"
            )
        if equals:
            named[key.strip()] = number
        else:
            plain.append(number)
    return name.strip(), plain, named


SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Seconds of a time written as a number and its unit: s, m, h or d.

    >>> parse_duration("1.5h")
    5400.0
    """
    number, unit = text.strip()[:-1], text.strip()[-1:]
    try:
        seconds = float(number) * SECONDS[unit]
    except (ValueError, KeyError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise FocuseError(f"duration {text!r}: give a number above 0 and its unit, like '90s', '30m', '2h' or '1d'")
    return seconds
