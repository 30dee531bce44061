"""Readers and writers of other formats are registered by name, and imported only when they are needed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pandas
import pytest

from focuse.data import readers, writers
from focuse.data.graph import Graph
from focuse.data.readers import ReadOptions, read, register_reader
from focuse.data.writers import register_writer
from focuse.errors import FocuseError

CHECK = """
import sys
from pathlib import Path
import focuse
graph = focuse.read(sys.argv[1])
graph.write(Path(sys.argv[1]).with_name("copy" + Path(sys.argv[1]).suffix))
focuse.describe(graph)
focuse.split(graph)
print(*(name for name in sys.modules if name == "torch" or name.startswith("focuse.integrations")))
"""


@pytest.mark.parametrize("suffix", [".tsv", ".csv", ".txt", ".parquet", ""])
def test_plain_tables_import_neither_integrations_nor_torch(suffix: str, tmp_path: Path) -> None:
    rows = read([(f"h{i % 5}", "r", f"t{i}", i / 40) for i in range(40)])
    path = tmp_path / f"graph{suffix}"
    rows.write(
        tmp_path / ("graph.parquet" if suffix == ".parquet" else "graph.csv" if suffix == ".csv" else "graph.tsv")
    )
    if not path.exists():
        (tmp_path / "graph.tsv").rename(path)
    check = CHECK if suffix not in (".txt", "") else CHECK.replace("graph.write(", "(lambda path: None)(")
    done = subprocess.run([sys.executable, "-c", check, str(path)], capture_output=True, text=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == ("", "")


def one_edge(source: object, options: ReadOptions) -> Graph:
    return read([(str(source), "literals", options.literals, 0.5)])


def pieces(graph: Graph, suffix: str, base: str, path: Path) -> list[bytes]:
    return [f"{suffix} {len(graph)}".encode()]


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader and a writer of this module, registered for this test."""
    readers.registered_reader("")  # so that the registrations of integrations are copied, too
    monkeypatch.setattr(readers, "READERS", dict(readers.READERS))
    monkeypatch.setattr(writers, "GRAPH_WRITERS", dict(writers.GRAPH_WRITERS))
    register_reader([".made"], f"{__name__}:one_edge")
    register_writer([".made"], graph=f"{__name__}:pieces")
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__) or _this_module())


def _this_module() -> object:
    return type("module", (), {"one_edge": staticmethod(one_edge), "pieces": staticmethod(pieces)})


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("source", ["x.made", "x.MADE.gz"])
def test_a_registered_reader_gets_the_source_and_the_options(source: str) -> None:
    graph = read(source, literals="keep")
    assert list(graph.entities) == [source, "keep"]


@pytest.mark.usefixtures("registered")
def test_a_registered_writer_gives_the_bytes_of_the_file(tmp_path: Path) -> None:
    read([("a", "r", "b", 1)]).write(tmp_path / "x.made")
    assert (tmp_path / "x.made").read_bytes() == b".made 1"
    with pytest.raises(FocuseError, match=r"cannot write \.other; use \.tsv, .*\.graphml or \.made"):
        read([("a", "r", "b", 1)]).write(tmp_path / "x.other")


@pytest.mark.parametrize("scheme", ["sqlite", "mysql", "POSTGRESQL+psycopg", "https"])
def test_a_url_is_refused_without_its_password(scheme: str) -> None:
    with pytest.raises(FocuseError, match=r"://…: cannot read a URL; .*focuse\.read\(pandas\.read_sql\(") as error:
        read(f"{scheme}://ann:secret@host/db")
    assert "secret" not in str(error.value)


def test_a_database_file_is_refused_with_advice(tmp_path: Path) -> None:
    for start in (b"SQLite format 3\x00", b"12345678DUCK\x00"):
        (tmp_path / "graph.db").write_bytes(start + bytes(100))
        with pytest.raises(FocuseError, match=r"graph\.db: a database; give the result of a query"):
            read(tmp_path / "graph.db")


def test_the_result_of_a_query_is_read() -> None:
    rows = read([("a", "r", "b", 0.5), ("b", "r", "c", 0.25)])
    with closing(sqlite3.connect(":memory:")) as connection:
        rows.to_pandas().to_sql("edges", connection, index=False)
        assert read(pandas.read_sql("SELECT * FROM edges", connection)).to_arrow().equals(rows.to_arrow())


def test_an_unknown_suffix_is_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "edges.dat").write_text("a\tr\tb\t0.5\n")
    assert len(read(tmp_path / "edges.dat")) == 1
