"""Text: graphs, numbers of entities, weights of relations and questions, each against a reader of a few lines."""

from __future__ import annotations

import csv
import gzip
import io
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
from focuse.data.sniffer import detect_layout
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
    """A number by Python's rules; empty is missing."""
    return float(field) if field.strip(" \t") else math.nan


def lines_of(text: str, delimiter: str) -> list[list[str]]:
    """Rows of fields. TSV has no quotes, so that a split does; others are CSV."""
    if delimiter == "\t":
        return [line.split("\t") for line in re.split(r"\r\n|\r|\n", text) if line]
    return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]


def text_rows(data: bytes, path: Path, way: dict[str, Any]) -> list[Row]:
    """What a text says: which columns are meant is looked up as focuse does it, the rest is ours."""
    layout = detect_layout(first_lines(path), str(path), **way)
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")  # columns left alone may hold anything
    rest = "".join(list(io.StringIO(text, newline=""))[layout.header_lines :])
    rows = []
    for row in lines_of(rest, layout.delimiter):
        if len(row) != layout.width:
            raise WrongError(f"{len(row)} columns instead of {layout.width} were accepted")
        head, relation, tail, *numbers = (row[place] for place in layout.columns)
        rows.append((head, relation, tail, *(map(number, numbers) if numbers else [1.0])))
    return rows


def texts(folder: Path) -> tuple[Call, list[bytes]]:
    path = folder / "graph.txt"

    def call(data: bytes) -> None:
        way, data = WAYS[(data[0] if data else 0) % len(WAYS)], data[1:]
        path.write_bytes(data)
        graph = read(path, **way)
        compare(rows_of(graph), text_rows(data, path, way))

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
        compare(rows_of(graph), text_rows(inside, path, {}))

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
