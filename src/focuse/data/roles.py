"""Find the columns of head, relation, tail and weight in a table, by headings and by what the columns hold.

Headings are compared word by word with the conventions of the field. Where they do not decide, a sample of the rows
does: how many distinct values a column has, how often pairs of values repeat, and which values two columns share. A
reading that the evidence does not support is an error that shows commands to choose from.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from focuse.errors import FocuseError, nearest

NONE = "none"  # given for a column that the table does not have
ColumnNames = Sequence[str | int]  # columns by heading, or counted from 1

# ---- headings -------------------------------------------------------------------------------------------------------

HEAD = {
    "head", "subject", "source", "src", "from", "start", "h", "s", "subj", "citing", "follower", "sender", "trustor",
    "truster", "rater", "caller", "origin", "u", "i", "cue",
}  # fmt: skip
TAIL = {
    "tail", "object", "target", "dst", "dest", "destination", "to", "end", "t", "o", "obj", "cited", "followee",
    "receiver", "recipient", "trustee", "ratee", "callee", "v", "j",
}  # fmt: skip
# These are endpoints of another kind each, which are recognized if no heading is a word of HEAD or TAIL.
USER = {"user", "reviewer", "customer", "listener", "member", "visitor"}
ITEM = {"item", "movie", "product", "artist", "book", "track", "song", "business", "film", "asin", "isbn", "game"}
RELATION = (
    "relation", "predicate", "relationship", "rel", "property", "relation type", "relationship type", "edge type",
    "rel type", "interaction type", "edge label", "relation label", "relation name", "interaction", "association",
    "verb", "edge", "type", "label", "r", "p",
)  # fmt: skip
# A column of numbers holds relations only if its heading has one of these.
NUMBERED_RELATION = {"relation", "predicate", "relationship", "rel", "property", "type", "edge", "r", "p"}
WEIGHT = (
    "weight", "score", "confidence", "conf", "importance", "strength", "probability", "prob", "rating", "trust",
    "similarity", "affinity", "relevance", "correlation", "numeric", "w", "value", "count", "counts", "frequency",
    "freq", "plays", "level", "stars", "number",
)  # fmt: skip
TIME = {"time", "timestamp", "date", "datetime", "year", "created", "updated", "ts", "epoch"}
DESCRIPTION = {"description", "text", "comment", "sentence", "evidence", "note", "notes", "abstract"}
ROW_NUMBERS = {(), ("id",), ("index",), ("unnamed", "0"), ("row",), ("human", "readable", "id")}
# Words that name a column of ids or of names, not what the ids are of.
FILLERS = {"id", "ids", "node", "vertex", "entity", "name", "key", "code", "idx", "index", "no", "nr", "uri", "iri"}
DIRECTIONS = {"Directed", "Undirected"}  # in the column Type of tables of Gephi
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
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    return tuple(re.findall(r"[^\W\d_]+|\d+", text.lower()))


def kind_of(heading: str) -> tuple[str, ...]:
    """Return what the ids of a column are of: the words of its heading without fillers, sides and numbers.

    >>> kind_of("userID"), kind_of("source_gene"), kind_of("protein2"), kind_of("from"), kind_of(":END_ID(Movie)")
    (('user',), ('gene',), ('protein',), (), ('movie',))
    """
    group = re.search(r"_ID\((.*?)\)", heading)
    words = words_of(group[1] if group else heading)
    sides = FILLERS | HEAD | TAIL | {"a", "b", "1", "2", "x", "y"}
    return tuple(word for word in words if word not in sides)


def _pick(candidates: Iterable[tuple[int, int]]) -> int | None:
    """Return the column of the best (rank, column), None if there is none or if two are equally good."""
    ranked = sorted(candidates)
    clear = len(ranked) == 1 or (len(ranked) > 1 and ranked[0][0] < ranked[1][0])
    return ranked[0][1] if clear else None


def _side(headings: Sequence[tuple[str, ...]], known: Collection[str]) -> int | None:
    """Return the column whose heading is one of the `known` words, alone or with fillers."""
    found = []
    for index, words in enumerate(headings):
        rest = [word for word in words if word not in FILLERS] or list(words)
        if len(rest) == 1 and rest[0] in known:
            found.append((len(words), index))
    return _pick(found)


def _numbered_pair(headings: Sequence[tuple[str, ...]]) -> tuple[int, int] | None:
    """Return the columns of headings such as protein1 and protein2, or gene_a and gene_b, if there is one such pair."""
    pairs = []
    for first, second in (("1", "2"), ("a", "b")):
        for index, words in enumerate(headings):
            other = (*words[:-1], second)
            is_word = len(words) > 1 and len(words[0]) > 1  # not e1, which may be a name
            if is_word and words[-1] == first and headings.count(words) == headings.count(other) == 1:
                pairs.append((index, headings.index(other)))
    return pairs[0] if len(pairs) == 1 else None


def endpoints(headings: Sequence[tuple[str, ...]]) -> tuple[int | None, int | None]:
    """Return the columns of head and tail by the words of their headings; None for those that are not known."""
    head, tail = _side(headings, HEAD), _side(headings, TAIL)
    if (head is None or tail is None) and (pair := _numbered_pair(headings)):
        return pair
    if head is None and tail is None:
        return _side(headings, USER), _side(headings, ITEM)
    return head, tail


def relation_column(headings: Sequence[tuple[str, ...]]) -> int | None:
    """Return the column of the relation by the words of its heading."""
    ranks = {word: rank for rank, word in enumerate(RELATION)}
    found = []
    for index, words in enumerate(headings):
        for text in (" ".join(words), " ".join(word for word in words if word not in FILLERS)):
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
        ranks = [WEIGHT.index(word) for word in words if word in WEIGHT and len(word) > 1]
        if ranks and not TIME & set(words) and "id" not in words:
            part.append((-1 if PREFERRED in words else min(ranks), index))
    return _pick(part)


# ---- a sample of a table --------------------------------------------------------------------------------------------

MISSING_WEIGHTS = ("", "?", "NA", "N/A", "NaN", "nan", "NAN", "null", "NULL", "None", "none", "\\N", "-", ".")
SECONDS, MILLISECONDS = (1e8, 5e9), (1e11, 5e12)  # since 1970, of times between 1973 and 2128
MANY_ROWS = 20  # rows from which the number of distinct values is evidence
FEW, FEW_SHARE = 10, 0.2  # a column of relations has at most FEW values, or this share of those of head and tail
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

    @property
    def is_time(self) -> bool:
        """Whether the column holds times, by its heading or as seconds or milliseconds since 1970."""
        if not self.is_number:
            return bool(TIME & set(self.words))
        low, high = min(self.numbers), max(self.numbers)
        in_range = any(start <= low and high < end for start, end in (SECONDS, MILLISECONDS))
        return bool(TIME & set(self.words)) or (not self.words and in_range and len(self.distinct) > 1)

    @property
    def is_row_number(self) -> bool:
        """Whether the column only numbers or identifies the rows."""
        return bool(self.heading or self.is_whole) and self.words in ROW_NUMBERS and (
            bool(self.words) or (len(self.distinct) == len(self.cells) > 1 and self._is_consecutive)
        )  # fmt: skip

    @property
    def _is_consecutive(self) -> bool:
        return self.is_whole and max(self.numbers) - min(self.numbers) + 1 == len(self.cells)

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
    in_memory: bool = False  # whether it is no file, so that advice names keyword arguments instead of options

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
        if isinstance(column, str) and column.strip() in headings:
            return headings.index(column.strip())
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


def choose_roles(sample: TableSample, asked: Asked) -> Roles:
    """Choose the columns of head, relation, tail and weights, as asked, by headings or by what the columns hold.

    >>> columns = [ColumnSample(name, list(cells)) for name, cells in (("from", "ab"), ("to", "cd"), ("hours", "12"))]
    >>> roles = choose_roles(TableSample(columns, True, "table"), Asked())
    >>> roles.head, roles.relation, roles.tail, roles.weights
    (0, None, 1, (2,))
    """
    known = asked.known(sample)
    every = known.head is not None and known.tail is not None and known.weights is not None
    roles = None if asked.names_columns else _concept_net(sample)
    roles = roles or _Chooser(sample, known, asked.names_columns).roles()
    roles = replace(roles, kinds=_kinds(sample, roles, asked.same_ids))
    unusual = roles.relation is None or roles.json or _differs(sample, roles)
    note = _reading(sample, roles, asked) if unusual and not every else ""
    return replace(roles, note="; ".join(part for part in (note, _ids_note(sample, roles, asked)) if part))


def _differs(sample: TableSample, roles: Roles) -> bool:
    """Return whether a reading with relations is not the usual one, so that it is worth a line."""
    order = [*roles.names, *roles.weights]
    if len(order) < len(sample.columns) or _is_header_by_content(sample) or sample.count is not None:
        return True
    numbers = any(sample.columns[index].is_number for index in (roles.head, roles.tail))
    many = roles.relation is not None and not sample.may_be_relation(roles.relation, roles.head, roles.tail)
    return not sample.header and (order != sorted(order) or numbers or many)


def _is_header_by_content(sample: TableSample) -> bool:
    """Return whether a file has headings of which none is known."""
    words = sample.headings
    known = (*endpoints(words), relation_column(words), weight_column(words))
    return sample.header and not sample.in_memory and not any(index is not None for index in known)


def _reading(sample: TableSample, roles: Roles, asked: Asked) -> str:
    """Return one line on how a table was read, and how to change it."""
    label = sample.label
    quoted: Callable[[int], str] = (lambda index: repr(label(index))) if sample.header else label
    parts = [f"head {quoted(roles.head)}"]
    parts += [] if roles.relation is None else [f"relation {quoted(roles.relation)}"]
    parts += [f"tail {quoted(roles.tail)}"]
    parts += [f"weight {', '.join(map(quoted, roles.weights))}"] if roles.weights else ["no weight"]
    text = f"read columns as {', '.join(parts)}"
    if roles.json:
        text = text.replace(
            f"weight {quoted(roles.weights[0])}", f'weight "weight" in the JSON of {label(roles.weights[0])}'
        )
    if roles.relation is None:
        name = relation_name(sample, roles, asked)
        text += f"; all edges have the relation {name!r} ({sample.option('relation-name')})"
    if sample.count is not None:
        text += "; line 1 is the number of triples"
    if _is_header_by_content(sample):
        text += "; line 1 is the header (--no-header)"
    if unused := [index for index in range(len(sample.columns)) if index not in {*roles.names, *roles.weights}]:
        shown = [quoted(index) for index in unused[:8]]
        text += f"; not used: {', '.join(shown)}{' …' if len(unused) > 8 else ''}"
    return f"{text}; to change it, give {_other_options(sample, roles)}"


def _other_options(sample: TableSample, roles: Roles) -> str:
    """Return an example of options that read the table in another way."""
    if len(sample.columns) == 3 and not sample.header:
        three = {"head": 0, "relation": 1, "tail": 2}
        return options({"head": 0, "tail": 1, "weight": 2} if roles.relation is not None else three, sample)
    return ", ".join(map(sample.option, ("head", "relation", "tail"))) + f" and {sample.option('weight')}"


def relation_name(sample: TableSample, roles: Roles, asked: Asked) -> str:
    """Return the name of the only relation of a table: as asked, else the weight's heading, else the file's name."""
    if asked.relation_name is not None:
        return asked.relation_name
    if sample.header and len(roles.weights) == 1 and not roles.json:
        column = sample.columns[roles.weights[0]]
        if column.words and column.words not in GENERIC_HEADINGS:
            return column.heading.partition(":")[0].strip() or DEFAULT_RELATION
    name = re.sub(
        r"\.(gz|zst|csv|tsv|txt|dat|tab|parquet|jsonl|ndjson|json|xlsx|mtx|graphml|edgelist|edges|data)\b",
        "",
        Path(sample.where).name,
    )
    generic = " ".join(words_of(name)) in GENERIC_NAMES or not re.search(r"[^\W\d_]", name)
    return DEFAULT_RELATION if generic or not Path(sample.where).suffix else name


# ---- ids of different kinds -----------------------------------------------------------------------------------------

MIN_EXPECTED = 8.0  # self-loops or reverse pairs by chance from which their number is evidence


def _kinds(sample: TableSample, roles: Roles, same_ids: bool | None) -> tuple[str, str] | None:
    """Return words that keep the ids of heads and tails apart, None if both columns name the same entities."""
    head, tail = sample.columns[roles.head], sample.columns[roles.tail]
    named = kind_of(head.heading), kind_of(tail.heading)
    words = (" ".join(named[0]), " ".join(named[1])) if sample.header else ("", "")
    if words[0] == words[1] or not all(words):
        words = ("head", "tail")
    if same_ids is not None:
        return None if same_ids else words
    if not (head.is_whole and tail.is_whole):
        return None
    if sample.header and all(named) and named[0] != named[1]:
        return words
    return words if roles.relation is None and _is_bipartite(sample, roles) else None


def _is_bipartite(sample: TableSample, roles: Roles) -> bool:
    """Return whether equal ids in both columns meet as often as if they were of different entities.

    In a graph of one kind, self-loops are rarer and reverse edges are more frequent than by chance.
    """
    heads, tails = sample.columns[roles.head].cells, sample.columns[roles.tail].cells
    count_head, count_tail = dict.fromkeys(heads, 0), dict.fromkeys(tails, 0)
    for head, tail in zip(heads, tails, strict=True):
        count_head[head] += 1
        count_tail[tail] += 1
    expected = sum(count * count_tail.get(name, 0) for name, count in count_head.items()) / max(len(heads), 1)
    loops = sum(head == tail for head, tail in zip(heads, tails, strict=True))
    return expected >= MIN_EXPECTED and loops >= expected / 2


def _ids_note(sample: TableSample, roles: Roles, asked: Asked) -> str:
    """Return a line on the ids of heads and tails, if both columns hold numbers and it was not the user's choice."""
    if asked.same_ids is not None:
        return ""
    if roles.kinds is not None:
        return (
            f"the numbers in both columns name different things and are kept apart, as '{roles.kinds[0]} 1' and "
            f"'{roles.kinds[1]} 1' ({'same_ids=True' if sample.in_memory else '--same-ids'} merges them)"
        )
    head, tail = sample.columns[roles.head], sample.columns[roles.tail]
    if roles.relation is None and head.is_whole and tail.is_whole:
        separate = "same_ids=False" if sample.in_memory else "--separate-ids"
        return f"equal numbers in both columns are the same entity ({separate} keeps them apart)"
    return ""


# ---- choosing -------------------------------------------------------------------------------------------------------

CLEAR = 0.02  # difference of two fractions of distinct pairs that is evidence
NODE_SHARE = 0.98  # of the values of a column, if it has so many distinct ones, each names a node of its own


class _Chooser:
    """Chooses the columns of a table of which some are known; `given` if the user named them."""

    def __init__(self, sample: TableSample, known: KnownRoles, given: bool) -> None:
        self.sample, self.known, self.given = sample, known, given
        self.columns = sample.columns
        self.rows = len(sample.columns[0].cells) if sample.columns else 0

    def roles(self) -> Roles:
        known, columns = self.known, self.columns
        if not self.given and _is_matrix(self.sample):
            raise FocuseError(
                f"{self.sample.where}: this looks like an adjacency matrix; give a row per edge (head, tail, weight), "
                "for example focuse.read(pandas.read_csv(file, index_col=0).stack().reset_index())"
            )
        if self.sample.header:
            head, tail = endpoints(self._headings())
            known.head = head if known.head is None else known.head
            known.tail = tail if known.tail is None else known.tail
            if known.weights is None and (weight := weight_column(self._headings())) is not None:
                known.weights = (weight,)
            if not known.relation_decided:
                words = self._headings()
                named = [words[index] if _names_relations(column) else () for index, column in enumerate(columns)]
                known.relation = relation_column(named)
        times = self.sample.header and {index for index, column in enumerate(columns) if TIME & set(column.words)}
        unused = {*known.used, *(times or ())}
        free = [index for index, column in enumerate(columns) if index not in unused and not column.is_row_number]
        if known.head is not None and known.tail is not None:
            return self._between(free)
        roles = self._in_order(free)
        if self.sample.header and not self.given:
            self._refuse_nodes(roles)
        return roles

    def _refuse_nodes(self, roles: Roles) -> None:
        """Raise FocuseError if every head and every tail occurs once, as in a table of nodes and their properties."""
        unique = [len(self.columns[index].distinct) > self.rows * NODE_SHARE for index in (roles.head, roles.tail)]
        if self.rows >= MANY_ROWS and all(unique):
            head, tail = (repr(self.sample.label(index)) for index in (roles.head, roles.tail))
            raise FocuseError(
                f"{self.sample.where}{self.sample.line}: values of {head} and {tail} occur once each, as in a table of "
                f"nodes, not of edges; if these are edges, give {_other_options(self.sample, roles)}"
            )

    def _headings(self) -> list[tuple[str, ...]]:
        """Return the words of the headings, without those of columns that have a role."""
        used = self.known.used
        return [() if index in used else words for index, words in enumerate(self.sample.headings)]

    def _between(self, free: list[int]) -> Roles:
        """Return the roles of a table whose endpoints are known."""
        head, tail, relation = self.known.head or 0, self.known.tail or 0, self.known.relation
        texts = [index for index in free if not self.columns[index].is_number]
        texts = [index for index in texts if not DESCRIPTION & set(self.columns[index].words)]
        if relation is None and not self.given and len(texts) == 1 and len(free) <= 2:
            relation = texts[0] if self.sample.may_be_relation(texts[0], head, tail) else None
        if self.known.weights is not None:
            return Roles(head, tail, relation, self.known.weights)
        numbers = [index for index in free if self.columns[index].is_number and "id" not in self.columns[index].words]
        numbers = [index for index in numbers if self.sample.header or not self.columns[index].is_time]
        if len(numbers) > 1:
            raise self._unclear("weight")
        return Roles(head, tail, relation, tuple(numbers))

    def _in_order(self, free: list[int]) -> Roles:
        """Return the roles of a table whose columns are in the usual order, as far as they are not known."""
        known = self.known
        if known.weights is None:
            if not known.used and len(free) in (2, 3, 4):
                return (self._two, self._three, self._four)[len(free) - 2](free)
            free = self._take_weight(free)
        ends = [end for end in (known.head, known.tail) if end is not None]
        missing = 2 - len(ends)
        if len(free) == missing + 1 and known.relation is None and not known.relation_decided:
            known.relation = free.pop(1 if known.head is None else 0)
            if not self.sample.may_be_relation(known.relation, *(*ends, *free)[:2]):
                raise self._unclear("head and tail")
        if len(free) != missing:
            raise self._unclear("head and tail")
        head = free.pop(0) if known.head is None else known.head
        tail = free.pop(0) if known.tail is None else known.tail
        return Roles(head, tail, known.relation, known.weights or ())

    def _take_weight(self, free: list[int]) -> list[int]:
        """Take the only column of numbers with a point, else a last one of whole numbers, as the weight."""
        numbers = [index for index in free if self.columns[index].is_number]
        decimals = [index for index in numbers if not self.columns[index].is_whole]
        if len(decimals) > 1:
            raise self._unclear("head, tail and weight")
        self.known.weights = tuple(decimals or [index for index in free[-1:] if index in numbers])
        return [index for index in free if index not in self.known.weights]

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
        if len(decimals) > 1:
            raise self._unclear("head, tail and weight")
        if decimals and decimals[0] != third:  # names of entities are no numbers with a point
            head, tail = (index for index in columns if index not in decimals)
            return Roles(head, tail, None, (decimals[0],))
        if self.sample.count is not None:  # OpenKE: head, tail, relation
            last = len(three.distinct) <= len(two.distinct)
            return Roles(first, second, third) if last else triple
        pairs, with_third = self.sample.distinct_pairs(first, second), self.sample.distinct_pairs(first, third)
        few = self.sample.may_be_relation(second, first, third)
        if not three.is_mostly_number:
            swapped = len(three.distinct) * 5 < len(two.distinct) and self.rows >= MANY_ROWS
            if swapped and not few:
                raise self._two_ways(Roles(first, second, third), triple)
            return triple
        if not three.is_whole:
            return weighted
        if not (one.is_whole and two.is_whole):
            plausible = few and with_third > pairs + CLEAR and one.is_whole == three.is_whole
            unclear = few and with_third > pairs + CLEAR and not plausible
            if unclear:
                raise self._two_ways(triple, weighted)
            return triple if plausible else weighted
        if few and with_third > pairs + CLEAR and self.sample.overlap(first, third) > 0:
            return triple
        if few and with_third > pairs - CLEAR:
            raise self._two_ways(triple, weighted)
        low, high = min(three.numbers), max(three.numbers)
        if low == 0 and len(three.distinct) == high + 1 and len(three.distinct) * 5 < len(two.distinct):
            raise self._two_ways(Roles(first, second, third), weighted)  # ids from 0 on, as of relations
        return weighted

    def _four(self, columns: list[int]) -> Roles:
        """Return the roles of four columns by what they hold."""
        first, second, third, fourth = columns
        one, two, three, four = (self.columns[index] for index in columns)
        usual = Roles(first, third, second, (fourth,))
        if three.is_number and four.is_time:
            return Roles(first, second, None, (third,))
        odd_numbers = any(each.is_number and not each.is_whole for each in (two, three))
        if self.sample.header and (odd_numbers or not four.is_mostly_number):
            raise self._unclear("head, relation, tail and weight")
        if self.rows < MANY_ROWS:
            return usual
        if odd_numbers:
            raise self._unclear("head, relation, tail and weight")
        pairs, with_third = self.sample.distinct_pairs(first, second), self.sample.distinct_pairs(first, third)
        few = self.sample.may_be_relation(second, first, third)
        swapped = len(three.distinct) * 5 < len(two.distinct) and pairs > with_third + CLEAR
        if (swapped and not few) or (three.is_whole and one.is_whole and not few and pairs > with_third + CLEAR):
            raise self._two_ways(usual, Roles(first, second, third, (fourth,)), Roles(first, second, None, (third,)))
        return usual

    # ---- errors

    def _two_ways(self, *readings: Roles) -> FocuseError:
        shown = " or ".join(_command(self.sample, _named(roles)) for roles in readings)
        where = f"{self.sample.where}{self.sample.line}"
        return FocuseError(f"{where}: {self.sample.shown()} can be read in several ways; choose one: {shown}")

    def _unclear(self, roles: str) -> FocuseError:
        several = ""
        if sum(each.is_number and not each.is_whole for each in self.columns) > 1:
            several = f"; several weights: {self.sample.option('weight-columns')}"
        verb = "is" if roles == "weight" else "are"
        return FocuseError(
            f"{self.sample.where}{self.sample.line}: which of {self.sample.shown()} {verb} {roles}? For example: "
            f"{_command(self.sample, _proposal(self.sample, self.known))}{several}"
        )


def _is_matrix(sample: TableSample) -> bool:
    """Return whether a table of numbers has the headings as names of its rows, or as many rows as columns."""
    numbers = [column for column in sample.columns if column.is_number]
    rest, rows = len(sample.columns) - len(numbers), len(sample.columns[0].cells)
    if len(numbers) < 3 or rest > 1:
        return False
    if rest == 0 and not sample.header:
        return rows == len(numbers) > 4
    return sample.header and {column.heading for column in numbers} <= sample.columns[0].distinct


def _names_relations(column: ColumnSample) -> bool:
    """Return whether a column may hold relations: no cell is empty, and numbers stand below a clear heading.

    The column Type in tables of Gephi says whether edges are directed.
    """
    numbers_fit = column.is_whole and bool(NUMBERED_RELATION & set(column.words))
    is_type = not column.is_mostly_number or numbers_fit
    return is_type and "" not in column.distinct and not column.distinct <= DIRECTIONS


def _named(roles: Roles) -> dict[str, int]:
    named = {"head": roles.head, "relation": roles.relation, "tail": roles.tail}
    named |= {"weight": roles.weights[0]} if roles.weights else {}
    return {role: index for role, index in named.items() if index is not None}


def options(columns: dict[str, int], sample: TableSample) -> str:
    """Return the options that give columns their roles, or the keyword arguments for a table in memory."""
    if sample.in_memory:
        labels = {role: sample.label(index) for role, index in columns.items()}
        return ", ".join(f"{role}={int(label) if label.isdecimal() else label!r}" for role, label in labels.items())
    return " ".join(f"--{role} {shlex.quote(sample.label(index))}" for role, index in columns.items())


def _command(sample: TableSample, columns: dict[str, int]) -> str:
    given = options(columns, sample)
    return f"read(…, {given})" if sample.in_memory else f"focuse describe {shlex.quote(sample.where)} {given}"


# ---- proposals ------------------------------------------------------------------------------------------------------

MIN_TWINS, TWIN_SHARE = 5, 0.95  # distinct values, and share of them that have one partner, of an id and its name


def _proposal(sample: TableSample, known: KnownRoles) -> dict[str, int]:
    """Return columns that may be head, tail and weight: names, of which ids may have a second column, and numbers."""
    columns, taken = sample.columns, known.used
    groups: list[list[int]] = []
    for index, column in enumerate(columns):
        if column.is_name and not column.is_row_number and index not in (known.relation, *(known.weights or ())):
            group = next((group for group in groups if _are_twins(columns[group[0]], column)), None)
            groups.append([index]) if group is None else group.append(index)
    # A column of ids with a column of their names is likelier to be an endpoint than any other column.
    groups.sort(key=lambda group: (len(group) == 1, columns[group[0]].is_number, group[0]))
    groups = [group for group in groups if not set(group) & set(taken)]
    chosen = sorted(groups[: (known.head is None) + (known.tail is None)])
    ends = [_most_readable(group, columns) for group in chosen]
    found = {"head": known.head if known.head is not None or not ends else ends.pop(0), "relation": known.relation}
    found["tail"] = known.tail if known.tail is not None or not ends else ends.pop(0)
    rest = {*range(len(columns))} - {*taken, *(index for group in chosen for index in group)}
    numbers = [index for index in sorted(rest) if columns[index].is_number and not columns[index].is_time]
    numbers = [index for index in numbers if not columns[index].is_row_number and len(columns[index].distinct) > 1]
    # Numbers with a point and without missing values are likelier to be weights than whole numbers.
    numbers.sort(key=lambda index: (_is_count(columns[index]), len(columns[index].cells) - len(columns[index].values)))
    found["weight"] = next(iter(known.weights or numbers), None)
    return {role: index for role, index in found.items() if index is not None}


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

    return min(group, key=lambda index: (columns[index].is_number, digits(index)))


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


def is_header(first: list[str], columns: list[list[str]]) -> bool:
    """Return whether the first line has headings, by its words and by the cells of the columns below it.

    A text above a column of numbers is a heading, unless other cells of the line occur in the rows as well.
    """
    first = [cell.strip() for cell in first]
    if any(parse_number(cell) is not None for cell in first):
        return False
    below = [ColumnSample("", column) for column in columns]
    recurs = [_recurs(cell, column) for cell, column in zip(first, below, strict=True)]
    words = [words_of(cell) for cell in first]
    known = {index for index in (*endpoints(words), relation_column(words), weight_column(words)) if index is not None}
    if len(known) == len(first) > 2:
        return True
    text = [cell not in MISSING_WEIGHTS for cell in first]
    over_numbers = [bool(cell and column.is_number) for cell, column in zip(text, below, strict=True)]
    if any(over_numbers):
        return not any(again and not number for again, number in zip(recurs, over_numbers, strict=True))
    # Three names may be an edge whose relation is called 'type', so that one known heading is not enough.
    return sum(not recurs[index] for index in known) >= (2 if len(first) <= 3 else 1)


def _recurs(cell: str, column: ColumnSample) -> bool:
    """Return whether a cell occurs in a column, or differs only in its digits from a cell there."""
    if cell in column.distinct:
        return True
    shape = re.sub(r"\d+", "0", cell)
    return shape != cell and any(re.sub(r"\d+", "0", other) == shape for other in column.distinct)


def parse_number(text: str) -> float | None:
    """Return a text as a number, NaN and infinity included; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None
