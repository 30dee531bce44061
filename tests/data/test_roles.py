"""Which columns are head, relation, tail and weight: by headings, and by what the columns hold.

The tables have the layout that their tools or publishers write. Each is read again by the csv module with the columns
that the test states, so that a misread cell, header or weight fails.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from focuse.data.graph import Graph
from focuse.data.readers import read
from focuse.data.roles import Asked, ColumnSample, TableSample, choose_roles, kind_of, words_of
from focuse.errors import FocuseError

Cells = list[tuple[str, str, str, float]]


def rows(graph: Graph) -> Cells:
    table = graph.to_arrow().to_pydict()
    return list(zip(table["head"], table["relation"], table["tail"], table["weight"], strict=True))


def pairs(seed: int = 0, count: int = 200, nodes: int = 40) -> list[tuple[int, int]]:
    """Distinct pairs of two different numbers, where some numbers occur more often than others."""
    random, found = np.random.default_rng(seed), {}
    while len(found) < count:
        one, two = (int(number) for number in random.zipf(1.3, 2) % nodes)
        if one != two:
            found[one, two] = None
    return list(found)


PAIRS = pairs()
RANDOM = np.random.default_rng(1)
SCORES = [f"{score:.3f}" for score in RANDOM.beta(2, 3, len(PAIRS))]
COUNTS = [str(count) for count in RANDOM.integers(2, 90, len(PAIRS))]
FEW = [str(number) for number in RANDOM.integers(0, 6, len(PAIRS))]
TIMES = [str(978300760 + 37 * number) for number in range(len(PAIRS))]


def gene(number: int) -> str:
    return f"{'ABCDEFGH'[number % 8]}{'KLMNP'[number % 5]}X{number}"


def person(number: int) -> str:
    return f"{('Ann', 'Bob', 'Eve', 'Gus')[number % 4]} {'ABCDEFGHIJ'[number // 4]}."


@dataclass
class Case:
    """A table, the line of its first row, how to cut it, and the columns of head, relation, tail and weight."""

    name: str
    file: str
    lines: list[str]
    columns: tuple[int, int | None, int, int | None]
    delimiter: str = ","
    skip: int = 0
    relation: str = ""
    kinds: tuple[str, str] = ("", "")
    weight: Callable[[str], float] = float
    note: str = ""


def table(row: Callable[[int, int, int], Sequence[str]], delimiter: str) -> list[str]:
    return [delimiter.join(row(number, one, two)) for number, (one, two) in enumerate(PAIRS)]


def case(
    name: str,
    file: str,
    head: str,
    delimiter: str,
    row: Callable[[int, int, int], Sequence[str]],
    *columns: Any,
    **more: Any,
) -> Case:
    first = head.splitlines()
    return Case(name, file, first + table(row, delimiter), columns, delimiter, len(first), **more)


def concept_net(number: int, one: int, two: int) -> Sequence[str]:
    relation = ("/r/IsA", "/r/RelatedTo")[number % 2]
    head, tail = f"/c/en/w{one}", f"/c/en/w{two}"
    data = {"dataset": "/d/verbosity", "sources": [{"weight_of": 3}], "weight": int(COUNTS[number]) / 2}
    return f"/a/[{relation}/,{head}/,{tail}/]", relation, head, tail, json.dumps(data)


CASES = [
    case("STRING", "4932.links.txt", "protein1 protein2 combined_score", " ",
         lambda n, a, b: (f"4932.Y{a}", f"4932.Y{b}", COUNTS[n]), 0, None, 1, 2, relation="combined_score"),
    case("STRING, all channels", "links.full.txt", "protein1 protein2 neighborhood fusion coexpression combined_score",
         " ", lambda n, a, b: (f"9606.E{a}", f"9606.E{b}", "0", FEW[n], COUNTS[n], COUNTS[-n]), 0, None, 1, 5,
         relation="combined_score", note="not used: 'neighborhood', 'fusion', 'coexpression'"),
    case("play counts", "user_artists.dat", "userID\tartistID\tweight", "\t",
         lambda n, a, b: (str(a), str(b), COUNTS[n]), 0, None, 1, 2, relation="user_artists",
         kinds=("user ", "artist "), note="--same-ids merges them"),
    case("MovieLens", "ratings.csv", "userId,movieId,rating,timestamp", ",",
         lambda n, a, b: (str(a), str(b), f"{n % 10 / 2}", TIMES[n]), 0, None, 1, 2, relation="rating",
         kinds=("user ", "movie "), note="not used: 'timestamp'"),
    case("signed trust", "otc.csv", "FROM_NODE,TO_NODE,TRUST_INDEX,TIME", ",",
         lambda n, a, b: (str(a), str(b), str((-1, 1)[n % 2]), TIMES[n]), 0, None, 1, 2, relation="TRUST_INDEX",
         note="--separate-ids keeps them apart"),
    case("signed trust without a header", "soc.csv", "", ",",
         lambda n, a, b: (str(a), str(b), str(n % 21 - 10), TIMES[n] + ".5"), 0, None, 1, 2, relation="soc"),
    case("SNAP, comments above", "Wiki-Vote.txt", "# Directed graph\n# Nodes: 40 Edges: 200\n# FromNodeId\tToNodeId",
         "\t", lambda n, a, b: (str(a), str(b)), 0, None, 1, None, relation="Wiki-Vote", note="no weight"),
    case("KONECT", "out.moreno", "% asym posweighted\n% 200 40 40", " ",
         lambda n, a, b: (str(a), str(b), COUNTS[n], TIMES[n]), 0, None, 1, 2, relation="out.moreno"),
    case("ids and a weight", "net.txt", "", " ", lambda n, a, b: (str(a), str(b), COUNTS[n]), 0, None, 1, 2,
         relation="net", note="--head 1 --relation 2 --tail 3"),
    case("ids and a decimal weight", "net.tsv", "", "\t", lambda n, a, b: (str(a), str(b), SCORES[n]), 0, None, 1, 2,
         relation="net"),
    case("ids of head, relation and tail", "train.tsv", "", "\t", lambda n, a, b: (str(a), FEW[n], str(b)), 0, 1, 2,
         None, note="--head 1 --tail 2 --weight 3"),
    case("ids with a weight", "train.tsv", "", "\t", lambda n, a, b: (str(a), FEW[n], str(b), SCORES[n]), 0, 1, 2, 3),
    case("OpenKE", "train2id.txt", str(len(PAIRS)), " ", lambda n, a, b: (str(a), str(b), FEW[n]), 0, 2, 1, None,
         note="line 1 is the number of triples"),
    case("h, r, t and w as ids", "kg.csv", "h,r,t,w", ",", lambda n, a, b: (str(a), FEW[n], str(b), SCORES[n]), 0, 1,
         2, 3),
    case("KGTK", "kgtk.tsv", "id\tnode1\tlabel\tnode2\tweight", "\t",
         lambda n, a, b: (f"E{n}", f"Q{a}", f"P{FEW[n]}", f"Q{b}", SCORES[n]), 1, 2, 3, 4),
    case("Neo4j", "likes.csv", ":START_ID(Person),score:float,:END_ID(Movie),:TYPE", ",",
         lambda n, a, b: (f"p{a}", SCORES[n], f"m{b}", ("LIKES", "SAW")[n % 2]), 0, 3, 2, 1),
    case("Gephi", "edges.csv", "Source,Target,Type,Id,Label,timeset,Weight", ",",
         lambda n, a, b: (person(a), person(b), "Undirected", str(n), "", "", f"{n}.0"), 0, None, 1, 6,
         relation="related"),
    case("ConceptNet", "assertions.tsv", "", "\t", concept_net, 2, 1, 3, 4,
         weight=lambda text: json.loads(text)["weight"], note='"weight" in the JSON'),
    case("ratings without a header", "ratings.csv", "", ",", lambda n, a, b: (f"A{a}XZ", f"B00{b}", FEW[n], TIMES[n]),
         0, None, 1, 2, relation="ratings"),
    case("ratings cut by ::", "ratings.dat", "", "::", lambda n, a, b: (str(a), str(b), FEW[n], TIMES[n]), 0, None, 1,
         2, relation="ratings"),
    case("pandas, with its index", "frame.csv", ",source,target,weight", ",",
         lambda n, a, b: (str(n), gene(a), gene(b), SCORES[n]), 1, None, 2, 3, relation="frame"),
    case("R, with row names", "frame.txt", '"from" "to" "weight"', " ",
         lambda n, a, b: (f'"{n}"', f'"{gene(a)}"', f'"{gene(b)}"', SCORES[n]), 1, None, 2, 3, relation="frame"),
    case("headings that nobody knows", "worte.csv", "Wort;Nachbar;Haeufigkeit", ";",
         lambda n, a, b: (gene(a), person(b), COUNTS[n]), 0, None, 1, 2, relation="Haeufigkeit", note="--no-header"),
    case("decimal commas", "worte.csv", "von;nach;Gewicht", ";",
         lambda n, a, b: (gene(a), person(b), SCORES[n].replace(".", ",")), 0, None, 1, 2, relation="Gewicht",
         weight=lambda text: float(text.replace(",", ".")), note="commas in numbers are decimal points"),
    case("decimal commas without a header", "worte.txt", "", "\t",
         lambda n, a, b: (gene(a), person(b), SCORES[n].replace(".", ",")), 0, None, 1, 2, relation="worte",
         weight=lambda text: float(text.replace(",", "."))),
    case("two names of one kind", "similarity.csv", "Word 1,Word 2,Human (mean)", ",",
         lambda n, a, b: (person(a), gene(b), SCORES[n]), 0, None, 1, 2, relation="Human (mean)"),
    case("a weight in the first column", "counts.tsv", "", "\t", lambda n, a, b: (SCORES[n], gene(a), gene(b)), 1,
         None, 2, 0, relation="counts", note="head 2, tail 3, weight 1"),
    case("language model output", "triples.csv", "subject,relation,object,confidence,source_text", ",",
         lambda n, a, b: (person(a), "knows", person(b), SCORES[n], f'"{person(a)} met ""{n}"", he said"'), 0, 1, 2, 3),
    case("aligned by blanks", "net.txt", "", "   ", lambda n, a, b: (gene(a), gene(b), SCORES[n]), 0, None, 1, 2,
         relation="net"),
    case("text triples", "train.txt", "", "\t",
         lambda n, a, b: (f"/m/{a}", f"/people/{FEW[n]}", f"/m/{b}"), 0, 1, 2, None),
    case("text triples with a weight", "train.tsv", "", "\t",
         lambda n, a, b: (f"concept:{a}", f"concept:r{FEW[n]}", f"concept:{b}", SCORES[n]), 0, 1, 2, 3),
]  # fmt: skip


def expected_rows(case: Case) -> Cells:
    """The rows of a table, as the csv module reads them with the columns of the case."""
    head, relation, tail, weight = case.columns
    lines = [line.replace("::", "\t") if case.delimiter == "::" else line for line in case.lines[case.skip :]]
    mark = {"::": "\t", "   ": " "}.get(case.delimiter, case.delimiter)
    found = []
    for cells in csv.reader(lines, delimiter=mark, skipinitialspace=True, quotechar=None if mark == "\t" else '"',
                            quoting=csv.QUOTE_NONE if mark == "\t" else csv.QUOTE_MINIMAL):  # fmt: skip
        name = case.relation if relation is None else cells[relation]
        number = 1.0 if weight is None else case.weight(cells[weight])
        found.append((case.kinds[0] + cells[head], name, case.kinds[1] + cells[tail], number))
    return found


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_tables_of_many_tools_are_read_as_an_independent_reader_does(case: Case, end: str, tmp_path: Path) -> None:
    path = tmp_path / case.file
    path.write_text(end.join(case.lines) + end, encoding="utf-8", newline="")
    graph = read(path)
    assert rows(graph) == expected_rows(case)
    assert graph.weighted == (case.columns[3] is not None)
    assert case.note in " ".join(graph.notes)
    if case.columns[1] is None:  # the only relation was chosen here, which the user is told
        assert f"all edges have the relation {case.relation!r} (--relation-name)" in graph.notes[0]


@pytest.mark.parametrize("case", [case for case in CASES if case.columns[3] is not None and case.name != "ConceptNet"],
                         ids=lambda case: case.name)  # fmt: skip
def test_columns_by_number_read_the_same(case: Case, tmp_path: Path) -> None:
    path = tmp_path / case.file
    path.write_text("\n".join(case.lines) + "\n", encoding="utf-8")
    names = dict(zip(("head", "relation", "tail", "weight"), case.columns, strict=True))
    given = {name: index + 1 for name, index in names.items() if index is not None}
    extra = {} if case.columns[1] is not None else {"relation": "none", "relation_name": case.relation}
    assert rows(read(path, **given, **extra, same_ids=not case.kinds[0])) == expected_rows(case)


# ---- evidence -------------------------------------------------------------------------------------------------------


def sample(*columns: Sequence[str], headings: Sequence[str] = ()) -> TableSample:
    names = headings or [""] * len(columns)
    cells = [ColumnSample(name, list(column)) for name, column in zip(names, columns, strict=True)]
    return TableSample(cells, bool(headings), "f.tsv", ", line 1")


HEADS, TAILS = ([str(pair[side]) for pair in PAIRS] for side in (0, 1))


def test_balanced_evidence_is_refused_with_both_commands() -> None:
    with pytest.raises(FocuseError, match=r"can be read in several ways; choose one: .* or ") as error:
        choose_roles(sample(HEADS, TAILS, FEW), Asked())
    assert "focuse describe f.tsv --head 1 --relation 3 --tail 2" in str(error.value)
    assert "focuse describe f.tsv --head 1 --tail 2 --weight 3" in str(error.value)


def test_the_commands_of_a_refusal_are_both_accepted() -> None:
    columns = sample(HEADS, TAILS, FEW)
    triple = choose_roles(columns, Asked(head="1", relation="3", tail="2"))
    weighted = choose_roles(columns, Asked(head="1", tail="2", weight="3"))
    assert (triple.head, triple.relation, triple.tail, triple.weights) == (0, 2, 1, ())
    assert (weighted.head, weighted.relation, weighted.tail, weighted.weights) == (0, None, 1, (2,))


def test_names_above_a_number_and_a_text_are_not_taken_for_each_other() -> None:
    people, ages = [person(one) for one, _ in PAIRS], COUNTS
    with pytest.raises(FocuseError, match="several ways"):  # the tail may be a value, or the number a weight
        choose_roles(sample(people, [f"r{name}" for name in FEW], ages), Asked())


WIDE = {
    "bindings": (
        "drugbank_id\tentrez_gene\taffinity_nM\tn_pairs\tsources\tdrugbank_name\tapproved\tgene_symbol",
        lambda n, a, b: (f"DB{a:05}", str(500 + b), f"{n * 1.7:.2f}", FEW[n], "ChEMBL", person(a), "1", gene(b)),
        "--head drugbank_name --tail gene_symbol --weight affinity_nM",
    ),
    "interactions": (
        "#ID\tEntrez A\tEntrez B\tSymbol of A\tSymbol of B\tSystem\tScore",
        lambda n, a, b: (str(103 + n), str(600 + a), str(600 + b), gene(a), gene(b), "Two-hybrid", SCORES[n]),
        "--head 'Symbol of A' --tail 'Symbol of B' --weight Score",
    ),
    "diseases": (
        "",
        lambda n, a, b: (f"ENSP{a:07}", gene(a), f"DOID:{b:06}", f"Disease {person(b)}", "UniProt", "CURATED", FEW[n]),
        "--head 2 --tail 4 --weight 7",
    ),
    "flights": (
        "origin,destination,passengers,distance",
        lambda n, a, b: (gene(a), gene(b), COUNTS[n], COUNTS[-n]),
        "--head origin --tail destination --weight passengers",
    ),
}


@pytest.mark.parametrize("name", WIDE)
def test_a_wide_table_is_refused_with_a_command_that_reads_it(name: str, tmp_path: Path) -> None:
    heading, row, options = WIDE[name]
    path = tmp_path / f"{name}.tsv"
    path.write_text("\n".join([*heading.splitlines(), *table(row, "\t")]).replace(",", "\t") + "\n", encoding="utf-8")
    with pytest.raises(FocuseError, match="which of ") as error:
        read(path)
    assert f"focuse describe {path} {options}" in str(error.value)
    words = [word.strip("' ") for word in options.replace("--", "|--").split("|") if word]
    asked = {word.split()[0][2:]: word.partition(" ")[2].strip("'") for word in words}
    assert len(read(path, **asked)) == len(PAIRS)


def test_a_table_of_nodes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "movies.csv"
    path.write_text("movieId,title,genres\n" + "".join(f"{n},Film {n},Drama\n" for n in range(40)))
    with pytest.raises(FocuseError, match=r"which of 3 columns .* are head and tail"):
        read(path)
    path.write_text("movieId,title,genres\n" + "".join(f"m{n},Film {n},{n % 9}{n}\n" for n in range(60)))
    with pytest.raises(FocuseError, match="as in a table of nodes"):
        read(path)


@pytest.mark.parametrize(
    ("first", "says"),
    [
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 0.5\n", r"name that ends with \.mtx"),
        ('{"source": "a", "target": "b"}\n', r"JSON; give it a name that ends with \.json"),
        ('[\n{"source": "a"}]', "JSON"),
        ('[{"source": "a"}]', "JSON"),
        ('[["a", "b", 0.5]]', "JSON"),
        ("*Vertices 2\n1 a\n2 b\n*Arcs\n1 2 0.5\n", "networkx.read_pajek"),
        ('graph [\n  node [ id 0 label "a" ]\n]\n', "networkx.read_gml"),
        ("a b {'weight': 0.5}\nb c {'weight': 0.7}\n", "networkx.read_edgelist"),
        (",a,b,c\na,0,1,2\nb,1,0,3\nc,2,3,0\n", "an adjacency matrix"),
        ("0,1,2,0,1\n1,0,3,2,0\n2,3,0,1,1\n0,2,1,0,0\n1,0,1,0,0\n", "an adjacency matrix"),
    ],
)
def test_formats_of_other_kinds_are_refused_with_advice(first: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "other.txt"
    path.write_text(first)
    with pytest.raises(FocuseError, match=says):
        read(path)


# ---- ids of different kinds -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headings", "kinds"),
    [
        (("userID", "artistID"), ("user", "artist")),
        (("user_id", "item_id"), ("user", "item")),
        (("source_gene", "target_disease"), ("gene", "disease")),
        (("from_user", "to_user"), None),
        (("protein1", "protein2"), None),
        (("source", "target"), None),
        (("FROM_NODE", "TO_NODE"), None),
    ],
)
def test_numbers_below_headings_of_different_kinds_are_kept_apart(headings: Any, kinds: Any) -> None:
    columns = sample(HEADS, TAILS, SCORES, headings=(*headings, "weight"))
    assert choose_roles(columns, Asked()).kinds == kinds
    assert choose_roles(columns, Asked(same_ids=True)).kinds is None
    assert choose_roles(columns, Asked(same_ids=False)).kinds == (kinds or ("head", "tail"))
    note = choose_roles(columns, Asked()).note  # whichever is done, it is said
    assert ("kept apart" in note) == (kinds is not None)
    assert ("are the same entity" in note) == (kinds is None)


def test_names_that_are_text_are_never_prefixed() -> None:
    columns = sample([gene(int(head)) for head in HEADS], TAILS, SCORES, headings=("gene", "drug", "weight"))
    assert choose_roles(columns, Asked()).kinds is None


def test_users_and_items_without_headings_are_told_apart_by_chance_pairs() -> None:
    # Independent columns have self-loops as often as by chance, which a graph of one kind has not.
    random = np.random.default_rng(3)
    users, items = (list(map(str, random.integers(0, 30, 2000))) for _ in range(2))
    ratings = list(map(str, random.integers(1, 6, 2000)))
    assert choose_roles(sample(users, items, ratings), Asked()).kinds == ("head", "tail")
    same = [(one, two) for one, two in zip(users, items, strict=True) if one != two]
    loopless = sample(*(list(side) for side in zip(*same, strict=True)), ratings[: len(same)])
    assert choose_roles(loopless, Asked()).kinds is None


# ---- words of headings ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "words", "kind"),
    [
        ("FromNodeID", ("from", "node", "id"), ()),
        ("user-id", ("user", "id"), ("user",)),
        (":START_ID(Person)", ("start", "id"), ("person",)),
        ("weight:double", ("weight",), ("weight",)),
        ("Größe", ("größe",), ("größe",)),
        ("", (), ()),
    ],
)
def test_headings_are_compared_by_their_words(heading: str, words: tuple[str, ...], kind: tuple[str, ...]) -> None:
    assert words_of(heading) == words
    assert kind_of(heading) == kind


# ---- what the user asks for -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"columns": [1, 2], "head": 1}, "head has no effect with columns"),
        ({"weight": 3, "weight_columns": [3, 4]}, "weight has no effect with weight_columns"),
        ({"columns": [1]}, "1 given, expected"),
        ({"columns": "a,b"}, "give a list of columns"),
        ({"head": 1, "tail": 1}, "named twice"),
        ({"head": "nobody"}, "no column 'nobody'"),
        ({"weight": 9}, "no column 9; it has columns 1 to 3"),
    ],
)
def test_requests_that_contradict_each_other_are_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(FocuseError, match=says):
        choose_roles(sample(HEADS, TAILS, SCORES), Asked(**asked))


def test_a_column_called_none_can_be_named() -> None:
    columns = sample(HEADS, TAILS, SCORES, headings=("a", "b", "none"))
    assert choose_roles(columns, Asked(head="a", tail="b", weight="none")).weights == (2,)
    columns = sample(HEADS, TAILS, SCORES, headings=("a", "b", "c"))
    assert choose_roles(columns, Asked(head="a", tail="b", weight="none")).weights == ()


@settings(deadline=None)
@given(st.permutations(range(4)))
def test_roles_given_by_name_hold_in_any_order(order: list[int]) -> None:
    table = {"alpha": HEADS, "beta": FEW, "gamma": TAILS, "delta": SCORES}
    names = [list(table)[index] for index in order]
    columns = sample(*(table[name] for name in names), headings=names)
    asked = Asked(head="alpha", relation="beta", tail="gamma", weight="delta")
    found = choose_roles(columns, asked)
    chosen = found.head, found.relation, found.tail, *found.weights
    assert [names[index or 0] for index in chosen] == ["alpha", "beta", "gamma", "delta"]


# ---- what must not be misread ---------------------------------------------------------------------------------------


def written(tmp_path: Path, head: str, row: Callable[[int, int, int], Sequence[str]], mark: str = ",") -> Path:
    path = tmp_path / "table.csv"
    path.write_text("\n".join([*head.splitlines(), *table(row, mark)]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("head", ["customer,product,paid", "from,to,paid", ""])
@pytest.mark.parametrize("cell", ["{}%", "${}", "{} km", "<{}", "{}.50 €", "1'{}99", "{}:30", "−{}"])
def test_numbers_in_another_form_are_neither_names_nor_left_out(head: str, cell: str, tmp_path: Path) -> None:
    path = written(tmp_path, head, lambda n, a, b: (person(a), gene(b), cell.format(COUNTS[n])))
    with pytest.raises(FocuseError, match="is not a number that can be read; write numbers"):
        read(path)


@pytest.mark.parametrize(
    ("head", "row", "expected"),
    [  # a column of another kind is not taken for the relation or the tail
        ("protein1,protein2,species,score", lambda n, a, b: (gene(a), gene(b), "Homo sapiens", SCORES[n]), (0, 1, 3)),
        ("source,target,directed,weight", lambda n, a, b: (gene(a), gene(b), "True", SCORES[n]), (0, 1, 3)),
        ("user,item,day,plays", lambda n, a, b: (gene(a), gene(b), f"2021-03-{n % 28 + 1:02}", COUNTS[n]), (0, 1, 3)),
        ("occupation,skill,importance,level", lambda n, a, b: (gene(a), person(b), SCORES[n], COUNTS[n]), (0, 1, 2)),
        ("id,similar_id,score", lambda n, a, b: (str(a), str(b), SCORES[n]), (0, 1, 2)),
        ("emp_id,emp_name,project_id,hours", lambda n, a, b: (str(a), person(a), str(b), COUNTS[n]), None),
        ("subject,relation,object,score,source", lambda n, a, b: (gene(a), "is", gene(b), SCORES[n], "X"), (0, 2, 3)),
        ("Source,Target,Type,Start,End,Weight", lambda n, a, b: (gene(a), gene(b), "Directed", "1", "2", SCORES[n]),
         (0, 1, 5)),
        ("t,i,j", lambda n, a, b: (TIMES[n], str(a), str(b)), (1, 2, None)),
        ("src,dst,bytes", lambda n, a, b: (f"10.0.0.{a}", f"10.0.1.{b}", COUNTS[n]), (0, 1, 2)),
        ("var1,var2,r,p_value", lambda n, a, b: (gene(a), gene(b), SCORES[n], SCORES[-n]), (0, 1, 2)),
    ],
)  # fmt: skip
def test_columns_that_are_no_roles_are_left_out_and_named(head: str, row: Any, expected: Any, tmp_path: Path) -> None:
    path = written(tmp_path, head, row)
    if expected is None:
        with pytest.raises(FocuseError, match=r"which of|several ways"):
            read(path)
        return
    graph = read(path)
    cells = [row(number, one, two) for number, (one, two) in enumerate(PAIRS)]
    strip = [(triple[0].split(" ")[-1], triple[2].split(" ")[-1], triple[3]) for triple in rows(graph)]
    weight = expected[2]
    assert strip == [
        (
            each[expected[0]].split(" ")[-1],
            each[expected[1]].split(" ")[-1],
            1.0 if weight is None else float(each[weight]),
        )
        for each in cells
    ]
    assert graph.notes or len(expected) == len(head.split(","))


@pytest.mark.parametrize(
    ("rows_of", "says"),
    [
        (lambda n, a, b: (person(a), gene(b), ("agonist", "antagonist")[n % 2], SCORES[n]), "several ways"),
        (lambda n, a, b: (("IsA", "UsedFor")[n % 2], gene(a), person(b), SCORES[n]), "several ways"),
        (lambda n, a, b: (gene(a), gene(b), COUNTS[n], COUNTS[-n]), "several ways"),
        (lambda n, a, b: (gene(a), gene(b), str(2000 + n % 9)), "several ways"),
        (lambda n, a, b: (gene(a), f"r{FEW[n]}", gene(b), str(2000 + n % 9)), "several ways"),
        (lambda n, a, b: (gene(a), COUNTS[n], gene(b)), "several ways"),
        (lambda n, a, b: (person(a), f"{b}.01", COUNTS[n]), "several ways"),
        (lambda n, a, b: (f"({gene(a)}", "is", f"{gene(b)})"), "in parentheses"),
        (lambda n, a, b: (f"{a}.0", f"{b}.0", FEW[n]), "which of"),
    ],
)
def test_tables_without_headings_that_are_unclear_are_refused(rows_of: Any, says: str, tmp_path: Path) -> None:
    path = written(tmp_path, "", rows_of)
    with pytest.raises(FocuseError, match=says) as error:
        read(path)
    for command in str(error.value).partition("one: ")[2].split(" or "):  # each command that is shown reads the table
        words = command.split(" --")[1:]
        given = dict(word.split(" ", 1) for word in words)
        assert not given or len(read(path, **given)) == len(PAIRS)


@pytest.mark.parametrize("head", ["", "Autor;Koautor;Fachgebiet;Anzahl"])
def test_columns_that_share_their_names_are_head_and_tail(head: str, tmp_path: Path) -> None:
    fields = ("Physik", "Chemie", "Recht")
    last = written(tmp_path, head, lambda n, a, b: (gene(a), gene(b), fields[n % 3], COUNTS[n]), ";")
    expected = [(gene(a), fields[n % 3], gene(b), float(COUNTS[n])) for n, (a, b) in enumerate(PAIRS)]
    assert rows(read(last)) == expected
    assert "relation" in read(last).notes[0] or head
    first = written(tmp_path, "", lambda n, a, b: (fields[n % 3], gene(a), gene(b), SCORES[n]))
    assert [row[:3] for row in rows(read(first))] == [row[:3] for row in expected]
    assert "head 2, relation 1, tail 3" in read(first).notes[0]


def test_a_header_is_recognized_by_what_occurs_nowhere_else(tmp_path: Path) -> None:
    path = written(tmp_path, "Drug,Effect,Disease", lambda n, a, b: (gene(a), f"r{FEW[n]}", person(b)))
    assert len(read(path)) == len(PAIRS)
    assert "line 1 is the header (--no-header)" in read(path).notes[0]
    few = tmp_path / "few.csv"
    few.write_text("Drug,Disease\nPBX,Asthma\nPAX,Angina\n")
    assert len(read(few)) == 3  # two rows say nothing
    assert "line 1 is an edge (--header)" in read(few).notes[0]
    years = written(tmp_path, "exporter,importer,1990,1995", lambda n, a, b: (gene(a), gene(b), SCORES[n], COUNTS[n]))
    with pytest.raises(FocuseError, match="exporter, importer, 1990, 1995"):
        read(years)


def test_a_delimiter_at_the_end_of_lines_shifts_no_column(tmp_path: Path) -> None:
    expected = [(f"user {a}", f"item {b}", float(COUNTS[n])) for n, (a, b) in enumerate(PAIRS)]
    for head in ("user_id,item_id,rating", "user_id,item_id,rating,"):
        path = written(tmp_path, head, lambda n, a, b: (str(a), str(b), COUNTS[n], ""))
        assert [(row[0], row[2], row[3]) for row in rows(read(path))] == expected


def test_the_first_line_may_name_the_delimiter_or_the_kind_of_graph(tmp_path: Path) -> None:
    path = written(tmp_path, "sep=;\nvon;nach;Anzahl", lambda n, a, b: (gene(a), gene(b), COUNTS[n]), ";")
    assert [row[3] for row in rows(read(path))] == [float(count) for count in COUNTS]
    for kind, apart in (("bip", True), ("sym", False)):
        path = written(tmp_path, f"% {kind} weighted", lambda n, a, b: (str(a), str(b), COUNTS[n]), " ")
        graph = read(path)
        assert len(graph) == len(PAIRS)
        assert (rows(graph)[0][0] == f"head {PAIRS[0][0]}") == apart
        assert "as line 1 says" in graph.notes[0]


def test_a_line_with_the_size_of_a_matrix_is_refused(tmp_path: Path) -> None:
    size = max(max(pair) for pair in PAIRS)
    path = written(tmp_path, f"{size} {size} {len(PAIRS)}", lambda n, a, b: (str(a), str(b), COUNTS[n]), " ")
    with pytest.raises(FocuseError, match="number of lines that follow"):
        read(path)


def test_a_negative_or_missing_id_does_not_merge_users_and_items(tmp_path: Path) -> None:
    path = written(tmp_path, "user_id,item_id,rating", lambda n, a, b: ("-1" if n == 3 else str(a), str(b), FEW[n]))
    graph = read(path)
    assert rows(graph)[0][0] == f"user {PAIRS[0][0]}"
    assert "kept apart" in graph.notes[0]
    same = written(tmp_path, "user_id,friend_id,calls", lambda n, a, b: (str(a), str(b), FEW[n]))
    assert "are the same entity" in read(same).notes[0]
    like = written(tmp_path, "item_id,related_item_id,score", lambda n, a, b: (str(a), str(b), SCORES[n]))
    assert "are the same entity" in read(like).notes[0]


def test_frames_without_names_of_columns_and_rows_are_read_by_what_they_hold() -> None:
    pandas = pytest.importorskip("pandas")
    cells = [(a, b, float(score), float(count)) for (a, b), score, count in zip(PAIRS, SCORES, COUNTS, strict=True)]
    with pytest.raises(FocuseError, match="head='0', tail='1', weight='2'"):
        read(pandas.DataFrame(cells))
    for head, tail, weight in ((0, 1, 2), ("0", "1", "2")):
        graph = read(pandas.DataFrame(cells), head=head, tail=tail, weight=weight)
        assert [(row[0], row[2], row[3]) for row in rows(graph)] == [
            (str(a), str(b), score) for a, b, score, _ in cells
        ]
    timed = [(a, b, n % 5 + 1, int(TIMES[n])) for n, (a, b) in enumerate(PAIRS)]
    graph = read(timed)
    assert (len(graph.relations), graph.weight.tolist()) == (1, [float(row[2]) for row in timed])
    assert graph.notes


def test_names_that_may_be_missing_or_differ_in_blanks_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text("from,to,weight\nAnn ,NULL,1\nAnn,Bob,2\n")
    [note] = read(path).notes
    assert "'NULL' is read as the name of an entity" in note
    assert "'Ann ' and 'Ann' are different entities" in note
