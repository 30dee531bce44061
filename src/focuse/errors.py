"""The one exception that users are meant to read."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

LONGEST, LAST = 2_000, 400  # letters of a message, and of its end where it is longer


class FocuseError(Exception):
    """Something the user can mend: one line that says where, what is wrong and what to do.

    The command line prints it as it is and exits with 2.
    """

    def __str__(self) -> str:
        """One line that a terminal can show, also where a name that it quotes holds line ends or codes."""
        text = printable(" ".join(super().__str__().splitlines()))
        # A file chooses what a message quotes of it, not how long the message is; what to do stands at the end.
        return text if len(text) <= LONGEST else f"{text[: LONGEST - LAST]} … {text[-LAST:]}"


# What a terminal obeys, and what turns the direction of the text behind it; line ends and tabs may stand in a text.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """A text of many lines with every code that a terminal would obey shown instead of sent.

    >>> print(harmless("red: " + chr(27) + "[31m"))
    red: \\x1b[31m
    """
    return OBEYED.sub(lambda found: ascii(found[0])[1:-1], text)


def printable(name: str) -> str:
    """A name as one line of a table: line ends and terminal codes shown, not sent.

    >>> printable("a\\nb")
    'a\\\\nb'
    """
    return name if name.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def counted(number: int, things: str, do: str = "") -> str:
    """A number with its word, and with what they do: the words are given for many, and told for one, too.

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
    """' (did you mean …?)' with the names closest to `word`, or nothing.

    >>> nearest("complx", ["complex", "transe"])
    ' (did you mean complex?)'
    >>> nearest("TRANSE", ["complex", "transe"])
    ' (did you mean transe?)'
    """
    alike = {name.lower(): name for name in known}  # a capital is no difference
    close = [alike[each] for each in difflib.get_close_matches(word.lower(), list(alike), n=most, cutoff=0.6)]
    return did_you_mean(close)


def did_you_mean(close: Sequence[str]) -> str:
    """' (did you mean …?)', or nothing where nothing is close."""
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def choose(kind: str, word: str, known: Iterable[str]) -> str:
    """`word` if it is one of `known`, else an error that lists them."""
    names = list(known)
    if word not in names:
        raise FocuseError(f"unknown {kind} {word!r}{nearest(word, names)}: choose one of {', '.join(names)}")
    return word


class NoRoomError(FocuseError):
    """A file that does not fit on its disk; `reason` in the system's words."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: cannot be written: {reason}; make room, then try again")
        self.reason = reason


class Stopped(FocuseError):  # noqa: N818 - not a fault, but what the user asked for
    """A training stopped by the user; its checkpoint is saved."""
