"""Text: graphs, numbers of entities, weights of relations and questions, each against a reader of a few lines."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from focuse.data.attributes import read_attributes
from focuse.data.graph import Graph
from focuse.data.readers import first_lines, read
from focuse.data.roles import Asked, Roles, TableSample, relation_name
from focuse.data.sniffer import TableLayout, detect_layout
from fuzzing.guard import WrongError

Call = Callable[[bytes], object]
Row = tuple[Any, ...]
# How a file is asked to be read, chosen by a case's first byte.
WAYS: list[dict[str, Any]] = [
    {},
    {"delimiter": "\t"},
    {"delimiter": ","},
    {"header": False},
    {"header": True},
    {"columns": [1, 2, 3, 4]},
    {"columns": [3, 1, 2]},
    {"columns": ["head", "relation", "tail", "weight"]},
    {"weight_columns": [4, 5]},
    {"columns": [1, 2, 3], "weight_columns": ["w", "v"]},
    {"delimiter": " "},
    {"delimiter": ";", "header": True},
    {"head": 1, "tail": 2, "weight": 3},
    {"head": "from", "tail": "to", "relation": "none", "relation_name": "own"},
    {"same_ids": False},
    {"missing_weight": "drop"},
    {"missing_weight": 0.25},
]
TSV = b'a\tr\tb\t0.5\nb\tr s\t"c"\t-2\n=d\tr\ta\t1e3\n'
CSV = b'head,relation,tail,weight\na,r,b,0.5\n"b, c",r,"d ""e""\nf",1e-3\n\na,s,c,3\n'
MANY = b"head\trelation\ttail\tw\tv\na\tr\tb\t1\t\nb\tr\tc\tnan\t2.5\n"
SEEDS = [
    bytes([0]) + TSV,
    bytes([1]) + TSV,
    bytes([0]) + CSV,
    bytes([2]) + CSV,
    bytes([4]) + CSV,
    bytes([7]) + CSV,
    bytes([9]) + MANY,
    bytes([8]) + b"a\tr\tb\t1\t2\nb\tr\tc\t3\t4\n",
    bytes([3]) + b"a r b 1\nb r c 2\n",
    bytes([0]) + b"\xef\xbb\xbfa;r;b;1\r\nc;r;d;2\r\n",
    bytes([0]) + b"a|r|b\nc|r|d\n",
    bytes([5]) + b"x\ty\tz\t1\textra\np\tq\tr\t2\tmore\n",
    bytes([0]) + b"protein1 protein2 combined_score\n9.Q1 9.Q2 292\n9.Q2 9.Q3 150\n",
    bytes([0]) + b"userID\tartistID\tweight\n2\t51\t13883\n2\t52\t11690\n51\t2\t7\n",
    bytes([14]) + b"1,2,0.5\n2,1,0.25\n",
    bytes([0]) + b"% sym weighted\n% 3 3 3\n1 2 4 1082008561\n2 3 5 1082008562\n3 1 1 1082008563\n",
    bytes([0]) + b"# Nodes\n# FromNodeId\tToNodeId\n1\t2\n2\t3\n",
    bytes([0]) + b"1::1193::5::978300760\n1::661::3::978302109\n2::1357::5::978298709\n",
    bytes([0]) + b"von;nach;Gewicht\na;b;0,25\nc;d;1,5\n",
    bytes([0]) + b"3\n0 1 2\n1 2 0\n2 0 1\n",
    bytes([0]) + b"a   b   0.5\nlong  c  0.25\n",
    bytes([0]) + b"0.5\ta\tb\n0.25\tc\td\n",
    bytes([0]) + b'"","from","to","weight"\n"1","a","b",0.5\n"2","c","d",0.25\n',
    bytes([0]) + b'"from" "to" "weight"\n"1" "a" "b" 0.5\n"2" "c" "d" 0.25\n',
    bytes([0]) + b"CUE, TARGET, FSG\na, b, .5\nc, d, ?\n",
    bytes([15]) + b"CUE, TARGET, FSG\na, b, .5\nc, d, ?\n",
    bytes([16]) + b"from,to,kg\na,b,1\nc,d,NA\n",
    bytes([13]) + b"from,to,kg\na,b,1\nc,d,2\n",
    bytes([0]) + b":START_ID,:END_ID,:TYPE,score:float\n1,2,A,0.5\n2,3,B,0.25\n",
    bytes([0]) + b'/a/[/r/IsA/,/c/a/,/c/b/]\t/r/IsA\t/c/a\t/c/b\t{"dataset": "/d/x", "weight": 2.0}\n',
]


def rows_of(graph: Graph) -> list[Row]:
    """Edges by their names."""
    entities, relations = list(graph.entities), list(graph.relations)
    numbers = graph.weight[:, None] if graph.columns is None else graph.columns.values
    ends = zip(graph.head.tolist(), graph.relation.tolist(), graph.tail.tolist(), numbers.tolist(), strict=True)
    return [(entities[h], relations[r], entities[t], *values) for h, r, t, values in ends]


def compare(found: Sequence[Row], expected: Sequence[Row]) -> None:
    """Raise where rows differ; a missing number equals a missing number."""
    if len(found) != len(expected):
        raise WrongError(f"{len(found)} rows read, the file has {len(expected)}")
    for place, (one, other) in enumerate(zip(found, expected, strict=True)):
        if one[:3] != other[:3] or len(one) != len(other) or not all(map(same, one[3:], other[3:])):
            raise WrongError(f"row {place} is {one!r:.200}, the file says {other!r:.200}")


def same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def number(field: str) -> float:
    """A number by Python's rules; empty and the usual marks are missing."""
    missing = field.strip(" \t") in ("", "?", "NA", "N/A", "null", "NULL", "None", "none", "\\N", "-", ".")
    return math.nan if missing else float(field)


def lines_of(text: str, delimiter: str) -> list[list[str]]:
    """Rows of fields. TSV has no quotes, so that a split does; others are CSV."""
    if delimiter == "\t":
        return [line.split("\t") for line in re.split(r"\r\n|\r|\n", text) if line]
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]


def text_rows(data: bytes, path: Path, way: dict[str, Any], notes: Sequence[str]) -> list[Row]:
    """What a text says under the roles that focuse states: cells are cut and named here, without its code."""
    asked = Asked(
        **{name: value for name, value in way.items() if name not in ("delimiter", "header", "missing_weight")}
    )
    given = way.get("delimiter"), way.get("header"), asked, way.get("missing_weight")
    layout, roles, sample = detect_layout(first_lines(path), str(path), *given)
    check_statement(layout, roles, sample, way, " ".join(notes))
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")  # columns left alone may hold anything
    lines = list(io.StringIO(text, newline=""))[layout.header_lines :]
    if layout.colons:
        lines = [line.replace("::", "\t") for line in lines]
    if layout.blanks_repeat:
        lines = [re.sub(" *(\r?\n|\r)", r"\1", re.sub(" +", " ", line.lstrip(" "))) for line in lines]
    mark = None if layout.quoted else "\t"
    cut = csv.reader(io.StringIO("".join(lines), newline=""), delimiter=layout.delimiter) if mark is None else None
    table = lines_of("".join(lines), "\t") if cut is None else [row for row in cut if row]
    name = relation_name(sample, roles, asked)
    rows: list[Row] = []
    for row in table:
        if len(row) != layout.width:
            raise WrongError(f"{len(row)} columns instead of {layout.width} were accepted")
        cells = [cell.strip(" ") for cell in row] if layout.blanks_follow else row
        head, tail = cells[roles.head], cells[roles.tail]
        if roles.kinds is not None:
            head, tail = f"{roles.kinds[0]} {head}", f"{roles.kinds[1]} {tail}"
        texts = [cells[place] for place in roles.weights]
        if layout.decimal_comma:
            texts = [each.replace(",", ".") for each in texts]
        numbers = [json_weight(each) if roles.json else number(each) for each in texts]
        if len(numbers) == 1 and math.isnan(numbers[0]):
            if way.get("missing_weight") == "drop":
                continue
            numbers = [way["missing_weight"]]
        relation = name if roles.relation is None else cells[roles.relation]
        rows.append((head, relation, tail, *(numbers or [1.0])))
    return rows


def json_weight(text: str) -> float:
    """The weight of a JSON object, whose other parts may be damaged."""
    try:
        return float(json.loads(text)["weight"])
    except json.JSONDecodeError:
        return float(text.rpartition(":")[2].rstrip("} "))


def check_statement(layout: TableLayout, roles: Roles, sample: TableSample, way: dict[str, Any], notes: str) -> None:
    """Raise if a table is read in another way than column by column, and the notes do not say so."""
    named = {"columns", "head", "tail"} & way.keys()
    order = (*roles.names, *roles.weights)
    if (
        roles.relation is None
        and not named
        and repr(relation_name(sample, roles, Asked(relation_name=way.get("relation_name")))) not in notes
    ):
        raise WrongError("no note on the relation of all edges")
    if (
        not sample.header
        and not named
        and order != tuple(range(len(sample.columns)))
        and "read columns as" not in notes
    ):
        raise WrongError("no note on columns in another order, or unused")
    if roles.kinds is not None and "same_ids" not in way and "kept apart" not in notes:
        raise WrongError("no note on ids that are kept apart")
    if layout.decimal_comma and roles.weights and "decimal points" not in notes:
        raise WrongError("no note on decimal commas")


def texts(folder: Path) -> tuple[Call, list[bytes]]:
    path = folder / "graph.txt"

    def call(data: bytes) -> None:
        way, data = WAYS[(data[0] if data else 0) % len(WAYS)], data[1:]
        path.write_bytes(data)
        graph = read(path, **way)
        compare(rows_of(graph), text_rows(data, path, way, graph.notes))

    return call, SEEDS


def packed(folder: Path) -> tuple[Call, list[bytes]]:
    """Compressed text: the packed bytes are edited, or (by the first byte) the text inside."""
    path = folder / "graph.packed"

    def pack(data: bytes) -> bytes:
        kind = (data[0] if data else 0) % 3
        return data[1:] if kind == 0 else gzip.compress(data[1:], 1) if kind == 1 else zstd(data[1:])

    def call(data: bytes) -> None:
        whole = pack(data)
        path.write_bytes(whole)
        graph = read(path)
        with pa.input_stream(pa.py_buffer(whole), compression="gzip" if whole[:2] == b"\x1f\x8b" else "zstd") as stream:
            inside = stream.read() if whole[:4] == b"\x28\xb5\x2f\xfd" or whole[:2] == b"\x1f\x8b" else whole
        compare(rows_of(graph), text_rows(inside, path, {}, graph.notes))

    seeds = [b"\x00" + gzip.compress(TSV, mtime=0), b"\x00" + zstd(TSV), b"\x01" + TSV, b"\x02" + CSV, b"\x00" + TSV]
    return call, [*seeds, b"\x00" + gzip.compress(TSV, mtime=0) + gzip.compress(TSV, mtime=0)]


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True)) if data else b"\x28\xb5\x2f\xfd"


def numbers(folder: Path) -> tuple[Call, list[bytes]]:
    """Numbers of entities: rows of entity, attribute and value."""
    path = folder / "numbers.txt"

    def call(data: bytes) -> None:
        path.write_bytes(data)
        found = read_attributes(path)
        text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
        # Every value comes from some line, and no line is lost: which columns are meant is not judged here.
        fields = {field for delimiter in "\t,;| " for row in lines_of(text, delimiter) for field in row}
        odd = ({*found.entity.to_pylist()} | {*found.attribute.to_pylist()}) - fields
        if odd:
            raise WrongError(f"{min(odd)!r:.80} stands in no field")
        known = {value for field in fields if (value := _maybe(field)) is not None}
        if not {value for value in found.value.tolist() if not math.isnan(value)} <= known:
            raise WrongError("a value that stands nowhere")
        if np.isinf(found.value).any():
            raise WrongError("a value that is not finite")

    seeds = [
        b"entity\tattribute\tvalue\na\tage\t3\nb\tage\t\nb\tsize\t1.5e3\n",
        b"a,age,3\nb,age,nan\n",
        b'"x, y";age;3\r\nb;"a ""q""";-7\r\n',
    ]
    return call, seeds


def _maybe(field: str) -> float | None:
    try:
        return float(field)
    except ValueError:
        return None


def relation_weights(folder: Path) -> tuple[Call, list[bytes]]:
    """One weight a relation, of a two-column file."""
    path, graph = folder / "weights.txt", read([("a", "r", "b"), ("b", "s", "c")])

    def call(data: bytes) -> None:
        path.write_bytes(data)
        found = read(graph, relation_weights=path)
        text = data.decode("utf-8").removeprefix("\ufeff")
        for name, weight in zip("rs", found.weight.tolist(), strict=True):
            own = [line for line in re.split(r"\r\n|\r|\n", text) if re.match(rf'\s*"?{name}"?[\s,;]', line)]
            if not any(_maybe(re.split(r"[\t,; ]", line.strip())[-1]) == weight for line in own):
                raise WrongError(f"{name} weighs {weight}, which no line says")

    return call, [b"r\t1\ns\t2.5\n", b"relation,weight\nr,1\ns,-2\n", b'"r";1\n"s";3e2\n', b"r 1\ns 2\n"]


def questions(folder: Path) -> tuple[Call, list[bytes]]:
    """Questions in a file: triples with one part left out."""
    from focuse.inference.predict import read_queries

    path, graph = folder / "queries.txt", read([("a", "r", "b", 1), ("b", "r", "c d", 2), ('"x"', "s", "?", 1)])

    def call(data: bytes) -> None:
        path.write_bytes(data)
        found = read_queries(path, graph)
        if not found.shape[1] or max(found[0].max(), found[2].max()) >= len(graph.entities):
            raise WrongError("an id that is none")

    return call, [b"a\tr\t?\nb\tr\t\n", b"head,relation,tail\na,r,\n", b"?;r;c d\n", b'"x"\ts\t?\n']
