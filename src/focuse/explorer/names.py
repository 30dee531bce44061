"""Finding entities by name among millions: exact, prefix, word, part of a name, then the nearest spelling."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from focuse.data.graph import Vocabulary

Ids = npt.NDArray[np.int64]
PIECES = 3  # a name within two errors of the query holds one of three pieces of it as it is
CANDIDATES = 10_000  # names whose spelling is compared with the query's
LONGEST = 80  # characters of a name that are compared
SIGMA = ("ς", "σ")  # one letter with two small forms; Python and Arrow choose different ones
A_FEW = 1000  # names that are looked at one by one sooner than Arrow has read a pattern
WORD = r"(^|[^\p{L}\p{N}])"  # what stands before a word


def fold(text: str) -> str:
    """Lower case without accents, as names are compared.

    >>> fold("Façade")
    'facade'
    """
    plain = unicodedata.normalize("NFD", text.lower())
    return "".join(mark for mark in plain if unicodedata.category(mark) != "Mn").replace(*SIGMA)


class Search:
    """Names [E] folded once into one Arrow column; a query is a few passes over its bytes, no Python object a name.

    `degree` [E] orders what matches equally well.

    >>> found = Search(Vocabulary(["SQL", "mysql", "Sqlite", "plain sql"]), np.array([1, 9, 5, 2]))
    >>> [found.names[i] for i in found("sql", 9)]
    ['SQL', 'Sqlite', 'plain sql', 'mysql']
    """

    def __init__(self, names: Vocabulary, degree: npt.NDArray[Any]) -> None:
        self.names, self.degree = names, np.asarray(degree)
        column = pc.utf8_lower(names.column)
        if not pc.all(pc.string_is_ascii(column)).as_py():
            column = pc.replace_substring_regex(pc.utf8_normalize(column, "NFD"), r"\p{Mn}+", "")
            column = pc.replace_substring(column, *SIGMA)
        self.folded: pa.Array = column

    def __call__(self, query: str, limit: int) -> Ids:
        """The places [n <= limit] of the best matches; the nearest names where none holds the query."""
        words = fold(query).strip()
        if not words or not len(self.folded):
            return np.empty(0, np.int64)
        found = _places(pc.match_substring(self.folded, words))
        return self._ranked(found, words)[:limit] if len(found) else self.nearest(query, limit)

    def _ranked(self, found: Ids, words: str) -> Ids:
        """Places [n] that hold `words`: equal, beginning with it, with a word beginning with it, others; by degree."""
        texts = self.folded.take(pa.array(found))
        kind = np.full(len(found), 3)
        if len(found) <= A_FEW:
            kind[[begins_word(text, words) for text in texts.to_pylist()]] = 2
        else:
            kind[_places(pc.match_substring_regex(texts, WORD + re.escape(words)))] = 2
        kind[_places(pc.starts_with(texts, words))] = 1
        kind[_places(pc.equal(texts, words))] = 0
        order: Ids = found[np.lexsort((found, -self.degree[found], kind))]
        return order

    def nearest(self, query: str, limit: int) -> Ids:
        """Places [n <= limit] of names with a part spelt nearly as `query` or its longest word, nearest first."""
        words = fold(query).strip()[:LONGEST]
        found = self._near(words, limit)
        longest = max(words.split(), key=len, default="")
        return found if len(found) or longest == words else self._near(longest, limit)

    def _near(self, words: str, limit: int) -> Ids:
        if len(words) < 2:
            return np.empty(0, np.int64)
        held = np.zeros(len(self.folded), np.int8)
        for piece in _pieces(words):
            held[_places(pc.match_substring(self.folded, piece))] += 1
        found = np.flatnonzero(held)
        if len(found) > CANDIDATES:  # those that hold most of it, and are linked most
            found = found[np.lexsort((-self.degree[found], -held[found]))[:CANDIDATES]]
        if not len(found):
            return np.empty(0, np.int64)
        texts = self.folded.take(pa.array(found)).to_pylist()
        errors = spelling_errors(words, texts)
        length = np.array([len(text) for text in texts])
        order = np.lexsort((found, -self.degree[found], np.abs(length - len(words)), errors))
        near = order[errors[order] <= max(1, len(words) // 3)]
        return found[near[:limit]].astype(np.int64)


def begins_word(text: str, part: str) -> bool:
    """Whether some word of `text` begins with `part`, which stands in it.

    >>> begins_word("mysql and sqlite", "sql"), begins_word("mysql", "sql")
    (True, False)
    """
    place = text.find(part)
    while place > 0 and text[place - 1].isalnum():
        place = text.find(part, place + 1)
    return place >= 0


def spelling_errors(query: str, names: list[str]) -> npt.NDArray[np.int16]:
    """The fewest letters to change, add or leave out so that `query` is some part of each name; int16 [n].

    >>> spelling_errors("enginer", ["software engineer", "chef"]).tolist()
    [1, 6]
    """
    asked = np.array([ord(letter) for letter in query], np.int32)
    padded = np.zeros((len(names), max(1, *(min(len(name), LONGEST) for name in names))), np.int32)
    for row, name in enumerate(names):
        letters = [ord(letter) for letter in name[:LONGEST]]
        padded[row, : len(letters)] = letters
    steps = np.arange(len(asked) + 1, dtype=np.int16)
    # errors[n, j]: to spell the first j letters of the query so that they end at the current letter of the name.
    errors = np.tile(steps, (len(names), 1))
    best = errors[:, -1].copy()
    for letter in padded.T:
        after = np.empty_like(errors)
        after[:, 0] = 0  # a part of a name may begin anywhere
        after[:, 1:] = np.minimum(errors[:, :-1] + (asked != letter[:, None]), errors[:, 1:] + 1)
        # A letter of the query left out costs 1 for each: a running minimum once the steps are taken off.
        errors = (np.minimum.accumulate(after - steps, axis=1) + steps).astype(np.int16)
        best = np.minimum(best, errors[:, -1])
    return best


def _pieces(words: str) -> list[str]:
    """The query in pieces of two letters or more, three at most."""
    count = max(1, min(PIECES, len(words) // 2))
    cuts = [round(len(words) * part / count) for part in range(count + 1)]
    return [words[start:end] for start, end in pairwise(cuts)]


def _places(mask: Any) -> Ids:
    """Where an Arrow column of truth values is true."""
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False)).astype(np.int64)
