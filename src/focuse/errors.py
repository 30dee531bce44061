"""The exceptions that users see, and helpers that format their messages."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

MAX_CHARACTERS, END_CHARACTERS = 2_000, 400  # the longest message, and the end of a longer one that is kept
MIN_SIMILARITY = 60.0  # of names that are suggested, in percent
PREFIX, CONTAINED = 75.0, 65.0  # similarity of a name that begins with the typed text, or contains it
MIN_SUBSTRING = 3  # shorter texts occur in too many names
SEPARATORS = str.maketrans("_-,", "   ")


class FocuseError(Exception):
    """An error that the user can fix; its message is one line that says where it is, what is wrong and what to do.

    The command line prints the message unchanged and exits with status 2.
    """

    def __str__(self) -> str:
        """Return the message as one line that is safe to print, even if it quotes line ends or terminal codes."""
        text = printable(" ".join(super().__str__().splitlines()))
        # A message may quote a file, which must not determine its length. The advice is at the end, so that is kept.
        if len(text) <= MAX_CHARACTERS:
            return text
        return f"{text[: MAX_CHARACTERS - END_CHARACTERS]} … {text[-END_CHARACTERS:]}"


# Terminal codes and characters that change the direction of text; line ends and tabs are allowed.
TERMINAL_CODES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_terminal_codes(text: str) -> str:
    """Return a text of several lines with its terminal codes escaped.

    >>> print(escape_terminal_codes("red: " + chr(27) + "[31m"))
    red: \\x1b[31m
    """
    return TERMINAL_CODES.sub(lambda match: ascii(match[0])[1:-1], text)


def printable(name: str) -> str:
    """Return a name as one line, with its line ends and terminal codes escaped.

    >>> printable("a\\nb")
    'a\\\\nb'
    """
    return name if name.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def counted(number: int, things: str, do: str = "") -> str:
    """Return a number with its noun and verb, which are given in the plural and become singular for 1.

    >>> counted(2000, "edges"), counted(1, "edges"), counted(1, "entities"), counted(1, "batches")
    ('2,000 edges', '1 edge', '1 entity', '1 batch')
    >>> counted(3, "rows", "repeat"), counted(1, "rows", "repeat"), counted(1, "rows", "are")
    ('3 rows repeat', '1 row repeats', '1 row is')
    """
    if number == 1:
        things = f"{things[:-3]}y" if things.endswith("ies") else things[: -2 if things.endswith("ches") else -1]
        do = {"are": "is", "have": "has", "": ""}.get(do, f"{do}s")
    return f"{number:,} {things}{f' {do}' if do else ''}"


def install_command(extra: str) -> str:
    """Return how to install an extra; focuse is not on PyPI, so that pip needs a clone.

    >>> install_command("serve")
    "in your clone of focuse, run: pip install -c constraints.txt -e '.[serve]'"
    """
    return f"in your clone of focuse, run: pip install -c constraints.txt -e '.[{extra}]'"


def nearest(word: str, known: Iterable[str], limit: int = 3) -> str:
    """Return ' (did you mean …?)' with the names closest to `word`, or an empty string if none is close.

    >>> nearest("complx", ["complex", "transe"])
    ' (did you mean complex?)'
    >>> nearest("TRANSE", ["complex", "transe"])
    ' (did you mean transe?)'
    """
    return did_you_mean(similar_names(word, list(dict.fromkeys(known)), limit))


def similar_names(name: str, names: Sequence[str], limit: int = 3) -> list[str]:
    """Return at most `limit` names that are similar to a mistyped one, the most similar first.

    A name is similar if it contains the typed text, differs from it by a few letters, or has the same words in another
    order. Case, accents, underscores and hyphens do not count.

    >>> similar_names("machine_lerning", ["sql", "Machine Learning", "Learning"])
    ['Machine Learning', 'Learning']
    """
    from rapidfuzz import fuzz, process  # imported here, because most commands have no error to report

    typed = fold_name(name)
    if not typed or limit < 1:
        return []
    folded = [fold_name(other) for other in names]
    scores: dict[int, float] = {}
    for scorer in (fuzz.ratio, fuzz.token_sort_ratio):
        for _, score, index in process.extract(typed, folded, scorer=scorer, score_cutoff=MIN_SIMILARITY, limit=limit):
            scores[index] = max(score, scores.get(index, 0.0))
    if len(typed) >= MIN_SUBSTRING:
        for index, other in enumerate(folded):
            if typed in other:
                scores[index] = max(PREFIX if other.startswith(typed) else CONTAINED, scores.get(index, 0.0))
    # Of equally similar names, the one whose spelling is closest comes first.
    ranked = sorted(scores, key=lambda index: (-scores[index], -fuzz.ratio(name, names[index]), index))
    return [names[index] for index in ranked[:limit]]


def fold_name(name: str) -> str:
    """Return a name in lower case, without accents and with single spaces between its words.

    >>> fold_name("Café-au_Lait")
    'cafe au lait'
    """
    if not name.isascii():
        decomposed = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
        name = "".join(character for character in decomposed if not unicodedata.combining(character))
    return " ".join(name.translate(SEPARATORS).lower().split())


def did_you_mean(close: Sequence[str]) -> str:
    """Return ' (did you mean …?)' with these names, or an empty string if there is none."""
    return f" (did you mean {' or '.join(close)}?)" if close else ""


class DiskFullError(FocuseError):
    """The error of a file that does not fit on its disk; `reason` is the system's message."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(f"{path}: cannot be written: {reason}; free some space, then try again")
        self.reason = reason


class Stopped(FocuseError):  # noqa: N818 - the user asked for it, it is not a fault
    """The exception that ends a training the user stopped; its checkpoint is saved."""
