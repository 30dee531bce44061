"""Choices with numbers, written as one word: 'l3:1e-3', 'margin:2', 'self-adversarial:margin=6,temperature=0.5'."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

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


def parse_named(text: str, kind: str) -> dict[str, float]:
    """Numbers of columns by their names.

    >>> parse_named("confidence=2, recency=1", "importance")
    {'confidence': 2.0, 'recency': 1.0}
    """
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.rpartition("=")
        name = name.strip()
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not name or not math.isfinite(number) or number < 0:
            raise FocuseError(f"{kind} {part!r}: write a column and a number of at least 0, like 'confidence=2'")
        if name in found:
            raise FocuseError(f"{kind} {text!r}: {name} is given twice")
        found[name] = number
    return found


def parse_names(text: str) -> list[str]:
    """Names with commas between them.

    >>> parse_names("p, distance")
    ['p', 'distance']
    """
    return [name for name in (part.strip() for part in text.split(",")) if name]


def worded(value: Any) -> Any:
    """Names, or names with numbers, as the one word that settings have for them; anything else as it is.

    >>> worded({"confidence": 2, "recency": 1}), worded(["p", "distance"]), worded(True)
    ('confidence=2,recency=1', 'p,distance', 'all')
    """
    if isinstance(value, bool):
        return "all" if value else ""
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return value
    odd = [name for name in value if not isinstance(name, str) or "," in name or not name.strip()]
    if odd:
        raise FocuseError(f"column {odd[0]!r}: give its name, one without a comma")
    if isinstance(value, Mapping):
        return ",".join(f"{name}={number}" for name, number in value.items())
    return ",".join(value if isinstance(value, list | tuple) else sorted(value))


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


def parse_memory(text: str) -> int:
    """Bytes from words like '6GB', '512 MB' or '1.5GiB'.

    >>> parse_memory("6GB"), parse_memory("1.5 GiB")
    (6000000000, 1610612736)
    """
    told = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([kmgt]?)(i?)(b?)\s*", text, re.IGNORECASE)
    size = 0.0
    if told is not None and told[2] + told[4]:  # a bare number could be of any unit
        size = float(told[1]) * (1024 if told[3] else 1000) ** " kmgt".index(told[2].lower() or " ")
    if not 1 <= size < 1 << 63:
        raise FocuseError(f"memory {text!r}: give a size like '6GB' or '512MB'")
    return int(size)


def parse_partitions(text: str) -> tuple[int, int, int]:
    """How many partitions, how many of them at once, and in how many rounds of an epoch all of them meet.

    >>> parse_partitions("32:8"), parse_partitions("8:4:2")
    ((32, 8, 1), (8, 4, 2))
    """
    told = re.fullmatch(r"\s*([0-9]{1,4})\s*:\s*([0-9]{1,4})\s*(?::\s*([1-9][0-9]?)\s*)?", text)
    if told is None or not 1 <= int(told[2]) <= int(told[1]):
        raise FocuseError(f"partitions {text!r}: give how many, and how many of them at once, like '32:8'")
    return int(told[1]), int(told[2]), int(told[3] or 1)
