"""Tables whose reading follows from what several columns share, and those that are refused with every reading.

Each is a table that a tool or publisher writes in this form; the expected roles are those that its form is documented
to have.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.data.splits import splits_from_graphs
from focuse.errors import FocuseError

RANDOM = np.random.default_rng(0)
ROWS = 400
NODES = (RANDOM.zipf(1.4, (2, 4 * ROWS)) - 1) % 120
ENDS = [(int(one), int(two)) for one, two in NODES.T if one != two]
PAIRS = list(dict.fromkeys(ENDS))[:ROWS]
KINDS = [int(kind) for kind in RANDOM.zipf(1.5, ROWS) % 45]
TRIPLES = list(dict.fromkeys((one, kind, two) for (one, two), kind in zip(ENDS, KINDS * 4, strict=False)))[:ROWS]
COUNTS = [int(count) for count in RANDOM.integers(2, 90, ROWS)]


def lines(row: Callable[[int, int, int], str], header: str = "") -> str:
    return header + "".join(f"{row(at, one, two)}\n" for at, (one, two) in enumerate(PAIRS))


def write(folder: Path, text: str, name: str = "table.csv") -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def first(graph: Graph) -> tuple[Any, ...]:
    return tuple(graph.to_arrow().slice(0, 1).to_pylist()[0].values())


A, B = PAIRS[0]
READ = {
    "ids of head, relation and tail (UMLS, FB15k-237)": (
        "".join(f"{head}\t{relation}\t{tail}\n" for head, relation, tail in TRIPLES),
        (str(TRIPLES[0][0]), str(TRIPLES[0][1]), str(TRIPLES[0][2]), 1.0),
    ),
    "ids of two nodes and a count": (lines(lambda n, a, b: f"{a},{b},{COUNTS[n]}"), (str(A),
        "table", str(B), COUNTS[0])),
    "pandas.DataFrame(rows).to_csv(index=False)": (
        lines(lambda n, a, b: f"n {a},r,n {b},{COUNTS[n]}", "0,1,2,3\n"), (f"n {A}", "r", f"n {B}", COUNTS[0])
    ),
    "DataFrame.groupby(…).size().reset_index()": (
        lines(lambda n, a, b: f"n {a},n {b},{COUNTS[n]}", "referrer,page,0\n"), (f"n {A}", "table", f"n {B}", COUNTS[0])
    ),
    "polars without headings": (
        lines(lambda n, a, b: f"p {a},knows,q {b}", "column_1,column_2,column_3\n"), (f"p {A}", "knows", f"q {B}", 1.0)
    ),
    "uniq -c": (lines(lambda n, a, b: f"{COUNTS[n]} w{a} w{b}"), (f"w{A}", "table", f"w{B}", COUNTS[0])),
    "write.table of R, with tabs": (
        lines(lambda n, a, b: f'"{n + 1}"\t"N {a}"\t"N {b}"\t{COUNTS[n]}', '"from"\t"to"\t"weight"\n'),
        (f"N {A}", "table", f"N {B}", COUNTS[0]),
    ),
    "a clock time next to the number": (
        lines(lambda n, a, b: f"c {a},c {b},14:{n % 50 + 10},{COUNTS[n]}", "caller,callee,at,seconds\n"),
        (f"c {A}", "seconds", f"c {B}", COUNTS[0]),
    ),
    "stock codes of which some have letters": (
        lines(lambda n, a, b: f"{a + 12000},{b + 80000}{'A' * (b % 9 == 0)},{COUNTS[n]}",
        "CustomerID,StockCode,Quantity\n"),
        (str(A + 12000), "Quantity", f"{B + 80000}{'A' * (B % 9 == 0)}", COUNTS[0]),
    ),
    "suppliers and customers": (
        lines(lambda n, a, b: f"s {a},c {b},{'steel' if n % 3 else 'wood'},{COUNTS[n]}",
        "supplier,customer,product,value\n"),
        (f"s {A}", "wood", f"c {B}", COUNTS[0]),
    ),
    "a correlation and its p-value": (
        lines(lambda n, a, b: f"v{a},v{b},0.{COUNTS[n]},0.0{COUNTS[n]}", "var1,var2,cor,p\n"),
        (f"v{A}", "cor", f"v{B}", float(f"0.{COUNTS[0]}")),
    ),
    "blanks in names of a CSV file": (
        lines(lambda n, a, b: f"user {a},movie {b}"), (f"user {A}", "table", f"movie {B}", 1.0)
    ),
}  # fmt: skip
# A note says that these are the same entities, which their headings do not make clear.
ONE_KIND = [
    "ego,alter",
    "pre,post",
    "mentor,mentee",
    "PULocationID,DOLocationID",
    "bodyId_pre,bodyId_post",
    "user,friend",
]
REFUSED = {
    "times, then two nodes": (lines(lambda n, a, b: f"{20 * n}\t{a}\t{b}"), "--head 2 --tail 3 "),
    "ids, then days in order": (
        "".join(f"{h}\t{r}\t{t}\t{24 * (n // 9)}\n" for n, (h, r, t) in enumerate(TRIPLES)),
        "--head 1 --relation 2 --tail 3 --weight none",
    ),
    "a duration or a time": (
        lines(lambda n, a, b: f"{a},{b},{n % 14},{n % 4 + 1}", "station1,station2,line,time\n"), "which of 4 columns"
    ),
    "many columns with unknown headings": (
        lines(lambda n, a, b: f"{'fm'[n % 2]},P {a},P {b},{COUNTS[n]},{n % 2}",
        "sex,residence,workplace,employed,focus\n"),
        "--head residence --relation sex --tail workplace --weight employed",
    ),
    "side effects of pairs of drugs": (
        "".join(f"D{h},D{t},E{r},effect\n" for h, r, t in TRIPLES + [(h, r + 1, t) for h, r, t in TRIPLES])
        .join(["drug 1,drug 2,side effect,class\n", ""]), "which of 4 columns",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_tables_are_read_by_what_they_hold(name: str, tmp_path: Path) -> None:
    text, edge = READ[name]
    graph = read(write(tmp_path, text))
    assert first(graph) == edge
    assert len(graph) == ROWS


@pytest.mark.parametrize("headings", ONE_KIND)
def test_headings_of_two_entities_of_one_kind_keep_no_ids_apart(headings: str, tmp_path: Path) -> None:
    graph = read(write(tmp_path, lines(lambda n, a, b: f"{a},{b},{COUNTS[n]}", f"{headings},n\n")))
    assert first(graph)[::2] == (str(A), str(B))
    assert "equal numbers in both columns are the same entity" in graph.notes[0]


@pytest.mark.parametrize("headings", ["buyer,product", "u,i", "customer_id,article_id", "user,genre"])
def test_headings_of_different_kinds_keep_ids_apart(headings: str, tmp_path: Path) -> None:
    graph = read(write(tmp_path, lines(lambda n, a, b: f"{a},{b},{COUNTS[n]}", f"{headings},n\n")))
    assert first(graph)[0].partition(" ")[0] != first(graph)[2].partition(" ")[0]


@pytest.mark.parametrize("name", REFUSED)
def test_balanced_evidence_is_refused_with_commands(name: str, tmp_path: Path) -> None:
    text, words = REFUSED[name]
    with pytest.raises(FocuseError, match=r"which of|several ways") as error:
        read(write(tmp_path, text))
    assert words in str(error.value)


def test_columns_that_say_undirected_are_pointed_to(tmp_path: Path) -> None:
    text = lines(lambda n, a, b: f"a{a},a{b},Undirected,{COUNTS[n]}", "Source,Target,Type,Weight\n")
    assert "'Type' says that pairs are undirected, if so give --undirected" in read(write(tmp_path, text)).notes[0]


def test_a_small_test_file_keeps_ids_apart_as_train_does(tmp_path: Path) -> None:
    train = read(write(tmp_path, lines(lambda n, a, b: f"{a},{b},{COUNTS[n]}", "user,movie,stars\n")))
    test = read(write(tmp_path, "".join(f"{a},{b},3.5\n" for a, b in PAIRS[:9])), relation_name="stars")
    assert first(test)[0] == str(A)
    parts = splits_from_graphs(train, None, test)
    assert first(parts.test) == (f"user {A}", "stars", f"movie {B}", 3.5)
    assert parts.unseen_test.rows == 0


def test_aligned_columns_are_cut_alike_wherever_a_block_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, lines(lambda n, a, b: f"a{a}   b{b}  {COUNTS[n]}   "), "table.txt")
    whole = read(path).to_arrow()
    for size in (7, 64, 1001):
        monkeypatch.setattr("focuse.data.readers.BLOCK_BYTES", size)
        assert read(path).to_arrow() == whole
