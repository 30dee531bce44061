"""Names that are similar to a mistyped one, found among millions.

Case, accents, spaces, underscores and hyphens make no difference. Similar are names that begin with or contain what was
typed, names with typos, and the same words in another order. Letters are counted for all names, and only the best are
compared letter by letter.
"""

from __future__ import annotations

import difflib
import unicodedata
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

CHUNK_NAMES = 1 << 20  # names processed at a time, which bounds the memory
MAX_COMPARED = 250  # names of a chunk that are compared letter by letter
MAX_CONTAINING = 50  # names of a chunk compared because they contain what was typed
MIN_SIMILARITY = 0.6
MIN_SUBSTRING = 3  # fewer letters occur in too many names
IGNORED = " \t\n\r_-"

# Maps bytes of capitals to small letters, and ignored ones to 0, which is in no key.
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


def nearest_names(name: str, column: pa.Array, most: int = 3) -> list[str]:
    """Return at most `most` names of the column that are similar to `name`, the most similar first.

    >>> nearest_names("machine_lerning", pa.array(["sql", "Machine Learning", "Learning"]))
    ['Machine Learning', 'Learning']
    """
    wanted = key(name)
    if not wanted or most < 1:
        return []
    found: set[str] = set()
    for start in range(0, len(column), CHUNK_NAMES):
        part = column.slice(start, CHUNK_NAMES)
        found.update(part.take(pa.array(_candidates(wanted, part))).to_pylist())
    ranked = sorted(
        ((_similarity(name, wanted, other), other) for other in found), key=lambda each: (-each[0], each[1])
    )
    return [other for similarity, other in ranked[:most] if similarity >= MIN_SIMILARITY]


def _similarity(name: str, wanted: str, other: str) -> float:
    """Return the similarity in [0, 1], or above 1 if the keys are equal, the more so the more characters are."""
    known = key(other)
    if known == wanted:
        return 1.0 + difflib.SequenceMatcher(None, name, other).ratio()
    matcher = difflib.SequenceMatcher(None, wanted, known)
    found = matcher.ratio() if matcher.quick_ratio() >= MIN_SIMILARITY else 0.0
    if sorted(_words(name)) == sorted(_words(other)):
        found = max(found, 0.95)
    if len(wanted) >= MIN_SUBSTRING and known.startswith(wanted):
        found = max(found, 0.75)
    elif len(wanted) >= MIN_SUBSTRING and wanted in known:
        found = max(found, 0.65)
    return found


def _words(name: str) -> list[str]:
    return [key(word) for word in name.replace("_", " ").replace("-", " ").replace(",", " ").split()]


def _candidates(wanted: str, column: pa.Array) -> npt.NDArray[np.int64]:
    """Return indices of the names worth comparing, at most MAX_COMPARED + MAX_CONTAINING."""
    letters, ends = _keys(column)
    typed = np.frombuffer(wanted.encode(), np.uint8)
    length = np.diff(ends)
    # Pairs of letters distinguish most names; single letters find short names and swapped letters.
    score = _shared(_pairs(letters), _pairs(typed), ends, length, 1) + 0.5 * _shared(letters, typed, ends, length, 0)
    best = np.arange(len(score)) if len(score) <= MAX_COMPARED else np.argpartition(-score, MAX_COMPARED)[:MAX_COMPARED]
    if len(wanted) < MIN_SUBSTRING or len(score) <= MAX_COMPARED:
        return best
    keys = pa.StringArray.from_buffers(len(length), pa.py_buffer(ends), pa.py_buffer(letters))
    containing = np.flatnonzero(pc.match_substring(keys, wanted).to_numpy(zero_copy_only=False))
    begins = pc.starts_with(keys.take(pa.array(containing)), wanted).to_numpy(zero_copy_only=False)
    order = np.lexsort((length[containing], ~begins))[
        :MAX_CONTAINING
    ]  # names that begin with it first, then short ones
    return np.union1d(best, containing[order])


def _keys(column: pa.Array) -> tuple[Letters, npt.NDArray[np.int32]]:
    """Return the keys of all names as one array of bytes, and where each begins and ends [n + 1]."""
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
