"""Parquet, RDF, GraphML, data bases and kept graphs."""

from __future__ import annotations

import io
import sqlite3
import struct
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.parsers import expat

import pyarrow as pa
import pyarrow.parquet as pq

from focuse.data.graph_cache import HEADER, load, store
from focuse.data.readers import is_url, read
from focuse.errors import FocuseError
from focuse.integrations.sql import parse_url
from fuzzing.guard import WrongError
from fuzzing.text import Row, compare, rows_of

Call = Callable[[bytes], object]
ROWS = [("a", "r", "b", 0.5), ("b c", "r", 'd "e"', -2.0), ("é", "s", "a", 1e3)]
HOSTILE = [("=1+1", "<r>", "../x", 1.0), ("a&b", "r", "\u202ex", 2.0), ("http://e.org/a", "r", "_:b", 3.0)]
QUERIES = [
    b"SELECT * FROM edges",
    b"SELECT head, relation, tail, weight FROM edges WHERE weight > 0 LIMIT 2",
    b"SELECT head, relation, tail FROM edges; DROP TABLE edges",
    b"ATTACH DATABASE 'other.db' AS x",
    b"PRAGMA table_info(edges)",
    b"SELECT 'a', group_concat(relation), max(tail), sum(weight) FROM edges GROUP BY head HAVING count(*) > 0",
    b"SELECT * FROM edges UNION SELECT name, type, sql, rootpage FROM sqlite_master",
]


def parquet(folder: Path) -> tuple[Call, list[bytes]]:
    path = folder / "graph.parquet"

    def call(data: bytes) -> None:
        path.write_bytes(data)
        graph = read(path, cache=False)
        if data[:4] != b"PAR1":  # the name of a file means nothing
            return
        file = pq.ParquetFile(io.BytesIO(data))
        plain = [field.name for field in file.schema_arrow if not pa.types.is_nested(field.type)]  # others are not read
        table = file.read(columns=plain)
        if table.column_names == ["head", "relation", "tail", "weight"] and all(
            pa.types.is_string(table.schema.field(place).type) for place in range(3)
        ):
            rows = [tuple(row[name] for name in table.column_names) for row in table.to_pylist()]
            compare(rows_of(graph), [(*row[:3], float(row[3])) for row in rows])

    return call, [written(folder, ".parquet"), written(folder, ".parquet", HOSTILE), *_odd_tables()]


def _odd_tables() -> list[bytes]:
    """Columns of other kinds, dictionaries, nulls, other compressions."""
    names = pa.array(["a", "b", "c"]).dictionary_encode()
    tables = [
        pa.table({"head": names, "relation": names, "tail": names, "weight": pa.array([1, 2, 3])}),
        pa.table({"head": [1, 2], "relation": ["r", "r"], "tail": [3, 4], "weight": ["1", "2.5"]}),
        pa.table({"h": ["a"], "r": ["r"], "t": ["b"], "x": [[1, 2]]}),
        pa.table({"head": ["a"], "relation": ["r"], "tail": ["b"], "weight": pa.array([None], pa.float64())}),
    ]
    found = []
    for table, way in zip(tables, ("none", "snappy", "gzip", "zstd"), strict=True):
        stream = io.BytesIO()
        pq.write_table(table, stream, compression=way)
        found.append(stream.getvalue())
    return found


def written(folder: Path, suffix: str, rows: list[Row] | None = None) -> bytes:
    """A small graph as focuse writes it."""
    path = folder / f"seed{suffix}"
    read(ROWS if rows is None else rows).write(path)
    return path.read_bytes()


RDF = (".nt", ".nq", ".ttl", ".trig", ".n3", ".rdf", ".jsonld")
NOTED = b"""<urn:a> <urn:r> <urn:b> .
<< <urn:a> <urn:r> <urn:b> >> <urn:w> "0.5"^^<http://www.w3.org/2001/XMLSchema#double> .
"""
TURTLE = b"""@prefix e: <http://e.org/> . @base <http://e.org/> .
e:a e:r e:b {| e:weight 0.5 ; e:year 1999 |} , [ e:s "x"@en ] .
[] a <http://www.w3.org/1999/02/22-rdf-syntax-ns#Statement> ; e:weight 1.0e3 .
"""
XML = b"""<?xml version="1.0"?><!DOCTYPE rdf [<!ENTITY e "http://e.org/">]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e.org/">
<rdf:Description rdf:about="&e;a"><e:r rdf:resource="http://e.org/b"/><e:n>5</e:n></rdf:Description></rdf:RDF>"""
JSON = b'{"@context": {"r": {"@id": "http://e.org/r", "@type": "@id"}}, "@id": "http://e.org/a", "r": "http://e.org/b"}'


def rdf(folder: Path) -> tuple[Call, list[bytes]]:
    """All seven forms of RDF; the first byte says which and how."""
    import pyoxigraph

    paths = [folder / f"graph{suffix}" for suffix in RDF]

    def call(data: bytes) -> None:
        way, data = data[0] if data else 0, data[1:]
        path = paths[way % len(paths)]
        path.write_bytes(data)
        keep = way & 8 > 0
        graph = read(path, cache=False, missing_weight=1.0, literals="keep" if keep else "skip")
        # Every name is a term of the file: what focuse minted or shortened is not asked for here.
        text = data[3:] if data.startswith(b"\xef\xbb\xbf") else data
        kind = {".nt": "TURTLE", ".rdf": "RDF_XML", ".nq": "N_QUADS", ".jsonld": "JSON_LD"}.get(path.suffix)
        kind = kind or path.suffix[1:].upper().replace("TTL", "TURTLE")
        found = list(pyoxigraph.parse(text, getattr(pyoxigraph.RdfFormat, kind)))
        facts = {
            (q.subject.value, q.predicate.value, q.object.value)
            for q in found
            if all(isinstance(term, pyoxigraph.NamedNode) for term in (q.subject, q.object))
            and not q.predicate.value.startswith("http://www.w3.org/1999/02/22-rdf")
        }
        if len(found) == len(facts):  # nothing but plain facts
            from focuse.integrations.rdf import from_iri

            expected = {tuple(map(from_iri, row)) for row in facts}
            if {row[:3] for row in rows_of(graph)} != expected:
                raise WrongError(f"{len(graph)} facts read, the file has {len(expected)}")

    seeds = [bytes([place]) + written(folder, suffix) for place, suffix in enumerate(RDF[:4])]
    seeds += [bytes([0]) + NOTED, bytes([2]) + TURTLE, bytes([10]) + TURTLE, bytes([4]) + TURTLE, bytes([5]) + XML]
    seeds += [
        bytes([6]) + JSON,
        bytes([2]) + written(folder, ".ttl", HOSTILE),
        bytes([0]) + b"<urn:a> <urn:r> <urn:b> .",
    ]
    return call, [*seeds, bytes([1]) + b"<urn:a> <urn:r> <urn:b> <urn:g> .\n_:x <urn:r> <urn:c> .\n"]


def graphml(folder: Path) -> tuple[Call, list[bytes]]:
    path = folder / "graph.graphml"
    extra = b"""<graphml><key id="k" for="edge" attr.name="weight" attr.type="double"><default>1</default></key>
<graph edgedefault="undirected"><node id="a"/><edge source="a" target="b"><data key="k">2</data></edge>
<edge source="a" target="c"/></graph></graphml>"""
    laughs = b'<!DOCTYPE g [<!ENTITY a "xx"><!ENTITY b "&a;&a;">]><graphml><graph><edge source="&b;" target="b"/>'

    def call(data: bytes) -> None:
        path.write_bytes(data)
        graph = read(path, cache=False)
        ends: list[tuple[str | None, str | None]] = []

        def begun(name: str, given: dict[str, str]) -> None:
            if name.rpartition(":")[2] == "edge":
                ends.append((given.get("source"), given.get("target")))

        parser = expat.ParserCreate()  # without a tree, without names of name spaces
        parser.StartElementHandler = begun
        parser.Parse(data, True)
        if [(row[0], row[2]) for row in rows_of(graph)] != ends:
            raise WrongError(f"{len(graph)} edges, the file has {len(ends)}")

    seeds = [written(folder, ".graphml"), written(folder, ".graphml", HOSTILE), extra]
    return call, [*seeds, laughs + b"</graph></graphml>"]


def _data_base(folder: Path) -> bytes:
    path = folder / "seed.db"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("CREATE TABLE edges (head, relation, tail, weight)")
        connection.executemany("INSERT INTO edges VALUES (?, ?, ?, ?)", [*ROWS, *HOSTILE])
        connection.commit()
    return path.read_bytes()


def sqlite(folder: Path) -> tuple[Call, list[bytes]]:
    """A data base whose bytes are edited."""
    path = folder / "graph.db"
    source, query = f"sqlite:///{path}", "SELECT head, relation, tail, weight FROM edges LIMIT 50"

    def call(data: bytes) -> None:
        path.write_bytes(data)
        graph = read(source, sql=query)
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            rows = connection.execute(query).fetchall()
        if all(isinstance(name, str) for row in rows for name in row[:3]):
            compare(rows_of(graph), [(*row[:3], float(row[3])) for row in rows])

    return call, [_data_base(folder)]


def queries(folder: Path) -> tuple[Call, list[bytes]]:
    """What a user may write as a query; no query changes the data base or makes a file."""
    path = folder / "fixed.db"
    path.write_bytes(_data_base(folder))
    whole = path.read_bytes()
    (folder / "seed.db").unlink()
    before = sorted(each.name for each in folder.iterdir())

    def call(data: bytes) -> None:
        try:
            read(f"sqlite:///{path}", sql=data.decode("utf-8", "replace"))
        finally:
            if path.read_bytes() != whole or sorted(each.name for each in folder.iterdir()) != before:
                raise WrongError("a query wrote")

    return call, QUERIES


def addresses(folder: Path) -> tuple[Call, list[bytes]]:
    """Connection strings: a password is shown nowhere. Nothing is connected to."""

    def call(data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        if not is_url(text):
            return
        source = parse_url(text)
        secret = "s3cr3t"
        if f":{secret}@" in text and f":{secret}" in source.shown:
            raise WrongError("a password is shown")

    return call, [
        b"postgresql://ann:s3cr3t@host:5432/db?sslmode=require",
        b"sqlite:///graph.db?sql=SELECT%201",
        b"duckdb:////x/y.db",
        b"postgres://a:s3cr3t@h/d&password=s3cr3t",
        b"mysql://u:s3cr3t@h/x",
    ]


def duckdb(folder: Path) -> tuple[Call, list[bytes]]:
    """Queries to a DuckDB data base; its bytes are the library's own matter."""
    import duckdb

    path = folder / "graph.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE edges (head TEXT, relation TEXT, tail TEXT, weight DOUBLE)")
        connection.executemany("INSERT INTO edges VALUES (?, ?, ?, ?)", ROWS)
    before = sorted(each.name for each in folder.iterdir())

    def call(data: bytes) -> None:
        try:
            read(f"duckdb:///{path}", sql=data.decode("utf-8", "replace"))
        finally:
            if sorted(each.name for each in folder.iterdir()) != before:
                raise WrongError("a query wrote")

    copy = f"COPY edges TO '{folder / 'out.csv'}'".encode()
    return call, [*QUERIES, copy, b"SELECT * FROM read_text('/etc/hostname')"]


def kept(folder: Path) -> tuple[Call, list[bytes]]:
    """Graphs in the cache; by the first byte with the checksum mended, so that what it hides is met."""
    path = folder / "kept.graph"
    graph = read(ROWS)
    several = read([("a", "r", "b", 1.0, 2.0), ("b", "r", "c", 3.0, None)])
    seeds = []
    for each in (graph, several):
        store(each, path, 1 << 30)
        seeds += [b"\x00" + path.read_bytes(), b"\x01" + path.read_bytes()]

    def call(data: bytes) -> None:
        whole = data[1:]
        if data[:1] == b"\x01" and len(whole) >= HEADER.size:
            whole = _mended(whole)
        path.unlink(missing_ok=True)  # an older one may still be mapped
        path.write_bytes(whole)
        found = load(path)
        if found is None:
            raise FocuseError("not a kept graph")
        rows_of(found)

    return call, seeds


def _mended(whole: bytes) -> bytes:
    from focuse.data import graph_cache as cache

    _, *lengths, weighted, _ = HEADER.unpack_from(whole)
    places, size = cache._array_layout(lengths)
    if size > len(whole):
        return whole
    total = zlib.crc32(repr((*lengths, weighted)).encode())
    for kind, count, place in places:
        total = zlib.crc32(whole[place : place + count * int(struct.calcsize(_code(kind)))], total)
    return whole[: HEADER.size - 8] + struct.pack("<Q", total) + whole[HEADER.size :]


def _code(kind: Any) -> str:
    return {"float64": "d", "int32": "i", "uint8": "B"}[kind.__name__]
