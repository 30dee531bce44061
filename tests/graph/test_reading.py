"""Reading files and rows: what comes out (faulty files have a module of their own)."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.errors import FocuseError
from focuse.graph import Graph, read
from focuse.graph.audit import audit

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
def test_text_in_all_its_forms(tmp_path: Path, delimiter: str, end: str, head: str, pack: Any) -> None:
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


def test_three_columns_weigh_one(tmp_path: Path) -> None:
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
    assert "5 columns" in complaint(path)
    assert "'nobody'" in complaint(path, columns=["nobody", "verb", "film"])


def test_names_that_look_like_something_else_stay_names(tmp_path: Path) -> None:
    names = ["NA", "null", "NaN", "true", "007", "1e3", "-", '"', "'", " x ", "#", "\\N", "\\", "\xa0", "PAR1"]
    edges: list[Row] = [(name, name, name, 1.0) for name in reversed(names)]
    assert rows(read(put(tmp_path, lines("\t", edges)))) == edges


def test_quotes_are_letters_in_tsv_and_marks_in_csv(tmp_path: Path) -> None:
    assert rows(read(put(tmp_path, '"a\tr"\t"b"\t1\n'))) == [('"a', 'r"', '"b"', 1.0)]
    assert rows(read(put(tmp_path, '"a","r,""s""","b\nc",1\n'))) == [("a", 'r,"s"', "b\nc", 1.0)]


def test_a_text_file_may_begin_like_parquet(tmp_path: Path) -> None:
    assert rows(read(put(tmp_path, "PAR1\tbinds\tF2R\t0.9\n"))) == [("PAR1", "binds", "F2R", 0.9)]


def test_compression_is_told_by_content_and_may_come_in_pieces(tmp_path: Path) -> None:
    one, two = b"a\tr\tb\t0.5\n", b"b\ts\tc\t-2\na\tr\tb\t7\n"
    for pack in (gzip.compress, zstd):
        assert rows(read(put(tmp_path, pack(one) + pack(two), "plain.tsv"))) == SMALL


def test_options_overrule_what_is_detected(tmp_path: Path) -> None:
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
    monkeypatch.setattr("focuse.graph.reading.BLOCK_BYTES", 4096)  # many partial dictionaries to unify
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


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "year=2020"  # a folder that Arrow might take for a partition
    path.mkdir()
    table = {"w": [0.5, 2.0], "from": ["a", "b"], "to": ["b", "c"], "type": ["r", "s"]}
    pq.write_table(pa.table(table), path / "x.bin")
    assert rows(read(path / "x.bin")) == [("a", "r", "b", 0.5), ("b", "s", "c", 2.0)]
    assert rows(read(path / "x.bin", columns=["to", "type", "from"])) == [("b", "r", "a", 1.0), ("c", "s", "b", 1.0)]
    pq.write_table(pa.table(table | {"__index_level_0__": [4, 9]}), path / "x.parquet")
    assert len(read(path / "x.parquet")) == 2


def test_a_path_may_be_text_or_path_and_a_graph_is_itself(tmp_path: Path) -> None:
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


def test_relation_weights_with_odd_names(tmp_path: Path) -> None:
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
        ({"r": 1, "s": None}, "'s': the weight 'None' is not a number"),
        ({"r": 1, "s": float("nan")}, "'s': the weight 'nan' is not finite"),
        ({"r": float("inf"), "s": 1}, "'r': the weight 'inf' is not finite"),
    ],
)
def test_faulty_relation_weights(weights: dict[str, Any], message: str) -> None:
    assert message in complaint(SMALL, relation_weights=weights)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("r\t1\ns\tmuch\n", ", line 2: the weight 'much' is not a number"),
        ("relation\tweight\nr\t1\n\ns\tnan\n", ", line 4: the weight 'nan' is not finite"),
        ("r\tinf\ns\t1\n", ", line 1: the weight 'inf' is not finite"),
        ("r\t1\ns\t\n", ", line 2: the weight is empty"),
        ("r\t1\n2\n", ", line 2: expected a relation and its weight"),
        ("r\t1\ns\t1\nr\t2\n", ", line 3: the relation 'r' has a weight already"),
        ("r\t1\n", "such as 's'"),
        ("", "2 relations"),
    ],
)
def test_faulty_files_of_relation_weights(tmp_path: Path, text: str, message: str) -> None:
    assert message in complaint(SMALL, relation_weights=put(tmp_path, text))


def test_a_table_of_relation_weights_may_know_more_relations() -> None:
    assert read(SMALL, relation_weights={"r": 1, "s": 2, "elsewhere": 3}).weight.max() == 2


def test_files_of_relation_weights_that_cannot_be_read(tmp_path: Path) -> None:
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
        ([], "no edges"),
        ([("a", "r", "b", 1), ("a", "r", "b")], "rows, row 2: 3 values"),
        ([("a", "r")], "rows, row 1: 2 values"),
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
        ({"head": ["a"]}, "rows, row 1: 'head' is not a tuple"),
        ([{"head": "a", "relation": "r", "tail": "b"}], "rows, row 1"),
        (None, "NoneType"),
        (3.5, "float"),
    ],
)
def test_faulty_rows(edges: Any, message: str) -> None:
    assert message in complaint(edges)


def test_known_data_sets() -> None:
    root = os.environ.get("FOCUSE_DATA")
    if not root or not Path(root).is_dir():
        pytest.skip("FOCUSE_DATA names no folder with the data sets")
    train = read(Path(root) / "ppi5k" / "train.tsv.gz")
    test = read(Path(root) / "ppi5k" / "test.tsv.gz")
    seen = Counter(row[:3] for row in rows(train))
    assert len(train) == 230_929
    assert train.repeated == len(train) - len(seen)
    facts = audit(train, {"test": test})
    assert facts.repeated_triples == sum(count > 1 for count in seen.values()) == 15_089
    assert facts.leakage["test"].same_triple == sum(row[:3] in seen for row in rows(test)) == 2_971
    nations = Path(root) / "nl27k"
    aligned = read(nations / "test.tsv.gz").align(read(nations / "train.tsv.gz"))
    assert aligned.unseen.rows == 8
