"""Reading files, rows and frames, and errors that name the line."""

from __future__ import annotations

import gzip
import io
import os
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.data.graph import Graph, from_columns
from focuse.data.readers import read
from focuse.data.statistics import describe
from focuse.errors import FocuseError

Row = tuple[str, str, str, float]


SMALL: list[Row] = [("a", "r", "b", 0.5), ("b", "s", "c", -2.0), ("a", "r", "b", 7.0)]


def rows(graph: Graph) -> list[Row]:
    entities, relations = list(graph.entities), list(graph.relations)
    return [
        (entities[h], relations[r], entities[t], float(w))
        for h, r, t, w in zip(graph.head, graph.relation, graph.tail, graph.weight, strict=True)
    ]


def put(folder: Path, data: bytes | str, name: str = "graph.tsv") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


def lines(delimiter: str, edges: Sequence[Sequence[Any]] = SMALL, end: str = "\n") -> str:
    return "".join(delimiter.join(map(str, edge)) + end for edge in edges)


def complaint(source: Any, **options: Any) -> str:
    """The message of the error that reading must raise: always one line."""
    with pytest.raises(FocuseError) as caught:
        read(source, **options)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


# ---- what can be read -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("delimiter", ["\t", ",", ";", "|", " "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("head", ["", "head relation tail weight"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
def test_text_with_any_delimiter_line_end_and_compression(
    tmp_path: Path, delimiter: str, end: str, head: str, pack: Any
) -> None:
    text = (delimiter.join(head.split()) + end if head else "") + lines(delimiter, end=end)
    graph = read(put(tmp_path, pack(text.encode()), "any.name"))
    assert rows(graph) == SMALL
    assert graph.weighted
    assert graph.source.endswith("any.name")


@pytest.mark.parametrize("blank", [0, 1, 3])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("header", [True, False])
def test_byte_order_mark_and_blank_lines(tmp_path: Path, blank: int, mark: bytes, end: str, header: bool) -> None:
    first = f"weight\ttail\trelation\thead{end}" if header else ""
    body = "".join(f"{w}\t{t}\t{r}\t{h}{end}{end * blank}" for h, r, t, w in SMALL)
    path = put(tmp_path, mark + (end * blank + first + end * blank + body).encode())
    assert rows(read(path, columns=None if header else [4, 3, 2, 1])) == SMALL


def test_the_last_line_may_lack_its_end(tmp_path: Path) -> None:
    assert rows(read(put(tmp_path, lines("\t").rstrip("\n")))) == SMALL


def test_three_columns_give_weight_one(tmp_path: Path) -> None:
    graph = read(put(tmp_path, "a\tr\tb\nc\tr\td\n"))
    assert rows(graph) == [("a", "r", "b", 1.0), ("c", "r", "d", 1.0)]
    assert not graph.weighted
    assert not read([("a", "r", "b")]).weighted


def test_columns_of_a_wide_file_by_name_and_number(tmp_path: Path) -> None:
    path = put(tmp_path, "id,film,person,stars,verb\n1,Alien,Ann,5,likes\n2,Brazil,Bob,3,hates\n", "x.csv")
    expected = [("Ann", "likes", "Alien", 5.0), ("Bob", "hates", "Brazil", 3.0)]
    assert rows(read(path, columns=["person", "verb", "film", "stars"])) == expected
    assert rows(read(path, columns=[3, 5, 2, 4], header=True)) == expected
    assert rows(read(path, columns=["3", "5", "2", "4"], header=True)) == expected
    unweighted = read(path, columns=["person", "verb", "film"])
    assert [row[:3] for row in rows(unweighted)] == [row[:3] for row in expected]
    assert not unweighted.weighted
    assert rows(read(path)) == expected
    assert "'nobody'" in complaint(path, columns=["nobody", "verb", "film"])


def test_names_that_look_like_numbers_or_nulls_stay_names(tmp_path: Path) -> None:
    names = ["NA", "null", "NaN", "true", "007", "1e3", "-", '"', "'", " x ", "#", "\\N", "\\", "\xa0", "PAR1"]
    edges: list[Row] = [(name, name, name, 1.0) for name in reversed(names)]
    assert rows(read(put(tmp_path, lines("\t", edges)))) == edges


def test_quotes_are_part_of_names_in_tsv_and_delimiters_in_csv(tmp_path: Path) -> None:
    assert rows(read(put(tmp_path, '"a\tr"\t"b"\t1\n'))) == [('"a', 'r"', '"b"', 1.0)]
    assert rows(read(put(tmp_path, '"a","r,""s""","b\nc",1\n'))) == [("a", 'r,"s"', "b\nc", 1.0)]


def test_a_text_file_may_begin_like_parquet(tmp_path: Path) -> None:
    assert rows(read(put(tmp_path, "PAR1\tbinds\tF2R\t0.9\n"))) == [("PAR1", "binds", "F2R", 0.9)]


def test_compression_is_detected_by_content(tmp_path: Path) -> None:
    one, two = b"a\tr\tb\t0.5\n", b"b\ts\tc\t-2\na\tr\tb\t7\n"
    for pack in (gzip.compress, zstd):
        assert rows(read(put(tmp_path, pack(one) + pack(two), "plain.tsv"))) == SMALL


def test_options_override_detection(tmp_path: Path) -> None:
    path = put(tmp_path, "head,relation,tail\na,r,b\n")
    assert len(read(path)) == 1
    assert rows(read(path, header=False))[0][:3] == ("head", "relation", "tail")
    assert rows(read(put(tmp_path, "a,b,c;r;x,y,z;1\n"), delimiter=";")) == [("a,b,c", "r", "x,y,z", 1.0)]


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(
            *[st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\t\r\n\0\ufeff"), min_size=1)] * 3,
            st.floats(allow_nan=False, allow_infinity=False),
        ),
        min_size=1,
        max_size=12,
    )
)
def test_ids_agree_with_a_plain_dict(edges: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        graph = read(put(Path(folder), lines("\t", [(h, r, t, repr(w)) for h, r, t, w in edges])))
    entities: dict[str, int] = {}
    for name in [edge[0] for edge in edges] + [edge[2] for edge in edges]:
        entities.setdefault(name, len(entities))
    relations: dict[str, int] = {}
    for _, name, _, _ in edges:
        relations.setdefault(name, len(relations))
    assert list(graph.entities) == list(entities)
    assert list(graph.relations) == list(relations)
    assert graph.head.tolist() == [entities[edge[0]] for edge in edges]
    assert graph.relation.tolist() == [relations[edge[1]] for edge in edges]
    assert graph.tail.tolist() == [entities[edge[2]] for edge in edges]
    assert graph.weight.tolist() == [edge[3] for edge in edges]
    assert {column.dtype for column in (graph.head, graph.relation, graph.tail)} == {np.dtype(np.int32)}
    assert graph.weight.dtype == np.float64


def test_ids_agree_across_the_blocks_of_a_large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("focuse.data.readers.BLOCK_BYTES", 4096)  # many partial dictionaries to unify
    edges: list[Row] = [(f"e{i * 7919 % 997}", f"r{i % 13}", f"e{i * 31 % 1009}", i / 8) for i in range(20_000)]
    graph = read(put(tmp_path, lines("\t", edges)))
    assert rows(graph) == edges
    assert len(set(graph.entities)) == len(graph.entities) == len({n for h, _, t, _ in edges for n in (h, t)})
    quoted = "".join(f'"{h}\n","{r}","{t}",{w}\n' for h, r, t, w in edges)
    assert rows(read(put(tmp_path, quoted, "q.csv"))) == [(f"{h}\n", r, t, w) for h, r, t, w in edges]


def test_ids_agree_across_the_chunks_of_a_table() -> None:
    edges: list[Row] = [(f"e{i * 7 % 31}", f"r{i % 3}", f"e{i * 5 % 37}", i / 8) for i in range(200)]
    whole = pa.table(dict(zip(("head", "relation", "tail", "weight"), zip(*edges, strict=True), strict=True)))
    pieces = pa.concat_tables([whole.slice(start, 7) for start in range(0, 200, 7)])
    encoded = pieces.set_column(2, "tail", pieces["tail"].dictionary_encode())
    assert pieces["head"].num_chunks > 20
    for table in (whole, pieces, encoded):
        graph = read(table)
        assert rows(graph) == edges
        assert list(graph.entities) == list(dict.fromkeys([edge[0] for edge in edges] + [edge[2] for edge in edges]))


def test_parquet_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "year=2020"  # a folder that Arrow might take for a partition
    path.mkdir()
    table = {"w": [0.5, 2.0], "from": ["a", "b"], "to": ["b", "c"], "type": ["r", "s"]}
    pq.write_table(pa.table(table), path / "x.bin")
    assert rows(read(path / "x.bin")) == [("a", "r", "b", 0.5), ("b", "s", "c", 2.0)]
    assert rows(read(path / "x.bin", columns=["to", "type", "from"])) == [("b", "r", "a", 1.0), ("c", "s", "b", 1.0)]
    pq.write_table(pa.table(table | {"__index_level_0__": [4, 9]}), path / "x.parquet")
    assert len(read(path / "x.parquet")) == 2


def test_sources_may_be_str_path_or_graph(tmp_path: Path) -> None:
    path = put(tmp_path, lines("\t"))
    graph = read(str(path))
    assert rows(graph) == rows(read(path)) == SMALL
    assert read(graph) is graph
    assert rows(read(lambda: path)) == SMALL


# ---- weights of relations -------------------------------------------------------------------------------------------
def test_relation_weights_from_a_dict() -> None:
    graph = read(SMALL, relation_weights={"s": 3, "r": 0.25})
    assert graph.weight.tolist() == [0.25, 3.0, 0.25]
    assert read([("a", "r", "b")], relation_weights={"r": 2}).weighted


@pytest.mark.parametrize(
    "text",
    [
        "r\t0.25\ns\t3\n",
        "relation\tweight\nr\t0.25\ns\t3\n",
        "\nrelation,weight\n\nr,0.25\ns,3",
        "\ufeffr;0.25\r\ns;3\r\n",
        "r 0.25\ns 3\n",
        '"r",0.25\n"s",3\n',
    ],
)
def test_relation_weights_from_a_file(tmp_path: Path, text: str) -> None:
    path = put(tmp_path, text, "weights.txt")
    assert read(SMALL, relation_weights=path).weight.tolist() == [0.25, 3.0, 0.25]
    assert read(SMALL, relation_weights=str(path)).weight.tolist() == [0.25, 3.0, 0.25]


def test_relation_weights_with_unusual_names_are_read(tmp_path: Path) -> None:
    graph = [("a", "is in", "b"), ("a", 'x,"y"', "b"), ("a", "l\u2028m", "b")]
    path = put(tmp_path, 'is in,1\n"x,""y""",2\nl\u2028m,3\n')
    assert read(graph, relation_weights=path).weight.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"rr": 1, "s": 1}, "no number for 1 relation of rows, such as 'r' (did you mean rr?)"),
        ({"r": 1}, "no number for 1 relation of rows, such as 's'; give every one"),
        ({}, "no number for 2 relations of rows, such as 'r'; give every one"),
        ({"r": 1, "s": "much"}, "'s': the weight 'much' is not a number"),
        ({"r": 1, "s": None}, "'s': the weight is missing ('None')"),
        ({"r": 1, "s": float("nan")}, "'s': the weight 'nan' is not finite"),
        ({"r": float("inf"), "s": 1}, "'r': the weight 'inf' is not finite"),
    ],
)
def test_faulty_relation_weights_are_refused(weights: dict[str, Any], message: str) -> None:
    assert message in complaint(SMALL, relation_weights=weights)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("r\t1\ns\tmuch\n", ", line 2: the weight 'much' is not a number"),
        ("relation\tweight\nr\t1\n\ns\tnan\n", ", line 4: the weight 'nan' is not finite"),
        ("r\tinf\ns\t1\n", ", line 1: the weight 'inf' is not finite"),
        ("r\t1\ns\t\n", ", line 2: the weight is empty"),
        ("r\t1\n2\n", ", line 2: 1 columns instead of 2; give every line relation and weight"),
        ("r\t1\ns\t1\nr\t2\n", ": the relation 'r' has several weights"),
        ("r\t1\n", "such as 's'"),
        ("", ": the file is empty; expected lines of relation and weight"),
    ],
)
def test_faulty_files_of_relation_weights_are_refused(tmp_path: Path, text: str, message: str) -> None:
    assert message in complaint(SMALL, relation_weights=put(tmp_path, text))


def test_a_table_of_relation_weights_may_know_more_relations() -> None:
    assert read(SMALL, relation_weights={"r": 1, "s": 2, "elsewhere": 3}).weight.max() == 2


def test_unreadable_files_of_relation_weights_are_refused(tmp_path: Path) -> None:
    assert "none.txt" in complaint(SMALL, relation_weights=tmp_path / "none.txt")
    assert str(tmp_path) in complaint(SMALL, relation_weights=tmp_path)
    assert "x.txt" in complaint(SMALL, relation_weights=put(tmp_path, b"\xff\xfe\xfd", "x.txt"))


# ---- rows of tuples and other things --------------------------------------------------------------------------------
def test_rows_of_tuples_lists_and_arrays() -> None:
    assert rows(read(SMALL)) == rows(read([list(row) for row in SMALL])) == rows(read(row for row in SMALL)) == SMALL
    assert rows(read(np.array([["a", "r", "b", "0.5"], ["b", "s", "c", "-2"]]))) == SMALL[:2]
    assert rows(read([(1, 2, 3, True)])) == [("1", "2", "3", 1.0)]
    assert rows(read([("a", 1, 3.5, 2**60 + 1), (5, "r", "b", 2**70)])) == [
        ("a", "1", "3.5", 2.0**60),
        ("5", "r", "b", 2.0**70),
    ]


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([], "no rows"),
        ([("a", "r", "b", 1), ("a", "r", "b")], "rows, row 2: 3 values"),
        ([("a",)], "rows, row 1: 1 values"),
        ([("a", "r", "b", 1), ("a", "r", None, 1)], "rows, row 2: the tail is empty"),
        ([("a", "r", "b", 1), (1, "r", "b", 1), (None, "r", "b", 1)], "rows, row 3: the head is empty"),
        ([("a", "r", "b", 1), (float("nan"), "r", "b", 1)], "rows, row 2: the head is empty"),
        ([("a", "", "b", 1)], "rows, row 1: the relation is empty"),
        ([("a", "r", "b", 1), ("a", "r", "b", float("nan"))], "rows, row 2: the weight 'nan' is not finite"),
        ([("a", "r", "b", float("-inf"))], "rows, row 1: the weight '-inf' is not finite"),
        ([("a", "r", "b", 1), ("a", "r", "b", "x")], "rows, row 2: the weight 'x' is not a number"),
        ([("a", "r", "b", 1), ("a", "r", "b", None)], "rows, row 2: the weight is empty"),
        ([("a", "r", "b", "1_0")], "rows, row 1: the weight '1_0' is not a number"),
        ([("a\ud800", "r", "b", 1)], "rows, row 1: 'a\\ud800' is not Unicode text"),
        (["abc", "def"], "rows, row 1: 'abc' is not a tuple"),
        ([1, 2], "rows, row 1: 1 is not a tuple"),
        ({("a", "b"): 0.5}, "cannot read a graph from a dict: give rows"),
        ([{"head": "a", "tail": "b"}, ("a", "r", "b")], "rows, row 1: {'head'"),
        ([{"head": "a", "tail": "b", "weight": "x"}], "rows, row 1: the weight 'x' is not a number"),
        (None, "NoneType"),
        (3.5, "float"),
    ],
)
def test_faulty_rows_are_refused(edges: Any, message: str) -> None:
    assert message in complaint(edges)


def test_known_data_sets_have_known_sizes() -> None:
    root = os.environ.get("FOCUSE_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("FOCUSE_DATA names no folder with the data sets")
    train = read(Path(root) / "ppi5k" / "train.tsv.gz")
    test = read(Path(root) / "ppi5k" / "test.tsv.gz")
    seen = Counter(row[:3] for row in rows(train))
    assert len(train) == 230_929
    assert train.num_repeated == len(train) - len(seen)
    facts = describe(train, {"test": test})
    assert facts.repeated_triples == sum(count > 1 for count in seen.values()) == 15_089
    assert facts.leakage["test"].same_triple == sum(row[:3] in seen for row in rows(test)) == 2_971
    nations = Path(root) / "nl27k"
    aligned = read(nations / "test.tsv.gz").align(read(nations / "train.tsv.gz"))
    assert aligned.unseen.rows == 8


FAULTS = [
    ("a\tr\tb\tnan", "the weight 'nan' is not finite"),
    ("a\tr\tb\t-inf", "the weight '-inf' is not finite"),
    ("a\tr\tb\t1e999", "the weight '1e999' is not finite"),
    ("a\tr\tb\tmany", "the weight 'many' is not a number"),
    ("a\tr\tb\t1_000", "the weight '1_000' is not a number"),
    ("a\tr\tb\t", "the weight is empty"),
    ("\tr\tb\t1", "the head is empty"),
    ("a\t\tb\t1", "the relation is empty"),
    ("a\tr\t\t1", "the tail is empty"),
    ("a\tr\tb", "3 columns instead of 4"),
    ("a\tr\tb\t1\t2", "5 columns instead of 4"),
    (" ", "1 columns instead of 4"),
]


@pytest.mark.parametrize(("line", "message"), FAULTS)
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zstd])
def test_a_faulty_line_is_named(tmp_path: Path, line: str, message: str, pack: Any) -> None:
    text = "head\trelation\ttail\tweight\n\na\tr\tb\t1\n\n" + line + "\na\tr\tb\t1\n"
    path = put(tmp_path, pack(text.encode()))
    assert complaint(path).startswith(f"{path}, line 5: {message}")


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize(
    ("line", "message"), [(b"a\tr\t\xe9\t1", "the tail is not UTF-8"), (b"a\tr\tb\toops", "the weight 'oops'")]
)
def test_a_faulty_line_far_down_is_named(tmp_path: Path, line: bytes, message: str, pack: Any) -> None:
    sound = [b"head%d\trelation\ttail\t0.25" % number for number in range(200_000)]
    sound[100_002] = line
    path = put(tmp_path, pack(b"\n".join(sound)))
    assert complaint(path).startswith(f"{path}, line 100003: {message}")


def test_lines_inside_quoted_fields_count(tmp_path: Path) -> None:
    text = '"head","relation","tail","weight"\n' + '"a\n\nb",r,"c\r\nd",1\n' * 2 + "x,r,y,1\nx,r,,1\n"
    path = put(tmp_path, text, "x.csv")
    assert complaint(path).startswith(f"{path}, line 11: the tail is empty")


def test_an_open_quote_is_named_by_its_line(tmp_path: Path) -> None:
    path = put(tmp_path, 'a,r,b,1\n"c,r,d,1\ne,r,f,1\n', "x.csv")
    assert complaint(path).startswith(f"{path}, line 2: ")


def test_first_line_that_is_neither_data_nor_header_is_reported(tmp_path: Path) -> None:
    path = put(tmp_path, "person,likes,film,stars\nAnn,likes,Alien,5\n")
    message = complaint(path)
    assert message.startswith(f"{path}, line 1: the weight 'stars'")
    assert "(--header)" in message
    assert len(read(path, header=True)) == 1


def test_encodings_other_than_utf8_are_refused(tmp_path: Path) -> None:
    for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        path = put(tmp_path, "a\tr\tb\t1\n".encode(encoding))
        assert complaint(path).startswith(f"{path}, line 1: not UTF-8 text")
    path = put(tmp_path, "a\tr\tb\t1\ncafé\tr\tb\t1\n".encode("latin-1"))
    assert complaint(path).startswith(f"{path}, line 2: the head is not UTF-8")
    path = put(tmp_path, b"caf\xe9\tr\tb\t1\n")
    assert complaint(path).startswith(f"{path}, line 1: the head is not UTF-8")


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_truncated_compressed_file_is_reported(tmp_path: Path, pack: Any) -> None:
    large = pack(b"".join(b"e%d\tr\te%d\t%d\n" % (i, i * 7919 % 100_003, i) for i in range(30_000)))
    small = pack(b"a\tr\tb\t1\n" * 5)
    for data in (large[: len(large) // 2], large[:-4], small[:-3], small[: len(small) // 2]):
        path = put(tmp_path, data, "x.gz")
        message = complaint(path)
        assert message.startswith(str(path))
        assert "runcated" in message or "damaged" in message


@pytest.mark.parametrize("data", [b"", b"\n\r\n\n", gzip.compress(b"", mtime=0), b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_empty_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = put(tmp_path, data)
    assert complaint(path).startswith(f"{path}: the file is empty")


def test_file_with_only_a_header_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, "head\trelation\ttail\tweight\n")
    assert complaint(path).startswith(f"{path}: no edges")


def test_missing_files_folders_and_pipes_are_refused(tmp_path: Path) -> None:
    assert complaint(tmp_path / "none.tsv").startswith(f"{tmp_path / 'none.tsv'}: No such file")
    assert complaint(tmp_path).startswith(f"{tmp_path}: Is a directory")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "pipe" in complaint(pipe)
    complaint("a\tr\tb\n" * 3)  # text instead of a path
    complaint("a\0b")


def test_damaged_parquet_file_is_reported(tmp_path: Path) -> None:
    stream = io.BytesIO()
    pq.write_table(pa.table({"head": ["a"], "relation": ["r"], "tail": ["b"]}), stream)
    path = put(tmp_path, stream.getvalue()[:-9], "x.parquet")
    assert "not a readable Parquet file" in complaint(path)
    path = put(tmp_path, b"PAR1PAR1", "y.parquet")
    assert "not a readable Parquet file" in complaint(path)


@settings(deadline=None, max_examples=150)
@given(st.one_of(st.binary(max_size=80), st.text("ab\t,;\"' \r\n01.e-", max_size=60).map(str.encode)))
def test_any_bytes_give_a_graph_or_one_line(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = put(Path(folder), data)
        try:
            graph = read(path)
        except FocuseError:
            assert complaint(path).startswith(str(path))
        else:
            assert len(graph) > 0
            assert np.isfinite(graph.weight).all()
            assert all(name for name in [*graph.entities, *graph.relations])


def test_a_zip_archive_is_recognized(tmp_path: Path) -> None:
    """Also one that would unpack to much: it is never opened."""
    path = tmp_path / "graph.tsv.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("graph.tsv", "a\tr\tb\t1\n" * 100_000)
    assert complaint(path) == (
        f"{path}: a zip archive or a spreadsheet; unpack it, or save it as CSV, and give that file"
    )


NAMES = ("head", "relation", "tail", "weight")


FRAMES = [pd.DataFrame, pl.DataFrame, pa.table]


EDGES = st.lists(
    st.tuples(*[st.text(min_size=1)] * 3, st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=10
)


def columns(edges: list[Row], names: tuple[str, ...] = NAMES) -> dict[str, list[Any]]:
    return {name: [edge[place] for edge in edges] for place, name in enumerate(names)}


def tables_complaint(source: Any, **options: Any) -> str:
    with pytest.raises(FocuseError) as caught:
        read(source, **options)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@settings(deadline=None, max_examples=40)
@given(EDGES)
def test_frames_are_unchanged_after_conversion_and_back(edges: list[Row]) -> None:
    graph = from_columns(*list(columns(edges).values()))
    assert rows(read(graph.to_arrow())) == edges
    assert rows(read(graph.to_pandas())) == edges
    assert rows(read(pl.from_arrow(graph.to_arrow()))) == edges
    linked = nx.from_pandas_edgelist(graph.to_pandas(), "head", "tail", True, nx.MultiDiGraph)
    assert sorted(rows(read(linked))) == sorted(edges)
    assert graph.to_pandas().columns.tolist() == list(NAMES)


@pytest.mark.parametrize("make", FRAMES)
def test_headings_decide_and_position_otherwise(make: Any) -> None:
    table = columns(SMALL)
    assert rows(read(make({name: table[name] for name in ("weight", "tail", "head", "relation")}))) == SMALL
    assert rows(read(make(dict(zip("abcd", table.values(), strict=True))))) == SMALL
    assert rows(read(make({"id": [1, 2, 3], **table}))) == SMALL
    assert rows(read(make({"id": [1, 2, 3], **table}), columns=["head", 3, "4", "weight"])) == SMALL
    three = read(make({name: table[name] for name in NAMES[:3]}))
    assert [row[:3] for row in rows(three)] == [row[:3] for row in SMALL]
    assert not three.weighted
    pair = read(make({"source": ["a"], "target": ["b"], "weight": [1]}))
    assert rows(pair) == [("a", "related", "b", 1.0)]
    five = dict(zip("abcde", [*table.values(), [1.5, 2.5, 3.5]], strict=True))
    assert "which of 5 columns" in tables_complaint(make(five))
    assert "empty" in tables_complaint(make({name: [] for name in NAMES}))


def test_a_pandas_index_is_no_column() -> None:
    frame = pd.DataFrame(columns(SMALL, ("a", "b", "c", "d")), index=[7, 3, 5])
    assert rows(read(frame)) == SMALL
    assert rows(read(frame[frame["d"] > 0])) == [SMALL[0], SMALL[2]]
    stored = pa.table({**columns(SMALL, ("a", "b", "c", "d")), "__index_level_0__": [7, 3, 5]})
    assert rows(read(stored)) == SMALL


@pytest.mark.parametrize("make", FRAMES)
@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("weight", [1.0, float("nan"), 2.0], "frame, row 2: the weight"),
        ("weight", [1.0, 2.0, float("inf")], "frame, row 3: the weight 'inf' is not finite"),
        ("weight", [1, None, None], "frame, row 2: the weight"),
        ("weight", ["1", "2", "x"], "frame, row 3: the weight 'x' is not a number"),
        ("weight", ["1", "", "x"], "frame, row 2: the weight is empty"),
        ("weight", ["1", "2", "1_0"], "frame, row 3: the weight '1_0' is not a number"),
        ("head", ["a", "", "b"], "frame, row 2: the head is empty"),
        ("relation", ["a", "b", None], "frame, row 3: the relation is empty"),
        ("tail", [None, None, "b"], "frame, row 1: the tail is empty"),
        ("tail", [[1], [2], [3]], "frame: the tail column holds"),
    ],
)
def test_faulty_frames_name_the_row(make: Any, column: str, values: list[Any], message: str) -> None:
    assert tables_complaint(make({**columns(SMALL), column: values})).startswith(message)


@pytest.mark.parametrize("make", FRAMES)
@pytest.mark.parametrize("weight", [[1, 2, 3], ["1", " 2 ", "3e0"], [True, True, True], [2**53 + 1, 2, 2**60]])
def test_weights_of_other_number_types_are_read(make: Any, weight: list[Any]) -> None:
    assert read(make({**columns(SMALL), "weight": weight})).weight.tolist() == [float(value) for value in weight]


def test_weights_of_special_types_are_read_or_refused() -> None:
    table = columns(SMALL)
    for weight, expected in [
        (pa.array([Decimal("0.25"), Decimal("1.5"), Decimal("-2")]), [0.25, 1.5, -2.0]),
        (pa.array([0.25, 0.25, 1.0]).dictionary_encode(), [0.25, 0.25, 1.0]),
        (pa.array(["1", "2", "1"]).dictionary_encode(), [1.0, 2.0, 1.0]),
        (pa.array([1, 2, 3], pa.float32()), [1.0, 2.0, 3.0]),
        (pa.array([1, 2, 2**64 - 1], pa.uint64()), [1.0, 2.0, 2.0**64]),
    ]:
        assert read(pa.table({**table, "weight": weight})).weight.tolist() == expected


def test_pandas_nullable_categorical_and_mixed_columns() -> None:
    frame = pd.DataFrame(columns(SMALL))
    frame["head"] = pd.Categorical(frame["head"], categories=["unused", "b", "a"])
    frame["tail"] = frame["tail"].astype("string")
    frame["weight"] = pd.array([1, 2, 3], dtype="Int64")
    graph = read(frame)
    assert [row[:3] for row in rows(graph)] == [row[:3] for row in SMALL]
    assert list(graph.entities) == ["a", "b", "c"]  # no unused category, in order of appearance
    assert tables_complaint(frame.assign(weight=pd.array([1, None, 3], dtype="Int64"))).startswith(
        "frame, row 2: the weight"
    )
    assert tables_complaint(frame.assign(head=pd.Categorical(["a", None, "b"]))).startswith(
        "frame, row 2: the head is empty"
    )
    mixed = pd.DataFrame({**columns(SMALL), "head": [1, "x", 2.5]})
    assert tables_complaint(mixed).startswith("frame: cannot be read as a table: ")
    double = pd.DataFrame([["a", "r", "b", 1.0]], columns=["head", "relation", "tail", "tail"])
    assert "frame" in tables_complaint(double)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum(["unused", "b", "a"])])
def test_polars_categories_are_read(kind: Any) -> None:
    graph = read(pl.DataFrame(columns(SMALL)).with_columns(pl.col("head").cast(kind)))
    assert rows(graph) == SMALL
    assert list(graph.entities) == ["a", "b", "c"]


def test_dictionaries_in_chunks_with_repeats_and_gaps() -> None:
    one = pa.DictionaryArray.from_arrays(pa.array([2, 0], pa.int8()), pa.array(["a", "unused", "a"]))
    two = pa.DictionaryArray.from_arrays(pa.array([1], pa.int8()), pa.array(["x", "b"]))
    head = pa.chunked_array([one.cast(pa.dictionary(pa.int8(), pa.string())), two])
    table = pa.table({"head": head, "relation": ["r", "r", "s"], "tail": ["a", "c", "a"]})
    graph = read(table)
    assert [row[:3] for row in rows(graph)] == [("a", "r", "a"), ("a", "r", "c"), ("b", "s", "a")]
    assert list(graph.entities) == ["a", "b", "c"]


@pytest.mark.parametrize("make", FRAMES)
def test_numeric_names_become_text(make: Any) -> None:
    graph = read(make({"head": [10, 2, 10], "relation": [0, 0, 1], "tail": [2, 3, 10], "weight": [1, 2, 3]}))
    assert rows(graph) == [("10", "0", "2", 1.0), ("2", "0", "3", 2.0), ("10", "1", "10", 3.0)]
    assert graph.head.dtype == graph.tail.dtype == graph.relation.dtype == np.int32


def test_objects_that_are_not_tables_are_refused() -> None:
    for source in (pd.Series([1, 2]), pl.Series([1, 2])):
        tables_complaint(source)
    for source in (pa.RecordBatch.from_pydict(columns(SMALL)), pl.DataFrame(columns(SMALL)).lazy()):
        assert rows(read(source)) == SMALL


def test_columns_of_lists_are_left_out_of_every_table(tmp_path: Path) -> None:
    frame = pl.DataFrame({"source": ["a", "b"], "target": ["b", "c"], "weight": [0.5, 0.2], "tags": [["x"], []]})
    frame.write_parquet(tmp_path / "x.parquet")
    for source in (frame, frame.to_dicts(), tmp_path / "x.parquet"):
        graph = read(source)
        assert (
            rows(graph) == [("a", "related", "b", 0.5), ("b", "related", "c", 0.2)] or source == tmp_path / "x.parquet"
        )
        assert graph.weight.tolist() == [0.5, 0.2]
        assert graph.notes[-1].endswith("not used, because they hold lists or objects: 'tags'")


class TestParquet:
    def test_columns_of_parquet_in_any_order_are_read(self, tmp_path: Path) -> None:
        turned = pa.table(columns(SMALL)).select(["weight", "tail", "head", "relation"])
        pq.write_table(turned, tmp_path / "g.parquet")
        assert rows(read(tmp_path / "g.parquet")) == SMALL

    def test_parquet_names_that_are_not_utf8_are_refused(self, tmp_path: Path) -> None:
        """Arrow takes a file's word for it; the first to look would have been a crash far from here."""
        path = tmp_path / "g.parquet"
        pq.write_table(pa.table({"head": ["abcd"], "relation": ["r"], "tail": ["t"]}), path, compression="none")
        path.write_bytes(path.read_bytes().replace(b"abcd", b"ab\xffd"))
        with pytest.raises(FocuseError, match=r"not a readable Parquet file: .*UTF"):
            read(path)

    def test_parquet_headings_that_are_not_utf8_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "g.parquet"
        table = pa.table({"head": ["a"], "relation": ["r"], "abcd": ["t"]})
        pq.write_table(table, path, store_schema=False)
        path.write_bytes(path.read_bytes().replace(b"abcd", b"ab\xffd"))
        with pytest.raises(FocuseError, match="not a readable Parquet file"):
            read(path)

    def test_dictionary_columns_of_parquet_are_read(self, tmp_path: Path) -> None:
        names = pa.array(["a", "b", "a", None]).dictionary_encode().slice(0, 3)
        table = pa.table({"head": names, "relation": ["r"] * 3, "tail": ["x", "y", "x"], "weight": [1, 2, 3]})
        pq.write_table(table, tmp_path / "g.parquet")
        graph = read(tmp_path / "g.parquet")
        assert [graph.entities[row] for row in graph.head] == ["a", "b", "a"]
        assert sorted(graph.entities) == ["a", "b", "x", "y"]


def test_nested_columns_are_not_read(tmp_path: Path) -> None:
    table = pa.table({"head": ["a"], "relation": ["r"], "tail": ["b"], "weight": [1.0], "notes": [["x" * 100]]})
    pq.write_table(table, tmp_path / "nested.parquet")
    assert len(read(tmp_path / "nested.parquet")) == 1
