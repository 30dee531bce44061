"""Find the columns of head, relation, tail and weight in a table, by headings and by what the columns hold.

Headings are compared word by word with the conventions of the field. Where they do not decide, a sample of the rows
does: how many distinct values a column has, how often pairs of values repeat, and which values two columns share. A
reading that the evidence does not support is an error that shows commands to choose from.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from operator import attrgetter
from pathlib import Path

from focuse.errors import FocuseError, nearest

OWN = ("head",), ("relation",), ("tail",), ("weight",)  # headings of tables that focuse writes: all names are possible
NONE = "none"  # given for a column that the table does not have
ColumnNames = Sequence[str | int]  # columns by heading, or counted from 1

# ---- headings -------------------------------------------------------------------------------------------------------

# Headings of head and tail that do not say what these are.
SIDES = (
    ("head", "tail"), ("subject", "object"), ("subj", "obj"), ("source", "target"), ("src", "dst"), ("src", "dest"),
    ("source", "destination"), ("origin", "destination"), ("origin", "dest"), ("from", "to"), ("start", "end"),
    ("citing", "cited"), ("cue", "target"), ("cue", "response"),
    ("h", "t"), ("s", "o"), ("s", "t"), ("u", "v"), ("i", "j"),
)  # fmt: skip
# Headings that name two entities of one kind by what they do.
PARTNERS = (
    ("follower", "followee"), ("sender", "receiver"), ("sender", "recipient"), ("trustor", "trustee"),
    ("truster", "trustee"), ("rater", "ratee"), ("caller", "callee"), ("bait", "prey"), ("predator", "prey"),
    ("exporter", "importer"), ("reporter", "partner"), ("parent", "child"), ("payer", "payee"), ("donor", "recipient"),
    ("buyer", "seller"), ("winner", "loser"), ("home", "away"), ("inviter", "invitee"), ("mentor", "mentee"),
    ("nominator", "nominee"), ("proposer", "responder"), ("ego", "alter"), ("pre", "post"), ("pu", "do"),
    ("regulator", "target"), ("supplier", "customer"), ("user", "friend"), ("user", "contact"),
)  # fmt: skip
PAIRS = SIDES + PARTNERS  # of several pairs in one table, the first is taken
HEAD, TAIL = ({pair[side] for pair in PAIRS} for side in (0, 1))
# These are endpoints of another kind each, which are recognized if no heading is a word of HEAD or TAIL.
USER = {"u", "user", "reviewer", "customer", "listener", "member", "visitor", "person"}
ITEM = {"i", "item", "movie", "product", "artist", "book", "track", "song", "business", "film", "asin", "isbn", "game"}
RELATION = (
    "relation", "predicate", "relationship", "rel", "property", "relation type", "relationship type", "edge type",
    "rel type", "interaction type", "edge label", "relation label", "relation name", "interaction", "association",
    "verb", "edge", "type", "label", "kind", "r", "p",
)  # fmt: skip
EDGES = {"edge", "interaction", "association"}  # whose ids number the edges
# A column of numbers holds relations only if its heading has one of these.
NUMBERED_RELATION = {"relation", "predicate", "relationship", "rel", "property", "type", "edge", "r", "p"}
WEIGHT = (
    "weight", "score", "confidence", "conf", "importance", "strength", "probability", "prob", "rating", "trust",
    "similarity", "affinity", "relevance", "correlation", "numeric", "w", "value", "count", "counts", "frequency",
    "freq", "plays", "level", "stars", "number",
)  # fmt: skip
# Words that name a weight within a longer heading, too.
WEIGHT_PART = WEIGHT[:13]
WEIGHT_WORDS = {(word,) for word in WEIGHT[:8]}
LETTERS = {("r",), ("p",)}
P_VALUES = {
    ("p",), ("p", "value"), ("p", "val"), ("pval",), ("pvalue",), ("padj",), ("p", "adj"), ("fdr",), ("q", "value"),
}  # fmt: skip
TIME = {"time", "timestamp", "date", "datetime", "year", "created", "updated", "ts", "epoch", "month", "day"}
# Columns that say where an edge is from or what it is about, and never name its relation unless the user says so.
NO_RELATION = {
    "source", "sources", "database", "db", "dataset", "evidence", "reference", "references", "resource", "resources",
    "species", "organism", "taxon", "note", "notes", "comment", "comments", "description", "text", "sentence",
    "abstract", "method", "license", "version", "unit", "units", "subject", "title", "currency", "directed",
    "direction", "id", "pmid", "doi", "url",
}  # fmt: skip
ROW_NUMBERS = {
    (), ("id",), ("index",), ("unnamed", "0"), ("row",), ("human", "readable", "id"), ("edge", "id"), ("eid",),
}  # fmt: skip
# Words that name a column of ids or of names, not what the ids are of.
FILLERS = {"id", "ids", "node", "vertex", "entity", "name", "key", "code", "idx", "index", "no", "nr", "uri", "iri"}
# Words that say which of two entities of one kind a column is of.
SAME_KIND = {"contact", "friend", "left", "right", "next", "previous", "similar", "counterparty", "work", "manager"}
DIRECTIONS = {"directed", "undirected"}  # in the column Type of tables of Gephi
PREFERRED = "combined"  # of several scores, STRING's combined one is the weight
GENERIC_NAMES = {"train", "valid", "test", "edges", "graph", "data", "links", "edgelist", "edge list", "relationships"}
GENERIC_HEADINGS = {("weight",), ("w",), ("score",), ("value",), ("number",), ("numeric",), ("edge", "weight")}
DEFAULT_RELATION = "related"


def words_of(heading: str) -> tuple[str, ...]:
    """Return the words of a heading in lower case, without types and groups as Neo4j writes them.

    >>> words_of("fromNodeID"), words_of("rating:float"), words_of(":START_ID(Movie)"), words_of("#protein_2")
    (('from', 'node', 'id'), ('rating',), ('start', 'id'), ('protein', '2'))
    """
    text = re.sub(r"\(.*?\)", "", heading)
    name, _, kind = text.partition(":")
    text = name if re.search(r"\w", name) else kind
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})", " ", text)  # PULocationID
    return tuple(re.findall(r"[^\W\d_]+|\d+", text.lower()))


def kind_of(heading: str) -> tuple[str, ...]:
    """Return what the ids of a column are of: the words of its heading without fillers, sides and numbers.

    >>> kind_of("userID"), kind_of("source_gene"), kind_of("protein2"), kind_of("from"), kind_of(":END_ID(Movie)")
    (('user',), ('gene',), ('protein',), (), ('movie',))
    """
    group = re.search(r"_ID\((.*?)\)", heading)
    words = words_of(group[1] if group else heading)
    sides = FILLERS | {word for pair in SIDES for word in pair} | {"a", "b", "1", "2", "x", "y"} | SAME_KIND
    return tuple(word for word in words if word not in sides)


def _pick(candidates: Iterable[tuple[int, int]]) -> int | None:
    """Return the column of the best (rank, column), None if there is none or if two are equally good."""
    ranked = sorted(candidates)
    clear = len(ranked) == 1 or (len(ranked) > 1 and ranked[0][0] < ranked[1][0])
    return ranked[0][1] if clear else None


def _side(headings: Sequence[tuple[str, ...]], *known: str) -> int | None:
    """Return the column whose heading is one of the `known` words, alone or with fillers."""
    found = []
    for index, words in enumerate(headings):
        rest = [word for word in words if word not in FILLERS] or list(words)
        if len(rest) == 1 and rest[0] in known:
            found.append((len(words), index))
    return _pick(found)


def _first_word(headings: Sequence[tuple[str, ...]], known: str) -> int | None:
    """Return the only column whose heading begins with a word, such as source_gene; times are left out."""
    found = [index for index, words in enumerate(headings) if words[:1] == (known,) and not TIME & set(words)]
    return found[0] if len(found) == 1 and len(known) > 1 else None


def _numbered_pair(headings: Sequence[tuple[str, ...]]) -> tuple[int, int] | None:
    """Return the columns of headings such as protein1 and protein2, or gene_a and gene_b, if there is one such pair.

    Headings such as column1, column2 and column3, which all columns have, say nothing.
    """
    if len(headings) > 2 and len({words[:-1] for words in headings}) == 1:
        return None
    pairs = []
    for first, second in (("1", "2"), ("a", "b"), ("x", "y")):
        for index, words in enumerate(headings):
            other = (*words[:-1], second)
            is_word = len(words) > 1 and len(words[0]) > 1  # not e1, which may be a name
            if is_word and words[-1] == first and headings.count(words) == headings.count(other) == 1:
                pairs.append((index, headings.index(other)))
    return pairs[0] if len(pairs) == 1 else None


def endpoints(headings: Sequence[tuple[str, ...]]) -> tuple[int | None, int | None]:
    """Return the columns of head and tail by the words of their headings; None for those that are not known.

    One word of a pair alone says nothing: a column 'source' may say where an edge is from.
    """
    for find in (_side, _first_word):
        for pair in PAIRS:
            head, tail = (find(headings, word) for word in pair)
            if head is not None and tail is not None and head != tail:
                return head, tail
        if find is _side and (numbered := _numbered_pair(headings)):
            return numbered
    head, tail = _side(headings, *HEAD), _side(headings, *TAIL)
    if head is not None and tail is not None:
        return head, tail
    user, item = _side(headings, *USER), _side(headings, *ITEM)
    return (None, None) if user is None or item is None else (user, item)


def relation_column(headings: Sequence[tuple[str, ...]]) -> int | None:
    """Return the column of the relation by the words of its heading."""
    ranks = {word: rank for rank, word in enumerate(RELATION)}
    found = []
    for index, words in enumerate(headings):
        bare = " ".join(word for word in words if word not in FILLERS)
        for text in (" ".join(words), "" if bare in EDGES else bare):
            if text in ranks:
                found.append((ranks[text], index))
                break
    return _pick(found)


def weight_column(headings: Sequence[tuple[str, ...]]) -> int | None:
    """Return the column of the weight: one with a known heading, else one whose heading contains a known word."""
    whole = [(WEIGHT.index(words[0]), index) for index, words in enumerate(headings) if words[0:] and words[0] in WEIGHT
             and len(words) == 1]  # fmt: skip
    if whole:
        return _pick(whole)
    part = []
    for index, words in enumerate(headings):
        ranks = [WEIGHT.index(word) for word in words if word in WEIGHT_PART]
        if ranks and not TIME & set(words) and "id" not in words:
            part.append((-1 if PREFERRED in words else min(ranks), index))
    return _pick(part)


# ---- a sample of a table --------------------------------------------------------------------------------------------

MISSING_WEIGHTS = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "null", "NULL", "None", "none", "\\N", "-", ".")
TIME_SHARE = 0.3
SECONDS, MILLISECONDS = (1e8, 5e9), (1e11, 5e12)  # since 1970, of times between 1973 and 2128
MANY_ROWS = 20  # rows from which the number of distinct values is evidence
FEW, FEW_SHARE = 10, 0.2  # a column of relations has at most FEW values, or this share of those of head and tail
TYPE_SUFFIX = re.compile(r":[a-z]+(\[\])?$", re.IGNORECASE)  # of headings of Neo4j
NULLS = {"NULL", "null", "NaN", "nan", "None", "N/A", "\\N", "#N/A"}
PLAIN_DECIMAL = re.compile(r"-?\d+\.\d*")
DATE = re.compile(r"\d{4}-\d\d(-\d\d)?([ T].*)?$|\d\d?[./]\d\d?[./]\d{4}\b|\d\d \d\d?, \d{4}$|\d{4}[ -]?[WQ]\d\d?$")
CLOCK = re.compile(r"\d\d?(:\d\d){1,2}")
DAY = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])")  # such as 20140131
YEARS = 1800, 2100
TRUTH = {"true", "false", "yes", "no", "t", "f", "y", "n", "0", "1", ""}
LETTER = re.compile(r"[^\W\d_]")
SIGN = r"[<>≤≥~≈=]*\s*[-+−–]?\s*"
UNIT = r"(%|‰|[$€£¥₹]|[^\W\d_]{1,4}(/[^\W\d_]+)?)?"
ODD_NUMBER = re.compile(
    rf"(?!\d+(\.\d+){{3}}$)\(?{SIGN}[$€£¥₹]?\s*\d[\d.,'’\s]{{0,20}}(:\d\d)*(e[-+]?\d+)?\s*{UNIT}\)?", re.IGNORECASE
)  # but no address such as 10.0.0.1
MAX_NAME = 80  # mean number of characters of a column of names; longer texts are descriptions


@dataclass(frozen=True, eq=False)
class ColumnSample:
    """The heading ('' if there is none) and some cells of a column, as text."""

    heading: str
    cells: list[str]

    @cached_property
    def values(self) -> list[str]:
        """The cells that are not missing."""
        return [cell for cell in self.cells if cell not in MISSING_WEIGHTS]

    @cached_property
    def numbers(self) -> list[float]:
        """The values as numbers, without those that are none."""
        return [number for number in map(parse_number, self.values) if number is not None]

    @cached_property
    def distinct(self) -> set[str]:
        return set(self.cells)

    @cached_property
    def words(self) -> tuple[str, ...]:
        return words_of(self.heading)

    @property
    def is_number(self) -> bool:
        """Whether all values are numbers."""
        return bool(self.numbers) and len(self.numbers) == len(self.values)

    @property
    def is_mostly_number(self) -> bool:
        """Whether most values are numbers, so that the others are faults."""
        return 0 < len(self.values) <= 2 * len(self.numbers)

    @cached_property
    def is_whole(self) -> bool:
        """Whether the column holds whole numbers written without a point, as ids are, and none is missing."""
        return bool(self.values) and len(self.values) == len(self.cells) and all(
            value.isascii() and value.isdecimal() for value in self.distinct
        )  # fmt: skip

    @cached_property
    def is_real(self) -> bool:
        """Whether most values are numbers, and some of them are not whole ones without a sign, as ids are."""
        wholes = sum(value.isascii() and value.isdecimal() for value in self.values)
        return self.is_mostly_number and wholes < len(self.numbers)

    @property
    def is_rising(self) -> bool:
        """Whether the numbers of different rows never fall, as times of a log do."""
        numbers = self.numbers
        return len(self.distinct) > 2 and all(one <= other for one, other in pairwise(numbers))

    @cached_property
    def holds_ids(self) -> bool:
        """Whether almost all cells are whole numbers, as ids are."""
        ids = sum(value.lstrip("-").isdecimal() for value in self.cells)
        return bool(self.cells) and ids >= 0.9 * len(self.cells)

    @cached_property
    def is_sparse(self) -> bool:
        """Whether the numbers are few among those between the lowest and the highest, as ids of ten digits are."""
        return self.is_number and len(self.distinct) < 0.01 * (max(self.numbers) - min(self.numbers) + 1)

    @cached_property
    def is_time(self) -> bool:
        """Whether the column holds times: by its heading, dates, or seconds or milliseconds since 1970."""
        if TIME & set(self.words):
            return not self.may_be_duration
        if not self.is_number:
            return bool(self.values) and all(DATE.match(value) for value in self.distinct)
        if self.is_whole and all(DAY.fullmatch(value) for value in self.distinct):
            return True
        # Times differ from row to row, but ids of entities do not.
        return not self.words and self._since_1970 and len(self.distinct) > max(1, TIME_SHARE * len(self.cells))

    @property
    def _since_1970(self) -> bool:
        low, high = min(self.numbers), max(self.numbers)
        return any(start <= low and high < end for start, end in (SECONDS, MILLISECONDS))

    @cached_property
    def may_be_duration(self) -> bool:
        """Whether the column is called time and its numbers are no dates: it may be when, or how long."""
        return TIME & set(self.words) == {"time"} and self.is_number and not (self._since_1970 or self.is_year)

    @cached_property
    def is_year(self) -> bool:
        """Whether the column holds numbers that may be years."""
        return self.is_whole and min(self.numbers) >= YEARS[0] and max(self.numbers) <= YEARS[1]

    @property
    def is_row_number(self) -> bool:
        """Whether the column only numbers or identifies the rows."""
        if len(self.distinct) < len(self.cells) or self.words not in ROW_NUMBERS:
            return False
        return bool(self.words) or self.counts_rows

    @cached_property
    def counts_rows(self) -> bool:
        """Whether the column counts up by one from row to row."""
        return self.is_whole and len(self.cells) > 1 and all(
            number == self.numbers[0] + row for row, number in enumerate(self.numbers)
        )  # fmt: skip

    @cached_property
    def is_empty(self) -> bool:
        """Whether the column has neither a heading nor values, as after a delimiter at the end of each line."""
        return not self.heading and self.distinct <= {""}

    @cached_property
    def is_word(self) -> bool:
        """Whether the values may name relations: they have letters and are neither truth values, times nor numbers."""
        letters = sum(bool(LETTER.search(value)) for value in self.distinct)
        return (
            2 * letters > len(self.distinct)
            and not {value.lower() for value in self.distinct} <= TRUTH
            and not self.is_time
            and self.odd_number is None
        )

    @cached_property
    def odd_number(self) -> str | None:
        """A value of a column of numbers that are not written as plain ones, such as '5 km', '50%', '<0.01' or '$3'."""
        if self.is_time:
            return None
        odd = [value for value in self.values if parse_number(value) is None]
        fits = [value for value in odd if ODD_NUMBER.fullmatch(value.strip())]
        return fits[0] if odd and 10 * len(fits) >= 9 * len(odd) and not self.is_mostly_number else None

    @property
    def is_name(self) -> bool:
        """Whether the column may hold names of entities: text that varies and is no description, or whole numbers."""
        if (
            not self.cells
            or self.is_time
            or len(self.distinct) < min(3, len(self.cells))
            or (self.is_number and not self.is_whole)
        ):
            return False
        return sum(map(len, self.cells)) <= MAX_NAME * len(self.cells) and self.cells[0][:1] not in ("{", "[")


@dataclass(frozen=True, eq=False)
class TableSample:
    """A sample of a table: its columns, whether they have headings, and where it comes from."""

    columns: list[ColumnSample]
    header: bool
    where: str  # file or other source, for errors
    line: str = ""  # such as ', line 1', for errors on the columns
    count: int | None = None  # the number of triples that the first line gives
    in_memory: bool = False  # whether it is not a file, so that advice names keyword arguments instead of options
    typed: bool = False  # whether its format says what is a heading, so that --header and --no-header have no effect

    @property
    def headings(self) -> list[tuple[str, ...]]:
        return [column.words for column in self.columns]

    def label(self, index: int) -> str:
        """Return how a user names a column: by its heading, or counted from 1."""
        heading = self.columns[index].heading
        unique = sum(column.heading == heading for column in self.columns) == 1
        return heading if self.header and heading and unique else str(index + 1)

    def option(self, name: str) -> str:
        """Return how a user writes an option: --relation-name, or relation_name for a table in memory."""
        return name.replace("-", "_") if self.in_memory else f"--{name}"

    def shown(self) -> str:
        """Return the number of columns and their headings."""
        names = f" ({', '.join(column.heading for column in self.columns)})" if self.header else ""
        return f"{len(self.columns)} columns{names}"

    def find(self, column: str | int) -> int:
        """Return the index of a column that is named by heading or counted from 1."""
        headings = [each.heading for each in self.columns] if self.header else []
        if column in headings:
            return headings.index(str(column))
        if str(column).strip() in headings and (isinstance(column, str) or self.in_memory):
            return headings.index(str(column).strip())
        if not isinstance(column, bool) and str(column).isdecimal() and 1 <= int(column) <= len(self.columns):
            return int(column) - 1
        known = ", ".join(headings) if self.header else f"columns 1 to {len(self.columns)}"
        close = nearest(str(column), headings) if self.header else ""
        raise FocuseError(f"{self.where}{self.line}: no column {column!r}{close}; it has {known}")

    def distinct_pairs(self, first: int, second: int) -> float:
        """Return the number of distinct pairs of values in two columns, as a fraction of the rows."""
        cells = self.columns[first].cells
        return len(set(zip(cells, self.columns[second].cells, strict=True))) / max(len(cells), 1)

    def may_be_relation(self, index: int, head: int, tail: int) -> bool:
        """Return whether a column has few distinct values, as relations do, compared with heads and tails."""
        count = len(self.columns[index].distinct)
        most = min(len(self.columns[head].distinct), len(self.columns[tail].distinct))
        return len(self.columns[index].cells) < MANY_ROWS or count <= max(FEW, FEW_SHARE * most)

    def share(self, first: int, second: int) -> float:
        """Return the fraction of the values of two columns that both have."""
        one, other = self.columns[first].distinct, self.columns[second].distinct
        return len(one & other) / max(len(one | other), 1)

    def overlap(self, first: int, second: int) -> float:
        """Return the fraction of the values of one column that the other has too, of the column with fewer values."""
        one, other = self.columns[first].distinct, self.columns[second].distinct
        return len(one & other) / max(min(len(one), len(other)), 1)


# ---- the reading of a table -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Roles:
    """The columns of head, tail, relation (None if there is none) and weights (empty if there are none)."""

    head: int
    tail: int
    relation: int | None = None
    weights: tuple[int, ...] = ()
    json: bool = False  # whether the weight is the value of "weight" in a column of JSON objects
    kinds: tuple[str, str] | None = None  # words that keep the ids of heads and tails apart
    note: str = ""  # how the table was read, and how to change it

    @property
    def names(self) -> tuple[int, ...]:
        """The columns of names: head, relation (if there is one) and tail."""
        return (self.head, self.tail) if self.relation is None else (self.head, self.relation, self.tail)


@dataclass(frozen=True)
class Asked:
    """What the user says about the columns of a table; see `focuse.read`."""

    columns: ColumnNames | None = None
    weight_columns: ColumnNames | None = None
    head: str | int | None = None
    relation: str | int | None = None
    tail: str | int | None = None
    weight: str | int | None = None
    relation_name: str | None = None
    same_ids: bool | None = None

    @property
    def names_columns(self) -> bool:
        """Whether the user names any column."""
        every = (self.columns, self.weight_columns, self.head, self.relation, self.tail, self.weight)
        return any(given is not None for given in every)

    def check(self) -> None:
        """Raise FocuseError for requests that contradict each other."""
        for name, given in (("columns", self.columns), ("weight_columns", self.weight_columns)):
            if given is not None and (isinstance(given, str) or not given):
                raise FocuseError(f"{name} {given!r}: give a list of columns, by heading or counted from 1")
        single = [name for name in ("head", "relation", "tail", "weight") if getattr(self, name) is not None]
        if self.columns is not None and single:
            raise FocuseError(f"{single[0]} has no effect with columns; leave one of them out")
        if self.weight_columns is not None and self.weight is not None:
            raise FocuseError("weight has no effect with weight_columns; leave one of them out")
        if self.columns is not None and (len(self.columns) < 2 or (self.weight_columns and len(self.columns) > 3)):
            expected = "3 or 4 (head, relation, tail, weight) or more weights"
            expected = expected if self.weight_columns is None else "3 (head, relation, tail) next to weight_columns"
            raise FocuseError(f"columns: {len(self.columns)} given, expected {expected}")

    def known(self, sample: TableSample) -> KnownRoles:
        """Return the roles that the user gives to columns of a table."""
        self.check()
        found = KnownRoles()
        if self.columns is not None:
            head, *others = map(sample.find, self.columns)
            relation, tail = (others[0], others[1]) if len(others) > 1 else (None, others[0])
            found = KnownRoles(head, tail, relation, True, tuple(others[2:]))
        if self.head is not None:
            found.head = sample.find(self.head)
        if self.tail is not None:
            found.tail = sample.find(self.tail)
        if self.relation is not None:
            found.relation = None if _is_none(self.relation, sample) else sample.find(self.relation)
            found.relation_decided = True
        if self.weight is not None:
            found.weights = () if _is_none(self.weight, sample) else (sample.find(self.weight),)
        if self.weight_columns is not None:
            found.weights = tuple(map(sample.find, self.weight_columns))
        used = found.used
        if len(set(used)) < len(used):
            twice = next(index for index in used if used.count(index) > 1)
            raise FocuseError(f"columns: {sample.label(twice)} is named twice; give each role a column of its own")
        return found


@dataclass
class KnownRoles:
    """The columns whose roles are known; `relation_decided` if a missing relation is known to be missing."""

    head: int | None = None
    tail: int | None = None
    relation: int | None = None
    relation_decided: bool = False
    weights: tuple[int, ...] | None = None

    @property
    def used(self) -> list[int]:
        """The columns that have a role."""
        return [each for each in (self.head, self.relation, self.tail, *(self.weights or ())) if each is not None]


def _is_none(given: str | int, sample: TableSample) -> bool:
    return given == NONE and not any(sample.header and column.heading == NONE for column in sample.columns)


def choose_roles(sample: TableSample, asked: Asked, propose: bool = True) -> Roles:
    """Choose the columns of head, relation, tail and weights, as asked, by headings or by what the columns hold.

    With `propose`, errors contain commands that read the table.

    >>> columns = [ColumnSample(name, list(cells)) for name, cells in (("from", "ab"), ("to", "cd"), ("hours", "12"))]
    >>> roles = choose_roles(TableSample(columns, True, "table"), Asked())
    >>> roles.head, roles.relation, roles.tail, roles.weights
    (0, None, 1, (2,))
    """
    known = asked.known(sample)
    every = known.head is not None and known.tail is not None and known.weights is not None
    roles = None if asked.names_columns else _concept_net(sample)
    roles = roles or _Chooser(sample, known, asked.names_columns, propose).roles()
    roles = replace(roles, kinds=_kinds(sample, roles, asked.same_ids))
    unusual = roles.relation is None or roles.json or _differs(sample, roles)
    note = _reading(sample, roles, asked) if unusual and not every else ""
    parts = note, _ids_note(sample, roles, asked), _names_note(sample, roles)
    return replace(roles, note="; ".join(part for part in parts if part))


def _names_note(sample: TableSample, roles: Roles) -> str:
    """Return a line on names that are probably missing, or that differ only in blanks."""
    names = sample.columns[roles.head].distinct | sample.columns[roles.tail].distinct
    parts = []
    if null := sorted(names & NULLS):
        parts.append(f"{null[0]!r} is read as the name of an entity")
    if blank := sorted(name for name in names if name != name.strip() and name.strip() in names):
        parts.append(f"{blank[0]!r} and {blank[0].strip()!r} are different entities; remove blanks if they are one")
    return "; ".join(parts)


def _differs(sample: TableSample, roles: Roles) -> bool:
    """Return whether a reading with relations needs a line, because headings or usual columns do not make it clear."""
    columns, order = sample.columns, [*roles.names, *roles.weights]
    if sample.count is not None or len(order) < sum(not column.is_empty for column in columns):
        return True  # also if a column says that the edges are undirected
    if sample.header:
        words = sample.headings
        weights = roles.weights if len(roles.weights) != 1 else (weight_column(words),)
        by_heading = (*endpoints(words), relation_column(words), *weights)
        return by_heading != (roles.head, roles.tail, roles.relation, *roles.weights)
    is_usual = order == sorted(order) and len(columns[0].cells) >= MANY_ROWS and not _may_be_header(sample, roles)
    counts = any(_is_count(columns[index]) for index in roles.weights)  # which may be times or ids
    numbers = any(columns[index].is_number for index in (roles.head, roles.tail))
    few = roles.relation is not None and sample.may_be_relation(roles.relation, roles.head, roles.tail)
    return not (is_usual and few) or counts or numbers


def _is_header_by_content(sample: TableSample) -> bool:
    """Return whether a file has headings of which none is known."""
    words = sample.headings
    known = (*endpoints(words), relation_column(words), weight_column(words))
    return sample.header and not sample.typed and not any(index is not None for index in known)


def _may_be_header(sample: TableSample, roles: Roles) -> bool:
    """Return whether a first row that is read as an edge has names that no other row has."""
    if sample.header or sample.typed or sample.count is not None or roles.weights:
        return False
    names = [sample.columns[index].cells for index in roles.names]
    return len(names[0]) > 1 and all(
        cells.count(cells[0]) == 1 and LETTER.search(cells[0]) and not re.search(r"\d", cells[0]) for cells in names
    )


def _reading(sample: TableSample, roles: Roles, asked: Asked) -> str:
    """Return one line on how a table was read, and how to change it."""

    def quoted(index: int) -> str:
        label = sample.label(index)
        return label if label == str(index + 1) else repr(label)

    parts = [f"head {quoted(roles.head)}"]
    parts += [] if roles.relation is None else [f"relation {quoted(roles.relation)}"]
    parts += [f"tail {quoted(roles.tail)}"]
    parts += [f"weight {', '.join(map(quoted, roles.weights))}"] if roles.weights else ["no weight"]
    text = f"read columns as {', '.join(parts)}"
    if roles.json:
        text = text.replace(
            f"weight {quoted(roles.weights[0])}", f'weight "weight" in the JSON of {sample.label(roles.weights[0])}'
        )
    if roles.relation is None:
        name = relation_name(sample, roles, asked)
        text += f"; all edges have the relation {name!r} ({sample.option('relation-name')})"
    if sample.count is not None:
        text += "; line 1 is the number of triples"
    if (undirected := _undirected_column(sample)) is not None:
        text += f"; {quoted(undirected)} says that pairs are undirected, if so give {sample.option('undirected')}"
    if _is_header_by_content(sample):
        text += "; line 1 is the header (--no-header)"
    if _may_be_header(sample, roles):
        text += "; line 1 is an edge (--header)"
    used = {*roles.names, *roles.weights}
    if unused := [each for each, column in enumerate(sample.columns) if each not in used and not column.is_empty]:
        shown = [quoted(index) for index in unused[:8]]
        text += f"; not used: {', '.join(shown)}{' …' if len(unused) > 8 else ''}"
    return f"{text}; to change it, give {_other_options(sample, roles)}"


def _undirected_column(sample: TableSample) -> int | None:
    """Return the column that calls all edges undirected, as Gephi and WGCNA write it."""
    found = (
        index for index, column in enumerate(sample.columns) if set(map(str.lower, column.distinct)) == {"undirected"}
    )
    return next(found, None)


def _other_options(sample: TableSample, roles: Roles) -> str:
    """Return an example of options that read the table in another way."""
    if len(sample.columns) == 3 and not sample.header and sample.columns[2].is_mostly_number:
        three = {"head": 0, "relation": 1, "tail": 2}
        return options({"head": 0, "tail": 1, "weight": 2} if roles.relation is not None else three, sample)
    return ", ".join(map(sample.option, ("head", "relation", "tail"))) + f" and {sample.option('weight')}"


def relation_name(sample: TableSample, roles: Roles, asked: Asked) -> str:
    """Return the name of the only relation of a table: as asked, else the weight's heading, else the file's name."""
    if asked.relation_name is not None:
        return asked.relation_name
    if sample.header and len(roles.weights) == 1 and not roles.json:
        column = sample.columns[roles.weights[0]]
        if LETTER.search(column.heading) and column.words not in GENERIC_HEADINGS:
            return TYPE_SUFFIX.sub("", column.heading).strip() or DEFAULT_RELATION
    name = re.sub(
        r"\.(gz|zst|csv|tsv|txt|dat|tab|parquet|jsonl|ndjson|json|xlsx|mtx|graphml|edgelist|edges|data)\b",
        "",
        Path(sample.where).name,
    )
    generic = " ".join(words_of(name)) in GENERIC_NAMES or not re.search(r"[^\W\d_]", name)
    return DEFAULT_RELATION if generic or not Path(sample.where).suffix else name


# ---- ids of different kinds -----------------------------------------------------------------------------------------

MANY_SHARED = 0.1  # share of equal numbers in columns of sparse ids that is no chance
MIN_EXPECTED = 8.0  # self-loops by chance from which their number is evidence


def _kinds(sample: TableSample, roles: Roles, same_ids: bool | None) -> tuple[str, str] | None:
    """Return words that keep the ids of heads and tails apart, None if both columns name the same entities."""
    head, tail = sample.columns[roles.head], sample.columns[roles.tail]
    named = kind_of(head.heading), kind_of(tail.heading)
    if (head.words, tail.words) == (("u",), ("i",)):
        named = ("user",), ("item",)
    words = (" ".join(named[0]), " ".join(named[1])) if sample.header else ("", "")
    if words[0] == words[1] or not all(words):
        words = ("head", "tail")
    if same_ids is not None:
        return None if same_ids else words
    if not (head.holds_ids and tail.holds_ids):
        return None
    one, other = map(set, named)
    differ = sample.header and all(named) and not (one <= other or other <= one or _are_partners(*named))
    if head.is_sparse and tail.is_sparse and sample.overlap(roles.head, roles.tail) > MANY_SHARED:
        return None  # so many equal numbers are no chance
    if differ:
        return words
    same = sample.header and all(named)
    if same or roles.relation is not None or None not in endpoints(sample.headings):
        return None
    # In a graph of one kind, self-loops are rarer than by chance.
    loops, by_chance = _loops(sample, roles)
    if by_chance < MIN_EXPECTED:
        return words if _are_ratings(sample, roles) else None
    return words if loops >= by_chance / 2 else None


def _are_partners(head: tuple[str, ...], tail: tuple[str, ...]) -> bool:
    """Return whether the words of two headings differ only in what two entities of one kind do."""
    differ = {*head} ^ {*tail}
    return bool(differ & {word for pair in PARTNERS for word in pair} - USER) and not differ & ITEM


def _are_ratings(sample: TableSample, roles: Roles) -> bool:
    """Return whether the weights are levels up to 5 or 10 stars, and times stand in the same table."""
    if len(roles.weights) != 1 or not any(column.is_time for column in sample.columns):
        return False
    stars = sample.columns[roles.weights[0]]
    return (
        stars.is_number and 2 < len(stars.distinct) <= 11 and min(stars.numbers) >= 0 and max(stars.numbers) in (5, 10)
    )


def _loops(sample: TableSample, roles: Roles) -> tuple[int, float]:
    """Return the number of rows whose head and tail are equal, and how many there were by chance."""
    heads, tails = sample.columns[roles.head].cells, sample.columns[roles.tail].cells
    count_head, count_tail = Counter(heads), Counter(tails)
    by_chance = sum(count * count_tail[name] for name, count in count_head.items()) / max(len(heads), 1)
    return sum(head == tail for head, tail in zip(heads, tails, strict=True)), by_chance


def _ids_note(sample: TableSample, roles: Roles, asked: Asked) -> str:
    """Return a line on the ids of heads and tails, if both columns hold numbers and it was not the user's choice."""
    if asked.same_ids is not None:
        return ""
    head, tail = sample.columns[roles.head], sample.columns[roles.tail]
    if roles.kinds is not None:
        merges = "same_ids=True" if sample.in_memory else "--same-ids"
        return (
            "the numbers in both columns name different things and are kept apart, as "
            f"'{roles.kinds[0]} {head.cells[0]}' and '{roles.kinds[1]} {tail.cells[0]}' ({merges} merges them)"
        )
    if (roles.relation is None or not sample.header) and head.holds_ids and tail.holds_ids:
        separate = "same_ids=False" if sample.in_memory else "--separate-ids"
        return f"equal numbers in both columns are the same entity ({separate} keeps them apart)"
    return ""


# ---- choosing -------------------------------------------------------------------------------------------------------

SAME_NAMES = 0.25  # share of common names from which two columns name the same entities
REPEATED = 0.1  # share of the rows that repeat a pair from which the third column is likelier a name than a weight
USUAL = 4  # columns: head, relation, tail and weight
CLEAR = 0.02  # difference of two fractions of distinct pairs that is evidence
NODE_SHARE = 0.98  # of the values of a column, if it has so many distinct ones, each names a node of its own


class _Chooser:
    """Chooses the columns of a table of which some are known; `given` if the user named them."""

    def __init__(self, sample: TableSample, known: KnownRoles, given: bool, propose: bool) -> None:
        self.sample, self.known, self.given, self.propose = sample, known, given, propose
        self.columns = sample.columns
        self.rows = len(sample.columns[0].cells) if sample.columns else 0

    def roles(self) -> Roles:
        known, columns, header = self.known, self.columns, self.sample.header
        if not self.given and tuple(self.sample.headings) in (OWN, OWN[:3]):
            return Roles(0, 2, 1, tuple(range(3, len(columns))))
        if not self.given and _is_matrix(self.sample):
            raise FocuseError(
                f"{self.sample.where}: this looks like an adjacency matrix; give a row per edge (head, tail, weight), "
                "for example focuse.read(pandas.read_csv(file, index_col=0).stack().reset_index())"
            )
        ends = endpoints(self._headings()) if header else (None, None)
        if header:
            known.head = ends[0] if known.head is None else known.head
            known.tail = ends[1] if known.tail is None else known.tail
            if known.weights is None:
                weight = weight_column(self._headings(lambda column: column.is_mostly_number or not column.values))
                if weight is None and not any(column.is_number and column.words for column in columns):
                    # A column called weight is one, and texts in it are faults.
                    weight = weight_column(self._headings(lambda column: column.words in WEIGHT_WORDS))
                known.weights = None if weight is None else (weight,)
            if not known.relation_decided:
                letters = bool({("h",), ("s",)} & {*self.sample.headings})
                known.relation = relation_column(self._headings(lambda each: _names_relations(each, letters)))
        if not header and not self.given:
            self._refuse_other_lines()
        self._refuse_odd_numbers(range(2, len(columns)), self.known.used)
        roles = self._complete()
        if known.weights is None or not (header and known.weights == (weight_column(self.sample.headings),)):
            self._refuse_odd_numbers(range(len(columns)), {roles.head, roles.relation, *ends})
        no_weight = header and not self.given and not roles.weights
        if no_weight and columns[roles.tail].is_number and not columns[roles.head].is_number:
            raise self._unclear("head and tail")
        for index in (roles.head, roles.tail):
            if (
                not self.given
                and columns[index].is_number
                and any(PLAIN_DECIMAL.fullmatch(value) for value in columns[index].distinct)
            ):
                raise self._ids_with_point(index)
        return roles

    def _refuse_other_lines(self) -> None:
        """Raise FocuseError for rows in parentheses, and for a first line with the size of a matrix or a graph."""
        first, last = self.columns[0].cells, self.columns[-1].cells
        where = f"{self.sample.where}{self.sample.line}"
        if first and all(cell.startswith("(") for cell in first) and all(cell.endswith(")") for cell in last):
            raise FocuseError(f"{where}: the rows are in parentheses; remove these")
        if len(self.columns) > 3 or self.rows <= MANY_ROWS or not all(column.is_whole for column in self.columns):
            return
        sizes = [column.numbers[0] for column in self.columns]
        largest = [max(column.numbers) for column in self.columns]
        if sizes[-1] == self.rows - 1 and sizes[:2] == largest[:2]:
            raise FocuseError(
                f"{where}: {' '.join(column.cells[0] for column in self.columns)!r} ends with the number of lines that "
                "follow, as in a matrix file; remove the line, or call the file .mtx"
            )

    def _ids_with_point(self, index: int) -> FocuseError:
        column = self.columns[index]
        value = next(value for value in column.values if PLAIN_DECIMAL.fullmatch(value))
        return FocuseError(
            f"{self.sample.where}{self.sample.line}: {value!r} in column {self.sample.label(index)!r} is no name; "
            "write ids as whole numbers (pandas writes 1.0 if ids are missing), or name the columns: "
            f"{', '.join(map(self.sample.option, ('head', 'tail')))} and {self.sample.option('weight')}"
        )

    def _complete(self) -> Roles:
        """Return the roles of all columns, of which those with known headings are known."""
        known, columns = self.known, self.columns
        times = {
            index
            for index, column in enumerate(columns)
            if (column.is_time and (column.words or not column.is_number)) or column.words == ("t",)
        }
        unused = {*known.used, *times}
        unused |= {index for index, column in enumerate(columns) if column.is_empty}
        rest = [index for index in range(len(columns)) if index not in unused]
        free = [index for index in rest if not self._is_row_number(index)]
        names = [index for index in free if not columns[index].is_number or columns[index].is_whole]
        free = rest if len(names) + len({known.head, known.tail} - {None}) < 2 else free
        if known.head is not None and known.tail is not None:
            return self._between(free)
        roles = self._in_order(free)
        if self.sample.header and not self.given:
            self._refuse_nodes(roles)
        return roles

    def _is_row_number(self, index: int) -> bool:
        """Return whether a column only numbers or identifies the rows; without a heading, only a file's first can."""
        column = self.columns[index]
        others = sum(not each.is_number for each in self.columns)
        is_first = index == 0 and not self.sample.in_memory and self.rows >= MANY_ROWS
        return column.is_row_number and (bool(column.words) or (is_first and (others > 1 or len(self.columns) > 3)))

    def _refuse_odd_numbers(self, columns: Iterable[int], used: Collection[int | None]) -> None:
        """Raise FocuseError for a column without a role that holds numbers with units or currencies."""
        header, numbers = self.sample.header, any(each.is_number and not each.is_row_number for each in self.columns)
        if (
            self.given
            or self.known.weights is not None
            or (not header and any(each.is_number for each in self.columns))
        ):
            return
        for index in columns:
            value = self.columns[index].odd_number
            if value and CLOCK.fullmatch(value) and numbers:
                continue  # when, and not how much
            # Names such as 7A are no numbers with a unit if they are few.
            if index not in used and value and (header or self.rows >= MANY_ROWS or not value[-1].isalpha()):
                raise FocuseError(
                    f"{self.sample.where}{self.sample.line}: {value!r} is not a number that can be read; write "
                    "numbers as 0.5, without units, percent signs, currencies, thousands or signs other than -; if "
                    f"these are no weights, give {', '.join(map(self.sample.option, ('head', 'tail')))} and "
                    f"{self.sample.option('weight')} none"
                )

    def _refuse_nodes(self, roles: Roles) -> None:
        """Raise FocuseError if every head and every tail occurs once, as in a table of nodes and their properties."""
        unique = [len(self.columns[index].distinct) > self.rows * NODE_SHARE for index in (roles.head, roles.tail)]
        if self.rows >= MANY_ROWS and all(unique):
            head, tail = (repr(self.sample.label(index)) for index in (roles.head, roles.tail))
            raise FocuseError(
                f"{self.sample.where}{self.sample.line}: values of {head} and {tail} occur once each, as in a table of "
                f"nodes, not of edges; if these are edges: {_command(self.sample, roles)}"
            )

    def _headings(self, fits: Callable[[ColumnSample], bool] = lambda column: True) -> list[tuple[str, ...]]:
        """Return the words of the headings, without those of columns that have a role or do not fit one."""
        used = self.known.used
        return [() if index in used or not fits(column) else column.words for index, column in enumerate(self.columns)]

    def _between(self, free: list[int]) -> Roles:
        """Return the roles of a table whose endpoints are known."""
        head, tail, relation = self.known.head or 0, self.known.tail or 0, self.known.relation
        texts = [index for index in free if self.columns[index].values and not self.columns[index].is_mostly_number]
        texts = [index for index in texts if not NO_RELATION & set(self.columns[index].words)]
        is_open = relation is None and not self.given and not self.known.relation_decided
        if is_open and len(texts) == 1 and len(free) <= 2:
            relation = texts[0] if self._may_be_relation(texts[0], head, tail) else None
        is_open = is_open and relation is None and self.rows >= MANY_ROWS
        if is_open and any(self._tells_apart(index, head, tail) for index in texts):
            raise self._unclear("relation")
        if self.known.weights is not None:
            return Roles(head, tail, relation, self.known.weights)
        numbers = [index for index in free if self.columns[index].is_mostly_number]
        numbers = [index for index in numbers if not (self.columns[index].is_time or "id" in self.columns[index].words)]
        if len(numbers) > 1:  # a correlation is the weight, its p-value is not
            numbers = [index for index in numbers if self.columns[index].words not in P_VALUES] or numbers
        if len(numbers) > 1 or any(self.columns[index].may_be_duration for index in numbers):
            raise self._unclear("weight")
        return Roles(head, tail, relation, tuple(numbers))

    def _may_be_relation(self, index: int, head: int, tail: int) -> bool:
        """Return whether a column whose heading is not known may name relations."""
        column = self.columns[index]
        if any(_are_twins(column, self.columns[end]) for end in (head, tail)):
            return False  # names of ids
        several = len(column.distinct) > 1 or not column.words
        unlikely = set(column.words) & NO_RELATION
        return several and not unlikely and column.is_word and self.sample.may_be_relation(index, head, tail)

    def _tells_apart(self, index: int, head: int, tail: int) -> bool:
        """Return whether many pairs repeat, and most of them differ in a column of words that names neither end."""
        ends, column = [self.columns[end].cells for end in (head, tail)], self.columns[index]
        repeats = self.rows - len(set(zip(*ends, strict=True)))
        if not column.is_word or repeats < REPEATED * self.rows:
            return False
        equal = self.rows - len(set(zip(*ends, column.cells, strict=True)))
        return 2 * equal < repeats and not any(_are_twins(column, self.columns[end]) for end in (head, tail))

    def _in_order(self, free: list[int]) -> Roles:
        """Return the roles of a table whose columns are in the usual order, as far as they are not known."""
        known = replace(self.known)  # what is only likely is not proposed
        if known.weights is None:
            if not known.used and len(free) in (2, 3, 4):
                return (self._two, self._three, self._four)[len(free) - 2](free)
            known.weights = self._likely_weights(free)
            free = [index for index in free if index not in known.weights]
        ends = [end for end in (known.head, known.tail) if end is not None]
        missing = 2 - len(ends)
        if self.sample.header and missing == 2 and len(free) + len(known.weights or ()) > USUAL:
            raise self._unclear("head and tail")
        if self.sample.header and len(free) > missing:
            texts = [index for index in free if not self.columns[index].is_mostly_number]
            free = texts if len(texts) in (missing, missing + 1) else free
        is_open = known.relation is None and not known.relation_decided and not ends
        if is_open and len(free) == 3 and not any(self.columns[index].is_number for index in free):
            return self._relate(free, known.weights or ())
        if len(free) == missing + 1 and known.relation is None and not known.relation_decided:
            known.relation = free.pop(1 if known.head is None else 0)
            column = self.columns[known.relation]
            is_odd = column.is_number or column.is_time or column.odd_number or set(column.words) & NO_RELATION
            if is_odd or not self.sample.may_be_relation(known.relation, *(*ends, *free)[:2]):
                known.relation = None
                raise self._unclear("head and tail")
        if len(free) != missing:
            raise self._unclear("head and tail")
        head = free.pop(0) if known.head is None else known.head
        tail = free.pop(0) if known.tail is None else known.tail
        return Roles(head, tail, known.relation, known.weights or ())

    def _likely_weights(self, free: list[int]) -> tuple[int, ...]:
        """Return the only column of numbers with a point, else a last one of whole numbers."""
        numbers = [index for index in free if self.columns[index].is_mostly_number]
        decimals = [index for index in numbers if self.columns[index].is_real]
        if len(decimals) > 1:
            raise self._unclear("head, tail and weight")
        missing = (self.known.head, self.known.tail).count(None)
        last = [index for index in free[-1:] if index in numbers and len(self.columns[index].distinct) > 1]
        return tuple(decimals or (last if len(free) > missing else ()))

    def _two(self, columns: list[int]) -> Roles:
        """Return the roles of two columns: edges without weights, unless one column holds numbers."""
        one, two = (self.columns[index] for index in columns)
        if one.is_whole != two.is_whole or one.is_number != one.is_whole or two.is_number != two.is_whole:
            raise self._unclear("head, tail and weight")
        return Roles(columns[0], columns[1])

    def _three(self, columns: list[int]) -> Roles:
        """Return the roles of three columns by what they hold."""
        first, second, third = columns
        triple, weighted = Roles(first, third, second), Roles(first, second, None, (third,))
        one, two, three = (self.columns[index] for index in columns)
        decimals = [index for index in columns if self.columns[index].is_number and not self.columns[index].is_whole]
        fewer_last = self.rows >= MANY_ROWS and 2 * len(three.distinct) <= len(two.distinct)
        if len(decimals) > 1:
            raise self._unclear("head, tail and weight")
        if decimals and decimals[0] != third:  # names of entities are no numbers with a point
            head, tail = (index for index in columns if index not in decimals)
            if fewer_last:
                raise self._several_ways(Roles(head, tail, None, (decimals[0],)), Roles(first, second, third))
            if three.is_whole and not one.is_number:  # codes such as 250.01, and counts
                raise self._several_ways(Roles(first, second, None, (third,)), Roles(head, tail, None, (decimals[0],)))
            return Roles(head, tail, None, (decimals[0],))
        share = self.sample.share
        if self.sample.count is not None:  # OpenKE: head, tail, relation
            fewer = len(three.distinct) <= len(two.distinct)
            return Roles(first, second, third) if fewer or share(first, second) > share(first, third) else triple
        pairs, with_third = self.sample.distinct_pairs(first, second), self.sample.distinct_pairs(first, third)
        few = self.sample.may_be_relation(second, first, third)
        if three.is_time:
            raise self._several_ways(Roles(first, second), triple)
        if three.may_be_duration or (three.is_year and not one.is_whole):
            raise self._several_ways(Roles(first, second), weighted, triple)
        if two.is_whole and not one.is_number and not three.is_number and not self.sample.header:
            raise self._several_ways(Roles(first, third, None, (second,)), triple)
        if not three.is_mostly_number:
            return self._relate(columns, ())
        if not three.is_whole:
            return weighted
        if not (one.is_whole and two.is_whole):
            plausible = few and with_third > pairs + CLEAR and one.is_whole == three.is_whole
            unclear = few and with_third > pairs + CLEAR and not plausible
            if unclear and not self.sample.header:
                raise self._several_ways(triple, weighted)
            return triple if plausible else weighted
        # Head and tail of triples share more names than head and relation, which repeat more often.
        if with_third > pairs + CLEAR and (few or share(first, third) > share(first, second)):
            if self.sample.overlap(first, third) > 0:
                return triple
            raise self._several_ways(triple, weighted)
        if few and with_third > pairs - CLEAR:
            raise self._several_ways(triple, weighted)
        if self.rows >= MANY_ROWS and share(second, third) > SAME_NAMES > share(first, second):
            raise self._several_ways(Roles(second, third), Roles(second, third, None, (first,)), weighted)
        like_tails = 2 * len(three.distinct) > self.rows and share(first, third) > share(first, second)
        if self.rows >= MANY_ROWS and (like_tails or (pairs < 1 - REPEATED and len(three.distinct) > FEW)):
            raise self._several_ways(triple, Roles(first, second, third), weighted)
        low, high = min(three.numbers), max(three.numbers)
        if low == 0 and len(three.distinct) == high + 1 and len(three.distinct) * 5 < len(two.distinct):
            raise self._several_ways(Roles(first, second, third), weighted)  # ids from 0 on, as of relations
        return weighted

    def _relate(self, columns: list[int], weights: tuple[int, ...]) -> Roles:
        """Return the roles of three columns of names: the usual ones, or others if two columns share their names.

        FocuseError is raised if the first or the last is likelier to have the relations, but it is not certain.
        """
        first, second, third = columns
        if self.sample.header and not self.given:
            self._refuse_nodes(Roles(first, third, second))
        numbers = [index for index in columns if self.columns[index].is_number]
        if len(numbers) == 1 and not weights:  # counts of pairs, as "uniq -c" prints them, or ids
            column, ends = self.columns[numbers[0]], [index for index in columns if index not in numbers]
            if "id" in column.words or (self.rows >= MANY_ROWS and len(column.distinct) == self.rows):
                raise self._unclear("head and tail")
            return Roles(ends[0], ends[1], None, (numbers[0],))
        shared = {pair: self.sample.overlap(*pair) for pair in ((first, second), (first, third), (second, third))}
        for pair, relation in (((first, second), third), ((second, third), first)):
            if shared[pair] > SAME_NAMES and not any(share for ends, share in shared.items() if ends != pair):
                if self.rows >= MANY_ROWS:
                    return Roles(*pair, relation, weights)
                raise self._several_ways(Roles(*pair, relation, weights), Roles(first, third, second, weights))
        counts = [len(self.columns[index].distinct) for index in columns]
        few = self.sample.may_be_relation(second, first, third)
        readings = [Roles(first, third, second, weights)]
        if 2 * counts[2] <= counts[1] and self.sample.overlap(first, third) == 0:
            readings.append(Roles(first, second, third, weights))
        if not few and 5 * counts[0] <= counts[1] and self.sample.overlap(first, third) == 0:
            readings.append(Roles(second, third, first, weights))
        if len(readings) > 1 and self.rows >= MANY_ROWS:
            raise self._several_ways(*readings)
        return readings[0]

    def _four(self, columns: list[int]) -> Roles:
        """Return the roles of four columns by what they hold."""
        first, second, third, fourth = columns
        one, two, three, four = (self.columns[index] for index in columns)
        usual = Roles(first, third, second, (fourth,))
        by_third, by_fourth = (Roles(first, second, None, (weight,)) for weight in (third, fourth))
        if four.is_time:
            counts = all(each.is_whole for each in (one, two, three)) and not self.sample.may_be_relation(
                second, first, third
            )
            return by_third if counts or (three.is_number and not three.is_whole) else self._three(columns[:3])
        if one.is_number and not one.is_whole and not any(each.is_number for each in (two, three, four)):
            return self._relate([second, third, fourth], (first,))
        if self.rows >= MANY_ROWS and any(_are_twins(two, end) for end in (one, three)):
            raise self._unclear("head, relation, tail and weight")  # the second column has the names of ids
        odd_numbers = any(each.is_number and not each.is_whole for each in (two, three))
        words_last = four.is_word and not four.numbers and self.rows > 1
        if words_last or (
            (odd_numbers or not four.is_mostly_number) and (self.rows >= MANY_ROWS or self.sample.header)
        ):
            raise self._unclear("head, relation, tail and weight")
        if self.rows < MANY_ROWS:
            return usual
        if three.is_whole and not one.is_whole:
            raise self._several_ways(by_third, by_fourth, usual)
        if one.is_whole and not two.is_number and not three.is_number and self.sample.overlap(second, third) > 0:
            raise self._several_ways(Roles(second, third, None, (fourth,)), usual)
        if four.is_year:
            raise self._several_ways(Roles(first, third, second), usual)
        if not three.is_number:
            return self._relate(columns[:3], (fourth,))
        pairs, with_third = self.sample.distinct_pairs(first, second), self.sample.distinct_pairs(first, third)
        few = self.sample.may_be_relation(second, first, third)
        if three.is_whole and one.is_whole and not few:
            likelier = self.sample.share(first, second) > self.sample.share(first, third)
            if pairs > with_third + CLEAR or likelier:
                raise self._several_ways(usual, Roles(first, second, third, (fourth,)), by_third)
        if four.is_whole and four.is_rising:
            raise self._several_ways(Roles(first, third, second), usual)
        return usual

    # ---- errors

    def _several_ways(self, *readings: Roles) -> FocuseError:
        readings = tuple(roles for roles in readings if self.propose and _is_possible(self.sample, roles))
        shown = " or ".join(_command(self.sample, roles) for roles in readings)
        where = f"{self.sample.where}{self.sample.line}"
        return FocuseError(f"{where}: {self.sample.shown()} can be read in several ways; choose one: {shown}")

    def _unclear(self, roles: str) -> FocuseError:
        several = ""
        if sum(each.is_number and not each.is_whole for each in self.columns) > 1:
            several = f"; several weights: {self.sample.option('weight-columns')}"
        verb = "is" if roles == "weight" else "are"
        proposal = _proposal(self.sample, self.known) if self.propose else None
        if proposal is None:
            named = ", ".join(map(self.sample.option, ("head", "relation", "tail")))
            advice = f" Give {named} and {self.sample.option('weight')}"
        else:
            advice = f" For example: {_command(self.sample, proposal)}"
        return FocuseError(
            f"{self.sample.where}{self.sample.line}: which of {self.sample.shown()} {verb} {roles}?{advice}{several}"
        )


def _is_matrix(sample: TableSample) -> bool:
    """Return whether a table of numbers has the headings as names of its rows, or as many rows as columns."""
    numbers = [column for column in sample.columns if column.is_number]
    rest, rows = len(sample.columns) - len(numbers), len(sample.columns[0].cells)
    if len(numbers) < 3 or rest > 1:
        return False
    if rest == 0 and not sample.header:
        return rows == len(numbers) > 4
    numbered = [column.heading for column in sample.columns] == [str(index) for index in range(len(sample.columns))]
    return sample.header and not numbered and {column.heading for column in numbers} <= sample.columns[0].distinct


def _names_relations(column: ColumnSample, letters: bool) -> bool:
    """Return whether a column may hold relations: it is not empty, and numbers stand below a clear heading.

    Numbers below r and p are correlations and probabilities, unless `letters` (h, r and t) name the columns. The column
    Type in tables of Gephi says whether edges are directed.
    """
    values = {value.lower() for value in column.distinct}
    if values <= DIRECTIONS | {""} or values <= {"true", "false"}:
        return False
    if column.words in LETTERS and not letters:
        return not column.is_mostly_number and column.odd_number is None
    if NUMBERED_RELATION & set(column.words):
        return column.is_whole or not column.is_number
    return not column.is_mostly_number and column.odd_number is None


def options(columns: dict[str, int], sample: TableSample) -> str:
    """Return the options that give columns their roles, or the keyword arguments for a table in memory."""
    return _written({role: sample.label(index) for role, index in columns.items()}, sample)


def _written(given: dict[str, str], sample: TableSample) -> str:
    if sample.in_memory:
        return ", ".join(f"{role}={label!r}" for role, label in given.items())
    return " ".join(f"--{role.replace('_', '-')} {shlex.quote(label)}" for role, label in given.items())


def _given(sample: TableSample, roles: Roles) -> dict[str, str]:
    """Return the options that read a table with these roles."""
    columns = {"head": roles.head, "relation": roles.relation, "tail": roles.tail}
    given = {role: sample.label(index) for role, index in columns.items() if index is not None}
    if roles.weights:
        weight = sample.columns[roles.weights[0]]
        given["weight"] = sample.label(roles.weights[0])
        if len(weight.values) < len(weight.cells):
            given["missing_weight"] = "drop"
    elif any(column.is_number and index not in roles.names for index, column in enumerate(sample.columns)):
        given["weight"] = NONE
    return given


def _command(sample: TableSample, roles: Roles) -> str:
    given = _written(_given(sample, roles), sample)
    return f"read(…, {given})" if sample.in_memory else f"focuse describe {shlex.quote(sample.where)} {given}"


def _is_possible(sample: TableSample, roles: Roles) -> bool:
    """Return whether a table can be read with these roles."""
    if not all(sample.columns[index].is_mostly_number for index in roles.weights):
        return False
    given = {role: label for role, label in _given(sample, roles).items() if role != "missing_weight"}
    try:
        choose_roles(sample, Asked(**given), propose=False)  # type: ignore[arg-type]
    except FocuseError:
        return False
    return True


# ---- proposals ------------------------------------------------------------------------------------------------------

MIN_TWINS, TWIN_SHARE = 5, 0.95  # distinct values, and share of them that have one partner, of an id and its name


def _proposal(sample: TableSample, known: KnownRoles) -> Roles | None:
    """Return roles that a table may have: names, of which ids may have a second column, and numbers."""
    columns, taken = sample.columns, known.used
    groups: list[list[int]] = []
    for index, column in enumerate(columns):
        if column.is_name and not column.is_row_number and index not in (known.relation, *(known.weights or ())):
            group = next((group for group in groups if _are_twins(columns[group[0]], column)), None)
            groups.append([index]) if group is None else group.append(index)
    ids = {index for group in groups if len(group) > 1 for index in group}
    groups = [group for group in groups if not set(group) & set(taken)]
    chosen = _likeliest_ends(groups, sample, (known.head is None) + (known.tail is None))
    ends = [_most_readable(group, columns) for group in chosen]
    head = known.head if known.head is not None or not ends else ends.pop(0)
    tail = known.tail if known.tail is not None or not ends else ends.pop(0)
    if (
        head is None
        or tail is None
        or (columns[tail].is_number and not columns[head].is_number and "id" not in columns[tail].words)
    ):
        return None
    rest = {*range(len(columns))} - {head, tail, *taken, *(index for group in chosen for index in group)}
    numbers = [index for index in sorted(rest - ids) if columns[index].is_number and not columns[index].is_time]
    numbers = [index for index in numbers if not columns[index].is_row_number and len(columns[index].distinct) > 1]
    numbers = [index for index in numbers if not {"id", "index"} & set(columns[index].words)]
    numbers = [index for index in numbers if 2 * len(columns[index].values) > len(columns[index].cells)]
    # Numbers with a point and without missing values are likelier to be weights than whole numbers, or p-values.
    numbers.sort(
        key=lambda index: (
            columns[index].words in P_VALUES,
            _is_count(columns[index]),
            len(columns[index].cells) - len(columns[index].values),
        )
    )
    weights = known.weights or tuple(numbers[:1])
    texts = [index for index in sorted(rest) if columns[index].is_word and not _is_about_edges(columns[index])]
    texts = [index for index in texts if sample.may_be_relation(index, head, tail)]
    # What is the same for all edges of a head, or of a tail, is a property of that entity.
    texts = [index for index in texts if not any(_belongs_to(columns[index], columns[end]) for end in (head, tail))]
    texts = [
        index
        for index in texts
        if not any(_are_equal(columns[index], columns[other]) for other in texts if other > index)
    ]
    between = [index for index in texts if min(head, tail) < index < max(head, tail)]
    texts = [index for index in between or texts if "" not in columns[index].distinct]
    texts = texts if len(texts) != 1 or len(columns[texts[0]].distinct) > 1 else []
    relation = known.relation if known.relation is not None or len(texts) != 1 else texts[0]
    for roles in (Roles(head, tail, relation, weights), Roles(head, tail, relation), Roles(head, tail, None, weights)):
        if _is_possible(sample, roles):
            return roles
    return None


def _likeliest_ends(groups: list[list[int]], sample: TableSample, count: int) -> list[list[int]]:
    """Return the `count` groups of columns, each of ids and names of the same things, that are likely to be ends.

    Two groups that share many names are the likeliest ones, then ids with a column of their names, then texts. Columns
    with a handful of names are unlikely if others have hundreds.
    """
    columns = sample.columns
    most = max((len(columns[group[0]].distinct) for group in groups), default=0)

    def rank(group: list[int]) -> tuple[bool, bool, bool, bool, int]:
        is_number, count = all(columns[index].is_number for index in group), len(columns[group[0]].distinct)
        few = count <= FEW < most / FEW
        return _is_about_edges(columns[group[0]]), few, is_number, len(group) == 1, group[0]

    groups = sorted(groups, key=rank)
    texts = [group for group in groups if rank(group)[:3] == (False, False, False)]
    for pair in combinations(texts if len(texts) > 1 else groups, 2):
        shared = max(sample.share(one, other) for one in pair[0] for other in pair[1])
        if count == 2 and shared > SAME_NAMES:
            return sorted(pair)
    return sorted(groups[:count])


def _is_about_edges(column: ColumnSample) -> bool:
    return bool((NO_RELATION - {"id"}) & set(column.words))


def _belongs_to(column: ColumnSample, end: ColumnSample) -> bool:
    """Return whether each entity of a column of heads or tails has one value in another column."""
    return len(end.distinct) < len(end.cells) and len(set(zip(end.cells, column.cells, strict=True))) == len(
        end.distinct
    )


def _are_equal(one: ColumnSample, other: ColumnSample) -> bool:
    """Return whether each value of one column has one partner in the other, and vice versa."""
    return len(set(zip(one.cells, other.cells, strict=True))) == len(one.distinct) == len(other.distinct)


def _is_count(column: ColumnSample) -> bool:
    return all(number.is_integer() for number in column.numbers)


def _are_twins(one: ColumnSample, other: ColumnSample) -> bool:
    """Return whether two columns are ids and names of the same things: almost every value has one partner."""
    counts = len(one.distinct), len(other.distinct)
    pairs = len(set(zip(one.cells, other.cells, strict=True)))
    return min(counts) >= MIN_TWINS and pairs * TWIN_SHARE <= min(counts) and pairs < len(one.cells)


def _most_readable(group: list[int], columns: list[ColumnSample]) -> int:
    """Return the column of names among columns of ids and names: no numbers, few digits."""

    def digits(index: int) -> float:
        text = "".join(columns[index].cells[:200])
        return sum(character.isdigit() for character in text) / max(len(text), 1)

    def is_name(index: int) -> bool:
        return bool({"name", "symbol", "label"} & set(columns[index].words))

    return min(group, key=lambda index: (columns[index].is_number, not is_name(index), digits(index)))


def _concept_net(sample: TableSample) -> Roles | None:
    """Return the roles of ConceptNet's assertions: URI, relation, start, end, and JSON with the weight."""
    if len(sample.columns) != 5 or sample.header:
        return None
    uri, relation, _, _, data = sample.columns
    found = (
        all(cell.startswith("/a/[") for cell in uri.cells)
        and all(cell.startswith("/r/") for cell in relation.cells)
        and all(cell.startswith("{") and '"weight"' in cell for cell in data.cells)
    )
    return Roles(2, 3, 1, (4,), json=True) if found and uri.cells else None


# ---- headers --------------------------------------------------------------------------------------------------------


CERTAIN_ROWS = 50  # rows from which a first line of values that occur nowhere else is a header


def is_header(first: list[str], columns: list[list[str]]) -> bool:
    """Return whether the first line has headings, by its words and by the cells of the columns below it.

    A text above a column of numbers is a heading, unless other cells of the line occur in the rows, too. So is a line
    of values that occur nowhere below, if no other row is such.
    """
    first = [cell.strip() for cell in first]
    below = [ColumnSample("", column) for column in columns]
    rows = len(columns[0]) if columns else 0
    recurs = [_recurs(cell, column) for cell, column in zip(first, below, strict=True)]
    words = [words_of(cell) for cell in first]
    ends = endpoints(words)
    known = {index for index in (*ends, relation_column(words), weight_column(words)) if index is not None}
    above = [_is_above(cell, column) for cell, column in zip(first, below, strict=True)]
    names = [
        again
        for again, number, cell in zip(recurs, above, first, strict=True)
        if not number and parse_number(cell) is None
    ]
    names_recur = any(names) and 3 * sum(names) >= len(names)
    # Values that occur nowhere else, if no other row of names is such.
    texts = [number for number, cell in enumerate(first) if parse_number(cell) is None]
    counts = [Counter(below[number].cells) for number in texts]
    other = (
        all(count[row[number]] == 1 for count, number in zip(counts, texts, strict=True))
        for row in zip(*columns, strict=True)
    )
    alone = rows >= CERTAIN_ROWS and "" not in first and not any(recurs[number] for number in texts) and not any(other)
    numbers = [column for cell, column in zip(first, below, strict=True) if parse_number(cell) is not None]
    if (_counts_columns(first, below) and rows >= MANY_ROWS) or _numbers_columns(first):
        return not names_recur
    if numbers:  # such as years, as headings of columns of numbers
        years = all(ColumnSample("", [cell]).is_year for cell in first if parse_number(cell) is not None)
        certain = any(above) or None not in ends or _is_index(first, below) or (years and alone)
        return certain and all(map(attrgetter("is_number"), numbers)) and not names_recur and rows >= MANY_ROWS
    if len(known) == len(first) > 2 or _is_index(first, below):
        return True
    if any(above):
        return not names_recur
    # Three names may be an edge whose relation is called 'type', so that one known heading is not enough.
    return alone or sum(not recurs[index] for index in known) >= (2 if len(first) <= 3 else 1)


def _is_above(cell: str, column: ColumnSample) -> bool:
    """Return whether a cell is text and stands above numbers, also unusual ones, dates, or true and false."""
    if cell in MISSING_WEIGHTS or not column.values:
        return False
    if column.is_mostly_number:
        return parse_number(cell) is None and cell not in column.distinct
    if column.odd_number:
        return not ODD_NUMBER.fullmatch(cell)
    if column.is_time:
        return not DATE.match(cell)
    return len(column.cells) > 1 and {value.lower() for value in column.distinct} <= TRUTH and cell.lower() not in TRUTH


def _counts_columns(first: list[str], below: list[ColumnSample]) -> bool:
    """Return whether a first line has the headings of pandas for columns without names.

    These are 0, 1, 2, … above all columns, after an empty cell above row numbers if there are any; or texts and a last
    0 above numbers.
    """
    start = int(first[0] == "" and below[0].is_whole)
    numbered = first[start:] == [str(number) for number in range(len(first) - start)] and len(first) - start > 1
    named = first[-1] == "0" and below[-1].is_number and len(first) > 2
    texts = all(not below[number].is_number and parse_number(first[number]) is None for number in range(len(first) - 1))
    # A first edge of ids may be 0, 1, 2, too.
    return (numbered and not all(column.is_whole for column in below[start:])) or (named and texts)


def _numbers_columns(first: list[str]) -> bool:
    """Return whether a first line has headings such as V1, V2 and V3, or column_0, column_1 and column_2."""
    parts = [re.fullmatch(r"(_?[A-Za-z]+_?)(\d+)", cell) for cell in first]
    found = [(part[1], int(part[2])) for part in parts if part is not None]
    stem, start = found[0] if found else ("", 0)
    return len(first) > 2 and start in (0, 1) and found == [(stem, start + at) for at in range(len(first))]


def _is_index(first: list[str], below: list[ColumnSample]) -> bool:
    """Return whether a first line begins with an empty cell above row numbers, as pandas writes it."""
    return len(first) > 2 and first[0] == "" and below[0].counts_rows


def _recurs(cell: str, column: ColumnSample) -> bool:
    """Return whether a cell occurs in a column, or differs only in its digits from a cell there."""
    if cell in column.distinct:
        return cell != ""
    shape = re.sub(r"\d+", "0", cell)
    return shape != cell and any(re.sub(r"\d+", "0", other) == shape for other in column.distinct)


def parse_number(text: str) -> float | None:
    """Return a text as a number, NaN and infinity included; None if it is none."""
    try:
        return float(text) if "_" not in text and text.isascii() else None
    except ValueError:
        return None
