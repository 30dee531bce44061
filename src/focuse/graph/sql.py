"""Edges from a data base: a connection string and a query, whose rows are read in batches.

SQLite comes with Python; DuckDB and PostgreSQL are the extra focuse[sql]. Connections can only read, and a password is
never shown: not in errors, not in a graph's source, so not in a run.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa

from focuse.errors import FocuseError
from focuse.graph.columns import ALL_MISSING, Columns
from focuse.graph.graph import Graph, from_columns
from focuse.graph.layout import ROLES, choose_places, weight_names
from focuse.graph.tables import names_in, numbers_in, to_column

LONGEST_VALUE = 1 << 26  # bytes of a name or number in a file of SQLite
BATCH_ROWS = 1 << 16
EXAMPLE = "SELECT head, relation, tail, weight FROM edges"
SCHEMES = ("sqlite", "duckdb", "postgresql", "postgres")
_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_SERVER = re.compile(r"[^:@]*(:\d*)?(/[^@]*)?")  # what may stand before parameters where nobody logs in
_SECRET = re.compile(r"[?&](?:ssl)?password=([^&]*)", re.IGNORECASE)
NOT_A_SELECT = "the query gives no columns; give a SELECT"
MEND = "; mend the query, which is to give rows like "
PATIENCE = 15  # seconds to wait for a server's answer to a knock


@dataclass(frozen=True)
class Source:
    """A data base as the user names it: `url` may hold secrets, `shown` does not."""

    scheme: str
    url: str
    shown: str
    secrets: tuple[str, ...]
    query: str | None = None

    def fault(self, error: object, in_query: bool = False) -> FocuseError:
        """One line on what went wrong, without secrets; where it is the query, what to do."""
        return FocuseError(f"{self.shown}: {self.clean(error)}{f'{MEND}{EXAMPLE}' if in_query else ''}")

    def clean(self, error: object) -> str:
        text = " ".join(str(error).split())
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text[:300]

    def file(self) -> Path:
        """The file that a SQLite or DuckDB data base is."""
        rest = self.url.partition("://")[2].partition("?")[0]
        if not rest.startswith("/") or rest == "/":
            raise FocuseError(
                f"{self.shown}: no file; write {self.scheme}:///graph.db, or from the root {self.scheme}:////folder/graph.db"
            )
        path = Path(unquote(rest[1:]))
        if not path.is_file():
            raise FocuseError(
                f"{self.shown}: there is no file {path}; three slashes lead from here, four from the root"
            )
        return path


def is_sql(source: object) -> bool:
    """Whether a source is a connection string, also one of a data base that cannot be read: it may hold a password.

    >>> is_sql("sqlite:///graph.db"), is_sql("graph.tsv")
    (True, False)
    """
    return isinstance(source, str) and _URL.match(source) is not None


def data_base(start: bytes, path: Path) -> str:
    """What to write instead of the path of a file that is a data base, told by its first bytes; empty for others.

    >>> data_base(b"SQLite format 3\\x00", Path("jobs.db"))[:41]
    'an SQLite data base; read it as sqlite://'
    """
    if start.startswith(b"SQLite format 3\x00"):
        kind, scheme = "an SQLite", "sqlite"
    elif start[8:12] == b"DUCK":
        kind, scheme = "a DuckDB", "duckdb"
    else:
        return ""
    url = f"{scheme}:///{quote(path.as_posix(), safe='/:')}"
    return f'{kind} data base; read it as {url} --query "{EXAMPLE.removesuffix("edges")}…"'


def parse(url: str) -> Source:
    """A connection string in parts; `?query=…` in it is cut out.

    >>> parse("postgresql://ann:secret@host/db?sslmode=require").shown
    'postgresql://ann@host/db'
    """
    scheme, _, rest = url.partition("://")
    query = None
    if found := re.search(r"[?&]query=", rest):
        rest, query = rest[: found.start()], unquote(rest[found.end() :])
    start = re.search(r"\?[a-z_]+=", rest)
    known = start is not None and ("@" in rest[: start.start()] or _SERVER.fullmatch(rest[: start.start()]))
    # Up to the last @ before parameters: a password may hold one that it should not, and so may a parameter.
    user, at, place = (rest[: start.start()] if start is not None and known else rest).rpartition("@")
    name, _, password = user.partition(":")
    secrets = [password, *_SECRET.findall(rest)]
    secrets = [form for secret in secrets if secret for form in (secret, unquote(secret))]
    place = re.split(r"[?&]", place)[0]
    scheme = scheme.lower()  # PostgreSQL knows no other
    return Source(scheme, f"{scheme}://{rest}", f"{scheme}://{name}{at}{place}", tuple(secrets), query)


def read_sql(
    url: str,
    query: str | None,
    columns: Sequence[str | int] | None = None,
    weights: Sequence[str | int] | None = None,
) -> Graph:
    """The edges that a query gives, with columns chosen by heading as in a table."""
    source = parse(url)
    if source.scheme not in SCHEMES:
        raise FocuseError(
            f"{source.shown}: cannot read {source.scheme}; give a file, or sqlite:///…, duckdb:///… or postgresql://…"
        )
    query = source.query or query
    if not query or not query.strip():
        raise FocuseError(f'{source.shown}: which rows? give a query (--query "{EXAMPLE}")')
    batches = {"sqlite": _sqlite, "duckdb": _duckdb}.get(source.scheme, _postgresql)
    found = _Found(source.shown, columns, weights)
    for batch in batches(source, query):
        found.add(batch)
    return found.graph()


class _Found:
    """Rows so far: names encoded, numbers as such."""

    def __init__(self, where: str, columns: Any, weights: Any) -> None:
        self.where, self.columns, self.weights = where, columns, weights
        self.places: tuple[int, ...] = ()
        self.headings: list[str] = []
        self.names: tuple[list[Any], ...] = ([], [], [])
        self.numbers: list[Any] = []
        self.rows = 0

    def add(self, batch: pa.Table) -> None:
        if not self.places:
            self.headings = list(batch.column_names)
            self.places = choose_places(self.headings, True, self.columns, f"{self.where}, query", self.weights)
        for blocks, role, place in zip(self.names, ROLES, self.places, strict=False):
            text = names_in(batch.column(place), role, self.where, self.rows + 1)
            blocks += text.dictionary_encode().chunks
        several = len(self.places) > 4
        numbers = [
            numbers_in(batch.column(place), self.where, several, first=self.rows + 1) for place in self.places[3:]
        ]
        if numbers:
            self.numbers.append(np.stack(numbers, axis=1))
            empty = np.isnan(self.numbers[-1]).all(axis=1)
            if empty.any():
                row = self.rows + int(np.flatnonzero(empty)[0]) + 1
                raise FocuseError(f"{self.where}, row {row}: {ALL_MISSING}")
        self.rows += len(batch)

    def graph(self) -> Graph:
        if not self.rows:
            raise FocuseError(
                f"{self.where}: the query gives no rows; expected rows of head, relation, tail and weight"
            )
        head, relation, tail = (pa.chunked_array(blocks) for blocks in self.names)
        values = np.concatenate(self.numbers) if self.numbers else None
        if values is not None and len(self.places) > 4:
            columns = Columns(weight_names(self.headings, True, self.places), values)
            return from_columns(head, relation, tail, None, self.where, columns)
        return from_columns(head, relation, tail, None if values is None else values[:, 0], self.where)


def _table(rows: Sequence[Sequence[Any]], headings: Sequence[str], where: str) -> pa.Table:
    """Rows of Python values as columns."""
    columns = [to_column(list(values), where) for values in zip(*rows, strict=True)]
    return pa.Table.from_arrays(columns, names=list(headings))


def _headings(description: Any, source: Source) -> list[str]:
    if not description:
        raise source.fault(NOT_A_SELECT)
    return [str(column[0]) for column in description]


def _sqlite(source: Source, query: str) -> Iterator[pa.Table]:
    uri = f"{source.file().absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.set_authorizer(_reading)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_VALUE)
            cursor = connection.execute(query)
            headings = _headings(cursor.description, source)
            while rows := cursor.fetchmany(BATCH_ROWS):
                yield _table(rows, headings, source.shown)
    except MemoryError:  # a damaged file may say that a value has a gigabyte
        raise source.fault("it asks for more memory than there is; the file may be damaged") from None
    except (sqlite3.Error, sqlite3.Warning, UnicodeError) as error:  # what a damaged file says need not be text
        wrong = any(words in str(error) for words in ("syntax error", "no such", "incomplete input", "misuse"))
        raise source.fault(error, wrong) from None


def _reading(action: int, *_: object) -> int:
    """SQLite asks for each part of a query; read-only is of the data base, and another file could still be made."""
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


def _duckdb(source: Source, query: str) -> Iterator[pa.Table]:
    try:
        import duckdb
    except ImportError:
        raise FocuseError("reading DuckDB needs focuse[sql]: pip install 'focuse[sql]'") from None
    try:
        with duckdb.connect(str(source.file()), read_only=True) as connection:
            if any(part.type.name in ("COPY", "EXPORT") for part in connection.extract_statements(query)):
                raise source.fault("the query would write a file; give a SELECT")
            found = connection.sql(query)
            if found is None:
                raise source.fault(NOT_A_SELECT)
            reader = getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader  # by the version of DuckDB
            for batch in reader(BATCH_ROWS):
                if len(batch):
                    yield pa.Table.from_batches([batch])
    except duckdb.Error as error:
        raise source.fault(error, isinstance(error, duckdb.ProgrammingError)) from None


def _postgresql(source: Source, query: str) -> Iterator[pa.Table]:
    try:
        import psycopg
    except ImportError:
        raise FocuseError("reading PostgreSQL needs focuse[sql]: pip install 'focuse[sql]'") from None
    waits = {} if "connect_timeout=" in source.url else {"connect_timeout": PATIENCE}
    try:
        with psycopg.connect(source.url, **waits) as connection:
            connection.read_only = True
            # A cursor with a name stays on the server: rows come in batches, not all at once.
            with connection.cursor(name="focuse") as cursor:
                cursor.execute(query.rstrip().rstrip(";"))
                headings = _headings(cursor.description, source)
                while rows := cursor.fetchmany(BATCH_ROWS):
                    yield _table(rows, headings, source.shown)
            connection.rollback()  # nothing to commit, whatever a query did
    except psycopg.Error as error:
        raise source.fault(error, isinstance(error, psycopg.ProgrammingError)) from None
