"""Edges from real databases: SQLite, DuckDB and a PostgreSQL server of the test's own."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

import focuse
from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.errors import FocuseError
from focuse.integrations.sql import parse_url

ROWS = [("a", "likes", "b", 0.1), ("b", "likes", "c", 1 / 3), ('ü "x"', "knows", "a", -2.5)]


EDGES = "SELECT head, relation, tail, weight FROM edges ORDER BY place"


FILL = "INSERT INTO edges VALUES (1, 'a', 'likes', 'b', 0.1), (2, 'b', 'likes', 'c', 1 / 3.0e0), (3, 'ü \"x\"', 'knows', 'a', -2.5)"  # noqa: E501


PASSWORD = "s3cret@/%"


def make_table(execute: Callable[[str], object], number: str = "DOUBLE PRECISION") -> None:
    execute(f"CREATE TABLE edges (place INTEGER, head TEXT, relation TEXT, tail TEXT, weight {number})")
    execute(FILL)


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("sqlite") / "graph 1.db"
    connection = sqlite3.connect(path)
    with connection:
        make_table(connection.execute)
    connection.close()
    return f"sqlite:///{path}"


@pytest.fixture(scope="module")
def duckdb(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("duckdb") / "graph.duckdb"
    with pytest.importorskip("duckdb").connect(str(path)) as connection:
        make_table(connection.execute)
    return f"duckdb:///{path}"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """A server in a folder of its own, which asks for a password."""
    psycopg = pytest.importorskip("psycopg")
    places = [Path(shutil.which("initdb") or "/nowhere"), *Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    programs = next((place.parent for place in places if place.exists()), None)
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    if programs is None or (root and not shutil.which("su")):
        pytest.skip("there is no PostgreSQL here")
    made = subprocess.run(["mktemp", "-d"], check=True, capture_output=True, text=True).stdout.strip()
    folder, port = Path(made), free_port()
    (folder / "password").write_text(PASSWORD, encoding="utf-8")
    if root:  # the server refuses to run as root
        shutil.chown(folder, "postgres")
        shutil.chown(folder / "password", "postgres")

    def run(command: str) -> None:
        shell = ["su", "postgres", "-c", command] if root else ["sh", "-c", command]
        subprocess.run(shell, check=True, stdout=subprocess.DEVNULL, cwd=folder)

    data = f"{programs}/initdb -D {folder}/data -U ann --pwfile={folder}/password -A scram-sha-256 -E UTF8 --no-sync"
    run(data)
    run(
        f"{programs}/pg_ctl -D {folder}/data -w -l {folder}/log "
        f"-o '-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off' start"
    )
    url = f"postgresql://ann:{quote(PASSWORD, safe='')}@127.0.0.1:{port}/postgres"
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            make_table(connection.execute)
            connection.execute("CREATE SEQUENCE counter")
        yield url
    finally:
        run(f"{programs}/pg_ctl -D {folder}/data -m immediate -w stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "duckdb", "postgresql"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def rows_of(graph: Graph) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in graph.to_arrow().to_pylist()]


def test_the_edges_of_a_query(url: str) -> None:
    graph = read(url, sql=EDGES)
    assert rows_of(graph) == ROWS
    assert graph.weighted
    assert graph.to_arrow().equals(read(ROWS).to_arrow())


def test_a_query_in_the_url(url: str) -> None:
    assert rows_of(read(f"{url}?sql={quote(EDGES)}", sql="SELECT 1")) == ROWS


def test_columns_by_heading_by_number_and_in_any_order(url: str) -> None:
    query = "SELECT weight, tail, relation, head, place FROM edges ORDER BY place;"
    assert rows_of(read(url, sql=query, columns=["head", "relation", "tail", "weight"])) == ROWS
    assert rows_of(read(url, sql=query, columns=[4, 3, 2, 1])) == ROWS
    both = read(url, sql=query, weights=["weight", "place"])
    assert both.columns is not None
    assert both.columns.names == ("weight", "place")
    assert both.columns.values[:, 1].tolist() == [1, 2, 3]
    assert not read(url, sql="SELECT head, relation, tail FROM edges").weighted


def test_rows_come_in_batches(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("focuse.integrations.sql.BATCH_ROWS", 1)
    assert rows_of(read(url, sql=EDGES)) == ROWS
    odd = (
        "SELECT head, relation, tail, CASE WHEN place = 3 THEN NULL ELSE weight END AS weight FROM edges ORDER BY place"
    )
    with pytest.raises(FocuseError, match=r"row 3: the weight is empty; give it a number"):
        read(url, sql=odd)
    odd = "SELECT head, relation, CASE WHEN place = 2 THEN NULL ELSE tail END AS tail, weight FROM edges ORDER BY place"
    with pytest.raises(FocuseError, match=r"row 2: the tail is empty"):
        read(url, sql=odd)


def test_weights_of_other_number_types_are_read(url: str) -> None:
    for number in ("CAST(place AS DECIMAL(9, 3))", "place", "CAST(place AS TEXT)"):
        graph = read(url, sql=f"SELECT head, relation, tail, {number} AS weight FROM edges ORDER BY place")
        assert graph.weight.tolist() == [1.0, 2.0, 3.0]
    assert list(read(url, sql="SELECT place AS head, relation, tail FROM edges ORDER BY place").entities)[:3] == [
        "1",
        "2",
        "3",
    ]


def test_missing_weights_of_several_columns_are_kept(url: str) -> None:
    number = "CASE WHEN place = 2 THEN NULL ELSE weight END AS w"
    some = f"SELECT head, relation, tail, {number}, place FROM edges ORDER BY place"
    assert read(url, sql=some, weights=["w", "place"]).column("w").weight.tolist() == [0.1, -2.5]
    none = some.replace("place FROM", "CASE WHEN place = 2 THEN NULL ELSE 1 END AS v FROM")
    with pytest.raises(FocuseError, match=r"row 2: all its weights are missing"):
        read(url, sql=none, weights=["w", "v"])


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nothing FROM edges", "nothing"),
        ("SELEC", "syntax"),
        ("SELECT head, relation, tail, weight FROM edges WHERE place > 9", "no rows"),
        ("SELECT head FROM edges", "1 columns"),
        ("", r"which rows\? give a query \(--sql"),
    ],
)
def test_faulty_queries_are_reported_in_one_line_without_secrets(url: str, query: str, message: str) -> None:
    with pytest.raises(FocuseError, match=f"(?i){message}") as caught:
        read(url, sql=query)
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)
    assert str(caught.value).startswith(parse_url(url).shown)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM edges",
        "DROP TABLE edges",
        "INSERT INTO edges VALUES (4, '', '', '', 1)",
        f"{EDGES}; COMMIT; DROP TABLE edges",
    ],
)
def test_queries_cannot_change_the_database(url: str, change: str) -> None:
    with pytest.raises(FocuseError):
        read(url, sql=change)
    assert rows_of(read(url, sql=EDGES)) == ROWS


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("sqlite", "VACUUM INTO 'copy.db'"),
        ("sqlite", "ATTACH DATABASE 'copy.db' AS other"),
        ("duckdb", "COPY edges TO 'copy.csv'"),
        ("duckdb", "SELECT 1; COPY edges TO 'copy.csv'"),
        ("duckdb", "EXPORT DATABASE 'copy'"),
    ],
)
def test_no_query_can_create_a_file(
    kind: str, change: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = request.getfixturevalue(kind)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FocuseError):
        read(url, sql=change)
    assert list(tmp_path.iterdir()) == []


def test_a_function_that_writes_is_refused_by_postgresql(postgresql: str) -> None:
    with pytest.raises(FocuseError, match="read-only transaction"):
        read(postgresql, sql="SELECT nextval('counter') AS head, 'r' AS relation, 't' AS tail")


def test_the_password_is_never_shown(postgresql: str, tmp_path: Path, command) -> None:
    graph = read(postgresql, sql=EDGES)
    assert graph.source.startswith("postgresql://ann@127.0.0.1:")
    run = focuse.train(
        graph,
        epochs=1,
        dim=2,
        valid_fraction=0,
        test_fraction=0,
        progress=False,
        out=tmp_path / "run",
        weight_mode="none",
    )
    assert run.graph.source == graph.source
    done = command("describe", postgresql, "--sql", EDGES, check=True)
    wrong = postgresql.replace(quote(PASSWORD, safe=""), "wr0ng%40")
    failed = command("describe", wrong, "--sql", EDGES)
    assert failed.returncode == 2
    assert "authentication failed" in failed.stderr
    written = b"".join(path.read_bytes() for path in (tmp_path / "run").iterdir())
    assert b"postgresql://ann@127.0.0.1" in written
    for text in (written, done.stdout.encode(), done.stderr.encode(), failed.stderr.encode()):
        assert b"s3cret" not in text
        assert b"wr0ng" not in text


def test_the_password_may_come_from_the_environment(postgresql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = postgresql.replace(f":{quote(PASSWORD, safe='')}@", "@")
    assert "s3cret" not in bare
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert rows_of(read(bare, sql=EDGES)) == ROWS
    monkeypatch.setenv("PGPASSWORD", "other")
    with pytest.raises(FocuseError, match="authentication failed"):
        read(bare, sql=EDGES)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:p@ss:w/rd@host:5432/db?sslmode=require", "postgresql://ann@host:5432/db"),
        ("postgresql://host/db?user=ann&password=secret", "postgresql://host/db"),
        ("postgres://ann@/db?host=/tmp", "postgres://ann@/db"),
        ("postgresql://host/db?password=secret@p@ss", "postgresql://host/db"),
        ("postgresql://host:1/db?user=ann&password=secret@p@ss", "postgresql://host:1/db"),
        ("postgresql://ann:secret@host/db?options=a@b", "postgresql://ann@host/db"),
        ("postgresql://ann:se?cret@host/db", "postgresql://ann@host/db"),
        ("sqlite:///graph.db?sql=SELECT%20'a@b'", "sqlite:///graph.db"),
    ],
)
def test_connection_strings_are_shown_without_secrets(url: str, shown: str) -> None:
    assert parse_url(url).shown == shown
    assert parse_url(url)._without_secrets(f"cannot: {url}").count("secret") == 0
    assert "p@ss" not in parse_url(url)._without_secrets(f"cannot {url}")


def test_unreachable_server_is_reported_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(FocuseError, match=r"postgresql://ann@127\.0\.0\.1:\d+/db: .*refused") as caught:
        read(f"postgresql://ann:hidden@127.0.0.1:{free_port()}/db", sql=EDGES)
    assert "hidden" not in str(caught.value)
    with pytest.raises(FocuseError) as caught:  # libpq quotes what it cannot decode
        read("postgresql://ann:hid%zzden@127.0.0.1/db", sql=EDGES)
    assert "hid" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["mysql", "postgresql+psycopg", "https"])
def test_other_databases_are_refused_without_showing_the_password(scheme: str) -> None:
    with pytest.raises(FocuseError, match=r"cannot read .*; give a file, or sqlite:///") as caught:
        read(f"{scheme}://ann:hidden@127.0.0.1/db", sql=EDGES)
    assert "hidden" not in str(caught.value)


def test_scheme_may_be_in_capitals(sqlite: str, postgresql: str) -> None:
    for url in (sqlite, postgresql):
        scheme, _, rest = url.partition("://")
        assert rows_of(read(f"{scheme.upper()}://{rest}", sql=EDGES)) == ROWS


def test_missing_database_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("a\tr\tb\n" * 99, encoding="utf-8")
    for scheme in ("sqlite", "duckdb"):
        with pytest.raises(FocuseError, match=r"there is no file absent\.db; three slashes lead from here"):
            read(f"{scheme}:///absent.db", sql=EDGES)
        with pytest.raises(FocuseError, match="no file; write"):
            read(f"{scheme}://graph.db", sql=EDGES)
        with pytest.raises(FocuseError, match=r"text\.db: .*not a"):
            read(f"{scheme}:///{tmp_path}/text.db", sql=EDGES)


@pytest.mark.parametrize(("module", "url"), [("duckdb", "duckdb:///x.db"), ("psycopg", "postgresql://h/d")])
def test_missing_library_names_the_extra_to_install(module: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(FocuseError, match=r"pip install '\.\[sql\]'"):
        read(url, sql=EDGES)


@pytest.mark.parametrize("query", ["SELEC head", "SELECT head FROM nowhere", "SELECT nothing FROM edges"])
def test_a_wrong_query_comes_with_advice(url: str, query: str) -> None:
    with pytest.raises(
        FocuseError, match="correct the query, which should return rows like SELECT head, relation, tail"
    ):
        read(url, sql=query)


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_the_path_of_a_database_file_comes_with_advice(kind: str, request, command) -> None:
    url = request.getfixturevalue(kind)
    path = url.partition(":///")[2]
    done = command("describe", path)
    assert done.returncode == 2
    named = {"sqlite": "an SQLite", "duckdb": "a DuckDB"}[kind]
    advice = f'read it as {url.replace(" ", "%20")} --sql "SELECT head, relation, tail, weight FROM …"'
    assert done.stderr == f"focuse: {path}: {named} database; {advice}\n"
    assert len(read(url.replace(" ", "%20"), sql=EDGES)) == 3


@pytest.mark.parametrize("name", ["a?mode=rwc.db", "b#c.db", "c%41.db", "d';DROP TABLE edges;--.db", "é ü.db"])
def test_the_file_name_is_not_parsed_as_parameters(name: str, tmp_path: Path) -> None:
    """What would be parameters in a URI are letters of the name."""
    path = tmp_path / name
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE edges (head, relation, tail, weight)")
        connection.execute("INSERT INTO edges VALUES ('a', 'r', 'b', 1)")
        connection.commit()
    before = sorted(tmp_path.iterdir())
    assert len(read(f"sqlite:///{quote(str(path))}", sql="SELECT * FROM edges")) == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_damaged_database_is_an_error_of_one_line(tmp_path: Path) -> None:
    """A message of SQLite quotes the file, and need not be text."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE edges (head, relation, tail, weight)")
        connection.execute("INSERT INTO edges VALUES ('a', 'r', 'b', 1)")
        connection.commit()
    whole = path.read_bytes()
    for old, new in ((b"edges", b"edg\xe8s"), (b"weight)", b"weigh\xa8"), (b"CREATE", b"CRE\xffTE")):
        path.write_bytes(whole.replace(old, new))
        with pytest.raises(FocuseError) as caught:
            read(f"sqlite:///{path}", sql="SELECT head, relation, tail, weight FROM edges")
        assert str(caught.value).isprintable()


def test_a_value_of_a_gigabyte_is_refused(sqlite: str) -> None:
    """As a damaged file may state it; SQLite would otherwise ask for that much memory."""
    with pytest.raises(FocuseError, match="too big"):
        focuse.read(sqlite, sql="SELECT 'a', 'r', hex(zeroblob(400000000)), 1")
