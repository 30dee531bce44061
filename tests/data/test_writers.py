"""Written files are read back unchanged."""

from __future__ import annotations

import gzip
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from focuse.data.graph import Graph, from_columns
from focuse.data.readers import read
from focuse.data.writers import TABLE_SUFFIXES, link_writers, write_links
from focuse.errors import FocuseError
from focuse.storage.atomic import replace_file

Row = tuple[str, str, str, float]


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


ODD = [
    "é",
    "é",
    "👩‍🚀",
    "שלום",
    "\u202eabc",
    '"',
    '""',
    "a,b",
    "'",
    "\\",
    " ",
    "\u2028",
    "\x85",
    "\x0b",
    "\x1c",
    "head",
]


def edges_of(names: st.SearchStrategy[str]) -> st.SearchStrategy[list[Row]]:
    names = st.one_of(names, st.sampled_from(ODD))
    return st.lists(st.tuples(names, names, names, NUMBERS), min_size=1, max_size=8)


PLAIN = edges_of(st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\t\r\n\0\ufeff"), min_size=1))


LETTERS = st.one_of(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), st.sampled_from('\t\r\n",'))


QUOTED = edges_of(st.text(LETTERS, min_size=1))


ANY = edges_of(st.text(min_size=1))


def graph_of(edges: list[Row]) -> Graph:
    return from_columns(*([edge[place] for edge in edges] for place in range(3)), [edge[3] for edge in edges])


def rows(graph: Graph) -> list[Row]:
    entities, relations = list(graph.entities), list(graph.relations)
    return [
        (entities[h], relations[r], entities[t], float(w))
        for h, r, t, w in zip(graph.head, graph.relation, graph.tail, graph.weight, strict=True)
    ]


def there_and_back(edges: list[Row], name: str) -> Graph:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        graph_of(edges).write(path)
        assert [file.name for file in Path(folder).iterdir()] == [name]
        return read(path)


@settings(deadline=None, max_examples=60)
@given(PLAIN, st.sampled_from(["x.tsv", "x.tsv.gz", "x.tsv.zst"]))
@example([('a"b', '"r"', '"', 0.1)], "x.tsv")
def test_tsv_is_read_back(edges: list[Row], name: str) -> None:
    graph = there_and_back(edges, name)
    assert rows(graph) == edges
    assert graph.weighted


@settings(deadline=None, max_examples=60)
@given(QUOTED, st.sampled_from(["x.csv", "x.csv.gz", "x.csv.zst"]))
@example([("\t\t\n\t\t\n\t\t\n\t\t", "r", "b", 1.0)], "x.csv")
@example([("\ufeff", "\r", "\r\n", 1.0)], "x.csv")
def test_csv_is_read_back(edges: list[Row], name: str) -> None:
    assert rows(there_and_back(edges, name)) == edges


@settings(deadline=None, max_examples=40)
@given(ANY)
def test_parquet_is_read_back(edges: list[Row]) -> None:
    assert rows(there_and_back(edges, "x.parquet")) == edges


def test_many_rows_are_written_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("focuse.data.writers.CHUNK_ROWS", 7)
    edges: list[Row] = [(f"e{i % 5}", f"r{i % 3}", f"é{i % 4}", i / 3) for i in range(50)]
    graph_of(edges).write(tmp_path / "x.tsv")
    lines = (tmp_path / "x.tsv").read_text().split("\n")
    assert lines.pop() == ""
    assert [(h, r, t, float(w)) for h, r, t, w in (line.split("\t") for line in lines)] == edges


def test_the_compression_is_real(tmp_path: Path) -> None:
    graph_of([("a", "r", "b", 0.5)]).write(tmp_path / "x.tsv.gz")
    assert gzip.decompress((tmp_path / "x.tsv.gz").read_bytes()) == b"a\tr\tb\t0.5\n"
    graph_of([("a", "r", "b", 0.5)]).write(tmp_path / "x.csv.zst")
    with pa.input_stream(str(tmp_path / "x.csv.zst"), compression="zstd") as stream:
        assert stream.read().splitlines()[1] == b'"a","r","b",0.5'


@pytest.mark.parametrize(
    ("name", "letter"), [("x.tsv", "\t"), ("x.tsv", "\n"), ("x.tsv.gz", "\r"), ("x.tsv", "\0"), ("x.csv", "\0")]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_names_that_a_format_cannot_represent_are_refused(tmp_path: Path, name: str, letter: str, place: int) -> None:
    edge = ["a", "r", "b"]
    edge[place] += letter
    with pytest.raises(FocuseError) as caught:
        graph_of([(*edge, 1.0)]).write(tmp_path / name)  # type: ignore[list-item]
    assert repr(edge[place]) in str(caught.value)
    assert "parquet" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_byte_order_mark_would_be_lost_in_tsv(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match="byte order mark"):
        graph_of([("\ufeffa", "r", "b", 1.0)]).write(tmp_path / "x.tsv")


@pytest.mark.parametrize("name", ["x", "x.txt", "x.gz", "x.parquet.gz", "x.json"])
def test_other_suffixes_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(FocuseError, match=r"use \.tsv, \.csv, \.parquet"):
        graph_of([("a", "r", "b", 1.0)]).write(tmp_path / name)


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match="there is no folder"):
        graph_of([("a", "r", "b", 1.0)]).write(tmp_path / "none" / "x.tsv")


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), replace_file(path) as temporary:
        temporary.rename(temporary.with_name("stolen")).unlink()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    with replace_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of files there")
@pytest.mark.parametrize("name", ["x.csv", "x.tsv", "x.parquet", "x.ttl", "x.graphml"])
def test_a_full_disk_is_one_line_and_the_old_file_stays(tmp_path: Path, name: str) -> None:
    import resource

    path = tmp_path / name
    path.write_text("old", encoding="utf-8")
    graph = read([(f"e{i}", "r", f"e{i * 7 % 999}", i / 7) for i in range(999)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(FocuseError, match="cannot be written: File too large; free some space"):
            graph.write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_with_the_files_name_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.csv").mkdir()
    with pytest.raises(FocuseError, match=r"x\.csv: is a folder; give a file"):
        read([("a", "r", "b", 1.0)]).write(tmp_path / "x.csv")


def test_ctrl_c_as_the_temporary_file_is_made_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch = Path.touch

    def interrupted(path: Path, mode: int) -> None:
        touch(path, mode)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "touch", interrupted)
    with pytest.raises(KeyboardInterrupt), replace_file(tmp_path / "x.tsv"):
        pass
    assert list(tmp_path.iterdir()) == []


LINKS = pa.table(
    {
        "head": ["a b", "http://e/x"],
        "relation": ["likes", "likes"],
        "tail": ['"c"', "a b"],
        "probability": [1 / 3, None],
        "low": [0.1, 0.2],
        "known": [True, False],
    }
)


@pytest.mark.parametrize("suffix", [*TABLE_SUFFIXES, *link_writers()])
def test_links_are_written(suffix: str, tmp_path: Path) -> None:
    path = write_links(LINKS, tmp_path / f"links{suffix}")
    assert path == tmp_path / f"links{suffix}"
    if suffix == ".parquet":
        assert pq.read_table(path).equals(LINKS)
    elif suffix in (".csv", ".tsv"):
        options = arrow_csv.ParseOptions(
            delimiter="," if suffix == ".csv" else "\t", quote_char='"' if suffix == ".csv" else False
        )
        assert arrow_csv.read_csv(path, parse_options=options).to_pydict() == LINKS.to_pydict()
    else:
        pytest.importorskip("pyoxigraph")
        found = read(path).to_arrow()
        assert found.to_pydict() == LINKS.drop_columns(["known"]).to_pydict()


def test_predictions_are_quoted_and_edges_stated(tmp_path: Path) -> None:
    write_links(LINKS, tmp_path / "x.ttl")
    assert (tmp_path / "x.ttl").read_text(encoding="utf-8").splitlines()[1].startswith("<< <urn:focuse:a%20b>")
    read([("a b", "r", "c", 0.5)]).write(tmp_path / "x.ttl")
    assert (tmp_path / "x.ttl").read_text(encoding="utf-8").splitlines()[1].startswith("<urn:focuse:a%20b>")


def test_links_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FocuseError, match=r"cannot write \.xlsx; use \.tsv, \.csv, \.parquet, \.nt"):
        write_links(LINKS, tmp_path / "x.xlsx")
    with pytest.raises(FocuseError, match="a tab or line end"):
        write_links(pa.table({"head": ["a\tb"], "relation": ["r"], "tail": ["t"]}), tmp_path / "x.tsv")
    assert list(tmp_path.iterdir()) == []


def test_names_that_a_spreadsheet_would_run_are_written_unchanged(tmp_path: Path) -> None:
    names = ["=cmd|'/c calc'!A1", "+1", "-1+2", "@SUM(1)", "\tx", "\rx", "\nx", "＝1", '"=1"', '""-x']
    graph = read([(name, "=r", "b", -0.5) for name in names])
    graph.write(tmp_path / "g.csv")
    assert list(read(tmp_path / "g.csv").entities) == list(graph.entities)
    links = pa.table({"head": ["=1"], "relation": ["r"], "tail": ["@x"], "probability": [-0.25]})
    write_links(links, tmp_path / "links.tsv")
    assert (tmp_path / "links.tsv").read_text().splitlines()[1] == "=1\tr\t@x\t-0.25"
