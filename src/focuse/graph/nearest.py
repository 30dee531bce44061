"""The names most like a mistyped one, among millions: letters are counted for all, only the best are compared.

Capitals, accents, spaces, underscores and hyphens are no difference; a name that begins with or holds what was typed
is near; so are typos, and the same words in another order.
"""

from __future__ import annotations

import difflib
import unicodedata
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

CHUNK = 1 << 20  # names looked at together: it bounds the memory
COMPARED = 250  # names of a chunk that are compared letter by letter
HELD = 50  # of them, those that hold what was typed
LEAST = 0.6  # similarity of what is offered
SHORT = 3  # fewer letters stand in too many names
DROPPED = " \t\n\r_-"

# Bytes of capitals to small letters; what is dropped to 0, which stands in no name's key.
_BYTES = np.arange(256, dtype=np.uint8)
_BYTES[ord("A") : ord("Z") + 1] += 32
_BYTES[[ord(letter) for letter in DROPPED]] = 0

Letters = npt.NDArray[np.uint8]


def key(name: str) -> str:
    """What of a name counts.

    >>> key("Café-au_Lait") == key("cafe au lait") == "cafeaulait"
    True
    """
    plain = unicodedata.normalize("NFKD", name.encode("utf-8", "ignore").decode("utf-8").lower())
    return "".join(c for c in plain if unicodedata.category(c) != "Mn" and c not in DROPPED)


def nearest_names(name: str, column: pa.Array, most: int = 3) -> list[str]:
    """At most so many names of the column, the nearest first; none if nothing is like it.

    >>> nearest_names("machine_lerning", pa.array(["sql", "Machine Learning", "Learning"]))
    ['Machine Learning', 'Learning']
    """
    wanted = key(name)
    if not wanted or most < 1:
        return []
    found: set[str] = set()
    for start in range(0, len(column), CHUNK):
        part = column.slice(start, CHUNK)
        found.update(part.take(pa.array(_candidates(wanted, part))).to_pylist())
    ranked = sorted(((_likeness(name, wanted, other), other) for other in found), key=lambda each: (-each[0], each[1]))
    return [other for likeness, other in ranked[:most] if likeness >= LEAST]


def _likeness(name: str, wanted: str, other: str) -> float:
    """In [0, 1]; above it is a hair's breadth for the letters as they were typed."""
    known = key(other)
    if known == wanted:
        return 1.0 + difflib.SequenceMatcher(None, name, other).ratio()
    matcher = difflib.SequenceMatcher(None, wanted, known)
    found = matcher.ratio() if matcher.quick_ratio() >= LEAST else 0.0
    if sorted(_words(name)) == sorted(_words(other)):
        found = max(found, 0.95)
    if len(wanted) >= SHORT and known.startswith(wanted):
        found = max(found, 0.75)
    elif len(wanted) >= SHORT and wanted in known:
        found = max(found, 0.65)
    return found


def _words(name: str) -> list[str]:
    return [key(word) for word in name.replace("_", " ").replace("-", " ").replace(",", " ").split()]


def _candidates(wanted: str, column: pa.Array) -> npt.NDArray[np.int64]:
    """Places in the column worth comparing, at most about COMPARED + HELD."""
    letters, ends = _keys(column)
    typed = np.frombuffer(wanted.encode(), np.uint8)
    length = np.diff(ends)
    # Pairs of letters tell most names apart; single ones find short names and letters that changed places.
    score = _shared(_pairs(letters), _pairs(typed), ends, length, 1) + 0.5 * _shared(letters, typed, ends, length, 0)
    best = np.arange(len(score)) if len(score) <= COMPARED else np.argpartition(-score, COMPARED)[:COMPARED]
    if len(wanted) < SHORT or len(score) <= COMPARED:
        return best
    keys = pa.StringArray.from_buffers(len(length), pa.py_buffer(ends), pa.py_buffer(letters))
    holding = np.flatnonzero(pc.match_substring(keys, wanted).to_numpy(zero_copy_only=False))
    begins = pc.starts_with(keys.take(pa.array(holding)), wanted).to_numpy(zero_copy_only=False)
    order = np.lexsort((length[holding], ~begins))[:HELD]  # those that begin with it, then the short ones
    return np.union1d(best, holding[order])


def _keys(column: pa.Array) -> tuple[Letters, npt.NDArray[np.int32]]:
    """The keys of all names as one run of bytes, and where each begins and ends [n + 1]."""
    column = column.cast(pa.string())
    plain = pc.string_is_ascii(column)
    if not pc.all(plain).as_py():
        odd = pc.invert(plain)
        small = pc.utf8_lower(column.filter(odd))
        bare = pc.replace_substring_regex(pc.utf8_normalize(small, "NFKD"), r"\p{Mn}", "")
        column = pc.replace_with_mask(column, odd, bare)
    offsets: Any = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    text: Letters = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    letters = np.take(_BYTES, text)
    keep = letters != 0
    return letters[keep], _before(keep)[offsets - offsets[0]]


def _pairs(letters: Letters) -> npt.NDArray[np.uint16]:
    """Each letter with the next; [n − 1]."""
    pairs = letters[:-1].astype(np.uint16)
    pairs <<= 8
    pairs |= letters[1:]
    return pairs


def _before(count: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """How much was counted before each place; [n + 1]."""
    total = np.zeros(len(count) + 1, np.int32)
    np.cumsum(count, out=total[1:])
    return total


def _shared(
    pieces: npt.NDArray[Any], typed: npt.NDArray[Any], ends: npt.NDArray[np.int32], length: npt.NDArray[Any], less: int
) -> npt.NDArray[np.float32]:
    """Twice the pieces that a name shares with what was typed, over the pieces of both; [n]."""
    wanted = np.zeros(65536, np.uint8)
    wanted[typed] = 1
    before = _before(np.take(wanted, pieces))
    last = np.minimum(np.maximum(ends[1:] - less, ends[:-1]), len(pieces))  # a pair must not reach into the next name
    hits = np.minimum(before[last] - before[np.minimum(ends[:-1], len(pieces))], len(typed))
    total = np.maximum(length - less, 0) + len(typed)
    share: npt.NDArray[np.float32] = np.divide(2 * hits, np.maximum(total, 1), dtype=np.float32)
    return share
