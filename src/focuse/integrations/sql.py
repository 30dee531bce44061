"""Read edges from a database: a connection string and a query, whose rows are fetched in batches.

SQLite comes with Python; DuckDB and PostgreSQL need the extra `sql`. Connections are read-only, and a password is
never shown: neither in errors nor in a graph's source, and so not in a run.
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

from focuse.data.graph import ALL_WEIGHTS_MISSING, Graph, WeightColumns, from_columns
from focuse.data.readers import ReadOptions, number_column, text_column, to_arrow_column
from focuse.data.sniffer import ROLES, choose_columns, weight_column_names
from focuse.errors import FocuseError, install_command

MAX_VALUE_BYTES = 1 << 26  # of a name or number in an SQLite file
BATCH_ROWS = 1 << 16
EXAMPLE_QUERY = "SELECT head, relation, tail, weight FROM edges"
SCHEMES = ("sqlite", "duckdb", "postgresql", "postgres")
_SERVER = re.compile(r"[^:@]*(:\d*)?(/[^@]*)?")  # what may precede the parameters of a URL without a user
_SECRET = re.compile(r"[?&](?:ssl)?password=([^&]*)", re.IGNORECASE)
NOT_A_SELECT = "the query returns no columns; give a SELECT"
QUERY_ADVICE = f"; correct the query, which should return rows like {EXAMPLE_QUERY}"
CONNECT_TIMEOUT = 15  # seconds


@dataclass(frozen=True)
class Database:
    """A database as the user names it: `url` may contain a password, `shown` does not."""

    scheme: str
    url: str
    shown: str
    secrets: tuple[str, ...]
    query: str | None = None

    def error(self, error: object, in_query: bool = False) -> FocuseError:
        """Return an error of one line without secrets, with advice if the query is wrong."""
        return FocuseError(f"{self.shown}: {self._without_secrets(error)}{QUERY_ADVICE if in_query else ''}")

    def _without_secrets(self, error: object) -> str:
        text = " ".join(str(error).split())
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, "***")
        return text[:300]

    def file(self) -> Path:
        """Return the file of an SQLite or DuckDB database."""
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


def database_file_advice(first_bytes: bytes, path: Path) -> str:
    """Return how to read a file that is a database, which its first bytes show; empty for other files.

    >>> database_file_advice(b"SQLite format 3\\x00", Path("jobs.db"))[:40]
    'an SQLite database; read it as sqlite://'
    """
    if first_bytes.startswith(b"SQLite format 3\x00"):
        kind, scheme = "an SQLite", "sqlite"
    elif first_bytes[8:12] == b"DUCK":
        kind, scheme = "a DuckDB", "duckdb"
    else:
        return ""
    url = f"{scheme}:///{quote(path.as_posix(), safe='/:')}"
    return f'{kind} database; read it as {url} --sql "{EXAMPLE_QUERY.removesuffix("edges")}…"'


def parse_url(url: str) -> Database:
    """Parse a connection string; a parameter `?sql=…` is cut out.

    >>> parse_url("postgresql://ann:secret@host/db?sslmode=require").shown
    'postgresql://ann@host/db'
    """
    scheme, _, rest = url.partition("://")
    query = None
    if found := re.search(r"[?&]sql=", rest):
        rest, query = rest[: found.start()], unquote(rest[found.end() :])
    start = re.search(r"\?[a-z_]+=", rest)
    known = start is not None and ("@" in rest[: start.start()] or _SERVER.fullmatch(rest[: start.start()]))
    # Up to the last @ before parameters: a password may contain one that is not escaped, and so may a parameter.
    user, at, server = (rest[: start.start()] if start is not None and known else rest).rpartition("@")
    name, _, password = user.partition(":")
    secrets = [password, *_SECRET.findall(rest)]
    secrets = [form for secret in secrets if secret for form in (secret, unquote(secret))]
    server = re.split(r"[?&]", server)[0]
    scheme = scheme.lower()  # PostgreSQL accepts no other
    return Database(scheme, f"{scheme}://{rest}", f"{scheme}://{name}{at}{server}", tuple(secrets), query)


def read_sql(url: str, options: ReadOptions) -> Graph:
    """Read the edges that a query returns, with columns chosen by heading as in a table.

    The graph is never cached, because a database changes without a trace.
    """
    database = parse_url(url)
    if database.scheme not in SCHEMES:
        raise FocuseError(
            f"{database.shown}: cannot read {database.scheme}; "
            "give a file, or sqlite:///…, duckdb:///… or postgresql://…"
        )
    query = database.query or options.sql
    if not query or not query.strip():
        raise FocuseError(f'{database.shown}: which rows? give a query (--sql "{EXAMPLE_QUERY}")')
    batches = {"sqlite": _sqlite, "duckdb": _duckdb}.get(database.scheme, _postgresql)
    rows = _RowCollector(database.shown, options)
    for batch in batches(database, query):
        rows.add(batch)
    return rows.graph()


class _RowCollector:
    """Collects the rows of a query: names encoded, weights as numbers."""

    def __init__(self, where: str, options: ReadOptions) -> None:
        self.where, self.options = where, options
        self.columns: tuple[int, ...] = ()
        self.headings: list[str] = []
        self.names: tuple[list[Any], ...] = ([], [], [])
        self.weights: list[Any] = []
        self.num_rows = 0

    def add(self, batch: pa.Table) -> None:
        if not self.columns:
            self.headings = list(batch.column_names)
            self.columns = choose_columns(
                self.headings, True, self.options.columns, f"{self.where}, query", self.options.weights
            )
        for blocks, role, index in zip(self.names, ROLES, self.columns, strict=False):
            text = text_column(batch.column(index), role, self.where, self.num_rows + 1)
            blocks += text.dictionary_encode().chunks
        several = len(self.columns) > 4
        weights = [
            number_column(batch.column(index), self.where, several, first_row=self.num_rows + 1)
            for index in self.columns[3:]
        ]
        if weights:
            self.weights.append(np.stack(weights, axis=1))
            empty = np.isnan(self.weights[-1]).all(axis=1)
            if empty.any():
                row = self.num_rows + int(np.flatnonzero(empty)[0]) + 1
                raise FocuseError(f"{self.where}, row {row}: {ALL_WEIGHTS_MISSING}")
        self.num_rows += len(batch)

    def graph(self) -> Graph:
        if not self.num_rows:
            raise FocuseError(
                f"{self.where}: the query returns no rows; expected rows of head, relation, tail and weight"
            )
        head, relation, tail = (pa.chunked_array(blocks) for blocks in self.names)
        values = np.concatenate(self.weights) if self.weights else None
        if values is not None and len(self.columns) > 4:
            columns = WeightColumns(weight_column_names(self.headings, True, self.columns), values)
            return from_columns(head, relation, tail, None, self.where, columns)
        return from_columns(head, relation, tail, None if values is None else values[:, 0], self.where)


def _table(rows: Sequence[Sequence[Any]], headings: Sequence[str], where: str) -> pa.Table:
    """Return rows of Python values as a table."""
    columns = [to_arrow_column(list(values), where) for values in zip(*rows, strict=True)]
    return pa.Table.from_arrays(columns, names=list(headings))


def _headings(description: Any, database: Database) -> list[str]:
    if not description:
        raise database.error(NOT_A_SELECT)
    return [str(column[0]) for column in description]


def _sqlite(database: Database, query: str) -> Iterator[pa.Table]:
    uri = f"{database.file().absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.set_authorizer(_allow_reading)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
            cursor = connection.execute(query)
            headings = _headings(cursor.description, database)
            while rows := cursor.fetchmany(BATCH_ROWS):
                yield _table(rows, headings, database.shown)
    except MemoryError:  # a damaged file may claim that a value has a gigabyte
        raise database.error("it needs more memory than there is; the file may be damaged") from None
    except (
        sqlite3.Error,
        sqlite3.Warning,
        UnicodeError,
    ) as error:  # a damaged file may contain bytes that are not text
        query_is_wrong = any(words in str(error) for words in ("syntax error", "no such", "incomplete input", "misuse"))
        raise database.error(error, query_is_wrong) from None


def _allow_reading(action: int, *_: object) -> int:
    """Authorize an action of a query, but not ATTACH, which could create another file in spite of mode=ro."""
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


def _duckdb(database: Database, query: str) -> Iterator[pa.Table]:
    try:
        import duckdb
    except ImportError:
        raise FocuseError(f"reading DuckDB needs duckdb; {install_command('sql')}") from None
    try:
        with duckdb.connect(str(database.file()), read_only=True) as connection:
            if any(part.type.name in ("COPY", "EXPORT") for part in connection.extract_statements(query)):
                raise database.error("the query would write a file; give a SELECT")
            found = connection.sql(query)
            if found is None:
                raise database.error(NOT_A_SELECT)
            reader = (
                getattr(found, "to_arrow_reader", None) or found.fetch_arrow_reader
            )  # depends on the version of DuckDB
            for batch in reader(BATCH_ROWS):
                if len(batch):
                    yield pa.Table.from_batches([batch])
    except duckdb.Error as error:
        raise database.error(error, isinstance(error, duckdb.ProgrammingError)) from None


def _postgresql(database: Database, query: str) -> Iterator[pa.Table]:
    try:
        import psycopg
    except ImportError:
        raise FocuseError(f"reading PostgreSQL needs psycopg; {install_command('sql')}") from None
    timeout = {} if "connect_timeout=" in database.url else {"connect_timeout": CONNECT_TIMEOUT}
    try:
        with psycopg.connect(database.url, **timeout) as connection:
            connection.read_only = True
            # A named cursor stays on the server, so that rows come in batches.
            with connection.cursor(name="focuse") as cursor:
                cursor.execute(query.rstrip().rstrip(";"))
                headings = _headings(cursor.description, database)
                while rows := cursor.fetchmany(BATCH_ROWS):
                    yield _table(rows, headings, database.shown)
            connection.rollback()  # nothing is committed, whatever the query did
    except psycopg.Error as error:
        raise database.error(error, isinstance(error, psycopg.ProgrammingError)) from None
