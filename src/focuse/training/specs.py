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
