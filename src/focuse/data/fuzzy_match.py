"""A search for names that are similar to a mistyped one, fast enough for millions of names.

Case, accents, spaces, underscores and hyphens are ignored. A name is similar if it begins with or contains the typed
text, differs from it by typos, or has the same words in another order. Letters are counted for all names, and only the
best names are compared letter by letter.
"""

from __future__ import annotations

import difflib
import unicodedata
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

CHUNK_NAMES = 1 << 20  # names processed at once, which limits the memory
MAX_COMPARED = 250  # names of a chunk that are compared letter by letter
MAX_CONTAINING = 50  # names of a chunk that are compared because they contain the typed text
MIN_SIMILARITY = 0.6
MIN_SUBSTRING = 3  # shorter texts occur in too many names
IGNORED = " \t\n\r_-"

# This table maps upper-case letters to lower case, and ignored bytes to 0, which is in no key.
_BYTES = np.arange(256, dtype=np.uint8)
_BYTES[ord("A") : ord("Z") + 1] += 32
_BYTES[[ord(letter) for letter in IGNORED]] = 0

Letters = npt.NDArray[np.uint8]


def key(name: str) -> str:
    """Return the part of a name that is compared.

    >>> key("Café-au_Lait") == key("cafe au lait") == "cafeaulait"
    True
    """
    plain = unicodedata.normalize("NFKD", name.encode("utf-8", "ignore").decode("utf-8").lower())
    return "".join(c for c in plain if unicodedata.category(c) != "Mn" and c not in IGNORED)


def nearest_names(name: str, column: pa.Array, limit: int = 3) -> list[str]:
    """Return at most `limit` names of the column that are similar to `name`, the most similar first.

    >>> nearest_names("machine_lerning", pa.array(["sql", "Machine Learning", "Learning"]))
    ['Machine Learning', 'Learning']
    """
    typed_key = key(name)
    if not typed_key or limit < 1:
        return []
    candidates: set[str] = set()
    for start in range(0, len(column), CHUNK_NAMES):
        chunk = column.slice(start, CHUNK_NAMES)
        candidates.update(chunk.take(pa.array(_candidates(typed_key, chunk))).to_pylist())
    ranked = sorted(
        ((_similarity(name, typed_key, other), other) for other in candidates), key=lambda pair: (-pair[0], pair[1])
    )
    return [other for similarity, other in ranked[:limit] if similarity >= MIN_SIMILARITY]


def _similarity(name: str, typed_key: str, other: str) -> float:
    """Return the similarity in [0, 1], or a value above 1 if the keys are equal, which depends on the characters."""
    other_key = key(other)
    if other_key == typed_key:
        return 1.0 + difflib.SequenceMatcher(None, name, other).ratio()
    matcher = difflib.SequenceMatcher(None, typed_key, other_key)
    similarity = matcher.ratio() if matcher.quick_ratio() >= MIN_SIMILARITY else 0.0
    if sorted(_words(name)) == sorted(_words(other)):
        similarity = max(similarity, 0.95)
    if len(typed_key) >= MIN_SUBSTRING and other_key.startswith(typed_key):
        similarity = max(similarity, 0.75)
    elif len(typed_key) >= MIN_SUBSTRING and typed_key in other_key:
        similarity = max(similarity, 0.65)
    return similarity


def _words(name: str) -> list[str]:
    return [key(word) for word in name.replace("_", " ").replace("-", " ").replace(",", " ").split()]


def _candidates(typed_key: str, column: pa.Array) -> npt.NDArray[np.int64]:
    """Return indices of the most promising names, at most MAX_COMPARED + MAX_CONTAINING."""
    letters, ends = _keys(column)
    typed = np.frombuffer(typed_key.encode(), np.uint8)
    length = np.diff(ends)
    # Pairs of letters distinguish most names; single letters find short names and swapped letters.
    score = _shared(_pairs(letters), _pairs(typed), ends, length, 1) + 0.5 * _shared(letters, typed, ends, length, 0)
    best = np.arange(len(score)) if len(score) <= MAX_COMPARED else np.argpartition(-score, MAX_COMPARED)[:MAX_COMPARED]
    if len(typed_key) < MIN_SUBSTRING or len(score) <= MAX_COMPARED:
        return best
    keys = pa.StringArray.from_buffers(len(length), pa.py_buffer(ends), pa.py_buffer(letters))
    containing = np.flatnonzero(pc.match_substring(keys, typed_key).to_numpy(zero_copy_only=False))
    begins = pc.starts_with(keys.take(pa.array(containing)), typed_key).to_numpy(zero_copy_only=False)
    # Names that begin with the typed text come first, and then short names.
    order = np.lexsort((length[containing], ~begins))[:MAX_CONTAINING]
    return np.union1d(best, containing[order])


def _keys(column: pa.Array) -> tuple[Letters, npt.NDArray[np.int32]]:
    """Return the keys of all names as one array of bytes, and the offsets of the names in it [n + 1]."""
    column = column.cast(pa.string())
    is_ascii = pc.string_is_ascii(column)
    if not pc.all(is_ascii).as_py():
        not_ascii = pc.invert(is_ascii)
        lower = pc.utf8_lower(column.filter(not_ascii))
        without_accents = pc.replace_substring_regex(pc.utf8_normalize(lower, "NFKD"), r"\p{Mn}", "")
        column = pc.replace_with_mask(column, not_ascii, without_accents)
    offsets: Any = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    text: Letters = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    letters = np.take(_BYTES, text)
    keep = letters != 0
    return letters[keep], _cumulative(keep)[offsets - offsets[0]]


def _pairs(letters: Letters) -> npt.NDArray[np.uint16]:
    """Return each letter paired with the next; [n − 1]."""
    pairs = letters[:-1].astype(np.uint16)
    pairs <<= 8
    pairs |= letters[1:]
    return pairs


def _cumulative(count: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
    """Return the sum before each index; [n + 1]."""
    total = np.zeros(len(count) + 1, np.int32)
    np.cumsum(count, out=total[1:])
    return total


def _shared(
    grams: npt.NDArray[Any], typed: npt.NDArray[Any], ends: npt.NDArray[np.int32], length: npt.NDArray[Any], less: int
) -> npt.NDArray[np.float32]:
    """Return the Dice similarity of letters (`less` 0) or pairs of letters (1) of each name with those typed; [n]."""
    wanted = np.zeros(65536, np.uint8)
    wanted[typed] = 1
    before = _cumulative(np.take(wanted, grams))
    last = np.minimum(np.maximum(ends[1:] - less, ends[:-1]), len(grams))  # a pair must not extend into the next name
    hits = np.minimum(before[last] - before[np.minimum(ends[:-1], len(grams))], len(typed))
    total = np.maximum(length - less, 0) + len(typed)
    similarity: npt.NDArray[np.float32] = np.divide(2 * hits, np.maximum(total, 1), dtype=np.float32)
    return similarity
