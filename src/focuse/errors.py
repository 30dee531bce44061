"""The exception that users read, and helpers to word its messages."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

MAX_CHARACTERS, END_CHARACTERS = 2_000, 400  # of a message, and of the end that is kept of a longer one


class FocuseError(Exception):
    """An error that the user can fix: one line that says where, what is wrong and what to do.

    The command line prints it unchanged and exits with 2.
    """

    def __str__(self) -> str:
        """Return one line that is safe to print, even if it quotes a name with line ends or terminal codes."""
        text = printable(" ".join(super().__str__().splitlines()))
        # A message may quote a file, which must not determine its length. What to do is at the end.
        if len(text) <= MAX_CHARACTERS:
            return text
        return f"{text[: MAX_CHARACTERS - END_CHARACTERS]} … {text[-END_CHARACTERS:]}"


# Terminal codes and characters that change the direction of text; line ends and tabs are allowed.
TERMINAL_CODES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_terminal_codes(text: str) -> str:
    """Return a text of several lines in which terminal codes are escaped.

    >>> print(escape_terminal_codes("red: " + chr(27) + "[31m"))
    red: \\x1b[31m
    """
    return TERMINAL_CODES.sub(lambda match: ascii(match[0])[1:-1], text)


def printable(name: str) -> str:
    """Return a name as one line, in which line ends and terminal codes are escaped.

    >>> printable("a\\nb")
    'a\\\\nb'
    """
    return name if name.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def counted(number: int, things: str, do: str = "") -> str:
    """Return a number with its noun and verb, which are given in the plural and adapted for 1.

    >>> counted(2000, "edges"), counted(1, "edges"), counted(1, "entities"), counted(1, "batches")
    ('2,000 edges', '1 edge', '1 entity', '1 batch')
    >>> counted(3, "rows", "repeat"), counted(1, "rows", "repeat"), counted(1, "rows", "are")
    ('3 rows repeat', '1 row repeats', '1 row is')
    """
    if number == 1:
        things = f"{things[:-3]}y" if things.endswith("ies") else things[: -2 if things.endswith("ches") else -1]
        do = {"are": "is", "have": "has", "": ""}.get(do, f"{do}s")
    return f"{number:,} {things}{f' {do}' if do else ''}"


def nearest(word: str, known: Iterable[str], most: int = 3) -> str:
    """Return ' (did you mean …?)' with the names closest to `word`, empty if none is close.

    >>> nearest("complx", ["complex", "transe"])
    ' (did you mean complex?)'
    >>> nearest("TRANSE", ["complex", "transe"])
    ' (did you mean transe?)'
    """
    by_lower = {name.lower(): name for name in known}  # case makes no difference
    close = [by_lower[name] for name in difflib.get_close_matches(word.lower(), list(by_lower), n=most, cutoff=0.6)]
    return did_you_mean(close)


def did_you_mean(close: Sequence[str]) -> str:
    """Return ' (did you mean …?)', empty if there is no name."""
    return f" (did you mean {' or '.join(close)}?)" if close else ""


class DiskFullError(FocuseError):
    """A file does not fit on its disk; `reason` is the system's message."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: cannot be written: {reason}; free some space, then try again")
        self.reason = reason


class Stopped(FocuseError):  # noqa: N818 - not a fault, but what the user asked for
    """The user stopped a training; its checkpoint is saved."""
